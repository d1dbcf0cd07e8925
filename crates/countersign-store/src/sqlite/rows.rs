//! Rows to values and back. What cannot be read is damaged, and nothing it says is believed.

use std::sync::Arc;

use countersign::call::{Call, CallState, Path, ToolId};
use countersign::digest::EventHash;
use countersign::event::{Cursor, Event};
use countersign::grant::{Grant, Scope};
use countersign::id::{CallId, HoldId};
use countersign::refusal::RefusalKind;
use countersign::store::StoreError;
use countersign::time::Time;
use rusqlite::Row;

/// The columns of an event, in the order [`event`] reads them; `c` is its chain, `e` the event.
pub(super) const EVENT: &str = "e.id, c.name, e.seq, e.name, e.call, e.hold, e.at, e.hash, e.body";

pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

pub(super) fn damaged(what: &'static str, why: impl ToString) -> StoreError {
    StoreError::Damaged { what, why: why.to_string() }
}

/// The two parts of a call, from the first two columns of a row.
pub(super) type Parts = (String, String);

pub(super) fn parts(row: &Row<'_>) -> rusqlite::Result<Parts> {
    Ok((row.get(0)?, row.get(1)?))
}

/// Reads a call; it must be the one asked for.
pub(super) fn call((request, standing): &Parts, id: Option<CallId>) -> Result<Arc<Call>, StoreError> {
    let call = Call::from_json(request, standing).map_err(|error| damaged("call", error))?;
    match id {
        Some(id) if id != call.id => Err(damaged("call", format!("the row of {id} holds {}", call.id))),
        _ => Ok(Arc::new(call)),
    }
}

pub(super) fn call_id(bytes: &[u8]) -> Result<CallId, StoreError> {
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|error| damaged("call id", error))?;
    Ok(CallId::from_bytes(bytes))
}

pub(super) fn grant(body: &str) -> Result<Grant, StoreError> {
    serde_json::from_str(body).map_err(|error| damaged("grant", error))
}

/// Reads a grant that must not keep anybody from the others: one that cannot be read grants nothing.
pub(super) fn readable_grant(body: &str) -> Option<Grant> {
    grant(body).inspect_err(|error| tracing::warn!(%error, "a stored grant is passed over")).ok()
}

/// What is to be written, if it could be spelled.
pub(super) fn text(spelled: serde_json::Result<String>) -> Result<String, StoreError> {
    spelled.map_err(|error| StoreError::Failed(error.to_string()))
}

pub(super) fn hash(bytes: &[u8]) -> Result<EventHash, StoreError> {
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|error| damaged("event hash", error))?;
    Ok(EventHash::from_bytes(bytes))
}

/// Reads an event from the columns of [`EVENT`].
pub(super) fn event(row: &Row<'_>) -> Result<Event, StoreError> {
    let raw = RawEvent::of(row).map_err(failed)?;
    let hold = match raw.hold {
        Some(bytes) => Some(<[u8; 16]>::try_from(bytes).map_err(|_| damaged("event", "its hold id is too short"))?),
        None => None,
    };
    Ok(Event {
        cursor: Cursor { major: 0, minor: raw.id },
        chain: countersign::call::Chain(raw.chain.into()),
        seq: raw.seq,
        name: raw.name.parse().map_err(|error: String| damaged("event", error))?,
        call: raw.call.map(|bytes| call_id(&bytes)).transpose()?,
        hold: hold.map(HoldId::from_bytes),
        at: Time(raw.at),
        hash: hash(&raw.hash)?,
        body: raw.body.into(),
    })
}

struct RawEvent {
    id: u64,
    chain: String,
    seq: u64,
    name: String,
    call: Option<Vec<u8>>,
    hold: Option<Vec<u8>>,
    at: i64,
    hash: Vec<u8>,
    body: String,
}

impl RawEvent {
    fn of(row: &Row<'_>) -> rusqlite::Result<RawEvent> {
        Ok(RawEvent {
            id: row.get::<_, i64>(0)?.unsigned_abs(),
            chain: row.get(1)?,
            seq: row.get::<_, i64>(2)?.unsigned_abs(),
            name: row.get(3)?,
            call: row.get(4)?,
            hold: row.get(5)?,
            at: row.get(6)?,
            hash: row.get(7)?,
            body: row.get(8)?,
        })
    }
}

/// A call's run as its column spells it: `=` and the name, or empty where there is none.
pub(super) fn run(path: &Path) -> String {
    match path.run.as_ref().or(path.session.as_ref()) {
        Some(run) => format!("={run}"),
        None => String::new(),
    }
}

/// Whether identical calls of the same run are to be refused from here on: an approver said no.
pub(super) fn is_remembered_denial(call: &Call) -> bool {
    let path = &call.facts.path;
    let in_run = path.run.is_some() || path.session.is_some();
    let denied = call.refusal.as_ref().is_some_and(|refusal| refusal.kind == RefusalKind::DeniedByApprover);
    call.state == CallState::Denied && denied && in_run
}

/// What a grant is looked up by: the argument digest it names, else its tool.
pub(super) fn target(grant: &Grant) -> Vec<u8> {
    match grant.covers.exact() {
        Some(digest) => digest.as_bytes().to_vec(),
        None => tool_target(&grant.tool),
    }
}

/// A tool as [`target`] spells it. The server's length keeps names apart that would join alike.
pub(super) fn tool_target(tool: &ToolId) -> Vec<u8> {
    let text = match &tool.server {
        Some(server) => format!("server {} {server} tool {}", server.len(), tool.name),
        None => format!("tool {}", tool.name),
    };
    text.into_bytes()
}

pub(super) fn session_of(grant: &Grant) -> Option<&str> {
    match &grant.scope {
        Scope::Session { session } => Some(session),
        Scope::Global => None,
    }
}

pub(super) fn signed(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Failed(format!("{number} is too large to store")))
}

/// The name a halt has in its table.
pub(super) fn halt(agent: Option<&str>) -> String {
    match agent {
        Some(agent) => format!("agent:{agent}"),
        None => "all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B48: a tool is (server, name), never one joined string.
    #[test]
    fn tools_that_join_alike_are_looked_up_apart() {
        let tool = |server: &str, name: &str| tool_target(&ToolId { server: Some(server.into()), name: name.into() });
        assert_ne!(tool("a", "b tool c"), tool("a tool b", "c"));
        assert_ne!(tool_target(&ToolId::local("b")), tool("", "b"));
    }
}
