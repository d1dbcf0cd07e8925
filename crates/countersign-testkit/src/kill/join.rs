//! Joins journal, effects and store.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::call::{Repeat, ResolvedAs};
use countersign::event::{Cursor, Event, EventName, Head};
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
    /// How often of these inside the migration.
    pub migrations: u64,
    /// How often it was started again and the records joined.
    pub joins: u64,
    /// Decisions the store acknowledged.
    pub acknowledged: u64,
    /// What an operator did and the store acknowledged: doubts settled, halts, grants, notes, policies.
    pub operated: u64,
    /// What was acknowledged and the store does not have.
    pub lost: u64,
    /// Effects without a recorded allow or approval of exactly those bytes; claims while halted or by a revoked grant.
    pub unapproved: u64,
    /// Second runs of calls that may run once, or of one attempt.
    pub twice: u64,
    /// Calls of which nobody knew, at some time, whether they acted.
    pub in_doubt: u64,
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
        self.lost + self.unapproved + self.twice == 0
    }

    fn lose(&mut self, what: &str) {
        self.lost += 1;
        self.complaints.push(format!("lost: {what}"));
    }

    fn unapprove(&mut self, what: &str) {
        self.unapproved += 1;
        self.complaints.push(format!("unapproved: {what}"));
    }
}

/// Joins the three records as they grow: each look goes on where the last one ended.
#[derive(Default)]
pub(super) struct Join {
    pub(super) report: Report,
    cursor: Cursor,
    heads: HashMap<Arc<str>, Head>,
    claimed: HashSet<CallId>,
    /// What operators did, as the log says.
    operated: HashSet<String>,
    revoked: HashSet<String>,
    halted: bool,
    /// How many lines of the journal and of the effects were looked at.
    journal: usize,
    effects: usize,
    runs: HashMap<(CallId, String), u64>,
}

impl Join {
    /// Reads what is new in all three, while nobody writes, and compares.
    pub(super) async fn look(&mut self, store: &Arc<dyn Store>, folder: &Path) -> Result<()> {
        self.report.joins += 1;
        self.read_log(store).await?;
        ensure!(store.halted(&countersign::call::Path::default()).await? == self.halted, "the log and the halt differ");
        let lines = lines(&journal(folder))?;
        for line in lines.iter().skip(self.journal) {
            self.acknowledge(store, line).await?;
        }
        self.journal = lines.len();
        let lines = self::lines(&effects(folder))?;
        for line in lines.iter().skip(self.effects) {
            self.compare(store, line).await?;
        }
        self.effects = lines.len();
        Ok(())
    }

    async fn read_log(&mut self, store: &Arc<dyn Store>) -> Result<()> {
        loop {
            let filter = EventFilter { limit: Some(1_000), ..EventFilter::default() };
            let page = store.events(self.cursor, filter).await?;
            let Some(last) = page.last() else { return Ok(()) };
            self.cursor = last.cursor;
            for event in &page {
                follows(&mut self.heads, event)?;
                self.note(store, event).await?;
            }
        }
    }

    async fn note(&mut self, store: &Arc<dyn Store>, event: &Event) -> Result<()> {
        let said = |word: &str, key: &str| match event.value().get(key).and_then(|value| value.as_str()) {
            Some(text) => format!("{word} {text}"),
            None => word.to_owned(),
        };
        match event.name {
            EventName::CallSubmitted => self.report.calls += 1,
            EventName::CallInDoubt => self.report.in_doubt += 1,
            EventName::CallClaimed => self.claim(store, event).await?,
            EventName::HaltSet => {
                self.halted = true;
                self.operated.insert(said("halt", "by"));
            }
            EventName::HaltLifted => {
                self.halted = false;
                self.operated.insert(said("lift", "by"));
            }
            EventName::PolicyLoaded => {
                self.operated.insert(said("policy", "by"));
            }
            EventName::AccessRefused => {
                self.operated.insert(said("note", "by"));
            }
            EventName::GrantRevoked => {
                self.revoked.insert(said("grant", "grant"));
            }
            _ => {}
        }
        Ok(())
    }

