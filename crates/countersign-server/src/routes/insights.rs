//! How people and rules get along, counted from a bounded window of the record.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::State;
use axum::routing;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::{EventFilter, Store, StoreError};
use countersign::wrapper::runs_programs;
use countersign::{HoldId, Time, ToolId, limits as core_limits};
use countersign_api::wire::{self, Tally, Timing, timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::auth::Overseer;
use crate::extract::Query;
use crate::json::Json;
use crate::limits;
use crate::problem::Answer;
use crate::table::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/insights", Overseer::ROLES, routing::get(read), "Counts holds over time, by rule and by tool.")
            .answers::<wire::Insights>("200")
            .query(&["hours"]),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    hours: Option<u32>,
}

async fn read(State(app): State<App>, _caller: Overseer, Query(query): Query<Window>) -> Answer<Json<wire::Insights>> {
    let hours = query.hours.unwrap_or(24).clamp(1, limits::INSIGHT_HOURS);
    let to = app.store().now().await?;
    let wanted = Time(to.0 - i64::from(hours) * 3_600_000_000);
    let (events, complete) = recent(&app, wanted).await?;
    let from = if complete { wanted } else { events.first().map_or(to, |event| event.at.max(wanted)) };
    let mut count = Count::new(from, to);
    for event in events.iter().filter(|event| event.at >= from) {
        count.add(event);
    }
    Ok(Json(count.finish(complete)))
}

/// The last events, oldest first, as far back as the window and the bound go; and whether the window was reached.
async fn recent(app: &App, from: Time) -> Answer<(Vec<Event>, bool)> {
    let end = app.tail.listen().from;
    Ok(last(&**app.store(), end, from, limits::INSIGHT_EVENTS).await?)
}

/// The last events of holds up to a place, not earlier than a moment, out of so many of all kinds at most.
///
/// How many events lie between two places is not known: on PostgreSQL a place names a transaction, and a busy one holds
/// many. So a stretch that turns out too long is left, and a shorter one, nearer to the end, is read instead.
async fn last(store: &dyn Store, end: Cursor, from: Time, most: usize) -> Result<(Vec<Event>, bool), StoreError> {
    let mut length = most as u64;
    loop {
        let begin = before(end, length);
        match stretch(store, begin, end, from, most).await? {
            Stretch::Whole(kept, reached) => return Ok((kept, reached || begin == Cursor::default())),
            Stretch::TooLong(at) => length = (at.major - begin.major).min(length * 3 / 4).max(1),
        }
    }
}

/// The place so many steps before another.
fn before(end: Cursor, length: u64) -> Cursor {
    match end.major {
        0 => Cursor { major: 0, minor: end.minor.saturating_sub(length) },
        major => Cursor { major: major.saturating_sub(length), minor: 0 },
    }
}

enum Stretch {
    /// Its events of holds, and whether it began before the moment.
    Whole(Vec<Event>, bool),
    /// There were too many to read on from here.
    TooLong(Cursor),
}

async fn stretch(
    store: &dyn Store,
    begin: Cursor,
    end: Cursor,
    from: Time,
    most: usize,
) -> Result<Stretch, StoreError> {
    let (mut cursor, mut read, mut reached, mut kept) = (begin, 0, false, Vec::new());
    // The last transaction alone cannot be cut shorter.
    let shortest = end.major.saturating_sub(begin.major) <= 1;
    while cursor < end {
        let filter = EventFilter { limit: Some(core_limits::PAGE_ROWS.min(most)), ..EventFilter::default() };
        let events = store.events(cursor, filter).await?;
        let Some(last) = events.last() else { break };
        cursor = last.cursor;
        read += events.len();
        reached |= events.first().is_some_and(|event| event.at < from);
        kept.extend(events.into_iter().filter(|event| event.at >= from && event.name.as_str().starts_with("hold.")));
        if read > most && cursor < end && !shortest {
            return Ok(Stretch::TooLong(cursor));
        }
    }
    Ok(Stretch::Whole(kept, reached))
}

/// A hold that was seen to open.
struct Open {
    at: Time,
    rules: Vec<String>,
    tool: String,
    /// Whether a rule could have answered in place of people: one asked, for one approval, before the run, and not about
    /// a tool that runs anything it is told to.
    could_be_ruled: bool,
}

