//! Calls on their way that a store has in memory, so that the next step of one need not read it again.
//!
//! Whoever takes one from here must still know that nobody else has written it since.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::call::Call;
use countersign::id::{CallId, HoldId};
use countersign::limits::LARGE_ARGUMENT_BYTES;

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

    /// Keeps a call as it is in the database. One that has ended is seldom asked for again; a large one is read again,
    /// because thousands of those would fill the memory.
    pub(crate) fn keep(&mut self, beside: T, call: &Arc<Call>) {
        let is_kept = !call.state.is_final() && call.facts.arguments.as_str().len() <= LARGE_ARGUMENT_BYTES;
        for hold in call.holds.iter() {
            match is_kept {
                true => self.holds.insert(hold.id, call.id),
                false => self.holds.remove(&hold.id),
            };
        }
        match is_kept {
            true => self.calls.insert(call.id, (beside, Arc::clone(call))),
            false => self.calls.remove(&call.id),
        };
    }
}

#[cfg(test)]
mod tests {
    use countersign::memory::MemoryStore;
    use countersign::testing::{proposal, submit};
    use serde_json::json;

    use super::*;

    /// What an agent can have a store keep in memory is bounded in bytes, not only in calls.
    #[tokio::test]
    async fn a_large_call_is_not_kept() {
        let store = MemoryStore::new();
        let mut known = Known::default();
        for (bytes, is_kept) in [(LARGE_ARGUMENT_BYTES / 2, true), (LARGE_ARGUMENT_BYTES, false)] {
            let call = submit(&store, proposal("write", json!({ "text": "x".repeat(bytes) }), "s1")).await;
            known.keep((), &call);
            assert_eq!(known.call(call.id).is_some(), is_kept, "{bytes}");
            assert_eq!(known.call_of_hold(call.holds[0].id).is_some(), is_kept, "{bytes}");
        }
        assert_eq!(known.len(), 1);
    }
}
