//! The one function that moves a call through its states.
//!
//! Pure: same call, same step, same moment, same answer. Every store runs it inside the transaction that also writes
//! the event, so state and log never disagree. DESIGN in one picture:
//!
//! ```text
//! proposed ─► denied
//!    ├──────► allowed ──────────────┐ ─► lapsed | cancelled
//!    └─► pending ─► approved ───────┤ claim          (approved ─► lapsed | cancelled)
//!           ├► answered             ▼
//!           ├► denied           executing ─► succeeded | failed
//!           ├► expired              └──► in_doubt ─► resolved
//!           └► cancelled
//! ```

mod decide;
mod run;

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, CallState, Declared, Outcome, Path, Resolution, ToolId};
use crate::digest::{ArgumentDigest, DefinitionDigest, argument_digest};
use crate::event::{Draft, EventName};
use crate::grant::{Grant, GrantError};
use crate::hold::{Decision, HoldKind, HoldRow, HoldState};
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::kept::Keep;
use crate::limits::Limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::time::Time;
use crate::verdict::{Because, Effect, Life, Memory, Terms, Verdict};
pub(crate) use decide::grant_made;
use decide::{close, decide, release};
use run::{ask, claim, finish, renew, resolve};

/// Something that may happen to a call.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// Time passed: expiry, lapse or a lost lease may be due.
    Tick,
    /// Somebody decided.
    Decide(&'a Deciding),
    /// A new grant may cover an open hold.
    Release {
        /// The hold.
        hold: HoldId,
        /// The grant.
        grant: &'a Grant,
    },
    /// The approver function failed: the hold closes without anybody's decision.
    Close {
        /// The hold.
        hold: HoldId,
        /// What went wrong.
        refusal: &'a Refusal,
    },
    /// Withdraw it, before it runs.
    Cancel {
        /// Why.
        refusal: &'a Refusal,
    },
    /// An executor wants to run it.
    Claim(&'a Claiming<'a>),
    /// The executor is still at it.
    Renew {
        /// Its fence.
        fence: u64,
        /// For how long now.
        lease: Duration,
    },
    /// The running tool asks.
    Ask {
        /// What it asks.
        asking: &'a Asking,
        /// Why no further hold may wait, if none may.
        full: Option<String>,
    },
    /// The run ended.
    Finish {
        /// The executor's fence.
        fence: u64,
        /// How.
        outcome: &'a Outcome,
    },
    /// A person settles a doubt.
    Resolve {
        /// How.
        resolution: &'a Resolution,
    },
}

/// A decision on its way in, with all that the pure function must know.
#[derive(Clone, Debug)]
pub struct Deciding {
    /// The hold decided about.
    pub hold: HoldId,
    /// The decision.
    pub decision: Decision,
    /// The decider's groups.
    pub groups: Vec<Arc<str>>,
    /// Edited arguments, validated and judged; present exactly when the decision has some.
    pub edit: Option<Edit>,
    /// The payload or response with secrets masked, where that differs: for the log.
    pub redacted: Option<Json>,
    /// Where the grant is kept that it makes, if any.
    pub keep: Keep,
}

impl Deciding {
    /// A decision by somebody whose groups do not matter, that edits nothing and holds no secret.
    pub fn new(hold: HoldId, decision: Decision) -> Deciding {
        Deciding { hold, decision, groups: Vec::new(), edit: None, redacted: None, keep: Keep::Stored }
    }

    /// What the decision hands on, as the log may show it.
    fn shown<'a>(&'a self, handed_on: Option<&'a Json>) -> Option<&'a Json> {
        handed_on.map(|json| self.redacted.as_ref().unwrap_or(json))
    }
}

/// Edited arguments, validated and judged again.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The new arguments.
    pub arguments: Json,
    /// With secrets masked, where that differs.
    pub redacted: Option<Json>,
    /// Their digest.
    pub argument_digest: ArgumentDigest,
    /// What the tool says about them.
    pub declared: Declared,
    /// What the policy says about them.
    pub verdict: Arc<Verdict>,
    /// The version of the policy that says so, as nodes compare it: an old one is not believed.
    pub policy: Arc<str>,
    /// Where the call stands; an edit changes neither this nor the tool.
    pub path: Path,
    /// Its tool.
    pub tool: ToolId,
    /// A call in doubt that did the same. Looked up where the edit is written, whatever it says here.
    pub doubt: Option<CallId>,
}

