//! Our own questions to the person at the client about a hold (elicitation): a link to where it is decided, or a form.
//!
//! SECURITY: a link decides nothing, whatever the client answers to it; only the record does. An answer to a form
//! proves only that the client said yes: it may answer without anybody looking. So forms are asked only where the policy
//! accepts that (`in_client: allow`), and the decision is a program's, on a channel of its own. No rule that wants a
//! person, certain people, several of them or somebody else than whoever asked is met by it.

use std::sync::Arc;

use countersign::hold::HoldRow;
use countersign::policy::InClient;
use countersign::show::escape;
use countersign::{Answer, Call, Decision, GateError, Hold, HoldId, Who, limits as core_limits};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Core;
use super::able::Able;
use super::caller::Client;
use crate::limits;

/// Where decisions made in a client are recorded to have been made.
const CHANNEL: &str = "in-client";

/// How a person is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Here and now: the answer decides.
    Form,
    /// Elsewhere: the answer means nothing.
    Link,
}

/// What a person at the client is asked about a hold.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) hold: HoldId,
    pub(super) way: Way,
    /// The parameters of `elicitation/create`.
    pub(super) params: Value,
}

impl Core {
    /// What the person at the client is to be asked about a call that waits; none where they are not asked there.
    pub(super) async fn prompt(&self, able: Able, call: &Arc<Call>) -> Result<Option<Prompt>, GateError> {
        let Some(hold) = call.open_hold().and_then(|row| Hold::of(call, row.id)) else { return Ok(None) };
        if able.forms
            && self.accepts_in_client(&hold)
            && let Some(message) = self.facts(&hold).await?
        {
            return Ok(Some(Prompt { hold: hold.id, way: Way::Form, params: form(&message) }));
        }
        let url = if able.links { (self.links)(hold.id) } else { None };
        Ok(url.map(|url| Prompt { hold: hold.id, way: Way::Link, params: link(&hold, &url) }))
    }

    /// Takes what a client answered to a prompt. What is not plainly a decision leaves the hold to people.
    pub(super) async fn take_answer(&self, hold: HoldId, call: &Call, said: &str) {
        let row = call.open_hold().filter(|row| row.id == hold && self.accepts_in_client(row));
        let Some((row, answer)) = row.zip(answer(said)) else { return };
        let decision = Decision::new(self.in_client(), CHANNEL, row.digest, answer);
        if let Err(error) = self.gate.decide(hold, decision).await {
            self.note(&format!("a decision made in the client was not accepted: {error}"));
        }
    }

    fn accepts_in_client(&self, hold: &HoldRow) -> bool {
        let terms = &hold.terms;
        self.gate.policy().in_client() == InClient::Allow
            && !terms.human_required
            && !terms.requester_excluded
            && terms.quorums.iter().all(|quorum| quorum.approvals <= 1 && quorum.from.is_empty())
    }

    /// As whom a client decides: never as a person, and never under a name that rules could mean.
    fn in_client(&self) -> Who {
        let name = match self.client {
            Client::Pipe(_) => &self.operator,
            Client::Http(_) => &self.path.principal,
        };
        Who::program(format!("{CHANNEL}:{name}"))
    }

    /// What would run, in full. None where that is too long for a form: nothing is ever cut.
    async fn facts(&self, hold: &Hold) -> Result<Option<String>, GateError> {
        let view = self.gate.view(hold, self.gate.store().now().await?).await?;
        let lines = view.lines.iter().map(ToString::to_string);
        let text = std::iter::once(format!("Countersign asks: may this run? {}", view.title)).chain(lines);
        Ok(Some(text.collect::<Vec<_>>().join("\n")).filter(|text| text.len() <= limits::PROMPT_BYTES))
    }
}

fn form(message: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "enum": ["deny", "allow"]},
            "reason": {"type": "string", "title": "Reason, for the model", "maxLength": core_limits::SHOWN_NOTE_BYTES},
        },
        "required": ["decision"],
    });
    json!({"mode": "form", "message": message, "requestedSchema": schema})
}

fn link(hold: &Hold, url: &str) -> Value {
    let tool = &hold.call.facts.tool;
    let place = tool.server.as_ref().map(|server| format!(" on {}", escape(server))).unwrap_or_default();
    let message = format!(
        "Countersign: a call of {}{place} waits for a person's approval. Look at it and decide there.",
        escape(&tool.name)
    );
    json!({"mode": "url", "message": message, "url": url, "elicitationId": hold.id})
}

/// What a client answers to a form.
#[derive(Deserialize)]
struct Answered {
    action: String,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Deserialize)]
struct Content {
    decision: Option<String>,
    reason: Option<String>,
}

/// Reads an answer to a form; none where nothing was decided.
fn answer(said: &str) -> Option<Answer> {
    let Answered { action, content } = serde_json::from_str(said).ok()?;
    let (decision, reason) = content.map_or((None, None), |content| (content.decision, content.reason));
    match (action.as_str(), decision.as_deref()) {
        ("accept", Some("allow")) => Some(Answer::approve()),
        ("accept", Some("deny")) | ("decline", _) => Some(Answer::Deny { reason: reason.and_then(bounded) }),
        _ => None,
    }
}

/// A reason, as much of it as is kept; none where nothing was written.
fn bounded(mut reason: String) -> Option<String> {
    reason.truncate(reason.floor_char_boundary(core_limits::NOTE_BYTES));
    (!reason.trim().is_empty()).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is not plainly a yes or a no leaves the hold to people.
    #[test]
    fn only_a_plain_word_decides() {
        assert_eq!(answer(r#"{"action":"accept","content":{"decision":"allow"}}"#), Some(Answer::approve()));
        assert_eq!(
            answer(r#"{"action":"accept","content":{"decision":"deny","reason":"no"}}"#),
            Some(Answer::deny("no"))
        );
        assert_eq!(answer(r#"{"action":"decline"}"#), Some(Answer::Deny { reason: None }));
        assert_eq!(answer(r#"{"action":"decline","content":null}"#), Some(Answer::Deny { reason: None }));
        for said in [
            r#"{"action":"accept"}"#,
            r#"{"action":"accept","content":{}}"#,
            r#"{"action":"accept","content":{"decision":"Allow"}}"#,
            r#"{"action":"accept","content":{"decision":true}}"#,
            r#"{"action":"accept","content":{"decision":"deny","decision":"allow"}}"#,
            r#"{"action":"cancel","content":{"decision":"allow"}}"#,
            r#"{"action":"ACCEPT","content":{"decision":"allow"}}"#,
            r#"{"content":{"decision":"allow"}}"#,
            r#"[{"action":"accept","content":{"decision":"allow"}}]"#,
            "null",
            "",
        ] {
            assert_eq!(answer(said), None, "{said}");
        }
    }

    #[test]
    fn a_reason_of_any_length_still_denies() {
        let said = json!({"action": "decline", "content": {"reason": "é".repeat(1 << 20)}}).to_string();
        let Some(Answer::Deny { reason: Some(reason) }) = answer(&said) else { panic!("it denies") };
        assert!(reason.len() <= core_limits::NOTE_BYTES);
    }
}
