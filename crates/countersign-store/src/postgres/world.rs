//! The rows one batch needs, in memory: read before, run on, written after.
//!
//! INVARIANT: whatever an operation looks at was fetched under the batch's locks. Looking at anything else is a bug of
//! ours and fails, for "not fetched" must never read as "not there".

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use countersign::call::{Call, CallState, Chain, Path, ToolId};
use countersign::digest::{ArgumentDigest, EventHash};
use countersign::event::{Draft, Event, EventName, Head};
use countersign::grant::{Grant, Scope};
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits::Waiting;
use countersign::refusal::{Refusal, RefusalKind};
use countersign::store::{Halted, MovedHeads, State, StoreError};
use countersign::time::Time;

use super::batch::Counted;
use super::rows::place;

/// Where a key or a denial counts: chain, principal, and run or session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) chain: Chain,
    pub(super) principal: Arc<str>,
    pub(super) place: Box<str>,
}

impl Place {
    pub(super) fn of(path: &Path) -> Place {
        Place { chain: path.chain(), principal: Arc::clone(&path.principal), place: place(path).into() }
    }
}

/// What was asked of the database, found or not.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) calls: HashSet<CallId>,
    pub(super) holds: HashSet<HoldId>,
    pub(super) grants: HashSet<GrantId>,
    pub(super) keys: HashSet<(Place, Arc<str>)>,
    pub(super) arguments: HashSet<(Place, ArgumentDigest)>,
    /// Whether all moved heads are here.
    pub(super) heads: bool,
}

/// A chain as it stood in the database, and as it stands now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChainRow {
    /// Its length in the database; none where it is new.
    pub(super) stored: Option<u64>,
    pub(super) head: Head,
    pub(super) signed: u64,
    pub(super) pending: u64,
    pub(super) dirty: bool,
}

/// A call as the database has it, in a batch that changes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) version: u64,
    /// Whether what it asks for changes too.
    pub(super) edited: bool,
}

/// All that a batch runs on.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) asked: Asked,
    pub(super) calls: HashMap<CallId, Result<Arc<Call>, String>>,
    pub(super) holds: HashMap<HoldId, CallId>,
    pub(super) keys: HashMap<(Place, Arc<str>), CallId>,
    pub(super) denials: HashMap<(Place, ArgumentDigest), Refusal>,
    pub(super) doubts: HashMap<(Arc<str>, Chain, ArgumentDigest), BTreeSet<CallId>>,
    pub(super) grants: HashMap<GrantId, Grant>,
    pub(super) chains: HashMap<Chain, ChainRow>,
    pub(super) halts: HashSet<String>,
    pub(super) policy_version: Option<Arc<str>>,
    pub(super) checkpoint: Option<EventHash>,
    /// How many calls wait, as far as this node knows.
    pub(super) waiting: Arc<Counted>,
    pub(super) changed: Changed,
}

/// What the operations wrote.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Calls, with the version the database has; none where they are new.
    pub(super) calls: HashMap<CallId, Option<Stored>>,
    pub(super) holds: Vec<(HoldId, CallId)>,
    /// Grants, with the version the database has.
    pub(super) grants: HashMap<GrantId, Option<u64>>,
    pub(super) events: Vec<Event>,
    pub(super) halts: HashMap<String, Halted>,
    pub(super) policy: Option<(Arc<str>, Arc<str>)>,
    pub(super) checkpoint: Option<EventHash>,
    /// How many more calls of each principal wait than before.
    pub(super) pending: HashMap<Arc<str>, i64>,
    /// Calls that moved.
    pub(super) rung: BTreeSet<CallId>,
    /// Whether what changed may concern every call.
    pub(super) all: bool,
}

fn unfetched(what: &str) -> StoreError {
    StoreError::Failed(format!("a {what} was read that was not fetched"))
}

pub(super) fn halt_scope(agent: Option<&str>) -> String {
    agent.map_or_else(|| "all".to_owned(), |agent| format!("agent:{agent}"))
}

pub(super) fn is_halted(halts: &HashSet<String>, path: &Path) -> bool {
    halts.contains("all") || path.agents.iter().any(|agent| halts.contains(&halt_scope(Some(agent))))
}

/// Whether a call was denied by a person, so that its like is denied in the same run.
pub(super) fn denied(call: &Call) -> Option<&Refusal> {
    let path = &call.facts.path;
    let refusal = call.refusal.as_ref()?;
    let by_person = call.state == CallState::Denied && refusal.kind == RefusalKind::DeniedByApprover;
    (by_person && (path.run.is_some() || path.session.is_some())).then_some(refusal)
}

