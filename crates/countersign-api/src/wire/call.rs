//! Calls: what an agent wants to do, and how far it has come.

use countersign::call::{CallState, Outcome, Repeat, ResolvedAs};
use countersign::digest::{CallDigest, DefinitionDigest};
use countersign::hold::HoldState;
use countersign::place::Places;
use countersign::verdict::{Because, Effect, OnExpired};
use countersign::{CallId, GrantId, HoldId, Json, Refusal};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::wire::decision::present;
use crate::wire::{Decision, Definition, Span, timestamp};

/// A call as an agent submits it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCall {
    /// The session. It belongs to the token's principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The run within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The thread within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The agents from the root to the one that calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent: Vec<String>,
    /// The person the work is done for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// The tool's name.
    pub tool: String,
    /// The MCP server the tool is on; none for a local tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What the tool is. Without it the policy alone judges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// The arguments, as the agent wrote them: the gate reads them strictly, and records why where it refuses.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// The model's call id. A label only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The agent's words for whoever is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Something to look at.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// The agent's name for this place in its run: the same key with the same arguments is the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Claim it at once if it is allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claim: bool,
    /// With `claim`: the name of that claim, as in [`Claim::executor`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// Where in the file system the arguments point, as the tool resolved them: `{"path": {"file": "/tmp/a"}}`.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    #[schema(value_type = Object)]
    pub places: Places,
    /// Why a check of the agent's own wants people asked, whatever the rules allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
    /// Why a check of the agent's own refuses it: it is recorded so, and nobody is asked. `hook`, `authorizer`,
    /// `invalid_arguments`, `unknown_tool`, `superseded`, `limit`, `cancelled` or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    /// The longest its hold may wait, where that is less than the rules say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
}

impl NewCall {
    /// A call of a tool with these arguments, and nothing more.
    pub fn new(tool: impl Into<String>, arguments: Box<RawValue>) -> NewCall {
        NewCall {
            session: None,
            run: None,
            thread: None,
            agent: Vec::new(),
            requester: None,
            tool: tool.into(),
            server: None,
            definition: None,
            arguments,
            label: None,
            hint: None,
            payload: None,
            key: None,
            claim: false,
            executor: None,
            places: Places::default(),
            raised: None,
            refusal: None,
            expires_after: None,
        }
    }
}

/// A call and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// Our name for it.
    #[schema(value_type = String)]
    pub id: CallId,
    /// How far it has come.
    #[schema(value_type = String, example = "pending")]
    pub state: CallState,
    /// Whose it is.
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
    /// The arguments, secrets masked.
    #[schema(value_type = Object)]
    pub arguments: Json,
    /// Whether something in them is masked.
    pub masked: bool,
    /// Binds decisions and claims to this call.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// The model's call id.
    pub label: Option<String>,
    /// What the policy said.
    pub verdict: Verdict,
    /// Its holds, oldest first.
    pub holds: Vec<HoldBrief>,
    /// The grant that allowed or released it.
    #[schema(value_type = Option<String>)]
    pub grant: Option<GrantId>,
    /// Who decided last.
    pub decided_by: Option<String>,
    /// How the run ended: `{"outcome": "succeeded", "output": …}` and the like.
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<Outcome>,
    /// What a person answered instead of a run.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub response: Option<Json>,
    /// How a doubt was settled.
    pub resolution: Option<Resolution>,
    /// Why it will not run: `{"kind": …, "reason": …, "by": …}`.
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    /// What a model is to read instead of a result, where there is none to come.
    pub words: Option<String>,
    /// The agent's name for this place in its run.
    #[serde(default)]
    pub key: Option<String>,
    /// Whether an approver changed the arguments.
    #[serde(default)]
    pub edited: bool,
    /// The definition it was made for.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub definition: Option<DefinitionDigest>,
    /// What a crash while it runs means.
    #[serde(default)]
    #[schema(value_type = String, example = "at_most_once")]
    pub repeat: Repeat,
    /// When it must be claimed by, once allowed or approved.
    #[serde(default)]
    pub claim_by: Option<Timestamp>,
    /// The current claim.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// Grows with every change.
    #[serde(default)]
    pub version: u64,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
}

/// The claim of a call that runs. Whose it is, is not told: that name gets the claim again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// The fence of the claim.
    pub fence: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the claim is lost unless renewed.
    pub until: Timestamp,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Option::<Json>::deserialize(deserializer)
}

/// The policy's word on a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// `allow`, `ask` or `deny`.
    #[schema(value_type = String)]
    pub effect: Effect,
    /// The rules that decided.
    #[schema(value_type = Vec<crate::wire::Reason>)]
    pub because: Vec<Because>,
    /// Every rule that matched.
    #[schema(value_type = Vec<crate::wire::Reason>)]
    pub matched: Vec<Because>,
    /// The version of the policy that spoke.
    pub policy: String,
}

