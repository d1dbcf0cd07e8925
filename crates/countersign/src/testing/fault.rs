//! A store that fails, hangs, forgets to answer, answers late or lies, at a moment of the test's choosing.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::bell::Bell;
use crate::call::{Call, Path};
use crate::event::{Cursor, Event};
use crate::grant::Grant;
use crate::id::{CallId, GrantId, HoldId};
use crate::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, Store, StoreError};
use crate::time::Time;

/// What goes wrong with one call of the store.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails, and nothing was written.
    Fail,
    /// It never answers, and nothing was written.
    Hang,
    /// It was written, and the answer is an error: a lost commit answer.
    Lose,
    /// It was written, and it never answers.
    Mute,
    /// It was written, and the answer takes this long.
    Late(Duration),
    /// It was written, and the call in the answer is another one.
    Tamper(fn(&mut Call)),
    /// It was written, and this is done before anybody hears of it.
    After(fn()),
}

type Plan = Box<dyn Fn(u64, &'static str) -> Fault + Send + Sync>;

/// Wraps a store. Every call of it is numbered from 1, named, and put to a plan.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    count: AtomicU64,
    plan: Plan,
}

impl FaultStore {
    /// A store that does what the plan says at each call.
    pub fn new(inner: Arc<dyn Store>, plan: impl Fn(u64, &'static str) -> Fault + Send + Sync + 'static) -> FaultStore {
        FaultStore { inner, count: AtomicU64::new(0), plan: Box::new(plan) }
    }

    /// How many calls there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Puts one call of the store to the plan.
    fn fault(&self, site: &'static str) -> (u64, Fault) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        (number, (self.plan)(number, site))
    }

    async fn meet<T, E: From<StoreError>>(
        &self,
        site: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let (number, fault) = self.fault(site);
        suffer(number, site, fault, work).await
    }
}

async fn suffer<T, E: From<StoreError>>(
    number: u64,
    site: &'static str,
    fault: Fault,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let failed = || Err(StoreError::Failed(format!("injected at call {number}, {site}")).into());
    match fault {
        Fault::None | Fault::Tamper(_) => work.await,
        Fault::Fail => failed(),
        Fault::Hang => pending().await,
        Fault::Lose => {
            let _ = work.await;
            failed()
        }
        Fault::Mute => {
            let _ = work.await;
            pending().await
        }
        Fault::Late(delay) => {
            let answer = work.await;
            tokio::time::sleep(delay).await;
            answer
        }
        Fault::After(done) => {
            let answer = work.await;
            done();
            answer
        }
    }
}

/// Every name that [`op_name`] gives: what a process can die at must be all of them.
pub const OP_NAMES: [&str; 19] = [
    "submit",
    "decide",
    "release",
    "close",
    "cancel",
    "claim",
    "renew",
    "ask",
    "finish",
    "resolve",
    "tick",
    "halt",
    "lift",
    "grant",
    "revoke",
    "note",
    "checkpoint",
    "offer policy",
    "set policy",
];

/// The name of an operation, for plans and reports.
pub fn op_name(op: &Op) -> &'static str {
    match op {
        Op::Submit(_) => "submit",
        Op::Decide(_) => "decide",
        Op::Release { .. } => "release",
        Op::Close { .. } => "close",
        Op::Cancel { .. } => "cancel",
        Op::Claim { .. } => "claim",
        Op::Renew { .. } => "renew",
        Op::Ask { .. } => "ask",
        Op::Finish { .. } => "finish",
        Op::Resolve { .. } => "resolve",
        Op::Tick { .. } => "tick",
        Op::Halt { .. } => "halt",
        Op::Lift { .. } => "lift",
        Op::Grant(_) => "grant",
        Op::Revoke { .. } => "revoke",
        Op::Note { .. } => "note",
        Op::Beside { op, .. } => op_name(op),
        Op::Checkpoint { .. } => "checkpoint",
        Op::OfferPolicy { .. } => "offer policy",
        Op::SetPolicy { .. } => "set policy",
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        let site = op_name(&op);
        let (number, fault) = self.fault(site);
        let mut applied = suffer(number, site, fault, self.inner.run(op)).await?;
        if let (Fault::Tamper(change), Some(call)) = (fault, &mut applied.call) {
            change(Arc::make_mut(call));
        }
        Ok(applied)
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.meet("now", self.inner.now()).await
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        self.meet("read call", self.inner.call(id)).await
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.meet("read hold", self.inner.call_of_hold(hold)).await
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        self.meet("read calls", self.inner.calls(filter)).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        self.meet("read due", self.inner.due(limit)).await
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        self.meet("read grant", self.inner.grant(id)).await
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        self.meet("read grants", self.inner.grants_after(after, limit)).await
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        self.meet("read events", self.inner.events(after, filter)).await
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        self.meet("read openings", self.inner.openings(holds)).await
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        self.meet("read halt", self.inner.halted(path)).await
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        self.meet("read policy", self.inner.policy()).await
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.meet("read record", self.inner.record(namespace, key)).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.meet("read records", self.inner.records(namespace, prefix, after, limit)).await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        self.meet("put record", self.inner.put_record(namespace, key, value, expect, life)).await
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        self.meet("delete record", self.inner.delete_record(namespace, key, expect)).await
    }

    fn bell(&self) -> &Bell<CallId> {
        self.inner.bell()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
}