/// Where an identical call in doubt is found. The chain alone will not do: calls without a session share one.
fn alike(path: &Path, arguments: &ArgumentDigest) -> (Arc<str>, Chain, ArgumentDigest) {
    (Arc::clone(&path.principal), path.chain(), *arguments)
}

impl World {
    /// Takes a call as the database has it.
    pub(super) fn fetched(&mut self, call: Arc<Call>) {
        self.list(&call);
        self.calls.insert(call.id, Ok(call));
    }

    fn list(&mut self, call: &Call) {
        let path = &call.facts.path;
        for hold in call.holds.iter() {
            self.holds.insert(hold.id, call.id);
        }
        if let Some(key) = &call.key {
            self.keys.insert((Place::of(path), Arc::clone(key)), call.id);
        }
        if let Some(refusal) = denied(call) {
            self.denials.insert((Place::of(path), call.argument_digest), refusal.clone());
        }
        if call.state == CallState::InDoubt {
            self.doubts.entry(alike(path, &call.argument_digest)).or_default().insert(call.id);
        }
    }

    fn unlist(&mut self, call: &Call) {
        if call.state == CallState::InDoubt
            && let Some(doubts) = self.doubts.get_mut(&alike(&call.facts.path, &call.argument_digest))
        {
            doubts.remove(&call.id);
        }
    }

    fn count(&mut self, chain: &Chain, call: &Call, sign: i64) -> Result<(), StoreError> {
        let by = sign * call.waiting() as i64;
        if by == 0 {
            return Ok(());
        }
        let row = self.chain(chain)?;
        row.pending = row.pending.saturating_add_signed(by);
        row.dirty = true;
        *self.changed.pending.entry(Arc::clone(&call.facts.path.principal)).or_default() += by;
        Ok(())
    }

    fn chain(&mut self, chain: &Chain) -> Result<&mut ChainRow, StoreError> {
        self.chains.get_mut(chain).ok_or_else(|| unfetched("chain"))
    }

    fn found(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        match self.calls.get(&id) {
            Some(Ok(call)) => Ok(Some(Arc::clone(call))),
            Some(Err(why)) => Err(StoreError::Damaged { what: "call", why: why.clone() }),
            None => Ok(None),
        }
    }
}

impl State for World {
    fn now(&self) -> Time {
        self.now
    }

    fn call(&mut self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        match self.found(id)? {
            None if !self.asked.calls.contains(&id) => Err(unfetched("call")),
            found => Ok(found),
        }
    }

    fn call_of_hold(&mut self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        match self.holds.get(&hold) {
            Some(id) => self.found(*id)?.ok_or_else(|| unfetched("call")).map(Some),
            None if self.asked.holds.contains(&hold) => Ok(None),
            None => Err(unfetched("hold")),
        }
    }

    fn call_by_key(&mut self, path: &Path, key: &str) -> Result<Option<Arc<Call>>, StoreError> {
        let key = (Place::of(path), Arc::from(key));
        match self.keys.get(&key) {
            Some(id) => self.found(*id)?.ok_or_else(|| unfetched("call")).map(Some),
            None if self.asked.keys.contains(&key) => Ok(None),
            None => Err(unfetched("key")),
        }
    }

