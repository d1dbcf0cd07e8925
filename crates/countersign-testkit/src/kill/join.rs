//! Joins journal, effects and store.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::call::Repeat;
use countersign::event::{Cursor, Event, EventName};
use countersign::hold::HoldState;
use countersign::store::{CallFilter, EventFilter};
use countersign::{Call, CallId, CallState, Effect, Store};
use serde::Serialize;

use super::{effects, hash, journal};

/// What came of it all. `lost`, `unapproved` and `twice` must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How often the worker was killed.
    pub kills: u64,
    /// Decisions the store acknowledged.
    pub acknowledged: u64,
    /// Acknowledged decisions that the store does not have.
    pub lost: u64,
    /// Effects without a recorded allow or approval of exactly those bytes.
    pub unapproved: u64,
    /// Second runs of calls that may run once, or of one attempt.
    pub twice: u64,
    /// Calls of which nobody knows whether they acted.
    pub in_doubt: u64,
    /// Effects in all.
    pub effects: u64,
    /// Calls in all.
    pub calls: u64,
    /// The seed.
    pub seed: u64,
}

/// Reads everything and compares.
pub(super) async fn join(store: &Arc<dyn Store>, folder: &Path, seed: u64, kills: u64) -> Result<Report> {
    let calls = calls(store).await?;
    let mut report = Report { kills, seed, calls: calls.len() as u64, ..Report::default() };
    let log = log(store).await?;
    ensure!(!log.is_empty(), "the log is empty");
    chains_hold(&log)?;
    let claimed: HashSet<CallId> =
        log.iter().filter(|event| event.name == EventName::CallClaimed).filter_map(|event| event.call).collect();
    for line in lines(&journal(folder))? {
        report.acknowledged += 1;
        report.lost += u64::from(!is_kept(&calls, &line));
    }
    let mut runs: HashMap<(CallId, String), u64> = HashMap::new();
    for line in lines(&effects(folder))? {
        report.effects += 1;
        let [id, bytes, attempt] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let id: CallId = id.parse().with_context(|| line.clone())?;
        let call = calls.get(&id);
        let approved = call.is_some_and(|call| hash(&call.facts.arguments) == bytes && may_run(call));
        report.unapproved += u64::from(!approved || !claimed.contains(&id));
        // A call that may run once has one key, whatever attempt it says it was.
        let again = call.is_some_and(|call| call.repeat == Repeat::Idempotent);
        *runs.entry((id, if again { attempt.to_owned() } else { String::new() })).or_default() += 1;
    }
    report.twice = runs.values().filter(|count| **count > 1).count() as u64;
    report.in_doubt = calls.values().filter(|call| call.state == CallState::InDoubt).count() as u64;
    Ok(report)
}

/// Whether the store has an acknowledged decision: on that hold, for that digest, with that answer.
pub(crate) fn is_kept(calls: &HashMap<CallId, Arc<Call>>, line: &str) -> bool {
    let [call, hold, digest, answer] = line.split(' ').collect::<Vec<_>>()[..] else { return false };
    let Some(call) = call.parse().ok().and_then(|id: CallId| calls.get(&id)) else { return false };
    let mut decisions = call.holds.iter().filter(|found| found.id.to_string() == hold).flat_map(|hold| &hold.decisions);
    decisions.any(|decision| decision.digest.to_string() == digest && decision.answer.as_str() == answer)
}

/// Whether a rule allowed the call, people approved it, or a grant released it.
pub(crate) fn may_run(call: &Call) -> bool {
    let asked = call.holds.iter().rev().find(|hold| !hold.in_run());
    match asked {
        Some(hold) => matches!(hold.state, HoldState::Approved | HoldState::Released),
        None => call.verdict.effect == Effect::Allow || call.grant.is_some(),
    }
}

/// Every chain's hashes follow from its bodies, without a gap.
pub(crate) fn chains_hold(log: &[Event]) -> Result<()> {
    let mut heads: HashMap<&str, countersign::event::Head> = HashMap::new();
    for event in log {
        let head = heads.entry(&event.chain.0).or_default();
        ensure!(event.seq == head.seq + 1, "chain {} jumps from {} to {}", event.chain.0, head.seq, event.seq);
        ensure!(event.hash == countersign::event::hash(&head.hash, &event.body), "chain {} breaks", event.chain.0);
        *head = countersign::event::Head { seq: event.seq, hash: event.hash };
    }
    Ok(())
}

pub(crate) async fn calls(store: &Arc<dyn Store>) -> Result<HashMap<CallId, Arc<Call>>> {
    let mut calls = HashMap::new();
    let mut filter = CallFilter { limit: Some(1_000), ..CallFilter::default() };
    loop {
        let page = store.calls(filter.clone()).await?;
        let Some(last) = page.last() else { return Ok(calls) };
        filter.after = Some(last.id);
        calls.extend(page.into_iter().map(|call| (call.id, call)));
    }
}

pub(crate) async fn log(store: &Arc<dyn Store>) -> Result<Vec<Event>> {
    let mut log: Vec<Event> = Vec::new();
    loop {
        let after = log.last().map_or(Cursor::default(), |event| event.cursor);
        let page = store.events(after, EventFilter { limit: Some(1_000), ..EventFilter::default() }).await?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page);
    }
}

/// The whole lines of a file; a last one that was cut off by a kill was never synced, and so never acknowledged.
pub(crate) fn lines(path: &Path) -> Result<Vec<String>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    Ok(text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect())
}
