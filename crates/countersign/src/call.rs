//! A call: what an agent wants to do, and how far it has come.

mod stored;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::digest::{ArgumentDigest, Bound, CallDigest, DefinitionDigest, Nonce};
use crate::hold::{Decision, HoldRow};
use crate::id::{CallId, GrantId};
use crate::json::Json;
use crate::place::Places;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::verdict::Verdict;

/// A tool's identity: the operator's name for its server, and its own name. Never one joined string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolId {
    /// The MCP server it belongs to; none for a local tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// Its name there. Delegation to an agent is the tool `agent:NAME`.
    pub name: Arc<str>,
}

impl ToolId {
    /// A tool of our own process.
    pub fn local(name: impl Into<Arc<str>>) -> ToolId {
        ToolId { server: None, name: name.into() }
    }

    /// A tool of an MCP server.
    pub fn on(server: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ToolId {
        ToolId { server: Some(server.into()), name: name.into() }
    }

    /// The agent this call delegates or hands off to, if it is such a call.
    pub fn delegate(&self) -> Option<&str> {
        match self.server {
            None => self.name.strip_prefix("agent:"),
            Some(_) => None,
        }
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => write!(f, "{server}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Whose call it is, and where in the work it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Path {
    /// The credential that submitted it; `local` where there is none.
    pub principal: Arc<str>,
    /// The person the work is done for; where a rule says so, they may not approve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<Arc<str>>,
    /// The root session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The run within the session; without one, run = session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    /// The thread within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Arc<str>>,
    /// The agents from the root to the one that calls.
    #[serde(default, skip_serializing_if = "no_agents")]
    pub agents: Arc<[Arc<str>]>,
}

fn no_agents(agents: &Arc<[Arc<str>]>) -> bool {
    agents.is_empty()
}

impl Default for Path {
    fn default() -> Self {
        // Shared, because every call begins with it.
        static LOCAL: LazyLock<Path> = LazyLock::new(|| Path {
            principal: "local".into(),
            requester: None,
            session: None,
            run: None,
            thread: None,
            agents: Arc::from([]),
        });
        LOCAL.clone()
    }
}

impl Path {
    /// The path of a session, and nothing more.
    pub fn session(session: impl Into<Arc<str>>) -> Path {
        Path { session: Some(session.into()), ..Path::default() }
    }

    /// The agent that makes the call.
    pub fn agent(&self) -> Option<&Arc<str>> {
        self.agents.last()
    }

    /// The event chain this call writes to: its session's, or `system`.
    pub fn chain(&self) -> Chain {
        match &self.session {
            Some(session) => Chain([&*self.principal, "/", &**session].concat().into()),
            None => Chain::system(),
        }
    }
}

/// The name of one hash chain of events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chain(pub Arc<str>);

impl Chain {
    /// The chain of everything that belongs to no session.
    pub fn system() -> Chain {
        Chain("system".into())
    }
}

/// What a crash while the tool runs means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// Changes nothing: may run again.
    ReadOnly,
    /// Running twice is the same as once: may run again.
    Idempotent,
    /// The target drops repeats of our key: may run again with the same key.
    Keyed,
    /// The tool can tell whether it happened: it is asked.
    Verifiable,
    /// Never again by itself.
    #[default]
    AtMostOnce,
}

impl Repeat {
    /// Whether a further attempt may be made without asking anybody.
    pub fn may_run_again(self) -> bool {
        match self {
            Repeat::ReadOnly | Repeat::Idempotent | Repeat::Keyed => true,
            Repeat::Verifiable | Repeat::AtMostOnce => false,
        }
    }
}

/// What the tool itself says about these arguments. Read anew at each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// The tool asks for nothing.
    #[default]
    Nothing,
    /// The tool wants to be asked about, whatever its arguments.
    Ask,
    /// The tool wants to be asked about because of these arguments.
    AskForThese,
    /// Must-ask: only people lift it.
    MustAsk,
}

/// What rules may look at. Frozen with the call, so a later judging sees the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The tool.
    pub tool: ToolId,
    /// The toolset or skill the tool came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolset: Option<Arc<str>>,
    /// The arguments, in canonical form: exactly what will run.
    pub arguments: Json,
    /// Whose call it is.
    pub path: Path,
    /// What the tool says about these arguments.
    #[serde(default)]
    pub declared: Declared,
    /// What the tool's server claims about it. Claims only raise.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::present")]
    pub annotations: Option<Json>,
    /// Where in the file system the arguments point, as the tool resolved them. Folder grants look here.
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub places: Places,
    /// When it was proposed: `now` in conditions.
    pub at: Time,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Allowed by rule or grant; not yet claimed.
    Allowed,
    /// Refused by rule, hook, authorizer, arguments, limit or approver.
    Denied,
    /// Waiting for people.
    Pending,
    /// Approved by people; not yet claimed.
    Approved,
    /// A person answered instead; the tool never ran.
    Answered,
    /// Nobody decided in time.
    Expired,
    /// Withdrawn before it was claimed.
    Cancelled,
    /// Ended between decision and claim.
    Lapsed,
    /// Claimed: the tool may have its bytes.
    Executing,
    /// The tool answered.
    Succeeded,
    /// The tool answered with an error.
    Failed,
    /// The tool did not answer: it may or may not have happened.
    InDoubt,
    /// A doubt, settled.
    Resolved,
}

