//! The store for tests and embedding: everything in memory, gone with the process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZero;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::apply::apply;
use crate::bell::Bell;
use crate::call::{Call, CallState, Chain, Path, ToolId};
use crate::digest::{ArgumentDigest, EventHash};
use crate::event::{Cursor, Draft, Event, EventName, Head};
use crate::grant::{Grant, Scope};
use crate::id::{CallId, GrantId, HoldId};
use crate::limits::{self, Waiting};
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{
    Applied, CallFilter, EventFilter, Expect, Failure, Halted, MovedHeads, Op, Order, Record, State, Store, StoreError,
};
use crate::time::{Clock, SystemClock, Time};
use crate::transition::Rejection;

/// Keeps everything in memory.
pub struct MemoryStore {
    tables: Mutex<Tables>,
    bell: Bell<CallId>,
    clock: Arc<dyn Clock>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::with_clock(Arc::new(SystemClock))
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// An empty store that asks this clock for the time.
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { tables: Mutex::default(), bell: Bell::default(), clock }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic inside a transition leaves whole rows behind: rows are only ever replaced, never edited in place.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An identical call that is in doubt is found by whose it is, its chain and its arguments.
type Doubt = (Arc<str>, Chain, ArgumentDigest, CallId);

/// Where a call's key or denial counts: its principal's, in its chain, in its run.
///
/// The chain alone names a principal only where there is a session.
type Place = (Arc<str>, Chain, Option<Arc<str>>);

#[derive(Default)]
struct Tables {
    now: Time,
    calls: BTreeMap<CallId, Arc<Call>>,
    /// Calls with an open hold.
    holding: BTreeSet<CallId>,
    due: BTreeSet<(Time, CallId)>,
    holds: HashMap<HoldId, HoldPlace>,
    keys: HashMap<(Place, Arc<str>), CallId>,
    denials: HashMap<(Place, ArgumentDigest), Refusal>,
    doubts: BTreeSet<Doubt>,
    grants: BTreeMap<GrantId, Grant>,
    exact_grants: HashMap<ArgumentDigest, Vec<GrantId>>,
    wide_grants: HashMap<ToolId, Vec<GrantId>>,
    chains: HashMap<Chain, ChainRow>,
    events: Vec<Event>,
    /// How many calls of a principal wait, where any does.
    waiting: HashMap<Arc<str>, u64>,
    pending: u64,
    halts: HashSet<Option<Arc<str>>>,
    last_checkpoint: Option<EventHash>,
    policy: Option<(Arc<str>, Arc<str>)>,
    /// By namespace, then by key.
    records: HashMap<String, BTreeMap<String, Record>>,
    /// Calls that moved in the present transaction.
    rung: Vec<CallId>,
    ring_any: bool,
    ring_all: bool,
}

/// Where a hold is found.
#[derive(Clone, Copy)]
struct HoldPlace {
    call: CallId,
    /// The number in the log, from 1, of the event by which it opened.
    opened: Option<NonZero<usize>>,
}

#[derive(Default)]
struct ChainRow {
    head: Head,
    signed: u64,
    pending: u64,
    /// Where its events stand in the log.
    events: Vec<usize>,
}

fn place(path: &Path) -> Place {
    (Arc::clone(&path.principal), path.chain(), path.run.clone().or_else(|| path.session.clone()))
}

impl State for Tables {
    fn now(&self) -> Time {
        self.now
    }

    fn call(&mut self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        Ok(self.calls.get(&id).cloned())
    }

    fn call_of_hold(&mut self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        Ok(self.holds.get(&hold).and_then(|place| self.calls.get(&place.call)).cloned())
    }

    fn call_by_key(&mut self, path: &Path, key: &str) -> Result<Option<Arc<Call>>, StoreError> {
        let id = self.keys.get(&(place(path), key.into()));
        Ok(id.and_then(|id| self.calls.get(id)).cloned())
    }

