//! Reads the body of an event: strictly as JSON, then the few members a check looks at.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::digest::{CallDigest, EventHash};
use crate::id::{CallId, HoldId};
use crate::json::{Bounds, Json};

/// What every event says.
#[derive(Debug, Deserialize)]
pub(super) struct Body<'a> {
    pub(super) v: u64,
    #[serde(borrow)]
    pub(super) chain: Cow<'a, str>,
    pub(super) seq: u64,
    pub(super) at: i64,
    #[serde(borrow)]
    pub(super) event: Cow<'a, str>,
}

/// What an event about a call says, as far as the walk of a call depends on it.
#[derive(Debug, Deserialize)]
pub(super) struct AboutCall {
    pub(super) call: CallId,
    pub(super) hold: Option<HoldId>,
    pub(super) digest: Option<CallDigest>,
    pub(super) in_run: Option<bool>,
    pub(super) answer: Option<Given>,
    pub(super) closes: Option<bool>,
    /// The digest of the edited call, where an edit was approved.
    pub(super) runs: Option<CallDigest>,
    /// Present where the decision edits the arguments; only its presence counts.
    pub(super) after: Option<serde::de::IgnoredAny>,
    pub(super) fence: Option<u64>,
}

/// What a decider said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Given {
    Approve,
    Deny,
    Respond,
}

/// What a checkpoint says.
#[derive(Debug, Deserialize)]
pub(super) struct Signed<'a> {
    #[serde(borrow)]
    pub(super) statement: &'a RawValue,
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) signature: Cow<'a, str>,
}

/// What a checkpoint signs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    pub(super) heads: Vec<(String, u64, EventHash)>,
    pub(super) previous: Option<EventHash>,
}

impl<'a> Body<'a> {
    /// Reads a body, refusing whatever two readers could take differently.
    pub(super) fn read(text: &'a str) -> Result<Body<'a>, String> {
        Json::ingest(text, Bounds::STORED).map_err(|error| error.to_string())?;
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

impl Statement {
    /// The statement of a checkpoint, if this is a body of one.
    pub(super) fn of(body: &str) -> Option<Statement> {
        let signed: Signed<'_> = serde_json::from_str(body).ok()?;
        serde_json::from_str(signed.statement.get()).ok()
    }
}
