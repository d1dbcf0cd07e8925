//! Running a call: what an executor sends and is given.

use countersign::call::{CallState, Outcome};
use countersign::digest::{CallDigest, DefinitionDigest};
use countersign::place::Places;
use countersign::{CallId, HoldId, Json, Refusal};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::decision::present;
use crate::wire::{Call, Decision};

/// Who wants to run a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The digest of the definition that will run; left out, the one the call was submitted with counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub definition: Option<DefinitionDigest>,
    /// Names this one claim. The same name again gets the same claim, so that an answer that was lost can be asked for
    /// once more. Draw it at random for each claim: whoever has the name has the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
}

/// A call, claimed: run exactly these bytes, once, and report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The call.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The call's state: `executing`.
    #[serde(default = "executing")]
    #[schema(value_type = String)]
    pub state: CallState,
    /// The arguments to run: exactly what was approved, nothing masked.
    #[schema(value_type = Object)]
    pub arguments: Json,
    /// What was approved.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// Names this attempt in `renew`, `holds` and `outcome`.
    pub fence: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the claim is lost unless renewed.
    pub lease_until: Timestamp,
    /// What the approver handed to the tool.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// Proof for others that this was allowed; none where the server has no key.
    pub receipt: Option<Receipt>,
    /// When it was claimed, by the same clock as `lease_until`.
    pub claimed_at: Timestamp,
    /// Who approved it, if somebody did.
    pub decision: Option<Decision>,
    /// The rest of what the digest covers, so that an executor computes it for itself before it runs anything.
    pub bound: Bound,
}

fn executing() -> CallState {
    CallState::Executing
}

/// What `POST /v1/calls` answers: the call, or, where it was claimed at once, what to run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Submitted {
    /// Not claimed.
    Call(Box<Call>),
    /// Claimed.
    Claimed(Box<Claimed>),
}

/// What a call's digest covers besides its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bound {
    /// Whose call it is.
    pub principal: String,
    /// The person the work is done for.
    pub requester: Option<String>,
    /// The root session.
    pub session: Option<String>,
    /// The run within it.
    pub run: Option<String>,
    /// The thread within it.
    pub thread: Option<String>,
    /// The agents from the root to the one that calls.
    pub agent: Vec<String>,
    /// The tool's name.
    pub tool: String,
    /// The tool's server.
    pub server: Option<String>,
    /// The definition it was made for.
    #[schema(value_type = Option<String>)]
    pub definition: Option<DefinitionDigest>,
    /// Where its arguments point.
    #[schema(value_type = Object)]
    pub places: Places,
    /// Which policy judged it.
    pub policy: String,
    /// The hold that asked about it, if one did.
    pub hold: Option<BoundHold>,
    /// Random, as 32 hexadecimal digits.
    pub nonce: String,
}

/// What a call's digest covers of its hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundHold {
    /// The hold.
    #[schema(value_type = String)]
    pub id: HoldId,
    /// When it expires, in microseconds since 1970; never, if none.
    pub expires_at_us: Option<i64>,
    /// What was said to whoever was asked.
    pub hint: Option<String>,
    /// What was shown to them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
}

impl From<&countersign::Call> for Bound {
    fn from(call: &countersign::Call) -> Bound {
        let (path, tool) = (&call.facts.path, &call.facts.tool);
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        let hold = call.holds.iter().rev().find(|hold| !hold.in_run());
        Bound {
            principal: path.principal.to_string(),
            requester: text(&path.requester),
            session: text(&path.session),
            run: text(&path.run),
            thread: text(&path.thread),
            agent: path.agents.iter().map(ToString::to_string).collect(),
            tool: tool.name.to_string(),
            server: text(&tool.server),
            definition: call.definition,
            places: call.facts.places.clone(),
            policy: call.verdict.policy.to_string(),
            hold: hold.map(|hold| BoundHold {
                id: hold.id,
                expires_at_us: hold.expires_at.map(|at| at.0),
                hint: text(&hold.hint),
                payload: hold.payload.clone(),
            }),
            nonce: format!("{:032x}", call.nonce.0),
        }
    }
}

/// A signed statement that a call was allowed. It never runs anything by itself: the claim does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// What is signed, as the exact text: canonical JSON with call, digest, decision, approvers, policy and expiry.
    pub statement: String,
    /// The public key, in base64.
    pub key: String,
    /// The Ed25519 signature over the statement, in base64.
    pub signature: String,
}

/// An executor is still at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// The fence of the claim.
    pub fence: u64,
}

/// The longer lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewed {
    /// The fence of the claim.
    pub fence: u64,
    /// When the claim is lost unless renewed.
    pub lease_until: Timestamp,
}

/// A running tool asks whether to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHold {
    /// The tool's words.
    pub hint: String,
    /// Something to look at.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// The fence of the claim.
    pub fence: u64,
    /// Names this question. The same name again is the same question, so that a lost answer can be asked for once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOutcome {
    /// `succeeded`, `failed` or `may_have_applied`.
    pub outcome: OutcomeWord,
    /// What the tool answered, or its error, or why nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub output: Option<Json>,
    /// The refusal that the tool passed on, where that is why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    /// The fence of the claim.
    pub fence: u64,
}

/// How a run may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    /// The tool answered.
    Succeeded,
    /// The tool answered with an error.
    Failed,
    /// No answer: it may have been applied.
    MayHaveApplied,
}

impl NewOutcome {
    /// The report of an outcome.
    pub fn new(outcome: &Outcome, fence: u64) -> NewOutcome {
        let (outcome, output, refusal) = match outcome {
            Outcome::Succeeded { output } => (OutcomeWord::Succeeded, output.clone(), None),
            Outcome::Failed { error, refusal } => (OutcomeWord::Failed, Json::string(error), refusal.clone()),
            Outcome::MayHaveApplied { why } => (OutcomeWord::MayHaveApplied, Json::string(why), None),
        };
        NewOutcome { outcome, output: Some(output), refusal, fence }
    }

    /// The outcome it tells of.
    pub fn outcome(self) -> Outcome {
        let output = self.output.unwrap_or_else(|| Json::string(""));
        // A text is taken as it is; anything else as the JSON it is.
        let text = output.read::<String>().unwrap_or_else(|_| output.to_string());
        match self.outcome {
            OutcomeWord::Succeeded => Outcome::Succeeded { output },
            OutcomeWord::Failed => Outcome::Failed { error: text, refusal: self.refusal },
            OutcomeWord::MayHaveApplied => Outcome::MayHaveApplied { why: text },
        }
    }
}