impl Open {
    fn read(at: Time, body: &Value) -> Open {
        let rules = body.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let rules: Vec<String> = rules.iter().filter_map(|rule| rule.as_str().map(str::to_owned)).collect();
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        let name = text("tool").unwrap_or_default();
        let id = ToolId { server: text("server").map(Arc::from), name: name.into() };
        let once = body.get("approvals").and_then(Value::as_u64) == Some(1);
        let before = body.get("in_run").and_then(Value::as_bool) == Some(false);
        let could_be_ruled = once && before && rules.len() == 1 && !runs_programs(&id, &countersign::Json::empty());
        let tool = text("server").map_or_else(|| name.to_owned(), |server| format!("{server}/{name}"));
        Open { at, rules, tool, could_be_ruled }
    }
}

struct Count {
    from: Time,
    to: Time,
    open: HashMap<HoldId, Open>,
    all: Row,
    steps: Vec<Tally>,
    by_rule: BTreeMap<String, Row>,
    by_tool: BTreeMap<String, Row>,
    /// By the one rule that asked, and the tool.
    ruled: BTreeMap<(String, String), Tally>,
}

#[derive(Default)]
struct Row {
    tally: Tally,
    milliseconds: Vec<u64>,
}

impl Count {
    fn new(from: Time, to: Time) -> Count {
        Count {
            from,
            to,
            open: HashMap::new(),
            all: Row::default(),
            steps: vec![Tally::default(); limits::INSIGHT_STEPS],
            by_rule: BTreeMap::new(),
            by_tool: BTreeMap::new(),
            ruled: BTreeMap::new(),
        }
    }

    fn add(&mut self, event: &Event) {
        let body = event.value();
        let text = |key: &str| body.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        match (event.name, event.hold) {
            (EventName::HoldOpened, Some(hold)) => {
                let open = Open::read(event.at, &body);
                self.tally(&open, event.at, &|tally| tally.opened += 1, None);
                self.open.insert(hold, open);
            }
            (EventName::HoldDecided, Some(hold))
                if body.get("closes").and_then(|closes| closes.as_bool()) == Some(true) =>
            {
                let answer = text("answer");
                self.close(hold, event.at, true, &move |tally| match answer.as_str() {
                    "approve" => tally.approved += 1,
                    "deny" => tally.denied += 1,
                    _ => tally.answered += 1,
                });
            }
            (EventName::HoldReleased, Some(hold)) => self.close(hold, event.at, false, &|tally| tally.released += 1),
            (EventName::HoldExpired, Some(hold)) => self.close(hold, event.at, false, &|tally| tally.expired += 1),
            (EventName::HoldCancelled | EventName::HoldSuperseded, Some(hold)) => {
                self.close(hold, event.at, false, &|tally| tally.withdrawn += 1);
            }
            _ => {}
        }
    }

    fn close(&mut self, hold: HoldId, at: Time, by_people: bool, change: &dyn Fn(&mut Tally)) {
        // One that opened before the window is not in its counts.
        let Some(open) = self.open.remove(&hold) else { return };
        let took = by_people.then(|| u64::try_from(open.at.until(at).as_millis()).unwrap_or(u64::MAX));
        self.tally(&open, at, change, took);
    }

    fn tally(&mut self, open: &Open, at: Time, change: &dyn Fn(&mut Tally), took: Option<u64>) {
        let rows = [&mut self.all, self.by_tool.entry(open.tool.clone()).or_default()];
        for row in rows {
            change(&mut row.tally);
            row.milliseconds.extend(took);
        }
        for rule in &open.rules {
            let row = self.by_rule.entry(rule.clone()).or_default();
            change(&mut row.tally);
            row.milliseconds.extend(took);
        }
        if let (true, [rule]) = (open.could_be_ruled, open.rules.as_slice()) {
            change(self.ruled.entry((rule.clone(), open.tool.clone())).or_default());
        }
        let step = (at.0 - self.from.0).max(0) / self.step().max(1);
        let last = self.steps.len() - 1;
        if let Some(step) = self.steps.get_mut(usize::try_from(step).unwrap_or(last).min(last)) {
            change(step);
        }
    }

    /// Microseconds of one step of time.
    fn step(&self) -> i64 {
        (self.to.0 - self.from.0) / limits::INSIGHT_STEPS as i64
    }

