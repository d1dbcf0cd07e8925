//! Decisions: what a person says about a hold.

use countersign::digest::CallDigest;
use countersign::grant::{RememberCovers, RememberScope};
use countersign::hold::{Answer, HoldState, WhoKind};
use countersign::{HoldId, Json};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::wire::{Call, Grant, Span, timestamp};

/// A decision as an approver sends it. It names the digest of what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDecision {
    /// `approve`, `deny` or `respond`.
    pub answer: AnswerWord,
    /// The digest of the hold that was looked at.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// Why not, for the model to read. Only with `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Other arguments to run instead; checked and judged again. Only with `approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Json>,
    /// Something for the tool, apart from its arguments. Only with `approve`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// What the model gets as the result, in place of a run. Only with `respond`, and required there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub response: Option<Json>,
    /// A grant to make along with it. Only with `approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
}

/// What may be said about a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerWord {
    /// Let it run.
    Approve,
    /// Do not run it.
    Deny,
    /// Do not run it; give the model this as its result.
    Respond,
}

/// What to remember.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Remember {
    /// `session` or `global`. There is no default.
    #[schema(value_type = String, example = "session")]
    pub scope: RememberScope,
    /// `exact` (the default), `tool`, `{"fields": ["to"]}` or `{"folder": "path"}`.
    #[serde(default)]
    #[schema(value_type = serde_json::Value)]
    pub covers: RememberCovers,
    /// For how long: `30m`, `7d`. Thirty days at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// For how many calls after the approved one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
}

impl From<Remember> for countersign::grant::Remember {
    fn from(remember: Remember) -> countersign::grant::Remember {
        let Remember { scope, covers, expires_after, uses } = remember;
        countersign::grant::Remember { scope, covers, expires_after: expires_after.map(|span| span.0), uses }
    }
}

impl NewDecision {
    /// A plain yes to what has this digest.
    pub fn approve(digest: CallDigest) -> NewDecision {
        NewDecision {
            answer: AnswerWord::Approve,
            digest,
            reason: None,
            arguments: None,
            payload: None,
            response: None,
            remember: None,
        }
    }

    /// A no to what has this digest.
    pub fn deny(digest: CallDigest, reason: Option<String>) -> NewDecision {
        NewDecision { answer: AnswerWord::Deny, reason, ..NewDecision::approve(digest) }
    }

    /// What it says, if its members belong together.
    ///
    /// A member that does not belong is refused, never dropped: whoever sent it thinks that it counts.
    pub fn answer(self) -> Result<Answer, String> {
        let NewDecision { answer, digest: _, reason, arguments, payload, response, remember } = self;
        let has = |here: bool, member: &'static str| here.then_some(member);
        let of_approve = [
            has(arguments.is_some(), "arguments"),
            has(payload.is_some(), "payload"),
            has(remember.is_some(), "remember"),
        ];
        let (reason_here, response_here) = (has(reason.is_some(), "reason"), has(response.is_some(), "response"));
        let (word, stray) = match answer {
            AnswerWord::Approve => ("approve", reason_here.or(response_here)),
            AnswerWord::Deny => ("deny", of_approve.into_iter().flatten().next().or(response_here)),
            AnswerWord::Respond => ("respond", of_approve.into_iter().flatten().next().or(reason_here)),
        };
        if let Some(stray) = stray {
            return Err(format!("`{stray}` does not go with `{word}`"));
        }
        match answer {
            AnswerWord::Approve => {
                Ok(Answer::Approve { arguments, payload, remember: remember.map(countersign::grant::Remember::from) })
            }
            AnswerWord::Deny => Ok(Answer::Deny { reason }),
            AnswerWord::Respond => match response {
                Some(response) => Ok(Answer::Respond { response }),
                None => Err("`respond` needs a `response`".to_owned()),
            },
        }
    }
}

