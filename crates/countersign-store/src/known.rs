//! Calls on their way that a store has in memory, so that the next step of one need not read it again.
//!
//! Whoever takes one from here must still know that nobody else has written it since.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::call::Call;
use countersign::id::{CallId, HoldId};

/// Calls kept. Beyond that all are forgotten at once, which costs a few reads.
pub(crate) const MOST: usize = 8_192;

/// Calls, each with what the store wants to know beside it.
#[derive(Debug)]
pub(crate) struct Known<T> {
    calls: HashMap<CallId, (T, Arc<Call>)>,
    holds: HashMap<HoldId, CallId>,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { calls: HashMap::new(), holds: HashMap::new() }
    }
}

impl<T: Copy> Known<T> {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn call(&self, id: CallId) -> Option<&Arc<Call>> {
        self.calls.get(&id).map(|(_, call)| call)
    }

    pub(crate) fn call_of_hold(&self, hold: HoldId) -> Option<&Arc<Call>> {
        self.call(*self.holds.get(&hold)?)
    }

    /// What was kept beside a call.
    pub(crate) fn beside(&self, id: CallId) -> Option<T> {
        self.calls.get(&id).map(|(beside, _)| *beside)
    }

    /// Keeps a call as it is in the database. One that has ended is seldom asked for again.
    pub(crate) fn keep(&mut self, beside: T, call: &Arc<Call>) {
        for hold in call.holds.iter() {
            match call.state.is_final() {
                true => self.holds.remove(&hold.id),
                false => self.holds.insert(hold.id, call.id),
            };
        }
        match call.state.is_final() {
            true => self.calls.remove(&call.id),
            false => self.calls.insert(call.id, (beside, Arc::clone(call))),
        };
    }
}
