//! For tests of stores and gates: a clock that is set by hand, builders of calls, and the contract every store keeps.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on is a test that fails")]

mod build;
mod clock;
pub mod contract;
mod fault;
pub mod races;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::memory::MemoryStore;
use crate::store::Store;

pub use build::{
    Proposal, approve, claim, claimant, decide, decide_with, finish, grant_for, proposal, rejection, submit, succeeded,
    verdict,
};
pub use clock::ManualClock;
pub use fault::{Fault, FaultStore, OP_NAMES, op_name};

/// A fresh, empty store under test, and a hand on its time.
#[async_trait]
pub trait TestStore: Send + Sync {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;
    /// Moves the store's time forward.
    async fn advance(&self, by: Duration);
    /// Opens it anew, as another process would find it; a store that keeps nothing returns itself.
    async fn reopen(&self) -> Arc<dyn Store>;
}

/// A memory store under test.
pub struct TestMemory {
    store: Arc<MemoryStore>,
    clock: ManualClock,
}

impl TestMemory {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "each is a store of its own")]
    pub fn new() -> TestMemory {
        let clock = ManualClock::new();
        TestMemory { store: Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))), clock }
    }
}

#[async_trait]
impl TestStore for TestMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.store()
    }
}
