//! Sessions: conversations with agents that the server runs.

use countersign::{CallId, HoldId, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::decision::present;
use crate::wire::{Call, Hold, HoldBrief, Page};

/// A session as a client begins it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// The agent: one of those in the server's configuration.
    pub agent: String,
    /// What to say first. Without it nothing runs until a message comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A name for it, new among those of the token's principal. Without it the server makes one up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The person the work is done for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
}

/// Something said in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// What.
    pub text: String,
}

/// Ends the run that goes on in a session. Holds nothing yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {}

/// What came of a call that the session's client ran: `output` or `error`, one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The call, which the client has claimed.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The fence that came with the claim.
    pub fence: u64,
    /// What the tool answered.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub output: Option<Json>,
    /// What went wrong in the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Nothing is left to do until somebody says something.
    Idle,
    /// A run goes on.
    Running,
    /// A run waits: for people, or for the session's client.
    Waiting,
    /// The last run broke off. What is said next goes on from there.
    Failed,
}

/// A session in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Its name.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The agent it was begun with.
    pub agent: String,
    /// The person the work is done for.
    pub requester: Option<String>,
    /// How it stands.
    pub state: SessionState,
    /// When it was begun.
    pub created_at: Timestamp,
}

/// A session with what it waits for and what was said in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionDetail {
    /// The session in short.
    pub session: Session,
    /// What it waits for.
    pub status: SessionStatus,
    /// Its lines of work: `main`, and one for each agent that was given a task.
    pub threads: Vec<SessionThread>,
    /// What all its runs took.
    pub usage: SessionUsage,
    /// One page of one thread's transcript, oldest first.
    pub transcript: Page<SessionEntry>,
}

/// What a session does or waits for right now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionStatus {
    /// How it stands.
    pub state: SessionState,
    /// Holds that people must decide.
    #[schema(value_type = Vec<String>)]
    pub holds: Vec<HoldId>,
    /// Calls that the session's client must run: claim them, then send their results.
    pub client_calls: Vec<ClientCall>,
    /// Messages that wait for the run to end.
    pub queued: usize,
    /// Why the last run broke off.
    pub error: Option<String>,
}

/// A call that waits for the session's client to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientCall {
    /// The call: `POST /v1/calls/{id}/claim` gives its exact arguments and the fence.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// The thread it belongs to.
    pub thread: Option<String>,
    /// The agents from the root to the one that calls.
    pub agents: Vec<String>,
}

/// One line of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionThread {
    /// Its name: `main`, or the id of the call that began it.
    pub thread: String,
    /// The agents from the root to the one it began with.
    pub agents: Vec<String>,
}

/// What runs took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionUsage {
    /// Turns of models.
    pub turns: u64,
    /// Tokens read, those from a cache included.
    pub input: u64,
    /// Tokens of the input that came from a cache.
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
    /// Cost in millionths of a dollar; 0 where no price is known.
    pub micro_dollars: u64,
}

/// One entry of a thread's transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionEntry {
    /// The thread.
    pub thread: String,
    /// The agents from the root to the one that acts there.
    pub agents: Vec<String>,
    /// Its place in the thread, from 0.
    pub entry: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What an entry of a transcript says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// Somebody said something, or a parent gave a task: a run begins.
    Message {
        /// What.
        text: String,
        /// The run.
        run: String,
    },
    /// The model answered.
    Said {
        /// Its text.
        text: String,
        /// The calls it wants.
        calls: Vec<WantedCall>,
        /// What the answer took.
        usage: SessionUsage,
    },
    /// The calls of the answer before came to their ends.
    Results {
        /// What the model reads of each, in the order of the calls.
        results: Vec<CallResult>,
        /// The agent that the thread was handed over to.
        handed_to: Option<String>,
    },
    /// An agent in the background gave its answer.
    Told {
        /// What the model reads.
        text: String,
        /// The agent's thread.
        child: String,
    },
    /// The run was ended before its time.
    Stopped {
        /// `cancelled`, `timed_out`, `expired` or `limit`.
        why: String,
        /// Which call or limit, where there is one.
        detail: Option<String>,
    },
}

/// A call as the model wrote it. What became of it is told under its own id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WantedCall {
    /// The model's id for it. A label only.
    pub label: String,
    /// The name of the tool, as the model was offered it.
    pub name: String,
    /// The arguments as the model wrote them: a text, not checked.
    pub arguments: String,
}

/// What the model reads of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallResult {
    /// The call.
    #[schema(value_type = Option<String>)]
    pub call: Option<CallId>,
    /// The model's id for it.
    pub label: String,
    /// The name of the tool, as the model was offered it.
    pub name: String,
    /// The result, or why there is none.
    pub text: String,
    /// Whether it is an error or a refusal.
    pub is_error: bool,
}

