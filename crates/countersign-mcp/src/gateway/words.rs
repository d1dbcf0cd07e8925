//! What the client and its model read from the gateway itself.

use countersign::call::Outcome;
use countersign::refusal::Wording;
use countersign::show::escape;
use countersign::{Call, CallState, HoldId, Json, Refusal, RefusalKind};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::able::TASKS;
use super::message::{Id, pick, range_of, splice, with_member};
use super::request::Era;
use super::tongue::type_of;

/// JSON-RPC: the text is no JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the message is none.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: no such method.
pub(crate) const NO_METHOD: i32 = -32601;
/// JSON-RPC: wrong parameters.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC: it did not work.
pub(crate) const INTERNAL: i32 = -32603;

/// MCP: a header is not what the message says.
pub(crate) const HEADER_MISMATCH: i32 = -32020;
/// MCP: the client lacks a capability that is needed.
pub(crate) const NO_CAPABILITY: i32 = -32021;
/// MCP: this revision of the protocol is not spoken.
pub(crate) const NO_VERSION: i32 = -32022;

/// How the outcome of a call begins that its server did not finish.
const UNFINISHED: &str = "not finished: the server asks for more before it goes on";

/// So many of the things that it asks for are named.
const UNFINISHED_REQUESTS: usize = 8;

/// The method by which a client's user is asked something.
pub(crate) const ELICIT: &str = "elicitation/create";
/// The name of our prompt among the requests that a client of the newer era is to fulfil.
pub(crate) const PROMPT: &str = "countersign";

/// An error on the level of the protocol.
pub(crate) fn error(id: Option<&Id>, code: i32, message: &str) -> String {
    let id = id.map_or("null", |id| &id.0);
    let message = Value::from(format!("countersign: {message}"));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// An answer with this result.
pub(crate) fn plain(id: &Id, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0)
}

/// Whether a result reports an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Fine,
    Error,
}

/// A result that is a text of ours.
pub(crate) fn result(id: &Id, era: Era, tone: Tone, text: &str) -> String {
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": tone == Tone::Error});
    if let (Era::Modern, Some(members)) = (era, result.as_object_mut()) {
        members.insert("resultType".into(), "complete".into());
    }
    plain(id, &result.to_string())
}

/// Says that a call will not run.
pub(crate) fn refusal(id: &Id, era: Era, refusal: &Refusal) -> String {
    result(id, era, Tone::Error, &Wording::default().refusal(refusal))
}

/// Says that nobody knows whether a call ran.
pub(crate) fn doubt(id: &Id, era: Era) -> String {
    result(id, era, Tone::Error, &Wording::default().doubt())
}

/// Tells a client of the newer era to send the same call again, with this state.
pub(crate) fn again(id: &Id, state: &str) -> String {
    plain(id, &json!({"resultType": "input_required", "requestState": state}).to_string())
}

/// Has a client of the newer era ask its user, and send the same call again with the answer and this state.
pub(crate) fn prompt(id: &Id, state: &str, params: &Value) -> String {
    let prompts = json!({PROMPT: {"method": ELICIT, "params": params}});
    let result = json!({"resultType": "input_required", "requestState": state, "inputRequests": prompts});
    plain(id, &result.to_string())
}

/// Asks the user of a client of the handshake era.
pub(crate) fn elicit(id: &Id, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{ELICIT}","params":{params}}}"#, id.0)
}

/// Tells such a client that what its user was given a link to is over.
pub(crate) fn elicited(hold: HoldId) -> String {
    let params = json!({"elicitationId": hold});
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{params}}}"#)
}