impl Edit {
    /// Other arguments for a call, as this verdict judges them.
    pub fn of(call: &Call, arguments: Json, verdict: Verdict) -> Edit {
        Edit {
            redacted: None,
            argument_digest: argument_digest(&call.facts.tool, call.definition.as_ref(), &arguments),
            declared: call.facts.declared,
            policy: Arc::clone(&verdict.policy),
            path: call.facts.path.clone(),
            tool: call.facts.tool.clone(),
            doubt: None,
            verdict: Arc::new(verdict),
            arguments,
        }
    }
}

/// What a claim is checked against, read in the same transaction.
#[derive(Clone, Debug)]
pub struct Claiming<'a> {
    /// Who will run it.
    pub owner: Arc<str>,
    /// The definition of the tool that will run.
    pub definition: Option<DefinitionDigest>,
    /// A new verdict, where the policy changed since the call was judged.
    pub verdict: Option<Verdict>,
    /// The grant the call leans on, as it stands now.
    pub grant: Option<&'a Grant>,
    /// Whether everything, or this agent, is halted.
    pub halted: bool,
    /// For how long.
    pub lease: Duration,
    /// How many attempts a repeatable call may have.
    pub attempts: u32,
}

/// A hold that a running tool opens.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The hold's id.
    pub hold: HoldId,
    /// The executor's fence.
    pub fence: u64,
    /// The tool's words.
    pub hint: Option<Arc<str>>,
    /// What it shows.
    pub payload: Option<Json>,
    /// What happens where nobody can be asked; none where somebody can.
    pub unattended: Option<Unasked>,
    /// How many may wait, and how many holds one call may open.
    pub limits: Arc<Limits>,
}

/// What to do with a hold that nobody can be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// Refuse it.
    Deny,
    /// Let it pass, marked as such.
    Allow,
}

/// Why a step was not taken. Nothing changed, except what time itself had brought.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// No such call, hold or grant.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The hold closed before.
    #[error("the hold is already {}", .0.as_str())]
    Closed(HoldState),
    /// The decision was made for other bytes.
    #[error("the decision names another digest than the hold's")]
    DigestMismatch,
    /// One person counts once.
    #[error("`{0}` has already decided this hold")]
    Repeated(Arc<str>),
    /// Not one of those who may approve.
    #[error("`{0}` is not among those who may approve this: {1}")]
    NotEligible(Arc<str>, String),
    /// Only people lift it.
    #[error("only a person may approve this, and `{0}` is a program")]
    HumanRequired(Arc<str>),
    /// Nobody approves their own.
    #[error("`{0}` asked for this work and may not approve it")]
    Requester(Arc<str>),
    /// The policy denies the edited call.
    #[error("the policy denies the edited call{}; the hold stays open", .0.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    EditDenied(Option<String>),
    /// What a running tool shows cannot be edited, answered or remembered.
    #[error("a hold from inside a running tool takes approve or deny, and a payload, nothing else")]
    InRunOnly,
    /// The grant asked for may not be made.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The grant does not cover the call.
    #[error("the grant does not cover this hold")]
    NotCovered,
    /// The call is in a state from which this cannot happen.
    #[error("the call is {0}")]
    WrongState(CallState),
    /// Another executor runs it, or ran it.
    #[error("the call was already claimed and is {0}")]
    AlreadyClaimed(CallState),
    /// Nothing is claimed while halted.
    #[error("halted by the operator; nothing is claimed until `resume`")]
    Halted,
    /// The executor lost its claim.
    #[error("another attempt has begun; this one's fence is {found}, the current one {current}")]
    StaleFence {
        /// The fence it came with.
        found: u64,
        /// The fence now.
        current: u64,
    },
    /// The policy this node judged by is not the one in force.
    #[error("the policy changed; judge again")]
    StalePolicy,
    /// The same key with other arguments.
    #[error("the key was used before for a call with other arguments")]
    KeyReused,
    /// Too many.
    #[error("over the limit of {limit} {what}")]
    Limit {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// A record or row changed meanwhile.
    #[error("it changed meanwhile; read it again")]
    Conflict,
}