/// A decision as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Who decided.
    pub by: String,
    /// `person` or `program`.
    #[schema(value_type = String)]
    pub kind: WhoKind,
    /// Where: `http`, `web`, `cli`, `terminal` …
    pub channel: String,
    /// `approve`, `deny` or `respond`.
    pub answer: String,
    /// Why not.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl From<&countersign::Decision> for Decision {
    fn from(decision: &countersign::Decision) -> Decision {
        let reason = match &decision.answer {
            Answer::Deny { reason } => reason.clone(),
            Answer::Approve { .. } | Answer::Respond { .. } => None,
        };
        Decision {
            by: decision.by.id.to_string(),
            kind: decision.by.kind,
            channel: decision.channel.to_string(),
            answer: decision.answer.as_str().to_owned(),
            reason,
            at: timestamp(decision.at),
        }
    }
}

/// What came of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    /// The hold.
    #[schema(value_type = String)]
    pub hold: HoldId,
    /// How it stands now: still `pending` where more approvals are needed.
    #[schema(value_type = String, example = "approved")]
    pub state: HoldState,
    /// Whether the same decision had been recorded before.
    pub replayed: bool,
    /// The grant made along with it.
    pub grant: Option<Grant>,
    /// How many other holds that grant released.
    pub released: usize,
    /// The hold to decide now, where an edit needs a decision of its own.
    #[schema(value_type = Option<String>)]
    pub superseded_by: Option<HoldId>,
    /// The call.
    pub call: Call,
}

impl Decided {
    /// What came of deciding this hold; none where the call has no such hold.
    pub fn of(decided: &countersign::gate::Decided, hold: HoldId) -> Option<Decided> {
        let row = decided.call.holds.iter().find(|row| row.id == hold)?;
        let next = decided.call.open_hold().filter(|_| row.state == HoldState::Superseded).map(|open| open.id);
        Some(Decided {
            hold,
            state: row.state,
            replayed: decided.replayed,
            grant: decided.grant.as_ref().map(|grant| Grant::of(grant, grant.made_at)),
            released: decided.released,
            superseded_by: next,
            call: Call::from(&*decided.call),
        })
    }
}

/// Reads a member that is there as `Some`, so that `null` stays a value and only absence is `None`.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(members: &str, expected: Result<&str, &str>) {
        let text = format!(r#"{{"digest": "cs1c:{}", {members}}}"#, "0".repeat(64));
        let read = serde_json::from_str::<NewDecision>(&text).map_err(|error| error.to_string());
        let answer = read.and_then(NewDecision::answer);
        match (answer, expected) {
            (Ok(answer), Ok(word)) => assert_eq!(answer.as_str(), word, "{members}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{members}: {error}"),
            (answer, _) => panic!("{members}: {answer:?}"),
        }
    }

    /// B123: reason only with deny; grant, edit and payload only with approve; unknown fields refused.
    #[test]
    fn members_that_do_not_belong_are_refused_not_dropped() {
        check(r#""answer": "approve""#, Ok("approve"));
        check(r#""answer": "approve", "arguments": {}, "payload": null"#, Ok("approve"));
        check(r#""answer": "approve", "remember": {"scope": "session", "expires_after": "1h"}"#, Ok("approve"));
        check(r#""answer": "approve", "remember": {}"#, Err("scope"));
        check(r#""answer": "approve", "reason": "x""#, Err("`reason` does not go with `approve`"));
        check(r#""answer": "deny", "reason": "x""#, Ok("deny"));
        check(r#""answer": "deny", "remember": {"scope": "global"}"#, Err("`remember` does not go with `deny`"));
        check(r#""answer": "deny", "arguments": {}"#, Err("`arguments` does not go"));
        check(r#""answer": "respond", "response": null"#, Ok("respond"));
        check(r#""answer": "respond""#, Err("needs a `response`"));
        check(r#""answer": "respond", "response": 1, "payload": 1"#, Err("`payload` does not go"));
        check(r#""answer": "approve", "by": "ann""#, Err("unknown field"));
        check(r#""answer": "maybe""#, Err("unknown variant"));
    }

    /// B34: a number no 64-bit reader could hold arrives as it was written.
    #[test]
    fn edited_arguments_keep_their_numbers() {
        let digest = format!("cs1c:{}", "0".repeat(64));
        let text =
            format!(r#"{{"answer":"approve","digest":"{digest}","arguments":{{"n":123456789012345678901.50}}}}"#);
        let read: NewDecision = serde_json::from_str(&text).unwrap();
        assert_eq!(read.arguments.unwrap().as_str(), r#"{"n":123456789012345678901.50}"#);
    }
}
