//! What the headers of a request must say, and what they say about it.

use std::sync::Arc;

use countersign::Json;
use countersign::json::Bounds;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderMap};

use super::reply::Refused;
use crate::gateway::able::CAPABILITIES_KEY;
use crate::gateway::catalog::{Catalog, Entry};
use crate::gateway::message::{Envelope, pick};
use crate::gateway::post::{self, decoded, name_of};
use crate::gateway::request::{HANDSHAKES, VERSION_KEY, names_capabilities, protocol_version};
use crate::gateway::words::{HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, NO_CAPABILITY, NO_METHOD, NO_VERSION};

/// Names a session.
pub(super) const SESSION: &str = "mcp-session-id";
/// Names the last event that a client has of a stream.
pub(super) const LAST: &str = "last-event-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Which conversation a message belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// It begins one.
    Opening,
    /// That of this session.
    Session(Arc<str>),
    /// The one of everybody without a session.
    Modern,
}

/// Finds out which conversation a message belongs to.
pub(super) fn lane(headers: &HeaderMap, envelope: &Envelope<'_>) -> Result<Lane, Refused> {
    let bad = |why: &str| Err(Refused::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, why));
    let (version, session) = (one(headers, VERSION)?, one(headers, SESSION)?);
    let said = protocol_version(envelope);
    let is_modern = said.is_some() || version.as_deref().is_some_and(|version| !HANDSHAKES.contains(&version));
    match (session, envelope.method.as_deref()) {
        (Some(_), Some("initialize")) => bad("a session is begun only once"),
        (Some(session), _) if version.as_deref().is_none_or(|version| HANDSHAKES.contains(&version)) => {
            Ok(Lane::Session(session.into()))
        }
        (Some(_), _) => bad("this version of the protocol has no sessions"),
        (None, Some("initialize")) if said.is_none() => Ok(Lane::Opening),
        (None, Some("initialize")) => {
            Err(Refused::new(StatusCode::NOT_FOUND, NO_METHOD, "this version of the protocol has no `initialize`"))
        }
        (None, _) if is_modern => {
            agree(headers, envelope, said.as_deref(), version.as_deref())?;
            Ok(Lane::Modern)
        }
        (None, _) => bad("`Mcp-Session-Id` is missing; a session begins with `initialize`"),
    }
}

/// SECURITY: whoever reads only the headers and whoever reads only the message must see the same.
fn agree(
    headers: &HeaderMap,
    envelope: &Envelope<'_>,
    said: Option<&str>,
    version: Option<&str>,
) -> Result<(), Refused> {
    let (Some(method), Some(_)) = (envelope.method.as_deref(), envelope.id) else { return Ok(()) };
    let differs = |name: &str| mismatch(&format!("`{name}` is missing, or is not what the message says"));
    let missing = if said.is_none() {
        Some(VERSION_KEY)
    } else {
        Some(CAPABILITIES_KEY).filter(|_| !names_capabilities(envelope))
    };
    if let Some(key) = missing {
        return Err(Refused::new(StatusCode::BAD_REQUEST, INVALID_PARAMS, &format!("`_meta` has no `{key}`")));
    }
    if said != version {
        return Err(differs("MCP-Protocol-Version"));
    }
    if one(headers, METHOD)?.as_deref() != Some(method) {
        return Err(differs("Mcp-Method"));
    }
    match name_of(method, envelope.params) {
        Some(name) if one(headers, NAME)? != Some(name.clone()) => Err(differs("Mcp-Name")),
        _ => Ok(()),
    }
}

/// Compares headers that repeat arguments with the arguments.
pub(super) fn mirrored(headers: &HeaderMap, envelope: &Envelope<'_>, catalog: &Catalog) -> Result<(), Refused> {
    let Some(name) = name_of("tools/call", envelope.params).filter(|_| is_call(envelope)) else { return Ok(()) };
    let Some(Entry::Listed(listed)) = catalog.get(&name) else { return Ok(()) };
    let arguments =
        envelope.params.and_then(|params| pick(params.get(), ["arguments"]).ok()?.into_iter().flatten().next());
    // What cannot be read is refused, and put on record, where calls are judged.
    let Some(arguments) = arguments.and_then(|raw| Json::ingest(raw.get(), Bounds::PAYLOAD).ok()) else {
        return Ok(());
    };
    for (header, value) in post::mirrored(&listed.definition.input_schema, &arguments) {
        if one(headers, header.as_str())?.is_some_and(|sent| Some(sent) != decoded(&value)) {
            return Err(mismatch(&format!("`{header}` is not what the message says")));
        }
    }
    Ok(())
}

/// Whether a message is a call of a tool.
pub(super) fn is_call(envelope: &Envelope<'_>) -> bool {
    envelope.method.as_deref() == Some("tools/call")
}

/// The one value of a header. One that is there twice, or is no text, is for nobody.
fn one(headers: &HeaderMap, name: &str) -> Result<Option<String>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match decoded(value) {
            Some(text) => Ok(Some(text)),
            None => Err(mismatch(&format!("`{name}` cannot be read"))),
        },
        (Some(_), Some(_)) => Err(mismatch(&format!("`{name}` is there twice"))),
    }
}

fn mismatch(why: &str) -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, HEADER_MISMATCH, why)
}

/// Whether a client reads a stream of events.
pub(super) fn takes_events(headers: &HeaderMap) -> bool {
    takes(headers, ["text/event-stream", "text/*"])
}

/// Whether a client reads a message by itself.
pub(super) fn takes_messages(headers: &HeaderMap) -> bool {
    takes(headers, ["application/json", "application/*"])
}

fn takes(headers: &HeaderMap, kinds: [&str; 2]) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .map(|kind| kind.split(';').next().unwrap_or_default().trim())
        .any(|kind| kind == "*/*" || kinds.contains(&kind))
}

/// The first revision whose clients know an event without a message.
const PRIMING: &str = "2025-11-25";

/// Whether a session begins in a revision whose clients know such events.
pub(super) fn agrees_on_priming(answer: &str) -> bool {
    let version = pick(answer, ["result"]).ok().and_then(|[result]| {
        let [version] = pick(result?.get(), ["protocolVersion"]).ok()?;
        serde_json::from_str::<String>(version?.get()).ok()
    });
    version.is_some_and(|version| version == PRIMING)
}

/// The status that goes with an answer in the newer era.
pub(super) fn status(answer: &str) -> StatusCode {
    let code = pick(answer, ["error"]).ok().and_then(|[error]| {
        let [code] = pick(error?.get(), ["code"]).ok()?;
        code?.get().parse::<i32>().ok()
    });
    match code {
        Some(NO_METHOD) => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | NO_CAPABILITY | NO_VERSION) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