    fn denial(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<Refusal>, StoreError> {
        if self.denials.is_empty() {
            return Ok(None);
        }
        Ok(self.denials.get(&(place(path), *arguments)).cloned())
    }

    fn doubt(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<CallId>, StoreError> {
        if self.doubts.is_empty() {
            return Ok(None);
        }
        // The chain alone will not do: calls without a session share one, whosever they are.
        let (principal, chain) = (&path.principal, path.chain());
        let first = (Arc::clone(principal), chain.clone(), *arguments, CallId::from_bytes([0; 16]));
        let found = self.doubts.range(first..).next();
        let is_like = |(whose, at, digest, _): &&Doubt| whose == principal && *at == chain && digest == arguments;
        Ok(found.filter(is_like).map(|(.., id)| *id))
    }

    fn grants_for(&mut self, path: &Path, tool: &ToolId, arguments: &ArgumentDigest) -> Result<Vec<Grant>, StoreError> {
        let exact = self.exact_grants.get(arguments).into_iter().flatten();
        let wide = self.wide_grants.get(tool).into_iter().flatten();
        let mut found: Vec<Grant> = exact.chain(wide).filter_map(|id| self.grants.get(id)).cloned().collect();
        found.retain(|grant| match &grant.scope {
            Scope::Session { session } => path.session.as_ref() == Some(session),
            Scope::Global => true,
        });
        found.sort_by_key(|grant| (grant.scope == Scope::Global, grant.id));
        Ok(found)
    }

    fn grant(&mut self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        Ok(self.grants.get(&id).cloned())
    }

    fn pending(&mut self, path: &Path) -> Result<Waiting, StoreError> {
        let row = path.session.as_ref().and_then(|_| self.chains.get(&path.chain()));
        let of_agent = self.waiting.get(&path.principal).copied().unwrap_or(0);
        Ok(Waiting { in_session: row.map_or(0, |row| row.pending), of_agent, in_all: self.pending })
    }

    fn halted(&mut self, path: &Path) -> Result<bool, StoreError> {
        Ok(!self.halts.is_empty() && is_halted(&self.halts, path))
    }

    fn halt_is_set(&mut self, agent: Option<&str>) -> Result<bool, StoreError> {
        Ok(self.halts.contains(&agent.map(Arc::from)))
    }

    fn policy_version(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.policy.as_ref().map(|(version, _)| Arc::clone(version)))
    }

    fn moved_heads(&mut self) -> Result<MovedHeads, StoreError> {
        let moved = self.chains.iter().filter(|(_, row)| row.signed < row.head.seq);
        let mut heads: Vec<_> = moved.map(|(chain, row)| (chain.clone(), row.head)).collect();
        heads.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(MovedHeads { heads, previous: self.last_checkpoint })
    }

    fn put_call(&mut self, chain: &Chain, call: Arc<Call>, before: Option<&Call>) -> Result<(), StoreError> {
        let known = before.map_or(0, |before| before.holds.len());
        if let Some(hold) = call.holds.iter().skip(known).find(|hold| self.holds.contains_key(&hold.id)) {
            return Err(StoreError::Failed(format!("{} is taken", hold.id)));
        }
        match before {
            Some(before) => self.unlist(chain, before),
            None if self.calls.contains_key(&call.id) => {
                return Err(StoreError::Failed(format!("{} is taken", call.id)));
            }
            None => {
                let key = call.key.as_ref().map(|key| (place(&call.facts.path), Arc::clone(key)));
                self.keys.extend(key.map(|key| (key, call.id)));
            }
        }
        let place = HoldPlace { call: call.id, opened: None };
        self.holds.extend(call.holds.iter().skip(known).map(|hold| (hold.id, place)));
        self.list(chain, &call);
        self.rung.push(call.id);
        self.calls.insert(call.id, call);
        Ok(())
    }

    fn put_grant(&mut self, grant: &Grant) -> Result<(), StoreError> {
        // A change writes over exactly the version before it, and a new grant over nothing: no save undoes a revoke.
        let earlier = self.grants.get(&grant.id).map(|earlier| earlier.version);
        if earlier != grant.version.checked_sub(1) {
            return Err(StoreError::Failed(format!("the grant {} changed meanwhile", grant.id)));
        }
        self.grants.insert(grant.id, grant.clone());
        if earlier.is_none() {
            match grant.covers.exact() {
                Some(digest) => self.exact_grants.entry(*digest).or_default().push(grant.id),
                None => self.wide_grants.entry(grant.tool.clone()).or_default().push(grant.id),
            }
        }
        if grant.revoked.is_some() {
            let listed = match grant.covers.exact() {
                Some(digest) => self.exact_grants.get_mut(digest),
                None => self.wide_grants.get_mut(&grant.tool),
            };
            if let Some(listed) = listed {
                listed.retain(|id| *id != grant.id);
            }
        }
        Ok(())
    }

    fn put_halt(&mut self, agent: Option<&str>, halted: Halted) -> Result<(), StoreError> {
        match halted {
            Halted::Yes => self.halts.insert(agent.map(Arc::from)),
            Halted::No => self.halts.remove(&agent.map(Arc::from)),
        };
        self.ring_all = true;
        Ok(())
    }

    fn put_policy(&mut self, version: &str, source: &str) -> Result<(), StoreError> {
        self.policy = Some((version.into(), source.into()));
        self.ring_all = true;
        Ok(())
    }

    fn put_checkpoint(&mut self, heads: &[(Chain, Head)]) -> Result<(), StoreError> {
        for (chain, head) in heads {
            self.chains.entry(chain.clone()).or_default().signed = head.seq;
        }
        Ok(())
    }

    fn append(&mut self, chain: &Chain, draft: Draft) -> Result<(), StoreError> {
        let now = self.now;
        let at = self.events.len();
        let row = match self.chains.get_mut(chain) {
            Some(row) => row,
            None => self.chains.entry(chain.clone()).or_default(),
        };
        let mut event = row.head.seal(chain, now, draft);
        event.cursor = Cursor { major: 0, minor: at as u64 + 1 };
        row.events.push(at);
        self.ring_any = true;
        if event.name == EventName::CheckpointSigned {
            row.signed = event.seq;
            self.last_checkpoint = Some(event.hash);
        }
        let opened = event.hold.filter(|_| event.name == EventName::HoldOpened);
        if let Some(place) = opened.and_then(|hold| self.holds.get_mut(&hold)) {
            place.opened = NonZero::new(at + 1);
        }
        self.events.push(event);
        Ok(())
    }
}

fn doubt(chain: &Chain, call: &Call) -> Doubt {
    (Arc::clone(&call.facts.path.principal), chain.clone(), call.argument_digest, call.id)
}

fn is_halted(halts: &HashSet<Option<Arc<str>>>, path: &Path) -> bool {
    halts.contains(&None) || path.agents.iter().any(|agent| halts.contains(&Some(Arc::clone(agent))))
}

impl Tables {
    fn unlist(&mut self, chain: &Chain, call: &Call) {
        if let Some(due) = call.due_at() {
            self.due.remove(&(due, call.id));
        }
        self.count(chain, &call.facts.path.principal, -(call.waiting() as i64));
        if call.open_hold().is_some() {
            self.holding.remove(&call.id);
        }
        if call.state == CallState::InDoubt {
            self.doubts.remove(&doubt(chain, call));
        }
    }

