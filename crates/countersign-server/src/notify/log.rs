//! The durable log of deliveries: one record for each, and an index of those that are still to be tried.
//!
//! A delivery is written before the event's place in the log is passed, and leaves the index only after it arrived, so
//! whoever dies in between, it is tried (again).

use countersign::event::Event;
use countersign::store::{Expect, Failure, Store, StoreError};
use countersign::{CallId, HoldId, Time, limits as core_limits};
use countersign_api::wire::{self, DeliveryState, timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::notice::Notice;
use crate::limits;

const LOG: &str = "deliveries";
const DUE: &str = "deliveries-due";

/// A delivery as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The receiver's id.
    pub(super) target: String,
    /// The receiver, for people.
    pub(super) to: String,
    /// What is told.
    pub(super) notice: Notice,
    /// When it happened.
    pub(super) at: Time,
    pub(super) state: DeliveryState,
    pub(super) attempts: u32,
    /// When it is tried next.
    pub(super) next_at: Option<Time>,
    pub(super) last: Option<wire::Attempt>,
}

impl Kept {
    fn shown(&self, id: &str) -> wire::Delivery {
        wire::Delivery {
            id: id.to_owned(),
            to: self.to.clone(),
            event: self.notice.kind.clone(),
            call: self.call(),
            hold: self.hold(),
            state: self.state,
            attempts: self.attempts,
            at: timestamp(self.at),
            next_at: self.next_at.map(timestamp),
            last: self.last.clone(),
        }
    }

    fn call(&self) -> Option<CallId> {
        self.notice.data.call
    }

    pub(super) fn hold(&self) -> Option<HoldId> {
        self.notice.data.hold
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state == DeliveryState::Pending
    }
}

/// The one name of an event's delivery to a receiver, whoever makes it. Sorts the newest first.
pub(super) fn id(event: &Event, target: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(event.hash.as_bytes());
    hasher.update(target.as_bytes());
    let tail: String = hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("dlv_{:016x}{tail}", u64::MAX - event.at.0.unsigned_abs())
}

/// Where the index has a delivery: oldest first, for each receiver.
fn place(id: &str, kept: &Kept) -> String {
    format!("{}/{:016x}/{id}", kept.target, kept.at.0)
}

/// Writes a delivery that is to be tried; one that is already there stays as it is.
pub(super) async fn add(store: &dyn Store, id: &str, kept: &Kept) -> Result<(), StoreError> {
    let added = put(store, id, kept, Expect::Absent).await?;
    // Whoever wrote it before us may have died before it was in the index.
    let pending = added || read(store, id).await?.is_some_and(|(kept, _)| kept.is_pending());
    if pending { index(store, id, kept).await } else { Ok(()) }
}

/// Reads a delivery, and its version.
pub(super) async fn read(store: &dyn Store, id: &str) -> Result<Option<(Kept, u64)>, StoreError> {
    let Some(record) = store.record(LOG, id).await? else { return Ok(None) };
    let kept = serde_json::from_slice(&record.value).map_err(damaged)?;
    Ok(Some((kept, record.version)))
}

/// Writes what became of a try. Somebody else's newer word stands.
pub(super) async fn note(store: &dyn Store, id: &str, kept: &Kept, version: u64) -> Result<(), StoreError> {
    if !put(store, id, kept, Expect::Version(version)).await? {
        return Ok(());
    }
    if kept.is_pending() { index(store, id, kept).await } else { forget(store, &place(id, kept)).await }
}

/// Takes a delivery out of the index.
pub(super) async fn forget(store: &dyn Store, place: &str) -> Result<(), StoreError> {
    match store.delete_record(DUE, place, Expect::Any).await {
        Ok(()) | Err(Failure::Rejected(_)) => Ok(()),
        Err(Failure::Store(error)) => Err(error),
    }
}

/// What is to be tried now.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Places in the index and ids, oldest first.
    pub(super) now: Vec<(String, String)>,
    /// When there will be more; at once, if the list is full.
    pub(super) next_at: Option<Time>,
    /// How many wait, now or later.
    pub(super) pending: usize,
}

/// Reads what a receiver is to be told by now.
pub(super) async fn due(store: &dyn Store, target: &str, now: Time) -> Result<Due, StoreError> {
    let mut due = Due::default();
    let (prefix, mut after) = (format!("{target}/"), None::<String>);
    loop {
        let records = store.records(DUE, &prefix, after.as_deref(), core_limits::PAGE_ROWS).await?;
        let Some(last) = records.last() else { return Ok(due) };
        after = Some(last.key.clone());
        due.pending += records.len();
        for record in records {
            let at = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse().ok()).map_or(now, Time);
            if at > now || due.now.len() == limits::TELL_AT_ONCE {
                due.next_at = Some(due.next_at.map_or(at, |next| next.min(at)));
            } else if let Some((_, id)) = record.key.rsplit_once('/') {
                due.now.push((record.key.clone(), id.to_owned()));
            }
        }
    }
}

/// One page of deliveries, newest first.
pub async fn list(store: &dyn Store, after: Option<&str>, limit: usize) -> Result<Vec<wire::Delivery>, StoreError> {
    let records = store.records(LOG, "dlv_", after, limit).await?;
    let shown = |record: &countersign::store::Record| {
        let kept: Kept = serde_json::from_slice(&record.value).map_err(damaged)?;
        Ok(kept.shown(&record.key))
    };
    records.iter().map(shown).collect()
}

/// Makes a delivery due now, whatever became of it. None, if there is none.
pub(super) async fn again(
    store: &dyn Store,
    id: &str,
    known: impl Fn(&str) -> bool,
) -> Result<Option<wire::Delivery>, Failure> {
    let Some((mut kept, version)) = read(store, id).await? else { return Ok(None) };
    if !known(&kept.target) {
        return Err(Failure::Rejected(countersign::transition::Rejection::Conflict));
    }
    let now = store.now().await?;
    // News is told within a time; who asks for it again starts that time again.
    (kept.state, kept.next_at, kept.attempts) = (DeliveryState::Pending, Some(now), 0);
    let value = serde_json::to_vec(&kept).map_err(damaged)?;
    store.put_record(LOG, id, &value, Expect::Version(version), Some(life())).await?;
    index(store, id, &kept).await?;
    Ok(Some(kept.shown(id)))
}

async fn put(store: &dyn Store, id: &str, kept: &Kept, expect: Expect) -> Result<bool, StoreError> {
    let value = serde_json::to_vec(kept).map_err(damaged)?;
    match store.put_record(LOG, id, &value, expect, Some(life())).await {
        Ok(_) => Ok(true),
        Err(Failure::Rejected(_)) => Ok(false),
        Err(Failure::Store(error)) => Err(error),
    }
}

async fn index(store: &dyn Store, id: &str, kept: &Kept) -> Result<(), StoreError> {
    let at = kept.next_at.unwrap_or_default().0.to_string();
    match store.put_record(DUE, &place(id, kept), at.as_bytes(), Expect::Any, Some(life())).await {
        Ok(_) | Err(Failure::Rejected(_)) => Ok(()),
        Err(Failure::Store(error)) => Err(error),
    }
}

/// A delivery outlives the time in which it is tried.
fn life() -> std::time::Duration {
    limits::NEWS + limits::DELIVERY_KEPT
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::Damaged { what: "delivery", why: error.to_string() }
}
