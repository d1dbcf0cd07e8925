//! How people and rules get along, counted from a bounded window of the record.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::{Json, routing};
use countersign::event::{Cursor, Event, EventName};
use countersign::store::EventFilter;
use countersign::{HoldId, Time, limits as core_limits};
use countersign_api::wire::{self, Tally, Timing, timestamp};
use serde::Deserialize;

use crate::app::App;
use crate::auth::Overseer;
use crate::extract::Query;
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
    let begin = if end.major > 0 {
        Cursor { major: end.major.saturating_sub(limits::INSIGHT_EVENTS as u64), minor: 0 }
    } else {
        Cursor { major: 0, minor: end.minor.saturating_sub(limits::INSIGHT_EVENTS as u64) }
    };
    let mut complete = begin == Cursor::default();
    let (mut cursor, mut kept) = (begin, Vec::new());
    for _ in 0..limits::INSIGHT_EVENTS / core_limits::PAGE_ROWS + 1 {
        let filter = EventFilter { limit: Some(core_limits::PAGE_ROWS), ..EventFilter::default() };
        let events = app.store().events(cursor, filter).await?;
        let Some(last) = events.last() else { break };
        cursor = last.cursor;
        complete |= events.first().is_some_and(|event| event.at < from);
        kept.extend(events.into_iter().filter(|event| event.at >= from && event.name.as_str().starts_with("hold.")));
    }
    Ok((kept, complete))
}

/// A hold that was seen to open.
struct Open {
    at: Time,
    rules: Vec<String>,
    tool: String,
}

struct Count {
    from: Time,
    to: Time,
    open: HashMap<HoldId, Open>,
    all: Row,
    steps: Vec<Tally>,
    by_rule: BTreeMap<String, Row>,
    by_tool: BTreeMap<String, Row>,
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
        }
    }

    fn add(&mut self, event: &Event) {
        let body = event.value();
        let text = |key: &str| body.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        match (event.name, event.hold) {
            (EventName::HoldOpened, Some(hold)) => {
                let rules = body.get("rules").and_then(|rules| rules.as_array()).cloned().unwrap_or_default();
                let rules = rules.iter().filter_map(|rule| rule.as_str().map(str::to_owned)).collect();
                let server = body.get("server").and_then(|server| server.as_str());
                let tool = server.map_or_else(|| text("tool"), |server| format!("{server}/{}", text("tool")));
                let open = Open { at: event.at, rules, tool };
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

fn busiest(rows: BTreeMap<String, Row>) -> Vec<(String, Tally)> {
    let mut rows: Vec<(String, Tally)> = rows.into_iter().map(|(name, row)| (name, row.finish())).collect();
    rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.opened));
    rows.truncate(limits::INSIGHT_ROWS);
    rows
}
