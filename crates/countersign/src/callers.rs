//! Whether anybody waits for a held call.
//!
//! A gateway holds calls open for clients of its own. It says in the store's records for which calls it has a caller, and
//! every few seconds that it is still there; so a caller that left and a gateway that was killed show in the same way. A
//! call of which nobody says anything is not known to have lost its caller.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{Call, CallState};
use crate::id::CallId;
use crate::limits;
use crate::store::{Expect, Failure, Record, Store, StoreError};
use crate::time::Time;

/// Where it is kept who waits for a call.
const CALLERS: &str = "gateway-callers";
/// Where it is kept which gateways are there.
const PRESENT: &str = "gateway-present";

/// What is known about the caller of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The gateway that has it; none where it left, or was told to call again.
    pub by: Option<Arc<str>>,
    /// Since when it is gone. None where it is there, or was told to call again.
    pub gone: Option<Time>,
}

impl Caller {
    /// A caller of this gateway, waiting.
    pub fn of(gateway: &Arc<str>) -> Caller {
        Caller { by: Some(Arc::clone(gateway)), gone: None }
    }

    /// One that left.
    pub fn gone_since(now: Time) -> Caller {
        Caller { by: None, gone: Some(now) }
    }

    /// Reads what was kept.
    pub fn read(record: &Record) -> Option<Caller> {
        serde_json::from_slice(&record.value).ok()
    }
}

/// Who waits for a call, as its gateway tells a server whose people are asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhoWaits {
    /// A caller of this gateway, for as long as the gateway says so again.
    CallerOf(Arc<str>),
    /// Nobody: approved, the call runs only when it comes again.
    Nobody,
    /// That cannot be said: its client asks for it now and then.
    Unknown,
}

/// What is kept of the callers of one server's calls begins so. No server's name holds a slash.
fn prefix(server: &str) -> String {
    format!("{server}/")
}

fn key(server: &str, call: CallId) -> String {
    format!("{server}/{call}")
}

/// Says that a gateway is there, for a while.
pub async fn present(store: &dyn Store, gateway: &str) -> Result<(), Failure> {
    store.put_record(PRESENT, gateway, b"", Expect::Any, Some(limits::GATEWAY_PRESENT)).await.map(drop)
}

/// Whether a gateway is there.
pub async fn is_present(store: &dyn Store, gateway: &str) -> Result<bool, StoreError> {
    Ok(store.record(PRESENT, gateway).await?.is_some())
}

/// Says who waits for a call.
pub async fn set(
    store: &dyn Store,
    server: &str,
    call: CallId,
    caller: &Caller,
    expect: Expect,
) -> Result<(), Failure> {
    let value = serde_json::to_vec(caller).map_err(|error| StoreError::Failed(error.to_string()))?;
    let life = Some(limits::CALLER_KEPT);
    store.put_record(CALLERS, &key(server, call), &value, expect, life).await.map(drop)
}

/// Forgets who waits for a call; a conflict if it is not as expected.
pub async fn forget(store: &dyn Store, server: &str, call: CallId, expect: Expect) -> Result<(), Failure> {
    store.delete_record(CALLERS, &key(server, call), expect).await
}

/// Writes down what a gateway elsewhere says of a call. Who waits for one that people are no longer asked about is nobody's
/// question.
pub async fn told(store: &dyn Store, call: &Call, who: &WhoWaits) -> Result<(), Failure> {
    if let WhoWaits::CallerOf(gateway) = who {
        present(store, gateway).await?;
    }
    let Some(server) = call.facts.tool.server.as_ref().filter(|_| waits(call)) else { return Ok(()) };
    match who {
        WhoWaits::CallerOf(gateway) => set(store, server, call.id, &Caller::of(gateway), Expect::Any).await,
        WhoWaits::Nobody => set(store, server, call.id, &Caller::default(), Expect::Any).await,
        WhoWaits::Unknown => match forget(store, server, call.id, Expect::Any).await {
            Ok(()) | Err(Failure::Rejected(_)) => Ok(()),
            Err(failure) => Err(failure),
        },
    }
}

/// Lists what is kept about the callers of a server's calls, after one of them.
pub async fn list(
    store: &dyn Store,
    server: &str,
    after: Option<CallId>,
) -> Result<Vec<(CallId, Caller, u64)>, StoreError> {
    let prefix = prefix(server);
    let after = after.map(|call| key(server, call));
    let page = store.records(CALLERS, &prefix, after.as_deref(), limits::PAGE_ROWS).await?;
    let read = |record: &Record| {
        let call = record.key.strip_prefix(&prefix)?.parse().ok()?;
        Some((call, Caller::read(record)?, record.version))
    };
    Ok(page.iter().filter_map(read).collect())
}

/// Those of these calls that wait for people and that nobody waits for.
pub async fn without(store: &dyn Store, calls: &[Arc<Call>]) -> Result<HashSet<CallId>, StoreError> {
    let mut known: HashMap<Arc<str>, bool> = HashMap::new();
    let mut found = HashSet::new();
    for call in calls {
        let Some(server) = call.facts.tool.server.as_ref().filter(|_| waits(call)) else { continue };
        let Some(record) = store.record(CALLERS, &key(server, call.id)).await? else { continue };
        let is_there = match Caller::read(&record).and_then(|caller| caller.by) {
            None => false,
            Some(by) => match known.get(&by) {
                Some(is_there) => *is_there,
                None => {
                    let is_there = is_present(store, &by).await?;
                    known.insert(by, is_there);
                    is_there
                }
            },
        };
        if !is_there {
            found.insert(call.id);
        }
    }
    Ok(found)
}

fn waits(call: &Call) -> bool {
    matches!(call.state, CallState::Pending | CallState::Approved)
}