    fn list(&mut self, chain: &Chain, call: &Call) {
        if let Some(due) = call.due_at() {
            self.due.insert((due, call.id));
        }
        self.count(chain, &call.facts.path.principal, call.waiting() as i64);
        if call.open_hold().is_some() {
            self.holding.insert(call.id);
        }
        if call.state == CallState::InDoubt {
            self.doubts.insert(doubt(chain, call));
        }
        let place = || place(&call.facts.path);
        if let Some(refusal) = &call.refusal
            && call.state == CallState::Denied
            && refusal.kind == RefusalKind::DeniedByApprover
            && place().2.is_some()
        {
            self.denials.insert((place(), call.argument_digest), refusal.clone());
        }
    }

    fn count(&mut self, chain: &Chain, principal: &Arc<str>, by: i64) {
        if by == 0 {
            return;
        }
        let row = match self.chains.get_mut(chain) {
            Some(row) => row,
            None => self.chains.entry(chain.clone()).or_default(),
        };
        row.pending = row.pending.saturating_add_signed(by);
        self.pending = self.pending.saturating_add_signed(by);
        let waiting = self.waiting.entry(Arc::clone(principal)).or_default();
        *waiting = waiting.saturating_add_signed(by);
        if *waiting == 0 {
            self.waiting.remove(principal);
        }
    }

    fn live_record(&self, namespace: &str, key: &str, now: Time) -> Option<&Record> {
        let record = self.records.get(namespace)?.get(key)?;
        (!is_gone(record, now)).then_some(record)
    }
}

fn is_gone(record: &Record, now: Time) -> bool {
    record.expires_at.is_some_and(|at| at <= now)
}

/// Whether a record is as a write expects it; the version it has now, if so.
fn as_expected(found: Option<&Record>, expect: Expect) -> Result<u64, Rejection> {
    let version = found.map_or(0, |record| record.version);
    let fits = match expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::Version(expected) => found.is_some() && expected == version,
    };
    if fits { Ok(version) } else { Err(Rejection::Conflict) }
}

fn matches(filter: &CallFilter, call: &Call) -> bool {
    let path = &call.facts.path;
    filter.state.is_none_or(|state| state == call.state)
        && (!filter.holding || call.open_hold().is_some())
        && filter.session.as_ref().is_none_or(|session| path.session.as_ref() == Some(session))
        && filter.principal.as_ref().is_none_or(|principal| path.principal == *principal)
        && filter.argument_digest.is_none_or(|digest| digest == call.argument_digest)
}

/// The page of a filter, of calls in the order they were submitted.
fn listed<'a>(filter: &CallFilter, calls: impl DoubleEndedIterator<Item = &'a Arc<Call>>) -> Vec<Arc<Call>> {
    let (calls, most) = (calls.filter(|call| matches(filter, call)), page(filter.limit));
    match filter.order {
        Order::Oldest => calls.take(most).cloned().collect(),
        Order::Newest => calls.rev().take(most).cloned().collect(),
    }
}