    fn denial(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<Refusal>, StoreError> {
        let key = (Place::of(path), *arguments);
        match self.denials.get(&key) {
            None if !self.asked.arguments.contains(&key) => Err(unfetched("denial")),
            found => Ok(found.cloned()),
        }
    }

    fn doubt(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<CallId>, StoreError> {
        if !self.asked.arguments.contains(&(Place::of(path), *arguments)) {
            return Err(unfetched("doubt"));
        }
        let doubts = self.doubts.get(&alike(path, arguments));
        Ok(doubts.and_then(BTreeSet::last).copied())
    }

    fn grants_for(&mut self, path: &Path, tool: &ToolId, arguments: &ArgumentDigest) -> Result<Vec<Grant>, StoreError> {
        if !self.asked.arguments.contains(&(Place::of(path), *arguments)) {
            return Err(unfetched("grant"));
        }
        let may_cover = |grant: &&Grant| {
            let covers = match grant.covers.exact() {
                Some(digest) => digest == arguments,
                None => grant.tool == *tool,
            };
            let here = match &grant.scope {
                Scope::Session { session } => path.session.as_ref() == Some(session),
                Scope::Global => true,
            };
            grant.revoked.is_none() && covers && here
        };
        let mut found: Vec<Grant> = self.grants.values().filter(may_cover).cloned().collect();
        found.sort_by_key(|grant| (grant.scope == Scope::Global, grant.id));
        Ok(found)
    }

    fn grant(&mut self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        match self.grants.get(&id) {
            None if !self.asked.grants.contains(&id) => Err(unfetched("grant")),
            found => Ok(found.cloned()),
        }
    }

    fn pending(&mut self, path: &Path) -> Result<Waiting, StoreError> {
        let in_session = match &path.session {
            Some(_) => self.chain(&path.chain())?.pending,
            None => 0,
        };
        let (of_agent, in_all) = self.waiting.with(&self.changed.pending, &path.principal);
        Ok(Waiting { in_session, of_agent, in_all })
    }

    fn halted(&mut self, path: &Path) -> Result<bool, StoreError> {
        Ok(is_halted(&self.halts, path))
    }

    fn halt_is_set(&mut self, agent: Option<&str>) -> Result<bool, StoreError> {
        Ok(self.halts.contains(&halt_scope(agent)))
    }

    fn policy_version(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.policy_version.clone())
    }

    fn moved_heads(&mut self) -> Result<MovedHeads, StoreError> {
        if !self.asked.heads {
            return Err(unfetched("head"));
        }
        let moved = self.chains.iter().filter(|(_, row)| row.signed < row.head.seq);
        let mut heads: Vec<_> = moved.map(|(chain, row)| (chain.clone(), row.head)).collect();
        heads.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(MovedHeads { heads, previous: self.checkpoint })
    }

    fn put_call(&mut self, chain: &Chain, call: Arc<Call>, before: Option<&Call>) -> Result<(), StoreError> {
        let stored = self.found(call.id)?;
        if stored.as_ref().map(|stored| stored.version) != before.map(|before| before.version) {
            return Err(StoreError::Failed(format!("{} is not in the version to be replaced", call.id)));
        }
        // A hold id that another batch took is found by the database, which knows them all.
        let known = before.map_or(0, |before| before.holds.len());
        for hold in call.holds.iter().skip(known) {
            if self.holds.contains_key(&hold.id) {
                return Err(StoreError::Failed(format!("{} is taken", hold.id)));
            }
            self.changed.holds.push((hold.id, call.id));
        }
        if let Some(before) = before {
            self.unlist(before);
            self.count(chain, before, -1)?;
        }
        self.count(chain, &call, 1)?;
        let stored = self.changed.calls.entry(call.id);
        let stored = stored.or_insert_with(|| before.map(|before| Stored { version: before.version, edited: false }));
        if let (Some(stored), Some(before)) = (stored, before) {
            stored.edited |= !call.asks_the_same_as(before);
        }
        self.changed.rung.insert(call.id);
        self.fetched(call);
        Ok(())
    }

    fn put_grant(&mut self, grant: &Grant) -> Result<(), StoreError> {
        // A change goes over exactly the version before it, and a new grant over nothing: no save undoes a revoke.
        let stored = self.grants.get(&grant.id).map(|stored| stored.version);
        if stored != grant.version.checked_sub(1) {
            return Err(StoreError::Failed(format!("{} changed meanwhile", grant.id)));
        }
        self.grants.insert(grant.id, grant.clone());
        self.changed.grants.entry(grant.id).or_insert(stored);
        Ok(())
    }

    fn put_halt(&mut self, agent: Option<&str>, halted: Halted) -> Result<(), StoreError> {
        let scope = halt_scope(agent);
        match halted {
            Halted::Yes => self.halts.insert(scope.clone()),
            Halted::No => self.halts.remove(&scope),
        };
        self.changed.halts.insert(scope, halted);
        self.changed.all = true;
        Ok(())
    }

    fn put_policy(&mut self, version: &str, source: &str) -> Result<(), StoreError> {
        let version: Arc<str> = version.into();
        self.policy_version = Some(Arc::clone(&version));
        self.changed.policy = Some((version, source.into()));
        self.changed.all = true;
        Ok(())
    }

    fn put_checkpoint(&mut self, heads: &[(Chain, Head)]) -> Result<(), StoreError> {
        for (chain, head) in heads {
            let row = self.chain(chain)?;
            row.signed = head.seq;
            row.dirty = true;
        }
        Ok(())
    }

    fn append(&mut self, chain: &Chain, draft: Draft) -> Result<(), StoreError> {
        let now = self.now;
        let row = self.chain(chain)?;
        let event = row.head.seal(chain, now, draft);
        row.dirty = true;
        if event.name == EventName::CheckpointSigned {
            row.signed = event.seq;
            self.checkpoint = Some(event.hash);
            self.changed.checkpoint = Some(event.hash);
        }
        self.changed.events.push(event);
        Ok(())
    }
}
