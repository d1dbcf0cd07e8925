//! A hold: a call that waits for people, and what they decide.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::{CallDigest, Nonce};
use crate::grant::Remember;
use crate::id::HoldId;
use crate::json::Json;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::verdict::{Because, Terms};

/// How a hold stands. It closes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Waiting for a decision.
    Pending,
    /// Enough people approved.
    Approved,
    /// Somebody denied.
    Denied,
    /// Somebody answered instead of running it.
    Answered,
    /// A new grant covered it.
    Released,
    /// Nobody decided in time.
    Expired,
    /// Withdrawn.
    Cancelled,
    /// Another hold took its place, for other bytes.
    Superseded,
}

impl HoldState {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            HoldState::Pending => "pending",
            HoldState::Approved => "approved",
            HoldState::Denied => "denied",
            HoldState::Answered => "answered",
            HoldState::Released => "released",
            HoldState::Expired => "expired",
            HoldState::Cancelled => "cancelled",
            HoldState::Superseded => "superseded",
        }
    }
}

/// Whether the hold stands before the run or inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// The call has not begun.
    BeforeRun,
    /// The tool is already running and asks to go on.
    InRun,
}

/// Whether a decider is flesh and blood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhoKind {
    /// A person.
    Person,
    /// A program; it lifts no must-ask.
    Program,
}

/// Who decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// A stable name: `ann`, `os:ann`, `program:risk-bot`.
    pub id: Arc<str>,
    /// Person or program.
    pub kind: WhoKind,
}

impl Who {
    /// A person.
    pub fn person(id: impl Into<Arc<str>>) -> Who {
        Who { id: id.into(), kind: WhoKind::Person }
    }

    /// A program.
    pub fn program(id: impl Into<Arc<str>>) -> Who {
        Who { id: id.into(), kind: WhoKind::Program }
    }
}

/// What a decider says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer", try_from = "AnswerText")]
pub enum Answer {
    /// Let it run.
    Approve {
        /// Other arguments to run instead. Validated and judged again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Json>,
        /// Something for the tool, never merged into the arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<Json>,
        /// A grant to make along with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remember: Option<Remember>,
    },
    /// Do not run it.
    Deny {
        /// Why, for the model to read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Do not run it; give the model this as its result.
    Respond {
        /// The result.
        response: Json,
    },
}

impl Answer {
    /// A plain yes.
    pub fn approve() -> Answer {
        Answer::Approve { arguments: None, payload: None, remember: None }
    }

    /// A no, with a reason for the model.
    pub fn deny(reason: impl Into<String>) -> Answer {
        Answer::Deny { reason: Some(reason.into()) }
    }

    /// The word used on the wire.
    pub fn as_str(&self) -> &'static str {
        match self {
            Answer::Approve { .. } => "approve",
            Answer::Deny { .. } => "deny",
            Answer::Respond { .. } => "respond",
        }
    }
}

/// An answer as it is written. Flat, because a tagged or flattened type would read its JSON through a buffer that
/// rounds numbers.
#[derive(Deserialize)]
struct AnswerText {
    answer: AnswerWord,
    #[serde(default)]
    arguments: Option<Json>,
    #[serde(default, deserialize_with = "crate::json::present")]
    payload: Option<Json>,
    #[serde(default)]
    remember: Option<Remember>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default, deserialize_with = "crate::json::present")]
    response: Option<Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerWord {
    Approve,
    Deny,
    Respond,
}

impl TryFrom<AnswerText> for Answer {
    type Error = &'static str;

    fn try_from(text: AnswerText) -> Result<Answer, &'static str> {
        let AnswerText { answer, arguments, payload, remember, reason, response } = text;
        match answer {
            AnswerWord::Approve => Ok(Answer::Approve { arguments, payload, remember }),
            AnswerWord::Deny => Ok(Answer::Deny { reason }),
            AnswerWord::Respond => match response {
                Some(response) => Ok(Answer::Respond { response }),
                None => Err("missing field `response`"),
            },
        }
    }
}

/// One decider's word on one hold, made for exactly one digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DecisionText")]
pub struct Decision {
    /// Who decided.
    pub by: Who,
    /// Where they decided: `terminal`, `cli`, `http`, `approver` …
    pub channel: Arc<str>,
    /// What they saw.
    pub digest: CallDigest,
    /// What they said.
    #[serde(flatten)]
    pub answer: Answer,
    /// When, by the store's clock. Set by the store.
    #[serde(default)]
    pub at: Time,
    /// Which of the hold's quorums this counts for, by position. Set from the decider's groups when recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts_for: Vec<usize>,
}