impl CallState {
    /// Every state, in the order of the graph.
    pub const ALL: [CallState; 13] = [
        CallState::Allowed,
        CallState::Denied,
        CallState::Pending,
        CallState::Approved,
        CallState::Answered,
        CallState::Expired,
        CallState::Cancelled,
        CallState::Lapsed,
        CallState::Executing,
        CallState::Succeeded,
        CallState::Failed,
        CallState::InDoubt,
        CallState::Resolved,
    ];

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            CallState::Allowed => "allowed",
            CallState::Denied => "denied",
            CallState::Pending => "pending",
            CallState::Approved => "approved",
            CallState::Answered => "answered",
            CallState::Expired => "expired",
            CallState::Cancelled => "cancelled",
            CallState::Lapsed => "lapsed",
            CallState::Executing => "executing",
            CallState::Succeeded => "succeeded",
            CallState::Failed => "failed",
            CallState::InDoubt => "in_doubt",
            CallState::Resolved => "resolved",
        }
    }

    /// Whether nothing can move the call any more.
    pub fn is_final(self) -> bool {
        match self {
            CallState::Allowed
            | CallState::Pending
            | CallState::Approved
            | CallState::Executing
            | CallState::InDoubt => false,
            CallState::Denied
            | CallState::Answered
            | CallState::Expired
            | CallState::Cancelled
            | CallState::Lapsed
            | CallState::Succeeded
            | CallState::Failed
            | CallState::Resolved => true,
        }
    }
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who runs the call now, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The executor.
    pub owner: Arc<str>,
    /// Grows with every claim; a report with an old fence is not the current attempt's.
    pub fence: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the claim is lost unless renewed.
    pub until: Time,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", try_from = "OutcomeText")]
pub enum Outcome {
    /// The tool answered.
    Succeeded {
        /// What it answered.
        output: Json,
    },
    /// The tool answered with an error.
    Failed {
        /// What it said.
        error: String,
        /// The in-run refusal it passed on, if that is why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<Refusal>,
    },
    /// No answer: it may have been applied.
    MayHaveApplied {
        /// Why we do not know.
        why: String,
    },
}

/// An outcome as it is written. Flat, because a tagged type would read its JSON through a buffer that rounds numbers.
#[derive(Deserialize)]
struct OutcomeText {
    outcome: OutcomeWord,
    #[serde(default, deserialize_with = "crate::json::present")]
    output: Option<Json>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    refusal: Option<Refusal>,
    #[serde(default)]
    why: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Succeeded,
    Failed,
    MayHaveApplied,
}

impl TryFrom<OutcomeText> for Outcome {
    type Error = &'static str;

    fn try_from(text: OutcomeText) -> Result<Outcome, &'static str> {
        match text.outcome {
            OutcomeWord::Succeeded => {
                text.output.map(|output| Outcome::Succeeded { output }).ok_or("missing field `output`")
            }
            OutcomeWord::Failed => {
                let error = text.error.ok_or("missing field `error`")?;
                Ok(Outcome::Failed { error, refusal: text.refusal })
            }
            OutcomeWord::MayHaveApplied => {
                text.why.map(|why| Outcome::MayHaveApplied { why }).ok_or("missing field `why`")
            }
        }
    }
}

/// How a doubt was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedAs {
    /// It happened.
    Applied,
    /// It did not.
    NotApplied,
    /// It was tried and answered with an error; what it did until then, its error says or nobody knows.
    Failed,
    /// Nobody will find out.
    Abandoned,
}

/// A doubt's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// What was found.
    pub r#as: ResolvedAs,
    /// Why, in the resolver's words.
    pub reason: String,
    /// Who says so; `late-result` where the tool's own answer came after all.
    pub by: Arc<str>,
    /// When.
    pub at: Time,
}