/// Says that a call waits, and what to do; with a link for people, where there is one. Flagged as an error, so that no
/// model takes it for the tool's result.
pub(crate) fn pending(id: &Id, era: Era, call: &Call, link: Option<&str>) -> String {
    let text = match (call.state, call.open_hold()) {
        (_, Some(hold)) => format!(
            "Not run yet: this call waits for a person's approval under {hold}. They decide {at}in `countersign inbox`, \
             or with `countersign approve {hold}` or `countersign deny {hold}`. Call the tool again with exactly the \
             same arguments to go on waiting or to get the outcome. Do not try another way.",
            hold = hold.id,
            at = link.map_or_else(String::new, |link| format!("at {link} or ")),
        ),
        (CallState::Executing, None) => "Still running: an identical call is being run. Call the tool again with \
             exactly the same arguments to get its outcome."
            .to_owned(),
        (_, None) => {
            "Not run yet: all calls are halted by the operator, the server does not say what its tools are, or the \
             gateway is about to end. Call the tool again with exactly the same arguments to go on waiting."
                .to_owned()
        }
    };
    result(id, era, Tone::Error, &text)
}

/// What is recorded of a call that its server did not finish: what it asks for is the client's to bring, in a call that
/// is judged by itself.
pub(crate) fn unfinished(requests: Option<&RawValue>) -> String {
    let requests: std::collections::BTreeMap<String, Value> =
        requests.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let asked = |(name, request): (&String, &Value)| {
        let method = request.get("method").and_then(Value::as_str).unwrap_or("an unknown request");
        format!("`{}` ({})", escape(name), escape(method))
    };
    let asked: Vec<String> = requests.iter().take(UNFINISHED_REQUESTS).map(asked).collect();
    if asked.is_empty() { UNFINISHED.to_owned() } else { format!("{UNFINISHED}: {}", asked.join(", ")) }
}

/// Whether a call's server did not finish it.
pub(crate) fn is_unfinished(call: &Call) -> bool {
    matches!(&call.outcome, Some(Outcome::Failed { error, .. }) if error.starts_with(UNFINISHED))
}

/// How a call ended, from the record.
pub(crate) fn ended(id: &Id, era: Era, call: &Call) -> String {
    let note = Wording::default().edited(call);
    let noted = |text: &str| note.as_ref().map_or_else(|| text.to_owned(), |note| format!("{note}\n{text}"));
    match (call.state, &call.outcome) {
        (CallState::Succeeded, Some(Outcome::Succeeded { output })) => stored(id, era, output, note.as_deref()),
        (CallState::Failed, Some(Outcome::Failed { error, .. })) => result(id, era, Tone::Error, &noted(error)),
        (CallState::Failed, Some(Outcome::MayHaveApplied { .. }))
        | (CallState::InDoubt | CallState::Resolved | CallState::Succeeded | CallState::Failed, _) => doubt(id, era),
        (CallState::Answered, _) => result(id, era, Tone::Fine, &spoken(call.response.as_ref())),
        (CallState::Pending | CallState::Allowed | CallState::Approved | CallState::Executing, _) => {
            pending(id, era, call, None)
        }
        (CallState::Denied | CallState::Expired | CallState::Cancelled | CallState::Lapsed, _) => {
            let unknown = Refusal::new(RefusalKind::Unknown);
            refusal(id, era, call.refusal.as_ref().unwrap_or(&unknown))
        }
    }
}

/// A result that was kept. What was too large to keep is a text in its place.
fn stored(id: &Id, era: Era, output: &Json, note: Option<&str>) -> String {
    if !output.as_str().starts_with('{') {
        return result(id, era, Tone::Fine, &spoken(Some(output)));
    }
    let line = match serde_json::from_str(output.as_str()).ok().and_then(|raw: &RawValue| Some((raw, type_of(raw)?))) {
        // It ran for a client of the other era.
        Some((raw, lacking)) if era == Era::Modern => {
            plain(id, &with_member(output.as_str(), raw, lacking).unwrap_or_else(|| output.to_string()))
        }
        _ => plain(id, output.as_str()),
    };
    match note {
        Some(note) => with_note(&line, note).unwrap_or(line),
        None => line,
    }
}

