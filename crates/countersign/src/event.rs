//! Events: what is not in the log did not happen.
//!
//! Each event is hashed over the one before it in its chain: `sha256(previous hash in hex, newline, body)`. A chain's
//! first event takes sixty-four zeros for the previous hash. The body is stored and hashed as the bytes it is.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::call::Chain;
use crate::digest::{EventHash, hex};
use crate::id::{CallId, HoldId};
use crate::json::{Json, write_string};
use crate::place::Places;
use crate::time::Time;

macro_rules! event_names {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventName { $($(#[$doc])* $variant,)* }

        impl EventName {
            /// Every name.
            pub const ALL: &'static [EventName] = &[$(EventName::$variant),*];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(EventName::$variant => $name,)* }
            }
        }
    };
}

event_names! {
    /// A call was proposed.
    CallSubmitted = "call.submitted",
    /// A rule or grant allowed it.
    CallAllowed = "call.allowed",
    /// It will not run.
    CallRefused = "call.refused",
    /// An executor took it.
    CallClaimed = "call.claimed",
    /// The tool answered.
    CallSucceeded = "call.succeeded",
    /// The tool answered with an error.
    CallFailed = "call.failed",
    /// A person answered instead.
    CallAnswered = "call.answered",
    /// It was withdrawn.
    CallCancelled = "call.cancelled",
    /// It ended between decision and claim.
    CallLapsed = "call.lapsed",
    /// Nobody knows whether it happened.
    CallInDoubt = "call.in_doubt",
    /// A doubt was settled.
    CallResolved = "call.resolved",
    /// People are asked.
    HoldOpened = "hold.opened",
    /// Somebody decided; says whether that closes the hold.
    HoldDecided = "hold.decided",
    /// A new grant covered it.
    HoldReleased = "hold.released",
    /// Nobody decided in time.
    HoldExpired = "hold.expired",
    /// It was withdrawn.
    HoldCancelled = "hold.cancelled",
    /// Another hold took its place.
    HoldSuperseded = "hold.superseded",
    /// A grant was made.
    GrantMade = "grant.made",
    /// A grant was revoked.
    GrantRevoked = "grant.revoked",
    /// A policy is in force.
    PolicyLoaded = "policy.loaded",
    /// A policy was broken; the last good one stays.
    PolicyRejected = "policy.rejected",
    /// Nothing is claimed from here on.
    HaltSet = "halt.set",
    /// Claims go on.
    HaltLifted = "halt.lifted",
    /// A credential tried what it may not.
    AccessRefused = "access.refused",
    /// A credential ended, or what somebody may do is something else now.
    AccessChanged = "access.changed",
    /// A tool was seen for the first time; what it is said to be is pinned.
    ToolPinned = "tool.pinned",
    /// A tool is not what was pinned: it is refused from here on.
    ToolChanged = "tool.changed",
    /// Somebody accepted what a tool is said to be.
    ToolAccepted = "tool.accepted",
    /// All chain heads were signed.
    CheckpointSigned = "checkpoint.signed",
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        EventName::ALL
            .iter()
            .copied()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not the name of an event"))
    }
}

/// A place in the log, as its store orders it. Opaque; only ever handed back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The transaction, where the store needs it to order late commits.
    pub major: u64,
    /// The row.
    pub minor: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Cursor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Cursor { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse().ok_or_else(|| format!("`{text}` is not a cursor of the event log"))
    }
}

/// One thing that happened, sealed into its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where in the log.
    pub cursor: Cursor,
    /// Which chain.
    pub chain: Chain,
    /// Which place in the chain, from 1.
    pub seq: u64,
    /// What happened.
    pub name: EventName,
    /// To which call.
    pub call: Option<CallId>,
    /// To which hold.
    pub hold: Option<HoldId>,
    /// When.
    pub at: Time,
    /// The hash of this event over the one before.
    pub hash: EventHash,
    /// Everything, as JSON. Exactly these bytes are hashed.
    pub body: Arc<str>,
}

impl Event {
    /// Whether it is the one by which this hold opened.
    pub fn opens(&self, hold: HoldId) -> bool {
        self.name == EventName::HoldOpened && self.hold == Some(hold)
    }

    /// The body as a value.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or(serde_json::Value::Null)
    }
}

/// An event before it has its place in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// What happened.
    pub name: EventName,
    /// To which call.
    pub call: Option<CallId>,
    /// To which hold.
    pub hold: Option<HoldId>,
    /// Further members of the body, each led by a comma.
    members: String,
}

impl Draft {
    /// Begins an event.
    pub fn new(name: EventName) -> Draft {
        Draft { name, call: None, hold: None, members: String::with_capacity(384) }
    }

    /// Names the call.
    #[must_use]
    pub fn call(mut self, call: CallId) -> Draft {
        self.call = Some(call);
        self
    }

