//! Identical calls that come again: which call they belong to.
//!
//! A call that people are asked about is written down under the digest of its arguments, as a record of the store, until
//! its outcome has reached a client. The identical call finds it there, in this process or in the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign::digest::ArgumentDigest;
use countersign::store::{CallFilter, Expect, Failure, Record, StoreError};
use countersign::transition::Rejection;
use countersign::{Call, CallId, CallState, GateError, Time, limits as core_limits};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::{Core, Shared, session_prefix};
use crate::limits;

/// Where calls whose outcome nobody got are kept among the store's records.
const NAMESPACE: &str = "gateway";
/// Where it is kept since when a call has had no client.
const UNATTENDED: &str = "gateway-unattended";
/// How long that is kept: by then the call is over in any case, or some gateway has seen to it.
const MARKED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Locks that identical calls share; others share one seldom.
const SHARDS: usize = 2_048;

/// What earlier calls left behind.
pub(super) struct Retries {
    /// Keeps identical calls from being submitted side by side before one of them is written down.
    shards: Vec<AsyncMutex<()>>,
    /// Calls that a process before this one began to run and whose outcome is not known.
    inherited: Mutex<HashMap<String, CallId>>,
    /// How many clients' requests are attached to a call.
    attached: Mutex<HashMap<CallId, usize>>,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            shards: (0..SHARDS).map(|_| AsyncMutex::new(())).collect(),
            inherited: Mutex::default(),
            attached: Mutex::default(),
        }
    }
}

/// What an identical call left behind.
pub(super) enum Earlier {
    /// Nothing: this is a new call.
    Nothing,
    /// This call, open or with an outcome that nobody got.
    Call(Arc<Call>),
    /// A doubt: it may already have happened, so a person must know.
    Doubt(CallId),
}

/// A request's seat at a call. Dropped, it has left.
pub(super) struct Seat<'c> {
    retries: &'c Retries,
    call: CallId,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut attached = self.retries.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = attached.get_mut(&self.call) {
            *count -= 1;
            if *count == 0 {
                attached.remove(&self.call);
            }
        }
    }
}

impl Retries {
    /// Only one of several identical calls passes at a time.
    pub(super) async fn alone(&self, digest: &ArgumentDigest) -> Option<MutexGuard<'_, ()>> {
        let [first, second, ..] = *digest.as_bytes();
        let shard = self.shards.get(usize::from(u16::from_be_bytes([first, second])) % SHARDS)?;
        Some(shard.lock().await)
    }

    /// Attaches a request to a call.
    pub(super) fn attach(&self, call: CallId) -> Seat<'_> {
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_default() += 1;
        Seat { retries: self, call }
    }

    pub(super) fn is_attended(&self, call: CallId) -> bool {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&call)
    }

    /// Finds what gateways before this one began to run on this server and never finished.
    pub(super) async fn inherit(&self, shared: &Shared) -> Result<(), StoreError> {
        let prefix = session_prefix(&shared.server);
        for state in [CallState::Executing, CallState::InDoubt] {
            let mut filter =
                CallFilter { state: Some(state), limit: Some(core_limits::PAGE_ROWS), ..CallFilter::default() };
            loop {
                let calls = shared.gate.store().calls(filter.clone()).await?;
                let Some(last) = calls.last() else { break };
                filter.after = Some(last.id);
                let ours = |call: &&Arc<Call>| {
                    call.facts.path.session.as_ref().is_some_and(|session| session.starts_with(&prefix))
                };
                let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
                inherited.extend(
                    calls
                        .iter()
                        .filter(ours)
                        .map(|call| (shared.key(&call.facts.path.principal, &proposed(call)), call.id)),
                );
            }
        }
        Ok(())
    }
}

/// The digest of what the client asked for, whatever an approver made of it.
pub(super) fn proposed(call: &Call) -> ArgumentDigest {
    call.proposed_digest.unwrap_or(call.argument_digest)
}

impl Core {
    /// What an identical call left behind. An outcome that is returned here is nobody else's any more.
    pub(super) async fn earlier(&self, digest: &ArgumentDigest) -> Result<Earlier, GateError> {
        let (store, key) = (self.gate.store(), self.own_key(digest));
        if let Some(record) = store.record(NAMESPACE, &key).await?
            && let Some(call) = self.recorded(digest, &record).await?
        {
            return Ok(Earlier::Call(call));
        }
        let inherited = self.retries.inherited.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let Some(id) = inherited else { return Ok(Earlier::Nothing) };
        let call = self.gate.get(id).await?;
        match call.state {
            CallState::Executing => Ok(Earlier::Call(call)),
            CallState::InDoubt => Ok(Earlier::Doubt(id)),
            _ => {
                self.retries.inherited.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                Ok(Earlier::Nothing)
            }
        }
    }

