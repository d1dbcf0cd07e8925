//! Pinned definitions: what a server said about each tool when it was first seen, or last accepted.
//!
//! Pins are records of the store, so they outlive the process. A definition that differs from its pin, or comes from
//! another server under the same name, is written beside the pin; from then on the tool is in quarantine, whatever the
//! server says next, until a person accepts what was found.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use countersign::digest::DefinitionDigest;
use countersign::json::Bounds;
use countersign::store::{Expect, Failure, Record, StoreError};
use countersign::transition::Rejection;
use countersign::{Json, Store, limits};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::message::pick;

/// Where pins are kept among the store's records.
const NAMESPACE: &str = "pins";
/// What of a tool's definition is pinned. Other members, such as `_meta`, may change at will.
const PINNED: [&str; 6] = ["annotations", "description", "inputSchema", "name", "outputSchema", "title"];

/// Which program or address answers under a server's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    /// The identity of a server that is started by this command line.
    pub fn of_command<'a>(words: impl IntoIterator<Item = &'a str>) -> Identity {
        Identity::of_words("sha256", words)
    }

    /// The identity of a server that listens at this address. The address itself may be a secret and is not kept.
    pub fn of_address(url: &str) -> Identity {
        Identity::of_words("url-sha256", [url])
    }

    fn of_words<'a>(kind: &str, words: impl IntoIterator<Item = &'a str>) -> Identity {
        let mut hash = Sha256::new();
        for word in words {
            hash.update(word.len().to_be_bytes());
            hash.update(word);
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Identity(format!("{kind}:{hex}"))
    }
}

/// What a server says about one tool, and which server says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The pinned members, in canonical form.
    pub(crate) definition: Json,
    pub(crate) identity: Identity,
    /// What calls and grants are bound to.
    pub(crate) digest: DefinitionDigest,
}

/// One tool's pin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    accepted: Snapshot,
    /// What was found instead, since; then the tool is in quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<Snapshot>,
}

impl Pin {
    /// Whether exactly this was accepted, and nothing else was found since.
    pub(crate) fn allows(&self, snapshot: &Snapshot) -> bool {
        self.found.is_none() && self.accepted == *snapshot
    }
}

/// A definition that changed and waits to be accepted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The tool.
    pub tool: String,
    pin: Pin,
    found: Snapshot,
    version: u64,
}

impl Change {
    /// The definition as it was accepted, in canonical form.
    pub fn accepted(&self) -> &Json {
        &self.pin.accepted.definition
    }

    /// The definition as it was found last.
    pub fn found(&self) -> &Json {
        &self.found.definition
    }

    /// Whether another command answers under the server's name.
    pub fn is_other_server(&self) -> bool {
        self.pin.accepted.identity != self.found.identity
    }
}

/// Lists what changed on a server and was not accepted yet.
pub async fn changes(store: &dyn Store, server: &str) -> Result<Vec<Change>, StoreError> {
    let pins = all(store, server).await?;
    let changed = pins.into_iter().filter_map(|(tool, (pin, version))| {
        let found = pin.found.clone()?;
        Some(Change { tool, pin, found, version })
    });
    let mut changed: Vec<Change> = changed.collect();
    changed.sort_by(|left, right| left.tool.cmp(&right.tool));
    Ok(changed)
}

/// A tool that a server was seen to offer.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The server's name in rules.
    pub server: String,
    /// The tool.
    pub tool: String,
    pin: Pin,
}

impl Pinned {
    /// The definition as it was accepted, in canonical form.
    pub fn definition(&self) -> &Json {
        &self.pin.accepted.definition
    }

    /// Whether something else was found since, so that the tool is refused until that is accepted.
    pub fn is_quarantined(&self) -> bool {
        self.pin.found.is_some()
    }

    /// Whether it was accepted from the server of this identity.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.pin.accepted.identity == *identity
    }
}

/// Lists the tools of all servers that were ever seen, by server and name.
pub async fn pinned_tools(store: &dyn Store) -> Result<Vec<Pinned>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.records(NAMESPACE, "", after.as_deref(), limits::PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in &page {
            let (server, tool) = record.key.split_once('/').unwrap_or_default();
            found.push(Pinned { server: server.to_owned(), tool: tool.to_owned(), pin: read(record)? });
        }
    }
}

