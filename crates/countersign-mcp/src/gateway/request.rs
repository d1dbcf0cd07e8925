//! A `tools/call` request: what is judged of it, and how it goes on to the server.

use std::ops::Range;

use countersign::{Json, limits};

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
    /// The client's own name for the call.
    pub(crate) label: Option<String>,
    line: String,
    id_at: Range<usize>,
    arguments_at: ArgumentsAt,
}

#[derive(Debug)]
enum ArgumentsAt {
    There(Range<usize>),
    /// There are none; this is where they would begin.
    Nowhere(usize),
}

impl Request {
    /// Reads a request; an error says what is wrong with it.
    pub(crate) fn read(line: &str, envelope: &Envelope<'_>) -> Result<Request, String> {
        let raw_id = envelope.id.ok_or("a call without an id gets no answer, so it is not made")?;
        let id = Id::read(raw_id).ok_or("an id must be a string or a number")?;
        let params = envelope.params.ok_or("`params` is missing")?;
        let bad = |error: serde_json::Error| format!("`params` cannot be read: {error}");
        let [name, arguments, meta] = pick(params.get(), ["name", "arguments", "_meta"]).map_err(bad)?;
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
    pub(crate) fn outgoing(&self, id: &Id, arguments: &Json) -> Option<String> {
        let inserted = format!("\"arguments\":{arguments},");
        let arguments = match &self.arguments_at {
            ArgumentsAt::There(range) => Some((range.clone(), arguments.as_str())),
            ArgumentsAt::Nowhere(_) if *arguments == Json::empty() => None,
            ArgumentsAt::Nowhere(at) => Some((*at..*at, inserted.as_str())),
        };
        let mut edits: Vec<(Range<usize>, &str)> = vec![(self.id_at.clone(), id.0.as_str())];
        edits.extend(arguments);
        edits.sort_by_key(|(range, _)| range.start);
        splice(&self.line, &edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Request, String> {
        Request::read(line, &Envelope::read(line).unwrap())
    }

    #[track_caller]
    fn check(line: &str, arguments: &str, expected: &str) {
        let json = Json::ingest(arguments, countersign::json::Bounds::PAYLOAD).unwrap();
        assert_eq!(read(line).unwrap().outgoing(&Id::text("ours"), &json).unwrap(), expected);
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