    async fn recorded(&self, digest: &ArgumentDigest, record: &Record) -> Result<Option<Arc<Call>>, GateError> {
        let id = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse::<CallId>().ok());
        let call = match id {
            Some(id) => self.gate.store().call(id).await?,
            None => None,
        };
        if let Some(call) = call.as_ref().filter(|call| !has_ended(call.state)) {
            return Ok(Some(Arc::clone(call)));
        }
        // Whoever removes the record has the outcome.
        let (key, expect) = (self.own_key(digest), Expect::Version(record.version));
        match self.gate.store().delete_record(NAMESPACE, &key, expect).await {
            Ok(()) => {}
            Err(Failure::Rejected(_)) => return Ok(None),
            Err(Failure::Store(error)) => return Err(error.into()),
        }
        let Some(call) = call else { return Ok(None) };
        let is_fresh = call.updated_at.until(self.gate.store().now().await?) <= limits::LINGER;
        let tells = !matches!(call.state, CallState::Cancelled | CallState::Lapsed);
        Ok((is_fresh && tells).then_some(call))
    }

    /// Writes down that nobody has got the outcome of a call yet.
    pub(super) async fn owe(&self, digest: &ArgumentDigest, call: &Call) -> Result<(), GateError> {
        let now = self.gate.store().now().await?;
        let life = match call.open_hold().map(|hold| hold.expires_at) {
            Some(None) => None,
            Some(Some(expires)) => Some(now.until(expires) + core_limits::CLAIM_WITHIN + limits::LINGER),
            None => Some(limits::LINGER),
        };
        let (key, value) = (self.own_key(digest), call.id.to_string());
        match self.gate.store().put_record(NAMESPACE, &key, value.as_bytes(), Expect::Any, life).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Writes that down where nothing else can be done if it fails: then an identical call is a new call.
    pub(super) async fn still_owe(&self, digest: &ArgumentDigest, call: &Call) {
        if let Err(error) = self.owe(digest, call).await {
            self.note(&format!("the outcome of {} will not be delivered: {error}", call.id));
        }
    }

    /// The outcome of a call is about to reach a client.
    pub(super) async fn paid(&self, digest: &ArgumentDigest, call: CallId) {
        let key = self.own_key(digest);
        let record = match self.gate.store().record(NAMESPACE, &key).await {
            Ok(Some(record)) if record.value == call.to_string().as_bytes() => record,
            Ok(_) => return,
            Err(error) => return self.note(&format!("a delivered outcome may be delivered again: {error}")),
        };
        match self.gate.store().delete_record(NAMESPACE, &key, Expect::Version(record.version)).await {
            Ok(()) | Err(Failure::Rejected(Rejection::Conflict | Rejection::NotFound(_))) => {}
            Err(error) => self.note(&format!("a delivered outcome may be delivered again: {error}")),
        }
    }

    /// A call lost its client: withdraw it after a while, unless the identical call comes again. That it has no client is
    /// written down, for gateways that come after this one.
    pub(super) async fn linger(self: &Arc<Self>, call: CallId) {
        if let Err(error) = self.shared.mark(call).await {
            self.note(&format!("{call} has lost its client, which could not be written down: {error}"));
        }
        // Not of the conversation: the hold outlives it.
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(limits::LINGER).await;
            let Some(shared) = shared.upgrade() else { return };
            if let Err(error) = shared.withdraw_unattended().await {
                shared.note(&format!("a call without a client could not be withdrawn: {error}"));
            }
        });
    }

    /// A client came back to a call.
    pub(super) async fn attended(&self, call: CallId) -> Result<(), GateError> {
        match self.gate.store().delete_record(UNATTENDED, &self.mark_of(call), Expect::Any).await {
            Ok(()) | Err(Failure::Rejected(_)) => Ok(()),
            Err(Failure::Store(error)) => Err(error.into()),
        }
    }

    fn own_key(&self, digest: &ArgumentDigest) -> String {
        self.key(&self.path.principal, digest)
    }
}

impl Shared {
    /// Writes down that a call has no client from now on.
    async fn mark(&self, call: CallId) -> Result<(), GateError> {
        let store = self.gate.store();
        let now = store.now().await?.0.to_string();
        store.put_record(UNATTENDED, &self.mark_of(call), now.as_bytes(), Expect::Any, Some(MARKED)).await?;
        Ok(())
    }

    /// Withdraws calls of this server that have had no client for long enough, whichever gateway they came through.
    pub(super) async fn withdraw_unattended(&self) -> Result<(), GateError> {
        let store = self.gate.store();
        let (prefix, now) = (format!("{}/", self.server), store.now().await?);
        for record in store.records(UNATTENDED, &prefix, None, core_limits::PAGE_ROWS).await? {
            let since = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse().ok()).map(Time);
            let call: Option<CallId> = record.key.strip_prefix(&prefix).and_then(|id| id.parse().ok());
            let (Some(since), Some(call)) = (since, call) else { continue };
            if since.until(now) < limits::LINGER || self.retries.is_attended(call) {
                continue;
            }
            // Whoever removes the mark withdraws the call. One that runs or has ended cannot be, and need not be.
            if store.delete_record(UNATTENDED, &record.key, Expect::Version(record.version)).await.is_ok() {
                let _ = self.gate.cancel(call).await;
            }
        }
        Ok(())
    }

    fn mark_of(&self, call: CallId) -> String {
        format!("{}/{call}", self.server)
    }

    /// SECURITY: what one principal left behind is nobody else's. No name of either holds a slash.
    fn key(&self, principal: &str, digest: &ArgumentDigest) -> String {
        format!("{}/{principal}/{digest}", self.server)
    }
}

fn has_ended(state: CallState) -> bool {
    state.is_final() || state == CallState::InDoubt
}