    fn finish(self, complete: bool) -> wire::Insights {
        let (step, from) = (self.step(), self.from.0);
        let moment = |(index, tally): (usize, Tally)| wire::Moment {
            at: timestamp(Time(from + step * index as i64)),
            opened: tally.opened,
            approved: tally.approved,
            denied: tally.denied,
            expired: tally.expired,
        };
        wire::Insights {
            from: timestamp(self.from),
            to: timestamp(self.to),
            complete,
            waits: waits(&self.all.milliseconds),
            savings: savings(self.ruled),
            holds: self.all.finish(),
            over_time: self.steps.into_iter().enumerate().map(moment).collect(),
            by_rule: busiest(self.by_rule),
            by_tool: busiest(self.by_tool),
        }
    }
}

impl Row {
    fn finish(mut self) -> Tally {
        self.milliseconds.sort_unstable();
        let at = |share: usize| self.milliseconds.get(self.milliseconds.len() * share / 100).copied();
        let timing = Timing { median: at(50), p90: at(90), longest: self.milliseconds.last().copied() };
        Tally { timing, ..self.tally }
    }
}

/// How many decisions took how long.
fn waits(milliseconds: &[u64]) -> Vec<wire::Wait> {
    let ends = limits::INSIGHT_WAITS.map(|end| u64::try_from(end.as_millis()).unwrap_or(u64::MAX));
    let mut begin = 0;
    let mut wait = |under: Option<u64>| {
        let range = std::mem::replace(&mut begin, under.unwrap_or(u64::MAX))..;
        let within = |took: &&u64| range.contains(*took) && under.is_none_or(|end| **took < end);
        wire::Wait { under, decided: milliseconds.iter().filter(within).count() as u64 }
    };
    ends.map(Some).into_iter().chain([None]).map(&mut wait).collect()
}

/// Where people were asked again and again, and only ever said yes.
fn savings(ruled: BTreeMap<(String, String), Tally>) -> Vec<wire::Saving> {
    let always = ruled.into_iter().filter(|(_, tally)| tally.denied + tally.answered == 0);
    let saving =
        |((rule, tool), tally): ((String, String), Tally)| wire::Saving { rule, tool, prompts: tally.approved };
    let mut savings: Vec<wire::Saving> = always.map(saving).collect();
    savings.retain(|saving| saving.prompts >= limits::INSIGHT_YESES);
    savings.sort_by_key(|saving| std::cmp::Reverse(saving.prompts));
    savings.truncate(limits::INSIGHT_ROWS);
    savings
}

fn busiest(rows: BTreeMap<String, Row>) -> Vec<(String, Tally)> {
    let mut rows: Vec<(String, Tally)> = rows.into_iter().map(|(name, row)| (name, row.finish())).collect();
    rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.opened));
    rows.truncate(limits::INSIGHT_ROWS);
    rows
}

#[cfg(test)]
mod tests {
    use countersign::{Gate, Policy, Proposal};
    use countersign_testkit::stores::Kind;

    use super::*;

    /// Many calls at once share transactions: the newest holds are counted all the same, and the bound is kept.
    #[tokio::test]
    async fn the_newest_holds_are_counted_however_many_events_a_transaction_has() {
        for kind in [Kind::Memory, Kind::Sqlite, Kind::Postgres] {
            let store = kind.fresh().await.unwrap();
            let gate = Gate::builder().policy(Policy::ask_all()).store(store.store()).decided_elsewhere();
            let gate = gate.build().unwrap();
            let proposal =
                |n: usize| Proposal::new("write_file", format!("{{\"n\":{n}}}")).session(format!("{}", n / 50));
            let submit = |n: usize| gate.submit_undefined(proposal(n));
            futures::future::try_join_all((0..300).map(submit)).await.unwrap();
            let newest = submit(300).await.unwrap().open_hold().unwrap().id;

            // Another test's transactions may keep ours out of sight for a moment.
            let (mut end, mut seen) = (Cursor::default(), None);
            while seen != Some(newest) {
                let events = gate.store().events(end, EventFilter::default()).await.unwrap();
                let Some(last) = events.last() else { continue };
                (end, seen) = (last.cursor, last.hold);
            }
            let (kept, _) = last(&**gate.store(), end, Time(0), 100).await.unwrap();
            assert_eq!(kept.last().and_then(|event| event.hold), Some(newest), "{kind:?}");
            let (all, _) = last(&**gate.store(), end, Time(0), 10_000).await.unwrap();
            assert_eq!((all.len(), kept.len() < all.len()), (301, true), "{kind:?}");
        }
    }
}
