//! What never changes of calls that were seen here: whose they are and what they were made for. It is asked at every step
//! of a call, and needs no reading twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use countersign::digest::DefinitionDigest;
use countersign::{Call, CallId};

use crate::limits;

/// Calls that were seen here.
#[derive(Default)]
pub(crate) struct Seen {
    calls: Mutex<HashMap<CallId, Origin>>,
}

/// Where a call comes from. INVARIANT: no transition changes any of it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Whose it is.
    pub(crate) principal: Arc<str>,
    /// The definition it was made for.
    pub(crate) definition: Option<DefinitionDigest>,
    /// Whether it names its place in a run: then an agent of a server may be the one to run it.
    pub(crate) in_run: bool,
}

impl Seen {
    /// Remembers where a call comes from.
    pub(crate) fn note(&self, call: &Call) -> Origin {
        let path = &call.facts.path;
        let origin = Origin {
            principal: Arc::clone(&path.principal),
            definition: call.definition,
            in_run: path.session.is_some() && path.run.is_some() && path.thread.is_some(),
        };
        if let Ok(mut calls) = self.calls.lock() {
            if calls.len() >= limits::SEEN {
                // Cheaper than to find out which ones are over: each costs one more reading.
                calls.clear();
            }
            calls.insert(call.id, origin.clone());
        }
        origin
    }

    /// Where a call comes from, if it was seen.
    pub(crate) fn find(&self, id: CallId) -> Option<Origin> {
        self.calls.lock().ok()?.get(&id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use countersign::memory::MemoryStore;
    use countersign::{Gate, Proposal};

    use super::*;

    #[tokio::test]
    async fn no_more_calls_are_remembered_than_may_be_and_the_last_one_is() {
        let gate = Gate::builder().store(Arc::new(MemoryStore::new())).decided_elsewhere().build().unwrap();
        let call = gate.submit_undefined(Proposal::new("read_file", "{}")).await.unwrap();
        let (seen, mut call) = (Seen::default(), Call::clone(&call));
        for _ in 0..=limits::SEEN {
            call.id = CallId::new();
            seen.note(&call);
            assert!(seen.calls.lock().unwrap().len() <= limits::SEEN);
        }
        assert_eq!(seen.find(call.id).map(|origin| origin.principal), Some(Arc::clone(&call.facts.path.principal)));
        assert!(seen.find(CallId::new()).is_none());
    }
}