fn page(limit: Option<usize>) -> usize {
    limit.unwrap_or(limits::PAGE_ROWS_DEFAULT).min(limits::PAGE_ROWS)
}

#[async_trait]
impl Store for MemoryStore {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        let (applied, rung, any, all) = {
            let mut tables = self.tables();
            tables.now = self.clock.now();
            let applied = apply(&op, &mut *tables);
            let any = std::mem::take(&mut tables.ring_any);
            (applied, std::mem::take(&mut tables.rung), any, std::mem::take(&mut tables.ring_all))
        };
        if any && rung.is_empty() {
            self.bell.ring_any();
        }
        for call in rung {
            self.bell.ring(call);
        }
        if all {
            self.bell.ring_all();
        }
        applied
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.clock.now())
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        Ok(self.tables().calls.get(&id).cloned())
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.tables().call_of_hold(hold)
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        let tables = self.tables();
        let end = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = match filter.order {
            Order::Oldest => (end, Bound::Unbounded),
            Order::Newest => (Bound::Unbounded, end),
        };
        if filter.holding || filter.state == Some(CallState::Pending) {
            let held = tables.holding.range(range).filter_map(|id| tables.calls.get(id));
            return Ok(listed(&filter, held));
        }
        Ok(listed(&filter, tables.calls.range(range).map(|(_, call)| call)))
    }

    async fn holding(&self) -> Result<usize, StoreError> {
        Ok(self.tables().holding.len())
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        let now = self.clock.now();
        let tables = self.tables();
        Ok(tables.due.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, id)| *id).collect())
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        Ok(self.tables().grants.get(&id).cloned())
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        let tables = self.tables();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let grants = tables.grants.range((from, Bound::Unbounded)).map(|(_, grant)| grant.clone());
        Ok(grants.take(page(Some(limit))).collect())
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let wanted = |event: &&Event| {
            filter.call.is_none_or(|call| event.call == Some(call))
                && filter.session.as_ref().is_none_or(|session| is_of_session(&event.chain, session))
        };
        let most = page(filter.limit);
        if let Some(chain) = &filter.chain {
            let Some(row) = tables.chains.get(chain) else { return Ok(Vec::new()) };
            let start = row.events.partition_point(|at| (*at as u64) < after.minor);
            let events = row.events.iter().skip(start).filter_map(|at| tables.events.get(*at));
            return Ok(events.filter(wanted).take(most).cloned().collect());
        }
        let events = tables.events.iter().skip(usize::try_from(after.minor).unwrap_or(usize::MAX));
        Ok(events.filter(wanted).take(most).cloned().collect())
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let mut opened: Vec<_> = holds.iter().filter_map(|(_, hold)| tables.holds.get(hold)?.opened).collect();
        opened.sort_unstable();
        Ok(opened.into_iter().filter_map(|number| tables.events.get(number.get() - 1)).cloned().collect())
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        Ok(is_halted(&self.tables().halts, path))
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        Ok(self.tables().policy.clone())
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.tables().live_record(namespace, key, self.clock.now()).cloned())
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let now = self.clock.now();
        let tables = self.tables();
        let Some(named) = tables.records.get(namespace) else { return Ok(Vec::new()) };
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = named.range::<str, _>((from, Bound::Unbounded));
        let wanted = range.take_while(|(key, _)| key.starts_with(prefix));
        Ok(wanted.map(|(_, record)| record).filter(|record| !is_gone(record, now)).take(limit).cloned().collect())
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let named = match tables.records.get_mut(namespace) {
            Some(named) => named,
            None => tables.records.entry(namespace.to_owned()).or_default(),
        };
        let place = named.entry(key.to_owned());
        let found = match &place {
            Entry::Occupied(found) => Some(found.get()).filter(|record| !is_gone(record, now)),
            Entry::Vacant(_) => None,
        };
        let version = as_expected(found, expect)? + 1;
        let expires_at = life.map(|life| now.after(life));
        place.insert_entry(Record { key: key.to_owned(), value: value.to_vec(), version, expires_at });
        Ok(version)
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        let now = self.clock.now();
        let mut tables = self.tables();
        as_expected(tables.live_record(namespace, key, now), expect)?;
        if let Some(named) = tables.records.get_mut(namespace) {
            named.remove(key);
        }
        Ok(())
    }

    fn bell(&self) -> &Bell<CallId> {
        &self.bell
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// Whether a chain belongs to a session, whoever's.
pub(crate) fn is_of_session(chain: &Chain, session: &str) -> bool {
    chain.0.split_once('/').is_some_and(|(_, name)| name == session)
}
