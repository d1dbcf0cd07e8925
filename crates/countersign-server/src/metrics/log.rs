//! Counts of what the event log tells, from when this server began to read it. Servers that share a store read the same
//! log: each of them counts all of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use countersign::event::{Event, EventName};
use countersign::{HoldId, Time};
use serde::Deserialize;

use crate::limits;

/// What is counted.
#[derive(Default)]
pub(crate) struct LogCounts(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// What the policy said, by effect.
    verdicts: BTreeMap<&'static str, u64>,
    /// What people said, by answer.
    decisions: BTreeMap<&'static str, u64>,
    expired: u64,
    /// How many decisions took at most as long as each of [`limits::INSIGHT_WAITS`].
    within: [u64; limits::INSIGHT_WAITS.len()],
    decided: u64,
    waited: Duration,
    /// When the holds that wait were opened.
    open: HashMap<HoldId, Time>,
}

impl LogCounts {
    /// Counts an event.
    pub(crate) fn add(&self, event: &Event) {
        if let Ok(mut counts) = self.0.lock() {
            counts.add(event);
        }
    }

    /// Writes the counts as Prometheus reads them.
    pub(crate) fn write(&self, out: &mut String) {
        if let Ok(counts) = self.0.lock() {
            counts.write(out);
        }
    }
}

impl Counts {
    fn add(&mut self, event: &Event) {
        match event.name {
            EventName::CallAllowed => *self.verdicts.entry("allow").or_default() += 1,
            EventName::CallRefused if Said::of(event).kind.as_deref() == Some("denied_by_rule") => {
                *self.verdicts.entry("deny").or_default() += 1;
            }
            EventName::HoldOpened => self.opened(event),
            EventName::HoldDecided => self.decided(event),
            EventName::HoldExpired => {
                self.expired += 1;
                self.closed(event);
            }
            EventName::HoldReleased | EventName::HoldCancelled | EventName::HoldSuperseded => {
                self.closed(event);
            }
            _ => {}
        }
    }

    fn opened(&mut self, event: &Event) {
        if Said::of(event).in_run == Some(false) {
            *self.verdicts.entry("ask").or_default() += 1;
        }
        // Beyond so many that wait, the time that people take is told by the others.
        if let Some(hold) = event.hold.filter(|_| self.open.len() < limits::OPEN_TIMED) {
            self.open.insert(hold, event.at);
        }
    }

    fn decided(&mut self, event: &Event) {
        let said = Said::of(event);
        let answer = match said.answer.as_deref() {
            Some("approve") => "approve",
            Some("deny") => "deny",
            Some(_) | None => "respond",
        };
        *self.decisions.entry(answer).or_default() += 1;
        if said.closes != Some(true) {
            return;
        }
        let Some(opened) = self.closed(event) else { return };
        let took = opened.until(event.at);
        self.decided += 1;
        self.waited += took;
        for (count, most) in self.within.iter_mut().zip(limits::INSIGHT_WAITS) {
            *count += u64::from(took <= most);
        }
    }

    fn closed(&mut self, event: &Event) -> Option<Time> {
        self.open.remove(&event.hold?)
    }

    fn write(&self, out: &mut String) {
        write_by(out, "verdicts", "effect", &self.verdicts);
        write_by(out, "decisions", "answer", &self.decisions);
        let _ = writeln!(out, "# TYPE countersign_holds_expired_total counter");
        let _ = writeln!(out, "countersign_holds_expired_total {}", self.expired);
        let name = "countersign_decision_seconds";
        let _ = writeln!(out, "# TYPE {name} histogram");
        for (count, most) in self.within.iter().zip(limits::INSIGHT_WAITS) {
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {count}", most.as_secs());
        }
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", self.decided);
        let _ = writeln!(out, "{name}_sum {:.3}\n{name}_count {}", self.waited.as_secs_f64(), self.decided);
    }
}

fn write_by(out: &mut String, name: &str, label: &str, counts: &BTreeMap<&'static str, u64>) {
    let _ = writeln!(out, "# TYPE countersign_{name}_total counter");
    for (word, count) in counts {
        let _ = writeln!(out, "countersign_{name}_total{{{label}=\"{word}\"}} {count}");
    }
}

/// What is counted of an event's body. The rest of it, the arguments above all, is passed over and not kept.
#[derive(Default, Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    answer: Option<Cow<'a, str>>,
    in_run: Option<bool>,
    closes: Option<bool>,
}

impl Said<'_> {
    fn of(event: &Event) -> Said<'_> {
        serde_json::from_str(&event.body).unwrap_or_default()
    }
}
