//! A `tools/call` request: what is judged of it, and how it goes on to the server.

use std::ops::Range;

use countersign::{Json, limits};
use serde_json::value::RawValue;

use super::message::{Envelope, Id, pick, range_of, splice};

/// The protocol's `_meta` key that only requests of the newer era carry.
pub(crate) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// How messages are dressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2024-11-05 to 2025-11-25: a handshake, plain results.
    Handshake,
    /// 2026-07-28: every request says its version, every result its type.
    Modern,
}

/// One `tools/call` as the client sent it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) name: String,
    /// The arguments as they stand in the message; none where it has none.
    pub(crate) arguments: Option<String>,
    /// What progress is reported under.
    pub(crate) token: Option<Id>,
    pub(crate) era: Era,
    /// The `_meta` as it stands in the message.
    pub(crate) meta: Option<String>,
    /// A state that we gave the client; it is ours alone.
    pub(crate) state: Option<String>,
    /// The client's own name for the call.
    pub(crate) label: Option<String>,
    line: String,
    id_at: Range<usize>,
    token_at: Option<Range<usize>>,
    state_at: Option<Range<usize>>,
    arguments_at: ArgumentsAt,
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

/// What a request wants its progress reported under.
pub(crate) fn progress_token(params: Option<&RawValue>) -> Option<&RawValue> {
    let [meta] = pick(params?.get(), ["_meta"]).ok()?;
    let [token] = pick(meta?.get(), ["progressToken"]).ok()?;
    token
}

/// The revision that a request says it speaks; only those of the newer era do.
pub(crate) fn protocol_version(envelope: &Envelope<'_>) -> Option<String> {
    let [meta] = pick(envelope.params?.get(), ["_meta"]).ok()?;
    let [version] = pick(meta?.get(), [VERSION_KEY]).ok()?;
    serde_json::from_str(version?.get()).ok()
}

/// What of a request the server gets under a name of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renamed {
    /// Its id.
    Id,
    /// Its id, and what progress is reported under.
    IdAndToken,
}

#[derive(Debug)]
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
        let [name, arguments, meta, state] =
            pick(params.get(), ["name", "arguments", "_meta", "requestState"]).map_err(bad)?;
        // The server behind us may have states of its own: those go on to it.
        let state = state.and_then(|raw| Some((raw, serde_json::from_str::<String>(raw.get()).ok()?)));
        let state = state.filter(|(_, text)| text.starts_with(ours));
        let state_at = match &state {
            Some((raw, _)) => Some(member_of(line, "requestState", raw).ok_or("`requestState` cannot be taken out")?),
            None => None,
        };
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
            arguments: arguments.map(|arguments| arguments.get().to_owned()),
            state: state.map(|(_, text)| text),
            state_at,
            token_at: token.and_then(|token| range_of(line, token.get())),
            token: token.and_then(Id::read),
            era: if version.is_some() { Era::Modern } else { Era::Handshake },
            meta: meta.map(|meta| meta.get().to_owned()),
            label: label
                .and_then(|label| serde_json::from_str(label.get()).ok())
                .filter(|label: &String| label.len() <= limits::NAME_BYTES),
            line: line.to_owned(),
            id,
        })
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
        edits.extend(self.state_at.clone().map(|range| (range, "")));
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
            (format!(r#"{{"id":1,"params":{{"name":"t" , {ours} }}}}"#), r#"{"id":"ours","params":{"name":"t"  }}"#),
        ] {
            assert_eq!(read(&line).unwrap().state.as_deref(), Some(&*format!("{PREFIX}x")));
            check(&line, "{}", expected);
        }
        let theirs = r#"{"id":1,"params":{"name":"t","requestState":"theirs"}}"#;
        assert_eq!(read(theirs).unwrap().state, None);
        check(theirs, "{}", r#"{"id":"ours","params":{"name":"t","requestState":"theirs"}}"#);
        let escaped = format!(r#"{{"id":1,"params":{{"name":"t","request\u0053tate":"{PREFIX}x"}}}}"#);
        assert!(read(&escaped).is_err());
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
