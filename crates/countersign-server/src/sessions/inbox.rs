//! What was said in a session and has not reached its transcript yet.
//!
//! A message is written down before it is acknowledged, and leaves only once the transcript has it under its name: over
//! crashes it is said once, and never lost.

use std::sync::Arc;

use countersign::store::{Expect, Store};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::key::Key;
use crate::limits;
use crate::problem::{Answer, Refused};

const MESSAGES: &str = "session-messages";

/// Something said.
pub(crate) struct Waiting {
    /// Its name, which orders it among the others.
    pub(crate) id: Arc<str>,
    pub(crate) text: Arc<str>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    text: Arc<str>,
}

/// Writes down what was said. Refuses where too much waits.
pub(crate) async fn put(store: &dyn Store, key: &Key, text: &str) -> Answer<()> {
    if count(store, key).await? >= limits::MESSAGES_QUEUED {
        return Err(Refused::later(limits::SESSION_LEASE.as_secs(), "too many messages wait for the run to end"));
    }
    let name = format!("{}{}", prefix(key), Uuid::now_v7().simple());
    let kept = serde_json::to_vec(&Kept { text: text.into() })?;
    store.put_record(MESSAGES, &name, &kept, Expect::Absent, None).await?;
    Ok(())
}

/// The first of those that wait.
pub(crate) async fn first(store: &dyn Store, key: &Key) -> Answer<Option<Waiting>> {
    let records = store.records(MESSAGES, &prefix(key), None, 1).await?;
    let Some(record) = records.first() else { return Ok(None) };
    let kept: Kept = serde_json::from_slice(&record.value)?;
    let id = record.key.strip_prefix(&prefix(key)).unwrap_or_default();
    Ok(Some(Waiting { id: id.into(), text: kept.text }))
}

/// How many wait.
pub(crate) async fn count(store: &dyn Store, key: &Key) -> Answer<usize> {
    Ok(store.records(MESSAGES, &prefix(key), None, limits::MESSAGES_QUEUED).await?.len())
}

/// Forgets one that the transcript has.
pub(crate) async fn remove(store: &dyn Store, key: &Key, id: &str) -> Answer<()> {
    store.delete_record(MESSAGES, &format!("{}{id}", prefix(key)), Expect::Any).await?;
    Ok(())
}

fn prefix(key: &Key) -> String {
    format!("{key}/")
}
