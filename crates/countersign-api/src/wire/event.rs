//! Events: what happened, as it is streamed and listed.

use countersign::digest::{CallDigest, EventHash};
use countersign::{CallId, HoldId, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::wire::decision::present;
use crate::wire::{AnswerWord, Decided, NewDecision, Problem, Remember, timestamp};

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Where in the log: hand it back as `after`.
    pub cursor: String,
    /// What happened: `hold.opened`, `hold.decided`, `call.claimed` …
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// To which call.
    #[schema(value_type = Option<String>)]
    pub call: Option<CallId>,
    /// To which hold.
    #[schema(value_type = Option<String>)]
    pub hold: Option<HoldId>,
    /// Which hash chain it is on.
    pub chain: String,
    /// Its place in that chain, from 1.
    pub seq: u64,
    /// Its hash over the event before it.
    #[schema(value_type = String)]
    pub hash: EventHash,
    /// Everything, as the exact text that is hashed.
    #[schema(value_type = Object)]
    pub body: Box<RawValue>,
}

impl TryFrom<&countersign::event::Event> for Event {
    type Error = serde_json::Error;

    fn try_from(event: &countersign::event::Event) -> Result<Event, serde_json::Error> {
        Ok(Event {
            cursor: event.cursor.to_string(),
            event: event.name.as_str().to_owned(),
            at: timestamp(event.at),
            call: event.call,
            hold: event.hold,
            chain: event.chain.0.to_string(),
            seq: event.seq,
            hash: event.hash,
            body: RawValue::from_string(event.body.to_string())?,
        })
    }
}

impl Event {
    /// The event as the core knows it. Whether its hash is right is for a verifier to say.
    pub fn to_event(&self) -> Result<countersign::event::Event, String> {
        Ok(countersign::event::Event {
            cursor: self.cursor.parse()?,
            chain: countersign::call::Chain(self.chain.as_str().into()),
            seq: self.seq,
            name: self.event.parse()?,
            call: self.call,
            hold: self.hold,
            at: countersign::Time(self.at.as_microsecond()),
            hash: self.hash,
            body: self.body.get().into(),
        })
    }
}

/// What a client sends on the WebSocket: `{"type": "subscribe", …}` or `{"type": "decide", …}`.
///
/// Flat, because a tagged type would read JSON through a buffer that rounds numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FromSocket {
    /// `subscribe` or `decide`.
    pub r#type: String,
    /// With `subscribe`: the cursor to go on from. Without it the stream begins with the pending holds, then goes live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// With `decide`: the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub hold: Option<HoldId>,
    /// With `decide`: the decision, unless its members stand beside `hold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<NewDecision>,
    /// Of a decision: `approve`, `deny` or `respond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerWord>,
    /// Of a decision: the digest of the hold that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<CallDigest>,
    /// Of a decision: why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a decision: other arguments to run instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Json>,
    /// Of a decision: something for the tool.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// Of a decision: what the model gets in place of a run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub response: Option<Json>,
    /// Of a decision: a grant to make along with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
    /// Comes back with the answer, so that a client can tell its answers apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl FromSocket {
    /// The digest that a decision names, if it is one.
    pub fn digest(&self) -> Option<CallDigest> {
        self.digest.or(self.decision.as_ref().map(|decision| decision.digest))
    }

    /// Takes the decision out of it, nested or not; none if there is none. One that is said in part, or in both ways, is an
    /// error: nobody guesses what was meant.
    pub fn take_decision(&mut self) -> Result<Option<NewDecision>, &'static str> {
        let FromSocket { decision, answer, digest, reason, arguments, payload, response, remember, .. } = self;
        let said = [reason.is_some(), arguments.is_some(), payload.is_some(), response.is_some(), remember.is_some()];
        match (decision.take(), *answer, *digest) {
            (decision, None, None) if !said.contains(&true) => Ok(decision),
            (None, Some(answer), Some(digest)) => Ok(Some(NewDecision {
                answer,
                digest,
                reason: reason.take(),
                arguments: arguments.take(),
                payload: payload.take(),
                response: response.take(),
                remember: remember.take(),
            })),
            _ => Err("a decision is `decision`, or `answer`, `digest` and what goes with them"),
        }
    }
}

/// What the server sends on the WebSocket.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToSocket {
    /// Something happened.
    Event {
        /// Where in the log.
        cursor: String,
        /// What.
        event: Event,
    },
    /// A decision was recorded.
    Decided {
        /// The client's name for its message.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// What came of it.
        decided: Box<Decided>,
    },
    /// A message was not done.
    Problem {
        /// The client's name for its message.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Why.
        problem: Problem,
    },
    /// The pending holds or the history were all sent; what comes now is live.
    Ready {
        /// Where in the log.
        cursor: String,
    },
    /// Events were missed: read the lists again, then subscribe again.
    Resync {},
}
