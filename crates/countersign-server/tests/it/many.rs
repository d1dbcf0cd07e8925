//! Streams that begin with many holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign::bell::Bell;
use countersign::call::{Call, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::memory::MemoryStore;
use countersign::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, StoreError};
use countersign::{CallId, GrantId, HoldId, Proposal, Store, Time};
use countersign_testkit::stores::Kind;

use crate::events::Events;
use crate::stage::{POLICY, Stage};

/// Counts how often holds, calls and the events of a call are read. What the server's one tail reads is not the stream's.
struct Counting {
    inner: MemoryStore,
    reads: AtomicUsize,
}

#[async_trait]
impl Store for Counting {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        self.inner.run(op).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.inner.now().await
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.call(id).await
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.call_of_hold(hold).await
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.calls(filter).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        self.inner.due(limit).await
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        self.inner.grant(id).await
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        self.inner.grants_after(after, limit).await
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        self.reads.fetch_add(usize::from(filter.call.is_some()), Ordering::SeqCst);
        self.inner.events(after, filter).await
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.openings(holds).await
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        self.inner.halted(path).await
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        self.inner.policy().await
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.inner.record(namespace, key).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.records(namespace, prefix, after, limit).await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        self.inner.put_record(namespace, key, value, expect, life).await
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        self.inner.delete_record(namespace, key, expect).await
    }

    fn bell(&self) -> &Bell<CallId> {
        self.inner.bell()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
}

/// Submits calls that wait, as many in a session as may.
async fn fill(stage: &Stage, calls: usize) {
    for n in 0..calls {
        // As many as one agent may have waiting, in sessions of as many as one may have.
        let principal = format!("agent-{}", n / 1_000).into();
        let path = Path { principal, ..Path::session(format!("s{}", n / 100)) };
        let proposal = Proposal::new("write_file", format!(r#"{{"n":{n}}}"#)).path(path);
        stage.gate.submit_undefined(proposal).await.unwrap();
    }
}

/// B122: a stream begins with every hold that waits, and costs pages of them, not as many questions as there are holds.
#[tokio::test]
async fn ten_thousand_holds_begin_a_stream_in_a_few_readings() {
    let store = Arc::new(Counting { inner: MemoryStore::new(), reads: AtomicUsize::new(0) });
    let stage = Stage::over(Arc::clone(&store) as Arc<dyn Store>, POLICY).await;
    fill(&stage, 10_000).await;
    let ann = stage.ann().await;
    store.reads.store(0, Ordering::SeqCst);
    let mut events = Events::open(&ann, "/v1/events").await;
    let mut opened = 0;
    while events.next().await.unwrap().0 == "hold.opened" {
        opened += 1;
    }
    assert_eq!(opened, 10_000);
    let reads = store.reads.load(Ordering::SeqCst);
    assert!(reads < 30, "{reads} readings");
}

/// What a stream begins with are the events of the log themselves, on every store.
#[tokio::test]
async fn what_waits_is_told_by_the_events_of_the_log() {
    for kind in [Kind::Memory, Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let stage = Stage::over(test.store(), POLICY).await;
        fill(&stage, 20).await;
        let filter = EventFilter { limit: Some(1_000), ..EventFilter::default() };
        let log = stage.gate.store().events(Cursor::default(), filter).await.unwrap();
        let opened: Vec<&Event> = log.iter().filter(|event| event.hold.is_some()).collect();
        let withdrawn = opened[3].call.unwrap();
        stage.gate.cancel(withdrawn).await.unwrap();
        let mut events = Events::open(&stage.ann().await, "/v1/events").await;
        for event in opened.into_iter().filter(|event| event.call != Some(withdrawn)) {
            let (name, _, told) = events.next().await.unwrap();
            assert_eq!((name.as_str(), &told["hash"]), ("hold.opened", &event.hash.to_string().into()), "{kind:?}");
        }
        assert_eq!(events.next().await.unwrap().0, "ready", "{kind:?}");
    }
}