/// A decision as it is written.
#[derive(Deserialize)]
struct DecisionText {
    by: Who,
    channel: Arc<str>,
    digest: CallDigest,
    answer: AnswerWord,
    #[serde(default)]
    arguments: Option<Json>,
    #[serde(default, deserialize_with = "crate::json::present")]
    payload: Option<Json>,
    #[serde(default)]
    remember: Option<Remember>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default, deserialize_with = "crate::json::present")]
    response: Option<Json>,
    #[serde(default)]
    at: Time,
    #[serde(default)]
    counts_for: Vec<usize>,
}

impl TryFrom<DecisionText> for Decision {
    type Error = &'static str;

    fn try_from(text: DecisionText) -> Result<Decision, &'static str> {
        let DecisionText { by, channel, digest, answer, arguments, payload, remember, reason, response, .. } = text;
        let answer = AnswerText { answer, arguments, payload, remember, reason, response }.try_into()?;
        Ok(Decision { by, channel, digest, answer, at: text.at, counts_for: text.counts_for })
    }
}

impl Decision {
    /// A decision as a surface sends it; the store adds the time.
    pub fn new(by: Who, channel: impl Into<Arc<str>>, digest: CallDigest, answer: Answer) -> Decision {
        Decision { by, channel: channel.into(), digest, answer, at: Time::default(), counts_for: Vec::new() }
    }

    /// Whether this says the same as an earlier one: same decider, same digest, same words.
    pub fn repeats(&self, earlier: &Decision) -> bool {
        self.by == earlier.by && self.digest == earlier.digest && self.answer == earlier.answer
    }
}

/// A hold as its call keeps it. Approvers see it together with the call, as [`Hold`](crate::Hold).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRow {
    /// Our name for it.
    pub id: HoldId,
    /// Before the run or inside it.
    pub kind: HoldKind,
    /// How it stands.
    pub state: HoldState,
    /// What a decision must name. One hold, one digest, for ever.
    pub digest: CallDigest,
    /// Keeps an in-run hold's digest from being guessed.
    pub nonce: Nonce,
    /// The tool's own words. Untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Arc<str>>,
    /// What the tool or agent gave along to look at. Untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::present")]
    pub payload: Option<Json>,
    /// On what terms it opened.
    pub terms: Arc<Terms>,
    /// The rules that ask.
    pub because: Arc<[Because]>,
    /// When it opened.
    pub opened_at: Time,
    /// When it expires; never, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// What people said, in commit order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// Why it closed without a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

impl HoldRow {
    /// Whether it waits for a decision.
    pub fn is_pending(&self) -> bool {
        self.state == HoldState::Pending
    }

    /// Whether it closed with a yes: people approved it, or a grant or `unattended` let it pass.
    pub fn is_yes(&self) -> bool {
        matches!(self.state, HoldState::Approved | HoldState::Released)
    }

    /// Whether the tool opened it while running.
    pub fn in_run(&self) -> bool {
        self.kind == HoldKind::InRun
    }

    /// Whether its quorums are all met by the approvals so far.
    pub fn quorums_met(&self) -> bool {
        self.terms.quorums.iter().enumerate().all(|(index, quorum)| {
            let counted = self.decisions.iter().filter(|decision| {
                matches!(decision.answer, Answer::Approve { .. }) && decision.counts_for.contains(&index)
            });
            counted.count() >= quorum.approvals as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Outcome;

    /// B34: what a store writes reads back to the same bytes. A tag inside the object, or a flattened enum, would go
    /// through a buffer that cannot hold our JSON.
    #[test]
    fn answers_and_outcomes_read_back_exactly() {
        let json = Json::of(&serde_json::json!({"n": 12345678901234567890_u64, "s": "é"})).unwrap();
        let approve = Answer::Approve { arguments: Some(json.clone()), payload: Some(json.clone()), remember: None };
        for answer in [approve, Answer::deny("no"), Answer::Respond { response: json.clone() }] {
            let digest = CallDigest::from_bytes([7; 32]);
            let decision = Decision::new(Who::person("ann"), "cli", digest, answer);
            let text = serde_json::to_string(&decision).unwrap();
            assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
        }
        let outcome = Outcome::Succeeded { output: json };
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
