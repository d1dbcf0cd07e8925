//! The store as the gate sees it: one that always answers, if only to say that it failed.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;

use crate::bell::Bell;
use crate::call::{Call, Path};
use crate::event::{Cursor, Event};
use crate::grant::Grant;
use crate::id::{CallId, GrantId, HoldId};
use crate::kept::{Keep, KeptGrants};
use crate::limits;
use crate::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, Store, StoreError};
use crate::time::Time;

/// Bounds every answer of a store in time. What was asked for may or may not be written when the time is up.
///
/// It also has the grants that this process keeps in mind alone: whoever asks it finds them beside the stored ones.
pub(crate) struct Bounded {
    inner: Arc<dyn Store>,
    kept: Arc<KeptGrants>,
}

impl Bounded {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Bounded {
        Bounded { inner, kept: Arc::default() }
    }

    /// As [`Store::run`], without a second box around the future: every step of every call takes this way.
    pub(crate) async fn run(&self, op: Op) -> Result<Applied, Failure> {
        let in_mind = matches!(&op, Op::Decide(deciding) if deciding.keep == Keep::InMind);
        let applied = bounded(self.inner.run(self.kept.beside(op))).await?;
        if let Some(grant) = applied.grant.as_deref().filter(|_| in_mind) {
            self.kept.keep(grant.clone(), grant.made_at);
        }
        Ok(applied)
    }

    /// As [`Store::call`], likewise.
    pub(crate) async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        bounded(self.inner.call(id)).await
    }
}

/// Waits for an answer, so long at most. One that is there at once needs no timer, and no room for one in the future of
/// every step.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    match futures::poll!(work.as_mut()) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => Box::pin(tokio::time::timeout(limit, work)).await.ok(),
    }
}

async fn bounded<T, E: From<StoreError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match within(limits::STORE_ANSWERS_WITHIN, work).await {
        Some(answer) => answer,
        None => {
            let seconds = limits::STORE_ANSWERS_WITHIN.as_secs();
            Err(StoreError::Failed(format!("it did not answer within {seconds} seconds")).into())
        }
    }
}

#[async_trait]
impl Store for Bounded {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        Bounded::run(self, op).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        bounded(self.inner.now()).await
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        Bounded::call(self, id).await
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        bounded(self.inner.call_of_hold(hold)).await
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        bounded(self.inner.calls(filter)).await
    }

    async fn holding(&self) -> Result<usize, StoreError> {
        bounded(self.inner.holding()).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        bounded(self.inner.due(limit)).await
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        match self.kept.get(id) {
            Some(kept) => Ok(Some(kept)),
            None => bounded(self.inner.grant(id)).await,
        }
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        Ok(self.kept.join(bounded(self.inner.grants_after(after, limit)).await?, after, limit))
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        bounded(self.inner.events(after, filter)).await
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        bounded(self.inner.openings(holds)).await
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        bounded(self.inner.halted(path)).await
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        bounded(self.inner.policy()).await
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        bounded(self.inner.record(namespace, key)).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        bounded(self.inner.records(namespace, prefix, after, limit)).await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        bounded(self.inner.put_record(namespace, key, value, expect, life)).await
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        bounded(self.inner.delete_record(namespace, key, expect)).await
    }

    fn bell(&self) -> &Bell<CallId> {
        self.inner.bell()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
}