/// A piece of what a model is saying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionText {
    /// The thread.
    pub thread: String,
    /// The agents from the root to the one that speaks.
    pub agents: Vec<String>,
    /// The entry of the transcript that will hold the whole text.
    pub entry: u32,
    /// Whether the text begins here: pieces of this entry that came before count for nothing.
    pub start: bool,
    /// The piece.
    pub text: String,
}

/// A hold that closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedHold {
    /// The call.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The hold.
    pub hold: HoldBrief,
}

/// One event of a session's stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// `state`: what the session does or waits for. Comes first, and whenever it changes; it has no place in the stream.
    State(Box<SessionStatus>),
    /// `text`: a piece of what a model is saying. Has no place in the stream: the whole text comes with its entry.
    Text(SessionText),
    /// `message`, `said`, `results`, `told` or `stopped`: an entry of a transcript.
    Entry(SessionEntry),
    /// `done`: the entry that ends a run with its answer.
    Done(SessionEntry),
    /// `call`: a call was proposed. It is shown as it stands now.
    Called(Box<Call>),
    /// `hold`: a call waits for people.
    Held(Box<Hold>),
    /// `hold_closed`: it waits no longer.
    HoldClosed(Box<ClosedHold>),
    /// `ended`: a call came to its end.
    Ended(Box<Call>),
    /// `resync`: the stream cannot go on from there; begin anew, without a cursor.
    Resync,
}

impl SessionEvent {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            SessionEvent::State(_) => "state",
            SessionEvent::Text(_) => "text",
            SessionEvent::Entry(entry) => entry.what.kind(),
            SessionEvent::Done(_) => "done",
            SessionEvent::Called(_) => "call",
            SessionEvent::Held(_) => "hold",
            SessionEvent::HoldClosed(_) => "hold_closed",
            SessionEvent::Ended(_) => "ended",
            SessionEvent::Resync => "resync",
        }
    }

    /// Its data on the wire.
    pub fn data(&self) -> Result<String, serde_json::Error> {
        match self {
            SessionEvent::State(status) => serde_json::to_string(status),
            SessionEvent::Text(text) => serde_json::to_string(text),
            SessionEvent::Entry(entry) | SessionEvent::Done(entry) => serde_json::to_string(entry),
            SessionEvent::Called(call) | SessionEvent::Ended(call) => serde_json::to_string(call),
            SessionEvent::Held(hold) => serde_json::to_string(hold),
            SessionEvent::HoldClosed(closed) => serde_json::to_string(closed),
            SessionEvent::Resync => Ok("{}".to_owned()),
        }
    }

    /// Reads an event off the wire; none where a newer server tells something this version does not know.
    pub fn read(name: &str, data: &str) -> Result<Option<SessionEvent>, serde_json::Error> {
        Ok(Some(match name {
            "state" => SessionEvent::State(serde_json::from_str(data)?),
            "text" => SessionEvent::Text(serde_json::from_str(data)?),
            "message" | "said" | "results" | "told" | "stopped" => SessionEvent::Entry(serde_json::from_str(data)?),
            "done" => SessionEvent::Done(serde_json::from_str(data)?),
            "call" => SessionEvent::Called(serde_json::from_str(data)?),
            "hold" => SessionEvent::Held(serde_json::from_str(data)?),
            "hold_closed" => SessionEvent::HoldClosed(serde_json::from_str(data)?),
            "ended" => SessionEvent::Ended(serde_json::from_str(data)?),
            "resync" => SessionEvent::Resync,
            _ => return Ok(None),
        }))
    }
}

impl What {
    /// The name of its event.
    pub fn kind(&self) -> &'static str {
        match self {
            What::Message { .. } => "message",
            What::Said { .. } => "said",
            What::Results { .. } => "results",
            What::Told { .. } => "told",
            What::Stopped { .. } => "stopped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_with_its_kind_beside_its_place() {
        let what = What::Message { text: "send 100 to Bo".into(), run: "r1".into() };
        let entry = SessionEntry { thread: "main".into(), agents: vec!["banker".into()], entry: 0, what };
        let event = SessionEvent::Entry(entry.clone());
        let data = event.data().unwrap();
        assert!(data.contains(r#""kind":"message""#), "{data}");
        let Some(SessionEvent::Entry(read)) = SessionEvent::read(event.name(), &data).unwrap() else {
            panic!("{data}");
        };
        assert_eq!(read, entry);
        assert!(SessionEvent::read("from_the_future", "{}").unwrap().is_none());
    }

    #[test]
    fn what_the_server_does_not_know_is_refused() {
        for body in [r#"{"agent":"a","mesage":"hi"}"#, r#"{"message":"hi"}"#] {
            assert!(serde_json::from_str::<NewSession>(body).is_err(), "{body}");
        }
        assert!(serde_json::from_str::<NewMessage>(r#"{"text":"hi","to":"all"}"#).is_err());
    }
}