fn spoken(json: Option<&Json>) -> String {
    let Some(json) = json else { return String::new() };
    json.read::<String>().unwrap_or_else(|_| json.as_str().to_owned())
}

/// The server's own answer, under the client's id.
///
/// Where a person changed the arguments the model is told, or it would believe that its own were run.
pub(crate) fn answer(id: &Id, line: &str, call: &Call) -> Option<String> {
    let line = under(id, line)?;
    Some(match Wording::default().edited(call) {
        Some(note) => with_note(&line, &note).unwrap_or(line),
        None => line,
    })
}

/// A message under another id.
pub(crate) fn under(id: &Id, line: &str) -> Option<String> {
    let [raw] = pick(line, ["id"]).ok()?;
    splice(line, &[(range_of(line, raw?.get())?, id.0.as_str())])
}

/// A result with a text before its content.
fn with_note(line: &str, note: &str) -> Option<String> {
    let [result] = pick(line, ["result"]).ok()?;
    let [content] = pick(result?.get(), ["content"]).ok()?;
    let blocks: Vec<&RawValue> = serde_json::from_str(content?.get()).ok()?;
    let start = range_of(line, content?.get())?.start + 1;
    let block = json!({"type": "text", "text": note});
    let comma = if blocks.is_empty() { "" } else { "," };
    splice(line, &[(start..start, &format!("{block}{comma}"))])
}

/// Says that a call still waits.
pub(crate) fn progress(token: &Id, beat: u64, call: &Call) -> String {
    let what = call.open_hold().map_or_else(String::new, |hold| format!(" ({})", hold.id));
    let message = Value::from(format!("waiting for a person's approval{what}"));
    // Small steps: the server's own progress comes after ours and must not go back.
    let (token, beat) = (&token.0, beat.min(999_999));
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":0.{beat:06},"message":{message}}}}}"#
    )
}

/// What a server says about itself, with the tasks that we make of calls to it. None where it says nothing about itself.
pub(crate) fn offering_tasks(line: &str) -> Option<String> {
    let [result] = pick(line, ["result"]).ok()?;
    let [capabilities] = pick(result?.get(), ["capabilities"]).ok()?;
    let [extensions] = pick(capabilities?.get(), ["extensions"]).ok()?;
    let member = format!(r#""{TASKS}":{{}}"#);
    match extensions {
        None => with_member(line, capabilities?, &format!(r#""extensions":{{{member}}}"#)),
        Some(extensions) => match pick(extensions.get(), [TASKS]).ok()? {
            [Some(_)] => Some(line.to_owned()),
            [None] => with_member(line, extensions, &member),
        },
    }
}

/// Withdraws a request.
pub(crate) fn cancelled(id: &Id, reason: &str) -> String {
    let reason = Value::from(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":{reason}}}}}"#,
        id.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_offered_beside_what_the_server_offers() {
        let line = |capabilities: &str| format!(r#"{{"id":1,"result":{{"capabilities":{capabilities},"z":1.50}}}}"#);
        let tasks = r#""io.modelcontextprotocol/tasks":{}"#;
        for (theirs, ours) in [
            ("{}", format!(r#"{{"extensions":{{{tasks}}}}}"#)),
            (r#"{"tools":{}}"#, format!(r#"{{"extensions":{{{tasks}}},"tools":{{}}}}"#)),
            (r#"{"extensions":{ }}"#, format!(r#"{{"extensions":{{{tasks} }}}}"#)),
            (r#"{"extensions":{"a":1}}"#, format!(r#"{{"extensions":{{{tasks},"a":1}}}}"#)),
        ] {
            assert_eq!(offering_tasks(&line(theirs)), Some(line(&ours)));
            assert_eq!(offering_tasks(&line(&ours)), Some(line(&ours)), "once is enough");
        }
        assert_eq!(offering_tasks(r#"{"id":1,"error":{"code":1}}"#), None);
    }
}
