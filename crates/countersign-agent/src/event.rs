//! What a run tells whoever watches it.

use std::sync::Arc;

use countersign::call::Outcome;
use countersign::hold::HoldState;
use countersign::{Call, CallId, Hold, HoldId};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::model::{Stop, Usage};
use crate::session::Reply;

/// Where in a run something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The thread: `main`, or the id of the call that began it.
    pub thread: Arc<str>,
    /// The agents from the root to the one it happened to.
    pub agents: Arc<[Arc<str>]>,
}

/// One thing that happened in a run. Serialises as one JSON object with its name under `event`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// A model said something more.
    Text {
        /// Where.
        #[serde(flatten)]
        place: Arc<Place>,
        /// Which entry of the thread's transcript it will be part of.
        entry: u32,
        /// What.
        text: Arc<str>,
    },
    /// A model's turn is complete.
    Turn {
        /// Where.
        #[serde(flatten)]
        place: Arc<Place>,
        /// What it took.
        usage: Usage,
        /// Why it ended.
        stop: Stop,
    },
    /// A call was proposed.
    Called {
        /// The call.
        #[serde(serialize_with = "shown_call")]
        call: Arc<Call>,
    },
    /// A call waits for people. Decide it by its id, from anywhere.
    Held {
        /// The hold, and its call.
        #[serde(serialize_with = "shown_hold")]
        hold: Hold,
    },
    /// A hold closed.
    HoldClosed {
        /// The hold.
        hold: HoldId,
        /// Its call.
        call: CallId,
        /// How it closed.
        state: HoldState,
    },
    /// A call came to its end.
    Ended {
        /// The call.
        #[serde(serialize_with = "shown_call")]
        call: Arc<Call>,
    },
    /// A thread went over to another agent.
    HandedOver {
        /// Where, the new agent last.
        #[serde(flatten)]
        place: Arc<Place>,
    },
    /// A child began to work, or went on.
    ChildBegan {
        /// Where.
        #[serde(flatten)]
        place: Arc<Place>,
    },
    /// A child gave its answer.
    ChildEnded {
        /// Where.
        #[serde(flatten)]
        place: Arc<Place>,
        /// The answer.
        text: Arc<str>,
    },
    /// The reader was too slow, and events are gone. What is pending can be listed anew.
    Missed {
        /// How many.
        events: u64,
    },
    /// The run is done. Always the last event.
    Done(Reply),
    /// The run gave no answer. Always the last event.
    Failed {
        /// Why.
        error: Arc<str>,
    },
}

/// A call as watchers see it: secrets in its arguments masked.
fn shown_call<S: Serializer>(call: &Arc<Call>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("id", &call.id)?;
    map.serialize_entry("tool", &call.facts.tool.name)?;
    map.serialize_entry("server", &call.facts.tool.server)?;
    map.serialize_entry("thread", &call.facts.path.thread)?;
    map.serialize_entry("agents", &call.facts.path.agents)?;
    map.serialize_entry("arguments", call.shown_arguments())?;
    map.serialize_entry("state", &call.state)?;
    if let Some(refusal) = &call.refusal {
        map.serialize_entry("refusal", refusal)?;
    }
    match &call.outcome {
        Some(Outcome::Succeeded { output }) => map.serialize_entry("output", output)?,
        Some(Outcome::Failed { error, .. }) => map.serialize_entry("error", error)?,
        Some(Outcome::MayHaveApplied { why }) => map.serialize_entry("error", why)?,
        None => {}
    }
    map.end()
}

/// A hold as watchers see it: what a decision must know, and nothing that is secret.
fn shown_hold<S: Serializer>(hold: &Hold, serializer: S) -> Result<S::Ok, S::Error> {
    let facts = &hold.call.facts;
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("id", &hold.id)?;
    map.serialize_entry("call", &hold.call.id)?;
    map.serialize_entry("tool", &facts.tool.name)?;
    map.serialize_entry("server", &facts.tool.server)?;
    map.serialize_entry("session", &facts.path.session)?;
    map.serialize_entry("thread", &facts.path.thread)?;
    map.serialize_entry("agents", &facts.path.agents)?;
    map.serialize_entry("arguments", hold.call.shown_arguments())?;
    map.serialize_entry("digest", &hold.digest)?;
    map.serialize_entry("kind", &hold.kind)?;
    map.serialize_entry("hint", &hold.hint)?;
    map.serialize_entry("payload", &hold.payload)?;
    map.serialize_entry("because", &hold.because)?;
    map.serialize_entry("opened_at", &hold.opened_at)?;
    map.serialize_entry("expires_at", &hold.expires_at)?;
    map.end()
}
