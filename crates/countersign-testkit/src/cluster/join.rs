//! Joins journal, effects and store.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::call::Repeat;
use countersign::event::{Event, EventName};
use countersign::{Call, CallId, CallState};
use serde::Serialize;

use super::records::{effects, journal};
use crate::kill::hash;
use crate::kill::join::{calls, chains_hold, is_kept, lines, log, may_run};
use crate::stores;

/// What came of it all. `lost`, `unapproved`, `twice` and `open` must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How often a node or the database was killed.
    pub kills: u64,
    /// Submissions, decisions, claims and outcomes that a node acknowledged.
    pub acknowledged: u64,
    /// Those of them that the store does not have.
    pub lost: u64,
    /// Effects without a claim of exactly those bytes, allowed or approved.
    pub unapproved: u64,
    /// Second runs of calls that may run once or of one claim, second expiries, and outcomes of a claim that was over.
    pub twice: u64,
    /// Calls of which nobody knows whether they acted.
    pub in_doubt: u64,
    /// Calls and holds that never came to an end.
    pub open: u64,
    /// Effects in all.
    pub effects: u64,
    /// Calls in all.
    pub calls: u64,
    /// The seed.
    pub seed: u64,
    /// What is wrong, a line each.
    #[serde(skip)]
    pub complaints: Vec<String>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.lost + self.unapproved + self.twice + self.open == 0
    }
}

/// Everything the store has.
struct Kept {
    calls: HashMap<CallId, Arc<Call>>,
    log: Vec<Event>,
    /// The claims in the log, by their fences.
    claims: HashSet<(CallId, u64)>,
}

/// Reads everything and compares.
pub(super) async fn join(url: String, folder: &Path, seed: u64, kills: u64) -> Result<Report> {
    let store = stores::open(&url).await?;
    let (calls, log) = (calls(&store).await?, log(&store).await?);
    ensure!(!log.is_empty(), "the log is empty");
    chains_hold(&log)?;
    let claimed = log.iter().filter(|event| event.name == EventName::CallClaimed);
    let claims = claimed.filter_map(|event| Some((event.call?, event.value().get("fence")?.as_u64()?))).collect();
    let kept = Kept { calls, log, claims };
    let mut report = Report { kills, seed, calls: kept.calls.len() as u64, ..Report::default() };
    for line in lines(&journal(folder))? {
        report.acknowledge(&kept, &line)?;
    }
    report.compare_effects(&kept, &lines(&effects(folder))?)?;
    report.look_for_second_expiries(&kept);
    report.look_for_open_ends(&kept);
    Ok(report)
}

impl Report {
    /// Looks for one acknowledged line in what was kept.
    fn acknowledge(&mut self, kept: &Kept, line: &str) -> Result<()> {
        self.acknowledged += 1;
        let (what, rest) = line.split_once(' ').with_context(|| line.to_owned())?;
        let mut words = rest.split(' ');
        let id: CallId = words.next().and_then(|id| id.parse().ok()).with_context(|| line.to_owned())?;
        let call = kept.calls.get(&id);
        let mut fence = || words.next().and_then(|fence| fence.parse::<u64>().ok());
        let found = match what {
            "submit" => call.is_some(),
            "decide" => is_kept(&kept.calls, rest),
            "claim" => fence().is_some_and(|fence| kept.claims.contains(&(id, fence))),
            _ => {
                let last = call.and_then(|call| call.lease.as_ref()).map(|lease| lease.fence);
                if fence() != last {
                    self.twice += 1;
                    self.complaints.push(format!("of a claim that was over: {line}"));
                }
                call.is_some_and(|call| call.outcome.is_some())
            }
        };
        if !found {
            self.lost += 1;
            self.complaints.push(format!("lost: {line}"));
        }
        Ok(())
    }

    fn compare_effects(&mut self, kept: &Kept, lines: &[String]) -> Result<()> {
        let mut runs: HashMap<(CallId, Option<u64>), u64> = HashMap::new();
        for line in lines {
            self.effects += 1;
            let [id, bytes, fence] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            let (id, fence): (CallId, u64) = (id.parse().with_context(|| line.clone())?, fence.parse()?);
            let call = kept.calls.get(&id);
            let approved = call.is_some_and(|call| hash(&call.facts.arguments) == bytes && may_run(call));
            if !approved || !kept.claims.contains(&(id, fence)) {
                self.unapproved += 1;
                self.complaints.push(format!("unapproved: {line}"));
            }
            // A call that may run once has one key, whatever its fence.
            let again = call.is_some_and(|call| call.repeat == Repeat::Idempotent);
            *runs.entry((id, again.then_some(fence))).or_default() += 1;
        }
        for ((id, _), count) in runs.into_iter().filter(|(_, count)| *count > 1) {
            self.twice += 1;
            self.complaints.push(format!("ran {count} times: {id}"));
        }
        Ok(())
    }

    /// Of several nodes that sweep, one closes a hold.
    fn look_for_second_expiries(&mut self, kept: &Kept) {
        let mut expired = HashSet::new();
        for event in kept.log.iter().filter(|event| event.name == EventName::HoldExpired) {
            if !expired.insert(event.hold) {
                self.twice += 1;
                self.complaints.push(format!("expired twice: {:?}", event.hold));
            }
        }
    }

    fn look_for_open_ends(&mut self, kept: &Kept) {
        for call in kept.calls.values() {
            let open = match call.state {
                CallState::Allowed | CallState::Pending | CallState::Approved | CallState::Executing => true,
                CallState::InDoubt => {
                    self.in_doubt += 1;
                    false
                }
                CallState::Denied
                | CallState::Answered
                | CallState::Expired
                | CallState::Cancelled
                | CallState::Lapsed
                | CallState::Succeeded
                | CallState::Failed
                | CallState::Resolved => false,
            };
            if open || call.open_hold().is_some() {
                self.open += 1;
                self.complaints.push(format!("never ended: {} is {}", call.id, call.state));
            }
        }
    }
}