    /// SECURITY: nothing is claimed while halted, and nothing by a grant that was revoked before.
    async fn claim(&mut self, store: &Arc<dyn Store>, event: &Event) -> Result<()> {
        let Some(id) = event.call else { return Ok(()) };
        self.claimed.insert(id);
        if self.halted {
            self.report.unapprove(&format!("{id} was claimed while halted"));
        }
        if self.revoked.is_empty() {
            return Ok(());
        }
        let grant = store.call(id).await?.and_then(|call| call.grant);
        if grant.is_some_and(|grant| self.revoked.contains(&format!("grant {grant}"))) {
            self.report.unapprove(&format!("{id} was claimed by a revoked grant"));
        }
        Ok(())
    }

    /// Looks for one acknowledged line in the store.
    async fn acknowledge(&mut self, store: &Arc<dyn Store>, line: &str) -> Result<()> {
        let (what, rest) = line.split_once(' ').with_context(|| line.to_owned())?;
        let first = rest.split(' ').next().unwrap_or_default();
        let call = match what {
            "decide" | "resolve" => store.call(first.parse().map_err(anyhow::Error::msg)?).await?,
            _ => None,
        };
        let grant = match what {
            "grant" | "revoke" => store.grant(first.parse().map_err(anyhow::Error::msg)?).await?,
            _ => None,
        };
        let kept = match what {
            "decide" => call.is_some_and(|call| is_kept(&HashMap::from([(call.id, call)]), rest)),
            "resolve" => call.is_some_and(|call| is_settled(&call, rest)),
            "grant" => grant.is_some(),
            "revoke" => grant.is_some_and(|grant| grant.revoked.is_some()),
            _ => self.operated.contains(line),
        };
        match what {
            "decide" => self.report.acknowledged += 1,
            _ => self.report.operated += 1,
        }
        if !kept {
            self.report.lose(line);
        }
        Ok(())
    }

    /// Looks for what let one effect happen.
    async fn compare(&mut self, store: &Arc<dyn Store>, line: &str) -> Result<()> {
        self.report.effects += 1;
        let [id, bytes, attempt] = line.split(' ').collect::<Vec<_>>()[..] else { return Ok(()) };
        let id: CallId = id.parse().with_context(|| line.to_owned())?;
        let call = store.call(id).await?;
        let approved = call.as_ref().is_some_and(|call| hash(&call.facts.arguments) == bytes && may_run(call));
        if !approved || !self.claimed.contains(&id) {
            self.report.unapprove(line);
        }
        // A call that may run once has one key, whatever attempt it says it was.
        let again = call.is_some_and(|call| call.repeat == Repeat::Idempotent);
        let runs = self.runs.entry((id, if again { attempt.to_owned() } else { String::new() })).or_default();
        *runs += 1;
        if *runs == 2 {
            self.report.twice += 1;
            self.report.complaints.push(format!("ran twice: {line}"));
        }
        Ok(())
    }
}

/// Whether a doubt was settled as the line says.
fn is_settled(call: &Call, line: &str) -> bool {
    let word = line.split(' ').nth(1);
    let found = call.resolution.as_ref().map(|resolution| match resolution.r#as {
        ResolvedAs::Applied => "applied",
        ResolvedAs::NotApplied => "not_applied",
        ResolvedAs::Failed => "failed",
        ResolvedAs::Abandoned => "abandoned",
    });
    call.state == CallState::Resolved && found == word
}

/// Whether the store has an acknowledged decision: on that hold, for that digest, with that answer, by that person if
/// the line names one.
pub(crate) fn is_kept(calls: &HashMap<CallId, Arc<Call>>, line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let [call, hold, digest, answer, ref by @ ..] = words[..] else { return false };
    let Some(call) = call.parse().ok().and_then(|id: CallId| calls.get(&id)) else { return false };
    let mut decisions = call.holds.iter().filter(|found| found.id.to_string() == hold).flat_map(|hold| &hold.decisions);
    decisions.any(|decision| {
        let same_person = by.iter().all(|by| *by == &*decision.by.id);
        same_person && decision.digest.to_string() == digest && decision.answer.as_str() == answer
    })
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
    let mut heads = HashMap::new();
    log.iter().try_for_each(|event| follows(&mut heads, event))
}

/// An event follows the one before it on its chain.
fn follows(heads: &mut HashMap<Arc<str>, Head>, event: &Event) -> Result<()> {
    let head = heads.entry(Arc::clone(&event.chain.0)).or_default();
    ensure!(event.seq == head.seq + 1, "chain {} jumps from {} to {}", event.chain.0, head.seq, event.seq);
    ensure!(event.hash == countersign::event::hash(&head.hash, &event.body), "chain {} breaks", event.chain.0);
    *head = Head { seq: event.seq, hash: event.hash };
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