    /// Names the hold.
    #[must_use]
    pub fn hold(mut self, hold: HoldId) -> Draft {
        self.hold = Some(hold);
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn text(mut self, key: &str, text: &str) -> Draft {
        self.key(key);
        write_string(&mut self.members, text);
        self
    }

    /// Adds a text if there is one.
    #[must_use]
    pub fn text_if(self, key: &str, text: Option<&str>) -> Draft {
        match text {
            Some(text) => self.text(key, text),
            None => self,
        }
    }

    /// Adds something spelled without characters JSON would escape: an id, a digest.
    #[must_use]
    pub fn plain(mut self, key: &str, value: impl Plain) -> Draft {
        self.key(key);
        self.members.push('"');
        value.spell(&mut self.members);
        self.members.push('"');
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, key: &str, number: i64) -> Draft {
        self.key(key);
        let _ = write!(self.members, "{number}");
        self
    }

    /// Adds a truth.
    #[must_use]
    pub fn flag(mut self, key: &str, flag: bool) -> Draft {
        self.key(key);
        self.members.push_str(if flag { "true" } else { "false" });
        self
    }

    /// Adds JSON.
    #[must_use]
    pub fn json(mut self, key: &str, json: &Json) -> Draft {
        self.key(key);
        self.members.push_str(json.as_str());
        self
    }

    /// Adds where a call's arguments point.
    #[must_use]
    pub fn places(mut self, key: &str, places: &Places) -> Draft {
        self.key(key);
        places.write(&mut self.members);
        self
    }

    /// Adds JSON if there is any.
    #[must_use]
    pub fn json_if(self, key: &str, json: Option<&Json>) -> Draft {
        match json {
            Some(json) => self.json(key, json),
            None => self,
        }
    }

    /// Adds a list of texts.
    #[must_use]
    pub fn list<T: AsRef<str>>(mut self, key: &str, list: impl IntoIterator<Item = T>) -> Draft {
        self.key(key);
        self.members.push('[');
        for (index, text) in list.into_iter().enumerate() {
            if index > 0 {
                self.members.push(',');
            }
            write_string(&mut self.members, text.as_ref());
        }
        self.members.push(']');
        self
    }

    /// Keys are ours, and hold nothing that JSON would escape.
    fn key(&mut self, key: &str) {
        self.members.push_str(",\"");
        self.members.push_str(key);
        self.members.push_str("\":");
    }
}

/// Something whose text needs no escaping in JSON.
pub trait Plain {
    /// Writes the text.
    fn spell(&self, out: &mut String);
}

impl Plain for &'static str {
    fn spell(&self, out: &mut String) {
        out.push_str(self);
    }
}

/// The end of a chain: how many events it has, and the hash of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// How many events.
    pub seq: u64,
    /// The last one's hash.
    pub hash: EventHash,
}

impl Default for Head {
    fn default() -> Self {
        Head { seq: 0, hash: EventHash::from_bytes([0; 32]) }
    }
}

impl Head {
    /// Appends an event to the chain. The store gives it its cursor.
    pub fn seal(&mut self, chain: &Chain, at: Time, draft: Draft) -> Event {
        let seq = self.seq + 1;
        let mut body = String::with_capacity(draft.members.len() + chain.0.len() + 200);
        body.push_str("{\"v\":1,\"chain\":");
        write_string(&mut body, &chain.0);
        let _ = write!(body, ",\"seq\":{seq},\"at\":{},\"event\":\"", at.0);
        body.push_str(draft.name.as_str());
        body.push('"');
        if let Some(call) = draft.call {
            body.push_str(",\"call\":\"");
            call.spell(&mut body);
            body.push('"');
        }
        if let Some(hold) = draft.hold {
            body.push_str(",\"hold\":\"");
            hold.spell(&mut body);
            body.push('"');
        }
        body.push_str(&draft.members);
        body.push('}');
        let hash = hash(&self.hash, &body);
        *self = Head { seq, hash };
        let Draft { name, call, hold, .. } = draft;
        Event { cursor: Cursor::default(), chain: chain.clone(), seq, name, call, hold, at, hash, body: body.into() }
    }
}

/// The hash of an event: its body over the hash of the event before.
pub fn hash(previous: &EventHash, body: &str) -> EventHash {
    let mut hasher = Sha256::new();
    hasher.update(hex(previous.as_bytes()));
    hasher.update(b"\n");
    hasher.update(body.as_bytes());
    EventHash::from_bytes(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_and_its_hash_covers_the_event_before() {
        let mut head = Head::default();
        let chain = Chain("local/s\"1".into());
        let draft = || Draft::new(EventName::CallSubmitted).text("tool", "a\nb").number("n", 3).list("agents", ["x"]);
        let first = head.seal(&chain, Time(7), draft());
        let second = head.seal(&chain, Time(7), draft());
        assert_eq!(first.value()["tool"], "a\nb");
        assert_eq!(first.value()["chain"], "local/s\"1");
        assert_eq!((first.seq, second.seq), (1, 2));
        assert_eq!(second.hash, hash(&first.hash, &second.body));
        assert_ne!(first.hash, hash(&first.hash, &first.body));
    }

    #[test]
    fn names_and_cursors_read_back() {
        for name in EventName::ALL {
            assert_eq!(name.as_str().parse(), Ok(*name));
        }
        let cursor = Cursor { major: 3, minor: 9 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!("9".parse::<Cursor>().is_err());
    }
}