/// What a step did.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// The events to write. None at all: the step repeated what had happened before.
    pub drafts: Vec<Draft>,
    /// A grant to store.
    pub grant: Option<Box<Grant>>,
}

impl Moved {
    fn one(draft: Draft) -> Moved {
        Moved { drafts: vec![draft], grant: None }
    }
}

/// Moves a call by one step, or says why not.
pub fn step(call: &mut Call, step: &Step<'_>, now: Time) -> Result<Moved, Rejection> {
    match step {
        Step::Tick => Ok(tick(call, now)),
        Step::Decide(deciding) => decide(call, deciding, now),
        Step::Release { hold, grant } => release(call, *hold, grant, now),
        Step::Close { hold, refusal } => close(call, *hold, refusal),
        Step::Cancel { refusal } => cancel(call, refusal),
        Step::Claim(claiming) => claim(call, claiming, now),
        Step::Renew { fence, lease } => renew(call, *fence, now.after(*lease)),
        Step::Ask { asking, full } => ask(call, asking, full.as_deref(), now),
        Step::Finish { fence, outcome } => finish(call, *fence, outcome, now),
        Step::Resolve { resolution } => resolve(call, resolution),
    }
}

/// Opens the hold a new or edited call waits behind.
pub(crate) fn open_hold(call: &mut Call, hint: Option<Arc<str>>, payload: Option<Json>, now: Time) -> Draft {
    let verdict = &call.verdict;
    let terms = Arc::clone(&verdict.terms);
    let because = verdict.shared_because();
    let expires_at = expiry(&terms, now);
    let id = HoldId::new();
    let holds = Arc::make_mut(&mut call.holds);
    holds.reserve_exact(1);
    holds.push(HoldRow {
        id,
        kind: HoldKind::BeforeRun,
        state: HoldState::Pending,
        digest: call.digest,
        nonce: call.nonce,
        hint,
        payload,
        terms,
        because,
        opened_at: now,
        expires_at,
        decisions: Vec::new(),
        refusal: None,
    });
    call.digest = call.compute_digest();
    let digest = call.digest;
    call.state = CallState::Pending;
    match Arc::make_mut(&mut call.holds).last_mut() {
        Some(hold) => {
            hold.digest = digest;
            opened(call, hold_at(call, id))
        }
        None => Draft::new(EventName::HoldOpened),
    }
}

/// An identical call that may already have happened makes an allow an ask: a person must know.
pub(crate) fn doubtful(verdict: &Verdict, earlier: CallId) -> Verdict {
    let reason = format!("an identical call, {earlier}, is in doubt: it may already have happened");
    let mut verdict = verdict.clone();
    verdict.join(Because { rule: "doubt".into(), effect: Effect::Ask, reason: Some(reason.into()) });
    Arc::make_mut(&mut verdict.terms).remember = Memory::None;
    verdict
}

fn expiry(terms: &Terms, now: Time) -> Option<Time> {
    match terms.life {
        Life::For(life) => Some(now.after(life)),
        Life::Never => None,
    }
}

fn hold_at(call: &Call, id: HoldId) -> Option<&HoldRow> {
    call.holds.iter().find(|hold| hold.id == id)
}

fn opened(call: &Call, hold: Option<&HoldRow>) -> Draft {
    let draft = Draft::new(EventName::HoldOpened).call(call.id);
    let Some(hold) = hold else { return draft };
    let approvals: u32 = hold.terms.quorums.iter().map(|quorum| quorum.approvals).max().unwrap_or(1);
    let draft = draft
        .hold(hold.id)
        .text("tool", &call.facts.tool.name)
        .text_if("server", call.facts.tool.server.as_deref())
        .plain("digest", hold.digest)
        .list("rules", hold.because.iter().map(|because| &because.rule))
        .text_if("reason", hold.because.iter().find_map(|because| because.reason.as_deref()))
        .number("approvals", i64::from(approvals))
        .flag("in_run", hold.in_run())
        .text_if("hint", hold.hint.as_deref())
        .json_if("payload", hold.payload.as_ref());
    match hold.expires_at {
        Some(at) => draft.number("expires_at", at.0),
        None => draft,
    }
}

fn refused(call: &Call, refusal: &Refusal) -> Draft {
    about(EventName::CallRefused, call, refusal)
}