/// One call and all that happened to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Our name for it.
    pub id: CallId,
    /// The agent's name for this place in its run: the same key with the same arguments is the same call.
    pub key: Option<Arc<str>>,
    /// The model's call id. A label only.
    pub label: Option<Arc<str>>,
    /// What rules look at. Shared, because every step copies the call and almost none changes it.
    pub facts: Arc<Facts>,
    /// What people are shown of the tool, as its author describes it.
    pub description: Option<Arc<str>>,
    /// The definition the call was made for; none where none was given.
    pub definition: Option<DefinitionDigest>,
    /// The arguments with secrets masked, where that differs.
    pub redacted: Option<Json>,
    /// The agent's text as it came, where it differs from the canonical form. Evidence only.
    pub raw: Option<Arc<str>>,
    /// What a crash while it runs means.
    pub repeat: Repeat,
    /// Compares this call with others.
    pub argument_digest: ArgumentDigest,
    /// The argument digest as the agent proposed it, where an approver's edit changed it.
    pub proposed_digest: Option<ArgumentDigest>,
    /// Binds decisions and claims to this call. Changes only with an edit.
    pub digest: CallDigest,
    /// Keeps the call digest from being guessed.
    pub nonce: Nonce,
    /// What the policy said.
    pub verdict: Arc<Verdict>,
    /// How far it has come.
    pub state: CallState,
    /// Its holds, oldest first. Shared as the facts are.
    pub holds: Arc<Vec<HoldRow>>,
    /// The grant that allowed or released it.
    pub grant: Option<GrantId>,
    /// Whether it was allowed because nobody could be asked.
    pub unattended: bool,
    /// When it must be claimed by, once allowed or approved.
    pub claim_by: Option<Time>,
    /// The current claim.
    pub lease: Option<Lease>,
    /// How the run ended.
    pub outcome: Option<Outcome>,
    /// What a person answered instead.
    pub response: Option<Json>,
    /// How a doubt was settled.
    pub resolution: Option<Resolution>,
    /// Why it will not run.
    pub refusal: Option<Refusal>,
    /// When it was submitted.
    pub created_at: Time,
    /// When it last moved.
    pub updated_at: Time,
    /// Grows with every change; stores compare it before they write.
    pub version: u64,
}

impl Call {
    /// The hold that waits now, if any.
    pub fn open_hold(&self) -> Option<&HoldRow> {
        self.holds.iter().rev().find(|hold| hold.is_pending())
    }

    /// How many of its holds wait.
    pub fn waiting(&self) -> usize {
        self.holds.iter().filter(|hold| hold.is_pending()).count()
    }

    /// The decision that let the call run, if a person made one.
    pub fn approval(&self) -> Option<&Decision> {
        self.holds.iter().filter(|hold| !hold.in_run()).flat_map(|hold| hold.decisions.last()).last()
    }

    /// What rules and claim look at besides the arguments, bound into one digest.
    pub fn compute_digest(&self) -> CallDigest {
        let hold = self.holds.iter().rev().find(|hold| !hold.in_run());
        Bound {
            arguments: &self.argument_digest,
            call: self.id,
            hold: hold.map(|hold| hold.id),
            path: &self.facts.path,
            places: &self.facts.places,
            policy: &self.verdict.policy,
            expires_at: hold.and_then(|hold| hold.expires_at),
            payload: hold.and_then(|hold| hold.payload.as_ref()),
            hint: hold.and_then(|hold| hold.hint.as_deref()),
            nonce: self.nonce,
        }
        .digest()
    }

    /// The arguments as they may be written down: secrets masked.
    pub fn shown_arguments(&self) -> &Json {
        self.redacted.as_ref().unwrap_or(&self.facts.arguments)
    }

    /// When this call next needs somebody's attention though nothing happens: expiry, lapse or a lost lease.
    pub fn due_at(&self) -> Option<Time> {
        match self.state {
            CallState::Pending => self.open_hold().and_then(|hold| hold.expires_at),
            CallState::Allowed | CallState::Approved => self.claim_by,
            CallState::Executing => {
                let lost = self.doubtful_at()?;
                let hold = self.open_hold().and_then(|hold| hold.expires_at);
                Some(hold.map_or(lost, |expires| expires.min(lost)))
            }
            CallState::Denied
            | CallState::Answered
            | CallState::Expired
            | CallState::Cancelled
            | CallState::Lapsed
            | CallState::Succeeded
            | CallState::Failed
            | CallState::InDoubt
            | CallState::Resolved => None,
        }
    }

    /// When a claim that is not renewed becomes a doubt. A tool that may run again waits for its next attempt first.
    pub fn doubtful_at(&self) -> Option<Time> {
        let lease = self.lease.as_ref()?;
        match self.repeat.may_run_again() {
            true => Some(lease.until.after(crate::limits::CLAIM_WITHIN)),
            false => Some(lease.until),
        }
    }

    /// How long until [`Call::due_at`].
    pub fn due_in(&self, now: Time) -> Option<Duration> {
        self.due_at().map(|due| now.until(due))
    }
}
