//! Pinned definitions: what a server said about each tool when it was first seen, or last accepted.
//!
//! Pins are records of the store, so they outlive the process. A definition that differs from its pin, or comes from
//! another server under the same name, is written beside the pin; from then on the tool is in quarantine, whatever the
//! server says next, until a person accepts what was found.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign::digest::DefinitionDigest;
use countersign::event::{Draft, EventName};
use countersign::json::Bounds;
use countersign::show::escape;
use countersign::store::{Expect, Failure, Record, StoreError};
use countersign::transition::Rejection;
use countersign::{Gate, GateError, Json, Store, Time, ToolId, Who, limits, looks};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use similar::TextDiff;

use super::message::pick;

/// Under which names the tools of agents' servers are pinned: this and the server's. No server's own name holds a colon.
///
/// Apart from what gateways pin, who read the same definitions byte by byte and may be in front of another program.
pub(crate) const AGENTS: &str = "agents:";
/// Where pins are kept among the store's records.
const NAMESPACE: &str = "pins";
/// How long a difference may take to be told well; after that it is told coarsely.
const DIFFERENCE_WITHIN: Duration = Duration::from_millis(100);
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
        Identity(format!("{kind}:{}", hex(&hash.finalize())))
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

impl Snapshot {
    /// Whether the same server says the same. What calls are bound to may differ by what the operator says about it.
    fn is_like(&self, other: &Snapshot) -> bool {
        self.definition == other.definition && self.identity == other.identity
    }

    /// Names all of it: what the server says, and which server says so.
    pub(crate) fn seal(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.identity.0.as_str(), self.definition.as_str()] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        format!("cs1p:{}", hex(&hash.finalize()))
    }
}

/// One tool's pin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    accepted: Snapshot,
    /// What was found instead, since; then the tool is in quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<Snapshot>,
    /// Who accepted it; nobody, where it was only seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Who>,
    /// When it was first seen, was found to be another, or was accepted, whichever came last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
}

impl Pin {
    /// Whether exactly this was accepted, and nothing else was found since.
    pub(crate) fn allows(&self, snapshot: &Snapshot) -> bool {
        self.found.is_none() && self.accepted.is_like(snapshot)
    }

    /// What is void while the tool is in quarantine.
    pub(crate) fn void(&self) -> Option<DefinitionDigest> {
        self.found.as_ref().map(|_| self.accepted.digest)
    }
}

/// How a pinned tool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinState {
    /// It was seen, and nobody has looked at it yet. Rules apply to it.
    New,
    /// Somebody accepted it as it is.
    Accepted,
    /// It is not what it was: it is refused until somebody accepts it.
    Changed,
}

/// A tool that a server was seen to offer.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The server's name in rules; after `agents:`, where an agent's own connection to it pinned the tool.
    pub server: String,
    /// The tool.
    pub tool: String,
    pin: Pin,
}

impl Pinned {
    fn read(record: &Record) -> Result<Pinned, StoreError> {
        let (server, tool) = record.key.split_once('/').unwrap_or_default();
        Ok(Pinned { server: server.to_owned(), tool: tool.to_owned(), pin: read(record)? })
    }

    /// Its place in the list of all that are pinned.
    pub fn key(&self) -> String {
        key(&self.server, &self.tool)
    }

    /// The server's name in rules, also where an agent's own connection to it pinned the tool.
    pub fn server_in_rules(&self) -> &str {
        self.server.strip_prefix(AGENTS).unwrap_or(&self.server)
    }

    /// What a person sees of the name: tools of other servers with the same look may be taken for this one.
    pub fn look(&self) -> String {
        looks::look(&self.tool)
    }

    /// The definition that calls are held to, in canonical form.
    pub fn definition(&self) -> &Json {
        &self.pin.accepted.definition
    }

    /// The definition as it was found last, where that is another.
    pub fn found(&self) -> Option<&Json> {
        self.pin.found.as_ref().map(|found| &found.definition)
    }

    /// How it stands.
    pub fn state(&self) -> PinState {
        match (&self.pin.found, &self.pin.by) {
            (Some(_), _) => PinState::Changed,
            (None, Some(_)) => PinState::Accepted,
            (None, None) => PinState::New,
        }
    }

    /// Names what was found last; whoever accepts it says so.
    pub fn seal(&self) -> String {
        self.pin.found.as_ref().unwrap_or(&self.pin.accepted).seal()
    }

    /// Who accepted it last.
    pub fn accepted_by(&self) -> Option<&Who> {
        self.pin.by.as_ref()
    }

    /// Since when it stands as it does; none where that was never written down.
    pub fn since(&self) -> Option<Time> {
        self.pin.since
    }

    /// Whether something else was found since, so that the tool is refused until that is accepted.
    pub fn is_quarantined(&self) -> bool {
        self.pin.found.is_some()
    }

    /// Whether it was accepted from the server of this identity.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.pin.accepted.identity == *identity
    }

    /// Whether another command or address answers under the server's name.
    pub fn is_other_server(&self) -> bool {
        self.pin.found.as_ref().is_some_and(|found| found.identity != self.pin.accepted.identity)
    }

    /// How what was found differs, line by line; none where it does not. What nobody can see is made visible.
    pub fn difference(&self) -> Option<String> {
        let pretty = |json: &Json| format!("{:#}\n", json.value());
        let (before, after) = (pretty(self.definition()), pretty(self.found()?));
        let diff = TextDiff::configure().timeout(DIFFERENCE_WITHIN).diff_lines(&before, &after);
        let lines = diff.unified_diff().context_radius(2).to_string();
        Some(lines.lines().map(|line| escape(line) + "\n").collect())
    }
}