impl From<&countersign::Verdict> for Verdict {
    fn from(verdict: &countersign::Verdict) -> Verdict {
        Verdict {
            effect: verdict.effect,
            because: verdict.because().to_vec(),
            matched: verdict.matched.to_vec(),
            policy: verdict.policy.to_string(),
        }
    }
}

/// A hold as its call tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldBrief {
    /// Its id.
    #[schema(value_type = String)]
    pub id: HoldId,
    /// How it stands.
    #[schema(value_type = String, example = "pending")]
    pub state: HoldState,
    /// Whether the running tool opened it.
    pub in_run: bool,
    /// What a decision must name.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it expires; never, if none.
    pub expires_at: Option<Timestamp>,
    /// What was said about it so far.
    pub decisions: Vec<Decision>,
    /// What the approver handed to the tool, on a yes to a hold from inside a run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// Why it closed without a yes.
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    /// What its expiry does to the run: `refuse` or `stop_run`.
    #[serde(default)]
    #[schema(value_type = String, example = "refuse")]
    pub on_expired: OnExpired,
}

impl From<&countersign::hold::HoldRow> for HoldBrief {
    fn from(hold: &countersign::hold::HoldRow) -> HoldBrief {
        HoldBrief {
            id: hold.id,
            state: hold.state,
            in_run: hold.in_run(),
            digest: hold.digest,
            opened_at: timestamp(hold.opened_at),
            expires_at: hold.expires_at.map(timestamp),
            decisions: hold.decisions.iter().map(Decision::from).collect(),
            payload: hold.decisions.last().and_then(payload_of).filter(|_| hold.is_yes()).cloned(),
            refusal: hold.refusal.clone(),
            on_expired: hold.terms.on_expired,
        }
    }
}

fn payload_of(decision: &countersign::Decision) -> Option<&Json> {
    match &decision.answer {
        countersign::Answer::Approve { payload, .. } => payload.as_ref(),
        countersign::Answer::Deny { .. } | countersign::Answer::Respond { .. } => None,
    }
}

/// How a doubt was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resolution {
    /// `applied`, `not_applied`, `failed` (it was tried and answered with an error) or `abandoned`.
    #[schema(value_type = String)]
    pub r#as: ResolvedAs,
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

impl From<&countersign::Call> for Call {
    fn from(call: &countersign::Call) -> Call {
        let path = &call.facts.path;
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        Call {
            id: call.id,
            state: call.state,
            principal: path.principal.to_string(),
            requester: text(&path.requester),
            session: text(&path.session),
            run: text(&path.run),
            thread: text(&path.thread),
            agent: path.agents.iter().map(ToString::to_string).collect(),
            tool: call.facts.tool.name.to_string(),
            server: text(&call.facts.tool.server),
            arguments: call.shown_arguments().clone(),
            masked: call.redacted.is_some(),
            digest: call.digest,
            label: text(&call.label),
            verdict: Verdict::from(&*call.verdict),
            holds: call.holds.iter().map(HoldBrief::from).collect(),
            grant: call.grant,
            decided_by: call
                .holds
                .iter()
                .flat_map(|hold| hold.decisions.last())
                .last()
                .map(|last| last.by.id.to_string()),
            outcome: call.outcome.clone(),
            response: call.response.clone(),
            resolution: call.resolution.as_ref().map(|resolution| Resolution {
                r#as: resolution.r#as,
                reason: resolution.reason.clone(),
                by: resolution.by.to_string(),
                at: timestamp(resolution.at),
            }),
            words: words(call),
            refusal: call.refusal.clone(),
            key: text(&call.key),
            edited: call.proposed_digest.is_some(),
            definition: call.definition,
            repeat: call.repeat,
            claim_by: call.claim_by.map(timestamp),
            lease: call.lease.as_ref().map(|lease| Lease {
                fence: lease.fence,
                attempt: lease.attempt,
                until: timestamp(lease.until),
            }),
            version: call.version,
            created_at: timestamp(call.created_at),
            updated_at: timestamp(call.updated_at),
        }
    }
}

/// What a model reads instead of a result, made in the core's one place.
fn words(call: &countersign::Call) -> Option<String> {
    let wording = countersign::refusal::Wording::default();
    match (&call.refusal, call.state) {
        (_, CallState::InDoubt) => Some(wording.doubt()),
        (Some(refusal), _) => Some(wording.refusal(refusal)),
        (None, _) => None,
    }
}

/// Says who waits for a call, so that people know whether their answer will be heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCaller {
    /// Whether anybody waits.
    pub caller: Waits,
    /// The name of whoever has the caller. One that says nothing more for ten seconds counts as gone, with all its callers.
    #[serde(default)]
    pub by: String,
}

/// Whether anybody waits for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    /// Somebody does.
    Waits,
    /// Nobody does: approved, the call runs only when it comes again.
    Gone,
    /// That cannot be said.
    Unknown,
}

/// Withdraws a call. The body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {}

/// Settles a doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// `applied`, `not_applied`, `failed` (it was tried and answered with an error) or `abandoned`.
    #[schema(value_type = String)]
    pub r#as: ResolvedAs,
    /// Why, for the record.
    pub reason: String,
}
