//! Tells a log in short words.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::EventFilter;
use countersign::transition::Rejection;
use countersign::{CallId, GrantId, Store};

/// Reads the log as it grows.
#[derive(Default)]
pub(super) struct Teller {
    pub(super) told: Vec<String>,
    after: Cursor,
    grants: Vec<GrantId>,
}

impl Teller {
    /// Tells what happened since the last time.
    pub(super) async fn catch_up(&mut self, store: &Arc<dyn Store>, calls: &HashMap<CallId, String>) -> Result<()> {
        let filter = EventFilter { limit: Some(1_000), ..EventFilter::default() };
        for event in store.events(self.after, filter).await? {
            self.after = event.cursor;
            // Who got a credential is the stage's business, not the story's.
            if event.name == EventName::AccessChanged {
                continue;
            }
            let line = self.line(&event, calls);
            self.told.push(line);
        }
        Ok(())
    }

    /// The grant a story calls `g1`, `g2` …
    pub(super) fn grant(&self, alias: &str) -> Option<GrantId> {
        let number: usize = alias.strip_prefix('g')?.parse().ok()?;
        self.grants.get(number.checked_sub(1)?).copied()
    }

    fn line(&mut self, event: &Event, calls: &HashMap<CallId, String>) -> String {
        let body = event.value();
        let grant = body.get("grant").and_then(|id| id.as_str()?.parse().ok());
        if let (EventName::GrantMade, Some(grant)) = (event.name, grant) {
            self.grants.push(grant);
        }
        let mut line = event.name.as_str().to_owned();
        if let Some(call) = event.call {
            line.push(' ');
            line.push_str(calls.get(&call).map_or("?", String::as_str));
        }
        let mut add = |word: &str| {
            line.push(' ');
            line.push_str(word);
        };
        for key in ["by", "answer", "kind", "as", "agent", "refusal"] {
            // Whoever is named by a refusal or a grant is in the event before it.
            let told = key != "by" || event.name == EventName::HoldDecided;
            if let Some(word) = body.get(key).and_then(|word| word.as_str()).filter(|_| told) {
                add(word);
            }
        }
        if let Some(number) = grant.and_then(|grant| self.grants.iter().position(|known| *known == grant)) {
            add(&format!("g{}", number + 1));
        }
        for flag in ["in_run", "unattended"] {
            if body.get(flag).and_then(|flag| flag.as_bool()) == Some(true) {
                add(flag);
            }
        }
        if let Some(attempt) = body.get("attempt").and_then(|attempt| attempt.as_i64()).filter(|attempt| *attempt > 1) {
            add(&format!("attempt {attempt}"));
        }
        line
    }
}

/// The short word for a rejection.
pub(super) fn code(rejection: &Rejection) -> String {
    match rejection {
        Rejection::NotFound(what) => format!("no-{what}"),
        Rejection::Closed(state) => format!("closed {}", state.as_str()),
        Rejection::DigestMismatch => "digest".into(),
        Rejection::Repeated(_) => "repeated".into(),
        Rejection::NotEligible(..) => "not-eligible".into(),
        Rejection::HumanRequired(_) => "human-required".into(),
        Rejection::Requester(_) => "requester".into(),
        Rejection::EditDenied(_) => "edit-denied".into(),
        Rejection::InRunOnly => "in-run-only".into(),
        Rejection::Grant(_) => "grant".into(),
        Rejection::NotCovered => "not-covered".into(),
        Rejection::WrongState(state) => format!("is {state}"),
        Rejection::AlreadyClaimed(state) => format!("already {state}"),
        Rejection::Halted => "halted".into(),
        Rejection::StaleFence { .. } => "stale-fence".into(),
        Rejection::StalePolicy => "stale-policy".into(),
        Rejection::KeyReused => "key-reused".into(),
        Rejection::Limit { .. } => "limit".into(),
        Rejection::Conflict => "conflict".into(),
        other => other.to_string(),
    }
}
