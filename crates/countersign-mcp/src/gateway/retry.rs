//! Identical calls that come again: which call they belong to.
//!
//! A call that people are asked about is written down under the digest of its arguments, as a record of the store, until
//! its outcome has reached a client. The identical call finds it there, in this process or in the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use countersign::callers::{self, Caller, WhoWaits};
use countersign::digest::ArgumentDigest;
use countersign::store::{CallFilter, Expect, Failure, Record, StoreError};
use countersign::transition::Rejection;
use countersign::{Call, CallId, CallState, GateError, Json, Time, limits as core_limits};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::Instant;

use super::{Core, Shared, session_prefix, words};
use crate::limits;

/// Where calls whose outcome nobody got are kept among the store's records.
const NAMESPACE: &str = "gateway";
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
    /// When it was last said that this gateway is there.
    present: Mutex<Option<Instant>>,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            shards: (0..SHARDS).map(|_| AsyncMutex::new(())).collect(),
            inherited: Mutex::default(),
            attached: Mutex::default(),
            present: Mutex::default(),
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

    /// A call that some request is attached to, if there is one.
    fn any_attended(&self) -> Option<CallId> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).keys().next().copied()
    }

    /// Whether another request is attached to a call, beside the one that asks.
    fn is_attended_by_others(&self, call: CallId) -> bool {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).get(&call).is_some_and(|count| *count > 1)
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