/// An event that carries a refusal.
pub(crate) fn about(name: EventName, call: &Call, refusal: &Refusal) -> Draft {
    Draft::new(name)
        .call(call.id)
        .plain("kind", refusal.kind.as_str())
        .text_if("reason", refusal.reason.as_deref())
        .text_if("by", refusal.by.as_deref())
}

/// The holds to be changed. Where there are none, the call goes on sharing its holds with its copies.
fn holds_where(call: &mut Call, wanted: impl Fn(&HoldRow) -> bool) -> impl Iterator<Item = &mut HoldRow> {
    let any = call.holds.iter().any(&wanted);
    let holds = if any { Some(Arc::make_mut(&mut call.holds)) } else { None };
    holds.into_iter().flatten().filter(move |hold| wanted(hold))
}

fn hold_mut(call: &mut Call, id: HoldId) -> Option<&mut HoldRow> {
    Arc::make_mut(&mut call.holds).iter_mut().find(|hold| hold.id == id)
}

fn close_hold(hold: &mut HoldRow, state: HoldState, refusal: Option<Refusal>) {
    hold.state = state;
    hold.refusal = refusal;
}

/// What time brings: expiry, lapse, doubt.
fn tick(call: &mut Call, now: Time) -> Moved {
    let mut drafts = Vec::new();
    let id = call.id;
    let expired = |hold: &HoldRow| hold.is_pending() && hold.expires_at.is_some_and(|at| at <= now);
    for hold in holds_where(call, expired) {
        close_hold(hold, HoldState::Expired, Some(Refusal::new(RefusalKind::Expired)));
        drafts.push(Draft::new(EventName::HoldExpired).call(id).hold(hold.id));
    }
    match call.state {
        CallState::Pending if !drafts.is_empty() => {
            let refusal = Refusal::new(RefusalKind::Expired);
            drafts.push(refused(call, &refusal));
            call.state = CallState::Expired;
            call.refusal = Some(refusal);
        }
        CallState::Allowed | CallState::Approved if call.claim_by.is_some_and(|at| at <= now) => {
            let refusal = Refusal::new(RefusalKind::Lapsed).because("it was not claimed in time");
            drafts.push(lapse(call, refusal));
        }
        CallState::Executing if call.doubtful_at().is_some_and(|at| at <= now) => {
            drafts.extend(doubt(call, "the executor's lease ran out"));
        }
        _ => {}
    }
    Moved { drafts, grant: None }
}

fn lapse(call: &mut Call, refusal: Refusal) -> Draft {
    let draft = about(EventName::CallLapsed, call, &refusal);
    call.state = CallState::Lapsed;
    call.refusal = Some(refusal);
    draft
}

fn doubt(call: &mut Call, why: &str) -> Vec<Draft> {
    let mut drafts = cancel_holds(call, &Refusal::new(RefusalKind::Cancelled).because(why));
    call.state = CallState::InDoubt;
    if call.outcome.is_none() {
        call.outcome = Some(Outcome::MayHaveApplied { why: why.to_owned() });
    }
    let attempt = call.lease.as_ref().map_or(0, |lease| lease.attempt);
    drafts
        .push(Draft::new(EventName::CallInDoubt).call(call.id).text("why", why).number("attempt", i64::from(attempt)));
    drafts
}

fn cancel_holds(call: &mut Call, refusal: &Refusal) -> Vec<Draft> {
    let id = call.id;
    let cancelled = holds_where(call, HoldRow::is_pending).map(|hold| {
        close_hold(hold, HoldState::Cancelled, Some(refusal.clone()));
        Draft::new(EventName::HoldCancelled).call(id).hold(hold.id).plain("kind", refusal.kind.as_str())
    });
    cancelled.collect()
}

fn cancel(call: &mut Call, refusal: &Refusal) -> Result<Moved, Rejection> {
    match call.state {
        CallState::Pending | CallState::Allowed | CallState::Approved => {}
        CallState::Cancelled => return Ok(Moved::default()),
        state => return Err(Rejection::WrongState(state)),
    }
    let mut drafts = cancel_holds(call, refusal);
    drafts.push(about(EventName::CallCancelled, call, refusal));
    call.state = CallState::Cancelled;
    call.refusal = Some(refusal.clone());
    Ok(Moved { drafts, grant: None })
}

#[cfg(test)]
mod tests;