/// Lists the tools of all servers that were ever seen, by server and name.
pub async fn pinned_tools(store: &dyn Store) -> Result<Vec<Pinned>, StoreError> {
    let mut found: Vec<Pinned> = Vec::new();
    loop {
        let after = found.last().map(Pinned::key);
        let page = pinned_after(store, after.as_deref(), limits::PAGE_ROWS).await?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

/// Lists so many of them, after the one with this [key](Pinned::key).
pub async fn pinned_after(store: &dyn Store, after: Option<&str>, most: usize) -> Result<Vec<Pinned>, StoreError> {
    store.records(NAMESPACE, "", after, most).await?.iter().map(Pinned::read).collect()
}

/// Lists what changed on a server and was not accepted yet, by name.
pub async fn changes(store: &dyn Store, server: &str) -> Result<Vec<Pinned>, StoreError> {
    let mut all = pinned_tools(store).await?;
    all.retain(|pinned| pinned.server == server && pinned.is_quarantined());
    Ok(all)
}

/// Why a tool was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// There is no such tool on record.
    #[error("no such tool was ever seen")]
    Unknown,
    /// It is not what was looked at.
    #[error("the tool is not what you have looked at: something else was found meanwhile")]
    Other,
    /// It could not be recorded or written.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// Accepts a tool exactly as it was looked at, in somebody's name. Accepting it again changes nothing.
pub async fn accept(gate: &Gate, server: &str, tool: &str, seal: &str, by: &Who) -> Result<Pinned, AcceptError> {
    let store = gate.store();
    let Some(record) = one(&**store, server, tool).await.map_err(GateError::from)? else {
        return Err(AcceptError::Unknown);
    };
    let mut pinned = Pinned::read(&record).map_err(GateError::from)?;
    if pinned.seal() != seal {
        return Err(AcceptError::Other);
    }
    if pinned.state() == PinState::Accepted {
        return Ok(pinned);
    }
    let found = pinned.pin.found.take();
    let before = pinned.pin.accepted.seal();
    pinned.pin.accepted = found.unwrap_or(pinned.pin.accepted);
    pinned.pin.by = Some(by.clone());
    pinned.pin.since = Some(store.now().await.map_err(GateError::from)?);
    let draft = about(EventName::ToolAccepted, server, tool).text("before", &before).text("definition", seal);
    // On the record before it counts: a tool whose acceptance could not be recorded stays refused.
    gate.note(draft.text("by", &by.id)).await?;
    match write(&**store, server, tool, &pinned.pin, Expect::Version(record.version)).await {
        Ok(()) => Ok(pinned),
        Err(Failure::Rejected(Rejection::Conflict)) => Err(AcceptError::Other),
        Err(failure) => Err(GateError::from(failure).into()),
    }
}

fn about(name: EventName, server: &str, tool: &str) -> Draft {
    Draft::new(name).text("server", server).text("tool", tool)
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
    /// It is what is pinned.
    Pinned,
    /// It is not what was accepted, and that is new; what is bound to this digest is void.
    Changed(DefinitionDigest),
    /// It was in quarantine before.
    Quarantined,
}

/// Compares a definition with its pin, and writes down what is new.
pub(crate) async fn see(
    gate: &Gate,
    server: &str,
    tool: &str,
    snapshot: &Snapshot,
    known: Option<&(Pin, u64)>,
) -> Result<Seen, GateError> {
    let store = &**gate.store();
    let (seen, event, accepted) = match known {
        Some((pin, _)) if pin.allows(snapshot) => return Ok(Seen::Pinned),
        Some((pin, _)) if pin.found.as_ref().is_some_and(|found| found.is_like(snapshot)) => {
            return Ok(Seen::Quarantined);
        }
        // Only the first of many changes is an event: a server that changes all the time must not fill the log.
        Some((pin, _)) if pin.found.is_some() => (Seen::Quarantined, None, Some(pin)),
        Some((pin, _)) => {
            let changed = about(EventName::ToolChanged, server, tool).text("before", &pin.accepted.seal());
            (Seen::Changed(pin.accepted.digest), Some(changed), Some(pin))
        }
        None => (Seen::Pinned, Some(about(EventName::ToolPinned, server, tool)), None),
    };
    let since = Some(store.now().await?);
    let pin = match accepted {
        Some(pin) => Pin { found: Some(snapshot.clone()), since, ..pin.clone() },
        None => Pin { accepted: snapshot.clone(), found: None, by: None, since },
    };
    let expect = known.map_or(Expect::Absent, |(_, version)| Expect::Version(*version));
    if let Some(event) = event {
        // On the record before it counts. It may be there twice after a crash; a pin is never there without it.
        gate.note(event.text("definition", &snapshot.seal())).await?;
    }
    if known.is_none() {
        let server = server.strip_prefix(AGENTS).unwrap_or(server);
        looks::note(store, &ToolId::on(server, tool)).await?;
    }
    match write(store, server, tool, &pin, expect).await {
        Ok(()) => Ok(seen),
        // Another gateway was quicker: its word counts.
        Err(Failure::Rejected(Rejection::Conflict)) => {
            let allows = match one(store, server, tool).await? {
                Some(record) => read(&record)?.allows(snapshot),
                None => false,
            };
            Ok(if allows { Seen::Pinned } else { Seen::Quarantined })
        }
        Err(failure) => Err(failure.into()),
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// No server's name holds a slash, so no two pairs share a key.
fn key(server: &str, tool: &str) -> String {
    format!("{server}/{tool}")
}

fn read(record: &Record) -> Result<Pin, StoreError> {
    serde_json::from_slice(&record.value).map_err(|error| StoreError::Damaged { what: "pin", why: error.to_string() })
}