/// Accepts a change exactly as it was listed; a conflict if something else was found meanwhile.
pub async fn accept(store: &dyn Store, server: &str, change: &Change) -> Result<(), Failure> {
    let pin = Pin { accepted: change.found.clone(), found: None };
    write(store, server, &change.tool, &pin, Expect::Version(change.version)).await
}

/// Reads all pins of a server, with the version of each record.
pub(crate) async fn all(store: &dyn Store, server: &str) -> Result<HashMap<String, (Pin, u64)>, StoreError> {
    let prefix = key(server, "");
    let mut found = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.records(NAMESPACE, &prefix, after.as_deref(), limits::PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in &page {
            let tool = record.key.strip_prefix(&prefix).unwrap_or_default().to_owned();
            found.insert(tool, (read(record)?, record.version));
        }
    }
}

/// Finds one pin, as it is written down.
pub(crate) async fn one(store: &dyn Store, server: &str, tool: &str) -> Result<Option<Record>, StoreError> {
    store.record(NAMESPACE, &key(server, tool)).await
}

/// The last record whose pin was found to allow a definition: the same bytes need not be read again.
#[derive(Debug, Default)]
pub(crate) struct Allowing(Mutex<Option<Vec<u8>>>);

impl Allowing {
    /// Whether a record's pin allows exactly this definition.
    pub(crate) fn allows(&self, snapshot: &Snapshot, record: Record) -> Result<bool, StoreError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() == Some(&record.value) {
            return Ok(true);
        }
        let is_allowed = read(&record)?.allows(snapshot);
        *last = is_allowed.then_some(record.value);
        Ok(is_allowed)
    }
}

/// What seeing a definition came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing is new about it.
    Before,
    /// It was never seen, and is pinned now.
    First,
    /// It is not what was accepted; what is bound to this digest is void.
    Changed(DefinitionDigest),
}

/// Compares a definition with its pin, and writes down what is new.
pub(crate) async fn see(
    store: &dyn Store,
    server: &str,
    tool: &str,
    snapshot: &Snapshot,
    known: Option<&(Pin, u64)>,
) -> Result<Seen, Failure> {
    let (seen, pin, expect) = match known {
        Some((pin, _)) if pin.allows(snapshot) || pin.found.as_ref() == Some(snapshot) => return Ok(Seen::Before),
        Some((pin, version)) => {
            let found = Pin { accepted: pin.accepted.clone(), found: Some(snapshot.clone()) };
            (Seen::Changed(pin.accepted.digest), found, Expect::Version(*version))
        }
        None => (Seen::First, Pin { accepted: snapshot.clone(), found: None }, Expect::Absent),
    };
    match write(store, server, tool, &pin, expect).await {
        // Another gateway was quicker. At each call the pin is read again, so nothing is lost by leaving it at that.
        Err(Failure::Rejected(Rejection::Conflict)) => Ok(Seen::Before),
        written => written.map(|()| seen),
    }
}

/// The pinned members of a definition, in canonical form.
pub(crate) fn pinned(tool: &RawValue) -> Result<Json, String> {
    let members = pick(tool.get(), PINNED).map_err(|error| error.to_string())?;
    let members = PINNED.iter().zip(members).filter_map(|(name, raw)| Some(format!("\"{name}\":{}", raw?.get())));
    let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    let bounds = Bounds { bytes: 2 * limits::SCHEMA_BYTES, ..Bounds::STORED };
    Json::ingest(&text, bounds).map_err(|error| error.to_string())
}

async fn write(store: &dyn Store, server: &str, tool: &str, pin: &Pin, expect: Expect) -> Result<(), Failure> {
    let value = serde_json::to_vec(pin).map_err(|error| StoreError::Failed(error.to_string()))?;
    store.put_record(NAMESPACE, &key(server, tool), &value, expect, None).await.map(drop)
}

/// No server's name holds a slash, so no two pairs share a key.
fn key(server: &str, tool: &str) -> String {
    format!("{server}/{tool}")
}

fn read(record: &Record) -> Result<Pin, StoreError> {
    serde_json::from_slice(&record.value).map_err(|error| StoreError::Damaged { what: "pin", why: error.to_string() })
}
