//! Grants that one process keeps in mind and no store writes down: they end with it.
//!
//! A decision may ask for them only where the policy says so (`allowedToolsStorage: memory`). Every operation of that
//! process takes them along, so that the transition finds them beside the stored ones.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::{Call, Chain, Path, ToolId};
use crate::digest::ArgumentDigest;
use crate::event::{Draft, Head};
use crate::grant::Grant;
use crate::id::{CallId, GrantId, HoldId};
use crate::limits::{self, Waiting};
use crate::refusal::Refusal;
use crate::store::{Halted, MovedHeads, Op, State, StoreError};
use crate::time::Time;

/// Where the grant that a decision makes is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// In the store, for every process and over restarts.
    #[default]
    Stored,
    /// In the mind of the process that decides.
    InMind,
}

/// The grants a process keeps in mind.
#[derive(Debug, Default)]
pub struct KeptGrants {
    grants: Mutex<BTreeMap<GrantId, Grant>>,
}

impl KeptGrants {
    fn all(&self) -> MutexGuard<'_, BTreeMap<GrantId, Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a grant whose decision is durable. Where there are too many of them it is not kept, and people are asked.
    pub fn keep(&self, grant: Grant, now: Time) {
        let mut grants = self.all();
        grants.retain(|_, kept| kept.is_live(now));
        if grants.len() < limits::KEPT_GRANTS {
            grants.insert(grant.id, grant);
        }
    }

    /// A grant.
    pub fn get(&self, id: GrantId) -> Option<Grant> {
        self.all().get(&id).cloned()
    }

    /// Puts a later version in the place of a grant that is known here.
    fn replace(&self, grant: &Grant) -> Result<Known, StoreError> {
        match self.all().get_mut(&grant.id) {
            None => Ok(Known::Not),
            Some(before) if before.version + 1 != grant.version => {
                Err(StoreError::Failed(format!("the grant {} changed meanwhile", grant.id)))
            }
            Some(before) => {
                *before = grant.clone();
                Ok(Known::Here)
            }
        }
    }

    /// A page of the store's grants, with those that belong on it.
    pub fn join(&self, mut page: Vec<Grant>, after: Option<GrantId>, limit: usize) -> Vec<Grant> {
        let grants = self.all();
        if grants.is_empty() {
            return page;
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        page.extend(grants.range((from, Bound::Unbounded)).map(|(_, grant)| grant.clone()));
        page.sort_by_key(|grant| grant.id);
        page.truncate(limit.min(limits::PAGE_ROWS));
        page
    }

    /// An operation as it is to be run: with these grants, where they matter.
    pub fn beside(self: &Arc<Self>, op: Op) -> Op {
        let matters = matches!(op, Op::Submit(_) | Op::Release { .. } | Op::Claim { .. } | Op::Revoke { .. });
        match matters && !self.all().is_empty() {
            true => Op::Beside { grants: Arc::clone(self), op: Box::new(op) },
            false => op,
        }
    }

    /// A store's state, with these grants in it.
    pub(crate) fn over<'a>(&'a self, state: &'a mut dyn State) -> Over<'a> {
        Over { grants: self, state }
    }
}

/// Whether a grant is kept in mind.
enum Known {
    Here,
    Not,
}

/// A state with grants that it does not know itself.
pub(crate) struct Over<'a> {
    grants: &'a KeptGrants,
    state: &'a mut dyn State,
}

impl State for Over<'_> {
    fn grants_for(&mut self, path: &Path, tool: &ToolId, arguments: &ArgumentDigest) -> Result<Vec<Grant>, StoreError> {
        let stored = self.state.grants_for(path, tool, arguments)?;
        let kept = self.grants.all();
        let of_tool = kept.values().filter(|grant| grant.tool == *tool && grant.revoked.is_none());
        Ok(of_tool.cloned().chain(stored).collect())
    }

    fn grant(&mut self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        match self.grants.get(id) {
            Some(kept) => Ok(Some(kept)),
            None => self.state.grant(id),
        }
    }

    /// SECURITY: nothing is made here, and what changes only tightens: a use less, or an end. So it may come before the
    /// commit, which may fail.
    fn put_grant(&mut self, grant: &Grant) -> Result<(), StoreError> {
        match self.grants.replace(grant)? {
            Known::Here => Ok(()),
            Known::Not => self.state.put_grant(grant),
        }
    }

    fn now(&self) -> Time {
        self.state.now()
    }

    fn call(&mut self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        self.state.call(id)
    }

    fn call_of_hold(&mut self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.state.call_of_hold(hold)
    }

    fn call_by_key(&mut self, path: &Path, key: &str) -> Result<Option<Arc<Call>>, StoreError> {
        self.state.call_by_key(path, key)
    }

    fn denial(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<Refusal>, StoreError> {
        self.state.denial(path, arguments)
    }

    fn doubt(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<CallId>, StoreError> {
        self.state.doubt(path, arguments)
    }

    fn pending(&mut self, path: &Path) -> Result<Waiting, StoreError> {
        self.state.pending(path)
    }

    fn halted(&mut self, path: &Path) -> Result<bool, StoreError> {
        self.state.halted(path)
    }

    fn halt_is_set(&mut self, agent: Option<&str>) -> Result<bool, StoreError> {
        self.state.halt_is_set(agent)
    }

    fn policy_version(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        self.state.policy_version()
    }

    fn moved_heads(&mut self) -> Result<MovedHeads, StoreError> {
        self.state.moved_heads()
    }

    fn put_call(&mut self, chain: &Chain, call: Arc<Call>, before: Option<&Call>) -> Result<(), StoreError> {
        self.state.put_call(chain, call, before)
    }

    fn put_halt(&mut self, agent: Option<&str>, halted: Halted) -> Result<(), StoreError> {
        self.state.put_halt(agent, halted)
    }

    fn put_policy(&mut self, version: &str, source: &str) -> Result<(), StoreError> {
        self.state.put_policy(version, source)
    }

    fn put_checkpoint(&mut self, heads: &[(Chain, Head)]) -> Result<(), StoreError> {
        self.state.put_checkpoint(heads)
    }

    fn append(&mut self, chain: &Chain, draft: Draft) -> Result<(), StoreError> {
        self.state.append(chain, draft)
    }
}
