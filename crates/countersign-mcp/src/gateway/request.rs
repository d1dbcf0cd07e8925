//! A `tools/call` request: what is judged of it, and how it goes on to the server.

use std::ops::Range;

use countersign::json::{Bounds, IngestError};
use countersign::{CallId, Json, limits};
use serde_json::value::RawValue;

use super::able::{Able, CAPABILITIES_KEY, TASKS};
use super::message::{Envelope, Id, pick, range_of, splice};
use super::words::PROMPT;

/// The protocol's `_meta` key that only requests of the newer era carry.
pub(crate) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The revisions that begin with a handshake.
pub(crate) const HANDSHAKES: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// How messages are dressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2024-11-05 to 2025-11-25: a handshake, plain results.
    Handshake,
    /// 2026-07-28: every request says its version, every result its type.
    Modern,
}

/// One `tools/call` as the client sent it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) name: String,
    /// What progress is reported under.
    pub(crate) token: Option<Id>,
    pub(crate) era: Era,
    /// A state that we gave the client; it is ours alone.
    pub(crate) state: Option<String>,
    /// What the client answers to a prompt of ours; only together with such a state.
    pub(crate) answered: Option<String>,
    /// The call that it belongs to, where it was made before and its answer was cut off.
    pub(crate) resumes: Option<CallId>,
    /// What goes to the server beside the arguments: answers to its questions, and a state that it gave.
    pub(crate) more: Option<Json>,
    /// What the client can do, by the request itself: one of the handshake era has said so before.
    pub(crate) able: Able,
    /// The client's own name for the call.
    pub(crate) label: Option<String>,
    line: String,
    id_at: Range<usize>,
    token_at: Option<Range<usize>>,
    arguments_at: ArgumentsAt,
    meta_at: Option<Range<usize>>,
}

/// Where a member stands in the text, with the comma that goes with it. None where its name is spelled with escapes.
fn member_of(line: &str, name: &str, value: &RawValue) -> Option<Range<usize>> {
    let value = range_of(line, value.get())?;
    let before = line.get(..value.start)?.trim_end().strip_suffix(':')?.trim_end();
    let before = before.strip_suffix('"')?.strip_suffix(name)?.strip_suffix('"')?;
    let after = line.get(value.end..)?;
    let rest = after.trim_start();
    match rest.strip_prefix(',') {
        Some(rest) => Some(before.len()..line.len() - rest.len()),
        None => Some(before.trim_end().strip_suffix(',').unwrap_or(before).len()..value.end),
    }
}

/// A request without one of the members of its `params`, or of an object in there. None where it cannot be taken out.
pub(crate) fn without(line: &str, inside: &[&str], name: &str) -> Option<String> {
    let Some(mut object) = Envelope::read(line).ok()?.params else { return Some(line.to_owned()) };
    for step in inside {
        match pick(object.get(), [step]).ok()? {
            [Some(inner)] => object = inner,
            [None] => return Some(line.to_owned()),
        }
    }
    match pick(object.get(), [name]).ok()? {
        [Some(value)] => splice(line, &[(member_of(line, name, value)?, "")]),
        [None] => Some(line.to_owned()),
    }
}

/// What goes to the server beside the arguments, in canonical form. SECURITY: what cannot be shown whole is not sent.
fn more(state: Option<&RawValue>, inputs: Option<&RawValue>) -> Result<Option<Json>, String> {
    let members = [("inputResponses", inputs), ("requestState", state)];
    let members: Vec<String> =
        members.iter().filter_map(|(name, raw)| Some(format!("\"{name}\":{}", (*raw)?.get()))).collect();
    if members.is_empty() {
        return Ok(None);
    }
    let more = Json::ingest(&format!("{{{}}}", members.join(",")), Bounds::PAYLOAD);
    let more = more.and_then(|more| shown(&more).map(|_| more));
    more.map(Some).map_err(|error| format!("what is sent along cannot be read: {error}"))
}