/// What an identical call is known by: its arguments, and what else it brings the server.
pub(super) fn identity(digest: &ArgumentDigest, more: Option<&Json>) -> ArgumentDigest {
    match more {
        None => *digest,
        Some(more) => ArgumentDigest::of(format!(r#"{{"call":"{digest}","more":{more}}}"#).as_bytes()),
    }
}

impl Core {
    /// What an identical call left behind. An outcome that is returned here is nobody else's any more. A doubt is one
    /// about these arguments, whatever else was brought with them.
    pub(super) async fn earlier(
        &self,
        digest: &ArgumentDigest,
        arguments: &ArgumentDigest,
    ) -> Result<Earlier, GateError> {
        let (store, key) = (self.gate.store(), self.own_key(digest));
        if let Some(record) = store.record(NAMESPACE, &key).await?
            && let Some(call) = self.recorded(digest, &record).await?
        {
            return Ok(Earlier::Call(call));
        }
        let key = self.own_key(arguments);
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
        // One that the server did not finish is no outcome: the identical call is a new one, and is judged.
        let tells = !matches!(call.state, CallState::Cancelled | CallState::Lapsed) && !words::is_unfinished(&call);
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
        // Where that fails, it is forgotten by itself in time.
        let _ = self.forget_caller(call).await;
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
    /// written down, for people and for gateways that come after this one.
    pub(super) async fn linger(self: &Arc<Self>, call: CallId) {
        if self.retries.is_attended(call) {
            return;
        }
        if let Err(error) = self.shared.lost(call).await {
            self.note(&format!("{call} has lost its client, which could not be written down: {error}"));
        }
        // Not of the conversation: the hold outlives it.
        self.shared.withdraw_later();
    }

    /// A client waits for a call. That is written down before anybody can think that nobody does.
    pub(super) async fn attended(&self, call: CallId) -> Result<(), GateError> {
        self.shared.be_present().await?;
        let caller = Caller::of(&self.shared.name);
        callers::set(&**self.gate.store(), &self.server, call, &caller, Expect::Any).await?;
        self.shared.tell_server(call, &WhoWaits::CallerOf(Arc::clone(&self.shared.name))).await;
        Ok(())
    }

    /// A client was told to call again. Until it does, nobody waits for the call; it is not withdrawn for that.
    pub(super) async fn sent_away(&self, call: CallId) {
        if self.retries.is_attended_by_others(call) {
            return;
        }
        let told = callers::set(&**self.gate.store(), &self.server, call, &Caller::default(), Expect::Any).await;
        if let Err(error) = told {
            self.note(&format!("nobody waits for {call} now, which could not be written down: {error}"));
        }
        self.shared.tell_server(call, &WhoWaits::Nobody).await;
    }

    /// A call is over, or its client asks for it now and then.
    pub(super) async fn forget_caller(&self, call: CallId) -> Result<(), GateError> {
        match callers::forget(&**self.gate.store(), &self.server, call, Expect::Any).await {
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
    async fn lost(&self, call: CallId) -> Result<(), GateError> {
        let store = &**self.gate.store();
        let caller = Caller::gone_since(store.now().await?);
        callers::set(store, &self.server, call, &caller, Expect::Any).await?;
        self.tell_server(call, &WhoWaits::Nobody).await;
        Ok(())
    }

    /// Tells the server of a remote gate, whose people look at the call there. It is only shown to them, so a server that
    /// cannot be told, or is too old to know, stops no call.
    pub(super) async fn tell_server(&self, call: CallId, who: &WhoWaits) {
        if let Err(error) = self.gate.tell_who_waits(call, who).await {
            self.note(&format!("the server was not told who waits for {call}: {error}"));
        }
    }

    /// Says that this gateway is there, unless it has just done so.
    async fn be_present(&self) -> Result<(), GateError> {
        {
            let mut present = self.retries.present.lock().unwrap_or_else(PoisonError::into_inner);
            if present.is_some_and(|said| said.elapsed() < limits::PRESENT_EVERY) {
                return Ok(());
            }
            *present = Some(Instant::now());
        }
        callers::present(&**self.gate.store(), &self.name).await.map_err(GateError::from)
    }

    /// Says again and again that this gateway is there, while calls wait in it.
    pub(super) async fn stay_present(this: Weak<Shared>) {
        loop {
            tokio::time::sleep(limits::PRESENT_EVERY).await;
            let Some(shared) = this.upgrade() else { return };
            let Some(call) = shared.retries.any_attended() else { continue };
            if let Err(error) = shared.be_present().await {
                shared.note(&format!("people may read that nobody waits for calls here: {error}"));
            }
            shared.tell_server(call, &WhoWaits::CallerOf(Arc::clone(&shared.name))).await;
            // Its client may have left meanwhile, and that be said before this.
            if !shared.retries.is_attended(call) {
                shared.tell_server(call, &WhoWaits::Nobody).await;
            }
        }
    }

    /// Looks in a while for calls that have had no client for long enough.
    pub(super) fn withdraw_later(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(limits::LINGER).await;
            let Some(shared) = shared.upgrade() else { return };
            if let Err(error) = shared.withdraw_unattended().await {
                shared.note(&format!("a call without a client could not be withdrawn: {error}"));
            }
        });
    }

    /// Withdraws calls of this server that have had no client for long enough, whichever gateway they came through. A
    /// gateway that is not there any more has no clients, from the moment that is seen. Returns whether any wait.
    pub(super) async fn withdraw_unattended(&self) -> Result<bool, GateError> {
        let store = &**self.gate.store();
        let now = store.now().await?;
        let (mut after, mut any) = (None, false);
        loop {
            let page = callers::list(store, &self.server, after).await?;
            let Some((last, ..)) = page.last() else { return Ok(any) };
            after = Some(*last);
            for (call, caller, version) in page {
                any = true;
                self.look_after(call, caller, version, now).await?;
            }
        }
    }

    async fn look_after(&self, call: CallId, caller: Caller, version: u64, now: Time) -> Result<(), GateError> {
        let (store, expect) = (&**self.gate.store(), Expect::Version(version));
        let is_there = match &caller.by {
            Some(by) => callers::is_present(store, by).await?,
            None => self.retries.is_attended(call),
        };
        let kept = match (&caller.by, caller.gone, is_there) {
            // It was only slow to say that it is there.
            (Some(_), Some(_), true) => Caller { gone: None, ..caller },
            (Some(_), None, false) => Caller { gone: Some(now), ..caller },
            (_, Some(since), false) if since.until(now) >= limits::LINGER => {
                // Whoever removes the mark withdraws the call. One that runs or has ended cannot be, and need not be.
                if callers::forget(store, &self.server, call, expect).await.is_ok() {
                    let _ = self.gate.cancel(call).await;
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        match callers::set(store, &self.server, call, &kept, expect).await {
            Ok(()) | Err(Failure::Rejected(_)) => Ok(()),
            Err(Failure::Store(error)) => Err(error.into()),
        }
    }

    /// SECURITY: what one principal left behind is nobody else's. No name of either holds a slash.
    fn key(&self, principal: &str, digest: &ArgumentDigest) -> String {
        format!("{}/{principal}/{digest}", self.server)
    }
}

fn has_ended(state: CallState) -> bool {
    state.is_final() || state == CallState::InDoubt
}