/// What goes to the server beside the arguments, as whoever is asked sees it.
pub(crate) fn shown(more: &Json) -> Result<Json, IngestError> {
    Json::ingest(&format!(r#"{{"sent_along":{more}}}"#), Bounds::PAYLOAD)
}

/// The `_meta` of a request.
pub(crate) fn meta(params: Option<&RawValue>) -> Option<&RawValue> {
    let [meta] = pick(params?.get(), ["_meta"]).ok()?;
    meta
}

/// What a request wants its progress reported under.
pub(crate) fn progress_token(params: Option<&RawValue>) -> Option<&RawValue> {
    let [token] = pick(meta(params)?.get(), ["progressToken"]).ok()?;
    token
}

/// The revision that a request says it speaks; only those of the newer era do.
pub(crate) fn protocol_version(envelope: &Envelope<'_>) -> Option<String> {
    let [version] = pick(meta(envelope.params)?.get(), [VERSION_KEY]).ok()?;
    serde_json::from_str(version?.get()).ok()
}

/// Whether a request says what its client is able to do, as all of the newer era must.
pub(crate) fn names_capabilities(envelope: &Envelope<'_>) -> bool {
    let capabilities = || pick(meta(envelope.params)?.get(), [CAPABILITIES_KEY]).ok()?[0];
    capabilities().is_some_and(|capabilities| capabilities.get().starts_with('{'))
}

/// What of a request the server gets under a name of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renamed {
    /// Its id.
    Id,
    /// Its id, and what progress is reported under.
    IdAndToken,
}

#[derive(Clone, Debug)]
enum ArgumentsAt {
    There(Range<usize>),
    /// There are none; this is where they would begin.
    Nowhere(usize),
}

impl Request {
    /// Reads a request; an error says what is wrong with it.
    ///
    /// States that begin with `ours` are ours; others are the server's.
    pub(crate) fn read(line: &str, envelope: &Envelope<'_>, ours: &str) -> Result<Request, String> {
        let raw_id = envelope.id.ok_or("a call without an id gets no answer, so it is not made")?;
        let id = Id::read(raw_id).ok_or("an id must be a string or a number")?;
        let params = envelope.params.ok_or("`params` is missing")?;
        let bad = |error: serde_json::Error| format!("`params` cannot be read: {error}");
        let [name, arguments, meta, raw_state, inputs] =
            pick(params.get(), ["name", "arguments", "_meta", "requestState", "inputResponses"]).map_err(bad)?;
        // The server behind us may have states of its own: those go on to it.
        let state = raw_state.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        if let Some(state) = state.filter(|state| state.starts_with(ours)) {
            let bare = without(line, &[], "requestState").and_then(|line| without(&line, &[], "inputResponses"));
            let bare = bare.ok_or("`requestState` cannot be taken out")?;
            let request = Request::read(&bare, &Envelope::read(&bare).map_err(bad)?, ours)?;
            let [answered] = inputs.and_then(|inputs| pick(inputs.get(), [PROMPT]).ok()).unwrap_or_default();
            return Ok(Request { state: Some(state), answered: answered.map(|raw| raw.get().to_owned()), ..request });
        }
        let more = more(raw_state, inputs)?;
        let name = name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
        let [token, version, label] = match meta {
            Some(meta) => pick(meta.get(), ["progressToken", VERSION_KEY, "claudecode/toolUseId"]).map_err(bad)?,
            None => [None; 3],
        };
        let arguments_at = match arguments {
            Some(arguments) => range_of(line, arguments.get()).map(ArgumentsAt::There),
            None => range_of(line, params.get()).map(|range| ArgumentsAt::Nowhere(range.start + 1)),
        };
        Ok(Request {
            id_at: range_of(line, raw_id.get()).ok_or("the message cannot be taken apart")?,
            arguments_at: arguments_at.ok_or("the message cannot be taken apart")?,
            name: name.ok_or("`name` must be a string")?,
            state: None,
            answered: None,
            resumes: None,
            more,
            able: version.and(meta).map_or_else(Able::default, Able::declared),
            token_at: token.and_then(|token| range_of(line, token.get())),
            token: token.and_then(Id::read),
            era: if version.is_some() { Era::Modern } else { Era::Handshake },
            meta_at: meta.and_then(|meta| range_of(line, meta.get())),
            label: label
                .and_then(|label| serde_json::from_str(label.get()).ok())
                .filter(|label: &String| label.len() <= limits::NAME_BYTES),
            line: line.to_owned(),
            id,
        })
    }

    /// The arguments as they stand in the message; none where it has none.
    pub(crate) fn arguments(&self) -> Option<&str> {
        match &self.arguments_at {
            ArgumentsAt::There(range) => self.line.get(range.clone()),
            ArgumentsAt::Nowhere(_) => None,
        }
    }

    /// The `_meta` as it stands in the message.
    pub(crate) fn meta(&self) -> Option<&str> {
        self.line.get(self.meta_at.clone()?)
    }

    /// The same request with what was sent along when its wait began: a client brings only what it was given last.
    pub(crate) fn carrying(self, more: &Json, ours: &str) -> Option<Request> {
        let members = more.as_str().strip_prefix('{')?.strip_suffix('}')?;
        let params = Envelope::read(&self.line).ok()?.params?;
        let at = range_of(&self.line, params.get())?.start + 1;
        let line = splice(&self.line, &[(at..at, &format!("{members},"))])?;
        let request = Request::read(&line, &Envelope::read(&line).ok()?, ours).ok()?;
        Some(Request { state: self.state, answered: self.answered, ..request })
    }

    /// The request as it is kept for a task: nobody hears of its progress, and the server makes no task of its own of it.
    pub(crate) fn kept(&self) -> Option<String> {
        let line = without(&self.line, &["_meta"], "progressToken")?;
        without(&line, &["_meta", CAPABILITIES_KEY, "extensions"], TASKS)
    }

    /// The message for the server: the same bytes, but for our id and the arguments that may run.
    pub(crate) fn outgoing(&self, id: &Id, renamed: Renamed, arguments: &Json) -> Option<String> {
        let inserted = format!("\"arguments\":{arguments},");
        let arguments = match &self.arguments_at {
            ArgumentsAt::There(range) => Some((range.clone(), arguments.as_str())),
            ArgumentsAt::Nowhere(_) if *arguments == Json::empty() => None,
            ArgumentsAt::Nowhere(at) => Some((*at..*at, inserted.as_str())),
        };
        let mut edits: Vec<(Range<usize>, &str)> = vec![(self.id_at.clone(), id.0.as_str())];
        edits.extend(arguments);
        if renamed == Renamed::IdAndToken {
            edits.extend(self.token_at.clone().map(|range| (range, id.0.as_str())));
        }
        edits.sort_by_key(|(range, _)| range.start);
        splice(&self.line, &edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "countersign.tag.";

    fn read(line: &str) -> Result<Request, String> {
        Request::read(line, &Envelope::read(line).unwrap(), PREFIX)
    }

    #[track_caller]
    fn check(line: &str, arguments: &str, expected: &str) {
        let json = Json::ingest(arguments, countersign::json::Bounds::PAYLOAD).unwrap();
        assert_eq!(read(line).unwrap().outgoing(&Id::text("ours"), Renamed::Id, &json).unwrap(), expected);
    }

    #[test]
    fn only_id_and_arguments_differ_in_what_the_server_gets() {
        check(
            r#"{"x":{"z":1,"a":2},"params":{"_meta":{"k":[1 ]},"arguments":{"b":1,"a":2},"name":"t","task":{}},"id":7}"#,
            r#"{"a":3}"#,
            r#"{"x":{"z":1,"a":2},"params":{"_meta":{"k":[1 ]},"arguments":{"a":3},"name":"t","task":{}},"id":"ours"}"#,
        );
        check(r#"{"id":"a","params":{"name":"t"}}"#, "{}", r#"{"id":"ours","params":{"name":"t"}}"#);
        check(
            r#"{"id":"a","params":{"name":"t"}}"#,
            r#"{"a":3}"#,
            r#"{"id":"ours","params":{"arguments":{"a":3},"name":"t"}}"#,
        );
    }

    /// Our own state is not the server's business; a state of the server's is.
    #[test]
    fn only_a_state_of_ours_is_taken_out() {
        let ours = format!(r#""requestState": "{PREFIX}x""#);
        for (line, expected) in [
            (format!(r#"{{"id":1,"params":{{{ours},"name":"t"}}}}"#), r#"{"id":"ours","params":{"name":"t"}}"#),
            (
                format!(r#"{{"id":1,"params":{{"inputResponses":{{"x":1}},"name":"t",{ours}}}}}"#),
                r#"{"id":"ours","params":{"name":"t"}}"#,
            ),
            (format!(r#"{{"id":1,"params":{{"name":"t" , {ours} }}}}"#), r#"{"id":"ours","params":{"name":"t"  }}"#),
        ] {
            assert_eq!(read(&line).unwrap().state.as_deref(), Some(&*format!("{PREFIX}x")));
            check(&line, "{}", expected);
        }
        let theirs = r#"{"id":1,"params":{"name":"t","inputResponses":{"countersign":1},"requestState":"theirs"}}"#;
        let request = read(theirs).unwrap();
        assert_eq!((request.state, request.answered), (None, None));
        check(theirs, "{}", &theirs.replace(r#""id":1"#, r#""id":"ours""#));
        let escaped = format!(r#"{{"id":1,"params":{{"name":"t","request\u0053tate":"{PREFIX}x"}}}}"#);
        assert!(read(&escaped).is_err());
    }

    /// What the server asked for goes with the call that brings it, also after a wait in which the client brings only
    /// our own state.
    #[test]
    fn what_is_sent_along_is_kept_over_a_wait() {
        let theirs = r#"{"id":1,"params":{"name":"t","inputResponses":{"b":2,"a":1},"requestState":"theirs"}}"#;
        let more = read(theirs).unwrap().more.unwrap();
        assert_eq!(more.as_str(), r#"{"inputResponses":{"a":1,"b":2},"requestState":"theirs"}"#);
        let later = format!(r#"{{"id":2,"params":{{"name":"t","requestState":"{PREFIX}x"}}}}"#);
        let later = read(&later).unwrap();
        assert_eq!(later.more, None);
        let carrying = later.carrying(&more, PREFIX).unwrap();
        assert_eq!((carrying.more.as_ref(), carrying.state.as_deref()), (Some(&more), Some("countersign.tag.x")));
        assert_eq!(
            carrying.outgoing(&Id::text("ours"), Renamed::Id, &Json::empty()).unwrap(),
            r#"{"id":"ours","params":{"inputResponses":{"a":1,"b":2},"requestState":"theirs","name":"t"}}"#
        );
        assert_eq!(read(r#"{"id":1,"params":{"name":"t"}}"#).unwrap().more, None);
        assert!(read(r#"{"id":1,"params":{"name":"t","inputResponses":{"a":1,"A":2}}}"#).is_err());
    }

    #[test]
    fn what_is_kept_for_a_task_asks_for_neither_progress_nor_tasks() {
        let line = r#"{"id":1,"params":{"name":"t","_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"a":1,"io.modelcontextprotocol/tasks":{}},"roots":{}}}}}"#;
        let kept = r#"{"id":1,"params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"a":1},"roots":{}}}}}"#;
        assert_eq!(read(line).unwrap().kept().as_deref(), Some(kept));
        let escaped = line.replace("io.modelcontextprotocol/tasks", r"io.modelcontextprotocol\/tasks");
        assert_eq!(read(&escaped).unwrap().kept(), None);
        let plain = r#"{"id":1,"params":{"name":"t"}}"#;
        assert_eq!(read(plain).unwrap().kept().as_deref(), Some(plain));
    }

    #[test]
    fn what_is_no_call_is_not_taken_for_one() {
        for line in [
            r#"{"params":{"name":"t"}}"#,
            r#"{"id":null,"params":{"name":"t"}}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"params":{}}"#,
            r#"{"id":1,"params":{"name":7}}"#,
            r#"{"id":1,"params":{"name":"t","name":"u"}}"#,
            r#"{"id":1,"params":{"name":"t","Arguments":{}}}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
