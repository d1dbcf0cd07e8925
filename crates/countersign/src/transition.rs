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

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, CallState, Declared, Lease, Outcome, Resolution, ResolvedAs};
use crate::digest::{ArgumentDigest, Bound, DefinitionDigest, Nonce};
use crate::event::{Draft, EventName};
use crate::grant::{Grant, GrantError};
use crate::hold::{Answer, Decision, Hold, HoldKind, HoldState, WhoKind};
use crate::id::HoldId;
use crate::json::Json;
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::time::Time;
use crate::verdict::{Because, Effect, Life, Memory, Terms, Verdict};

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
    Ask(&'a Asking),
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
    /// How many holds a call may open.
    pub most: usize,
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
    pub grant: Option<Grant>,
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
        Step::Ask(asking) => ask(call, asking, now),
        Step::Finish { fence, outcome } => finish(call, *fence, outcome, now),
        Step::Resolve { resolution } => resolve(call, resolution),
    }
}

/// Opens the hold a new or edited call waits behind.
pub(crate) fn open_hold(call: &mut Call, hint: Option<Arc<str>>, payload: Option<Json>, now: Time) -> Draft {
    let terms = Arc::clone(&call.verdict.terms);
    let expires_at = expiry(&terms, now);
    let id = HoldId::new();
    call.holds.push(Hold {
        id,
        kind: HoldKind::BeforeRun,
        state: HoldState::Pending,
        digest: call.digest,
        nonce: call.nonce,
        hint,
        payload,
        terms,
        because: call.verdict.because.clone().into(),
        opened_at: now,
        expires_at,
        decisions: Vec::new(),
        refusal: None,
    });
    call.digest = call.compute_digest();
    let digest = call.digest;
    call.state = CallState::Pending;
    match call.holds.last_mut() {
        Some(hold) => {
            hold.digest = digest;
            opened(call, hold_at(call, id))
        }
        None => Draft::new(EventName::HoldOpened),
    }
}

fn expiry(terms: &Terms, now: Time) -> Option<Time> {
    match terms.life {
        Life::For(life) => Some(now.after(life)),
        Life::Never => None,
    }
}

fn hold_at(call: &Call, id: HoldId) -> Option<&Hold> {
    call.holds.iter().find(|hold| hold.id == id)
}

fn opened(call: &Call, hold: Option<&Hold>) -> Draft {
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

fn close_hold(hold: &mut Hold, state: HoldState, refusal: Option<Refusal>) {
    hold.state = state;
    hold.refusal = refusal;
}

/// What time brings: expiry, lapse, doubt.
fn tick(call: &mut Call, now: Time) -> Moved {
    let mut drafts = Vec::new();
    let id = call.id;
    for hold in call.holds.iter_mut().filter(|hold| hold.is_pending()) {
        if hold.expires_at.is_some_and(|at| at <= now) {
            close_hold(hold, HoldState::Expired, Some(Refusal::new(RefusalKind::Expired)));
            drafts.push(Draft::new(EventName::HoldExpired).call(id).hold(hold.id));
        }
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
    let open = call.holds.iter_mut().filter(|hold| hold.is_pending());
    open.map(|hold| {
        close_hold(hold, HoldState::Cancelled, Some(refusal.clone()));
        Draft::new(EventName::HoldCancelled).call(id).hold(hold.id).plain("kind", refusal.kind.as_str())
    })
    .collect()
}

/// What the attempt before asked, nobody waits for any more: the next attempt asks for itself.
fn supersede_holds(call: &mut Call) -> Vec<Draft> {
    let id = call.id;
    let open = call.holds.iter_mut().filter(|hold| hold.is_pending());
    open.map(|hold| {
        let refusal = Refusal::new(RefusalKind::Superseded).because("another attempt began");
        close_hold(hold, HoldState::Superseded, Some(refusal));
        Draft::new(EventName::HoldSuperseded).call(id).hold(hold.id)
    })
    .collect()
}

fn decide(call: &mut Call, deciding: &Deciding, now: Time) -> Result<Moved, Rejection> {
    let hold = hold_at(call, deciding.hold).ok_or(Rejection::NotFound("hold"))?;
    if hold.decisions.iter().any(|earlier| deciding.decision.repeats(earlier)) {
        return Ok(Moved::default());
    }
    open_at(hold, now)?;
    if deciding.decision.digest != hold.digest {
        return Err(Rejection::DigestMismatch);
    }
    let by = &deciding.decision.by;
    if hold.decisions.iter().any(|earlier| earlier.by.id == by.id) {
        return Err(Rejection::Repeated(Arc::clone(&by.id)));
    }
    if hold.decisions.len() >= limits::DECISIONS_PER_HOLD {
        return Err(Rejection::Limit { what: "decisions on one hold", limit: limits::DECISIONS_PER_HOLD as u64 });
    }
    match &deciding.decision.answer {
        Answer::Deny { reason } => Ok(deny(call, deciding, reason.as_deref(), now)),
        Answer::Respond { response } => respond(call, deciding, response, now),
        Answer::Approve { .. } => approve(call, deciding, now),
    }
}

/// SECURITY: late is late, even where nobody let time pass for the call first.
fn open_at(hold: &Hold, now: Time) -> Result<(), Rejection> {
    if !hold.is_pending() {
        return Err(Rejection::Closed(hold.state));
    }
    match hold.expires_at {
        Some(at) if at <= now => Err(Rejection::Closed(HoldState::Expired)),
        _ => Ok(()),
    }
}

/// Whether the decider's yes would count on these terms, and for which quorums.
fn counts_for(terms: &Terms, call: &Call, deciding: &Deciding) -> Result<Vec<usize>, Rejection> {
    let by = &deciding.decision.by;
    let path = &call.facts.path;
    if by.kind == WhoKind::Program && terms.human_required {
        return Err(Rejection::HumanRequired(Arc::clone(&by.id)));
    }
    if terms.requester_excluded && (path.requester.as_ref() == Some(&by.id) || path.principal == by.id) {
        return Err(Rejection::Requester(Arc::clone(&by.id)));
    }
    // Several approvals count people, so that one program behind two clients is no quorum.
    if by.kind == WhoKind::Program && terms.quorums.iter().any(|quorum| quorum.approvals > 1) {
        return Err(Rejection::HumanRequired(Arc::clone(&by.id)));
    }
    let belongs =
        |from: &[Arc<str>]| from.is_empty() || from.iter().any(|name| *name == by.id || deciding.groups.contains(name));
    let counted: Vec<usize> =
        terms.quorums.iter().enumerate().filter(|(_, quorum)| belongs(&quorum.from)).map(|(index, _)| index).collect();
    if counted.is_empty() {
        let from: Vec<&str> = terms.quorums.iter().flat_map(|quorum| &quorum.from).map(AsRef::as_ref).collect();
        return Err(Rejection::NotEligible(Arc::clone(&by.id), from.join(", ")));
    }
    Ok(counted)
}

fn decided(call: &Call, deciding: &Deciding, closes: bool) -> Draft {
    let decision = &deciding.decision;
    let kind = match decision.by.kind {
        WhoKind::Person => "person",
        WhoKind::Program => "program",
    };
    Draft::new(EventName::HoldDecided)
        .call(call.id)
        .hold(deciding.hold)
        .plain("answer", decision.answer.as_str())
        .text("by", &decision.by.id)
        .plain("by_kind", kind)
        .text("channel", &decision.channel)
        .plain("digest", decision.digest)
        .flag("closes", closes)
}

fn record(call: &mut Call, deciding: &Deciding, counts_for: Vec<usize>, state: HoldState, now: Time) {
    if let Some(hold) = call.holds.iter_mut().find(|hold| hold.id == deciding.hold) {
        hold.decisions.push(Decision { at: now, counts_for, ..deciding.decision.clone() });
        hold.state = state;
    }
}

fn deny(call: &mut Call, deciding: &Deciding, reason: Option<&str>, now: Time) -> Moved {
    let refusal = Refusal {
        kind: RefusalKind::DeniedByApprover,
        reason: reason.map(str::to_owned),
        by: Some(Arc::clone(&deciding.decision.by.id)),
    };
    let mut drafts = vec![decided(call, deciding, true).text_if("reason", reason)];
    record(call, deciding, Vec::new(), HoldState::Denied, now);
    let in_run = match call.holds.iter_mut().find(|hold| hold.id == deciding.hold) {
        Some(hold) => {
            hold.refusal = Some(refusal.clone());
            hold.in_run()
        }
        None => false,
    };
    if !in_run {
        drafts.push(refused(call, &refusal));
        call.state = CallState::Denied;
        call.refusal = Some(refusal);
    }
    Moved { drafts, grant: None }
}

fn respond(call: &mut Call, deciding: &Deciding, response: &Json, now: Time) -> Result<Moved, Rejection> {
    let hold = hold_at(call, deciding.hold).ok_or(Rejection::NotFound("hold"))?;
    if hold.in_run() {
        return Err(Rejection::InRunOnly);
    }
    let counts = counts_for(&Arc::clone(&hold.terms), call, deciding)?;
    record(call, deciding, counts, HoldState::Answered, now);
    call.state = CallState::Answered;
    call.response = Some(response.clone());
    let answered = Draft::new(EventName::CallAnswered).call(call.id).text("by", &deciding.decision.by.id);
    Ok(Moved { drafts: vec![decided(call, deciding, true), answered], grant: None })
}

fn approve(call: &mut Call, deciding: &Deciding, now: Time) -> Result<Moved, Rejection> {
    let hold = hold_at(call, deciding.hold).ok_or(Rejection::NotFound("hold"))?;
    let Answer::Approve { arguments, remember, payload } = &deciding.decision.answer else {
        return Err(Rejection::WrongState(call.state));
    };
    if hold.in_run() && (arguments.is_some() || remember.is_some()) {
        return Err(Rejection::InRunOnly);
    }
    let in_run = hold.in_run();
    let counts = counts_for(&Arc::clone(&hold.terms), call, deciding)?;
    if let Some(edit) = &deciding.edit {
        return approve_edited(call, deciding, edit, counts, now);
    }
    if arguments.is_some() {
        // SECURITY: bytes that were not judged again are never approved.
        return Err(Rejection::EditDenied(Some("it was not judged".into())));
    }
    // The grant is checked before anything changes: a decision is taken whole or not at all.
    let grant = match remember {
        Some(remember) => Some(Grant::asked_for(remember, call, deciding.hold, deciding.decision.by.clone(), now)?),
        None => None,
    };
    record(call, deciding, counts, HoldState::Pending, now);
    let closes = call.holds.iter().any(|hold| hold.id == deciding.hold && hold.quorums_met());
    let mut drafts = vec![decided(call, deciding, closes).json_if("payload", payload.as_ref())];
    if closes {
        settle(call, deciding.hold, in_run, now);
    }
    drafts.extend(grant.as_ref().map(grant_made));
    Ok(Moved { drafts, grant })
}

fn settle(call: &mut Call, hold: HoldId, in_run: bool, now: Time) {
    if let Some(hold) = call.holds.iter_mut().find(|found| found.id == hold) {
        hold.state = HoldState::Approved;
    }
    if !in_run {
        call.state = CallState::Approved;
        call.claim_by = Some(now.after(limits::CLAIM_WITHIN));
    }
}

/// The event of a new grant.
pub(crate) fn grant_made(grant: &Grant) -> Draft {
    let draft = Draft::new(EventName::GrantMade).plain("grant", grant.id).text("rule", &grant.as_rule());
    let draft = draft.text("by", &grant.made_by.id);
    match grant.hold {
        Some(hold) => draft.hold(hold),
        None => draft,
    }
}

/// An edit is judged anew: denied, approved as edited, or put to everybody again under a new hold.
fn approve_edited(
    call: &mut Call,
    deciding: &Deciding,
    edit: &Edit,
    counts: Vec<usize>,
    now: Time,
) -> Result<Moved, Rejection> {
    let met = match edit.verdict.effect {
        Effect::Deny => return Err(Rejection::EditDenied(edit.verdict.reason().map(str::to_owned))),
        Effect::Allow => true,
        Effect::Ask => {
            let counted = counts_for(&edit.verdict.terms, call, deciding);
            let quorums = &edit.verdict.terms.quorums;
            counted.is_ok_and(|counted| {
                quorums.iter().enumerate().all(|(index, quorum)| quorum.approvals <= 1 && counted.contains(&index))
            })
        }
    };
    let Answer::Approve { remember, payload, .. } = &deciding.decision.answer else {
        return Err(Rejection::WrongState(call.state));
    };
    let mut edited = call.clone();
    edited.facts.arguments = edit.arguments.clone();
    edited.facts.declared = edit.declared;
    edited.redacted = edit.redacted.clone();
    edited.raw = None;
    edited.proposed_digest = Some(call.proposed_digest.unwrap_or(call.argument_digest));
    edited.argument_digest = edit.argument_digest;
    edited.verdict = Arc::clone(&edit.verdict);
    edited.nonce = Nonce::new();
    edited.grant = None;
    let grant = match remember {
        Some(remember) if met => {
            Some(Grant::asked_for(remember, &edited, deciding.hold, deciding.decision.by.clone(), now)?)
        }
        _ => None,
    };
    let before = call.shown_arguments().clone();
    *call = edited;
    let draft = decided(call, deciding, true).json_if("payload", payload.as_ref());
    let draft = draft.json("before", &before).json("after", call.shown_arguments());
    if met {
        record(call, deciding, counts, HoldState::Approved, now);
        settle(call, deciding.hold, false, now);
        call.digest = call.compute_digest();
        let mut drafts = vec![draft.plain("runs", call.digest)];
        drafts.extend(grant.as_ref().map(grant_made));
        return Ok(Moved { drafts, grant });
    }
    record(call, deciding, counts, HoldState::Superseded, now);
    let superseded = Draft::new(EventName::HoldSuperseded).call(call.id).hold(deciding.hold);
    let opened = open_hold(call, None, None, now);
    Ok(Moved { drafts: vec![draft, superseded, opened], grant: None })
}

fn release(call: &mut Call, hold: HoldId, grant: &Grant, now: Time) -> Result<Moved, Rejection> {
    let open = hold_at(call, hold).ok_or(Rejection::NotFound("hold"))?;
    open_at(open, now)?;
    let maker = Deciding {
        hold,
        decision: Decision::new(grant.made_by.clone(), "grant", open.digest, Answer::approve()),
        groups: Vec::new(),
        edit: None,
    };
    let simple = open.terms.quorums.iter().all(|quorum| quorum.approvals <= 1);
    let covered = grant.covers(&call.facts, call.definition.as_ref(), &call.argument_digest, &call.verdict, now);
    let may_decide = counts_for(&open.terms, call, &maker).is_ok();
    if open.in_run() || !simple || !covered || !may_decide || !open.decisions.is_empty() {
        return Err(Rejection::NotCovered);
    }
    if let Some(open) = call.holds.iter_mut().find(|found| found.id == hold) {
        open.state = HoldState::Released;
    }
    call.grant = Some(grant.id);
    call.state = CallState::Approved;
    call.claim_by = Some(now.after(limits::CLAIM_WITHIN));
    Ok(Moved::one(Draft::new(EventName::HoldReleased).call(call.id).hold(hold).plain("grant", grant.id)))
}

fn close(call: &mut Call, hold: HoldId, refusal: &Refusal) -> Result<Moved, Rejection> {
    let open = hold_at(call, hold).ok_or(Rejection::NotFound("hold"))?;
    if !open.is_pending() {
        return Err(Rejection::Closed(open.state));
    }
    let in_run = open.in_run();
    let mut drafts = vec![
        Draft::new(EventName::HoldCancelled)
            .call(call.id)
            .hold(hold)
            .plain("kind", refusal.kind.as_str())
            .text_if("reason", refusal.reason.as_deref()),
    ];
    if let Some(open) = call.holds.iter_mut().find(|found| found.id == hold) {
        close_hold(open, HoldState::Cancelled, Some(refusal.clone()));
    }
    if !in_run {
        drafts.push(refused(call, refusal));
        call.state = CallState::Cancelled;
        call.refusal = Some(refusal.clone());
    }
    Ok(Moved { drafts, grant: None })
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

fn claim(call: &mut Call, claiming: &Claiming<'_>, now: Time) -> Result<Moved, Rejection> {
    let again = call.state == CallState::Executing
        && call.repeat.may_run_again()
        && call.lease.as_ref().is_some_and(|lease| lease.until <= now && lease.attempt < claiming.attempts);
    match call.state {
        CallState::Allowed | CallState::Approved => {}
        CallState::Executing if again => {}
        CallState::Executing | CallState::Succeeded | CallState::Failed | CallState::InDoubt | CallState::Resolved => {
            return Err(Rejection::AlreadyClaimed(call.state));
        }
        state => return Err(Rejection::WrongState(state)),
    }
    if claiming.halted {
        return Err(Rejection::Halted);
    }
    if let Err(refusal) = still_good(call, claiming, now) {
        // The attempt before may have acted: that is a doubt, and not a call that never began.
        return Ok(match again {
            true => Moved { drafts: doubt(call, "no further attempt is allowed"), grant: None },
            false => Moved::one(lapse(call, refusal)),
        });
    }
    let mut drafts = supersede_holds(call);
    let (fence, attempt) = call.lease.as_ref().map_or((1, 1), |lease| (lease.fence + 1, lease.attempt + 1));
    call.state = CallState::Executing;
    call.claim_by = None;
    call.lease = Some(Lease { owner: Arc::clone(&claiming.owner), fence, attempt, until: now.after(claiming.lease) });
    drafts.push(
        Draft::new(EventName::CallClaimed)
            .call(call.id)
            .text("owner", &claiming.owner)
            .number("fence", fence as i64)
            .number("attempt", i64::from(attempt))
            .plain("digest", call.digest),
    );
    Ok(Moved { drafts, grant: None })
}

/// SECURITY: everything that let the call run is checked once more, in the transaction that lets it run.
fn still_good(call: &Call, claiming: &Claiming<'_>, now: Time) -> Result<(), Refusal> {
    if call.claim_by.is_some_and(|at| at <= now) {
        return Err(Refusal::new(RefusalKind::Lapsed).because("it was not claimed in time"));
    }
    if call.digest != call.compute_digest() {
        return Err(Refusal::new(RefusalKind::Error).because("the stored call does not match its digest"));
    }
    if call.definition != claiming.definition {
        return Err(Refusal::new(RefusalKind::Superseded).because("the tool's definition changed since it was judged"));
    }
    let verdict = claiming.verdict.as_ref().unwrap_or(&call.verdict);
    if verdict.effect == Effect::Deny {
        let mut refusal = Refusal::new(RefusalKind::DeniedByRule);
        refusal.reason = verdict.reason().map(str::to_owned);
        return Err(refusal.by(verdict.rules().join(", ")));
    }
    if let Some(id) = call.grant {
        let grant = claiming.grant.filter(|grant| grant.id == id);
        let grant = grant.ok_or_else(|| Refusal::new(RefusalKind::Revoked).because("its grant is gone"))?;
        if grant.revoked.is_some() {
            return Err(Refusal::new(RefusalKind::Revoked).because("its grant was revoked"));
        }
        let first_attempt = call.lease.is_none();
        let lifted = verdict.effect == Effect::Allow
            || grant.covers(&call.facts, call.definition.as_ref(), &call.argument_digest, verdict, now);
        if first_attempt && !lifted {
            return Err(Refusal::new(RefusalKind::Lapsed).because("its grant no longer covers it"));
        }
        return Ok(());
    }
    let needs_asking = verdict.effect == Effect::Ask && call.state == CallState::Allowed && !call.unattended;
    let was_raised = call.verdict.effect == Effect::Ask;
    if needs_asking && !was_raised {
        return Err(Refusal::new(RefusalKind::Lapsed).because("the policy now asks about it"));
    }
    Ok(())
}

fn current(call: &Call, fence: u64) -> Result<(), Rejection> {
    let current = call.lease.as_ref().map_or(0, |lease| lease.fence);
    if current == fence { Ok(()) } else { Err(Rejection::StaleFence { found: fence, current }) }
}

fn renew(call: &mut Call, fence: u64, until: Time) -> Result<Moved, Rejection> {
    if call.state != CallState::Executing {
        return Err(Rejection::WrongState(call.state));
    }
    current(call, fence)?;
    if let Some(lease) = &mut call.lease {
        lease.until = lease.until.max(until);
    }
    // A longer lease is no news: it changes the row and writes no event.
    Ok(Moved::default())
}

fn ask(call: &mut Call, asking: &Asking, now: Time) -> Result<Moved, Rejection> {
    if call.state != CallState::Executing {
        return Err(Rejection::WrongState(call.state));
    }
    current(call, asking.fence)?;
    if call.holds.len() >= asking.most {
        return Err(Rejection::Limit { what: "holds in one call", limit: asking.most as u64 });
    }
    let terms = Terms { remember: Memory::None, ..(*call.verdict.terms).clone() };
    let expires_at = expiry(&terms, now);
    let nonce = Nonce::new();
    let digest = Bound {
        arguments: &call.argument_digest,
        call: call.id,
        hold: Some(asking.hold),
        path: &call.facts.path,
        policy: &call.verdict.policy,
        expires_at,
        payload: asking.payload.as_ref(),
        hint: asking.hint.as_deref(),
        nonce,
    }
    .digest();
    let because = Because { rule: "in-run".into(), effect: Effect::Ask, reason: None };
    call.holds.push(Hold {
        id: asking.hold,
        kind: HoldKind::InRun,
        state: HoldState::Pending,
        digest,
        nonce,
        hint: asking.hint.clone(),
        payload: asking.payload.clone(),
        terms: Arc::new(terms),
        because: Arc::from([because]),
        opened_at: now,
        expires_at,
        decisions: Vec::new(),
        refusal: None,
    });
    let mut drafts = vec![opened(call, hold_at(call, asking.hold))];
    drafts.extend(asking.unattended.and_then(|unasked| close_unasked(call, asking.hold, unasked)));
    Ok(Moved { drafts, grant: None })
}

fn close_unasked(call: &mut Call, hold: HoldId, unasked: Unasked) -> Option<Draft> {
    let id = call.id;
    let must_ask = call.verdict.terms.human_required;
    let hold = call.holds.iter_mut().find(|found| found.id == hold)?;
    if unasked == Unasked::Allow && !must_ask {
        close_hold(hold, HoldState::Released, None);
        return Some(Draft::new(EventName::HoldReleased).call(id).hold(hold.id).flag("unattended", true));
    }
    close_hold(hold, HoldState::Cancelled, Some(Refusal::new(RefusalKind::NoApprover)));
    Some(Draft::new(EventName::HoldCancelled).call(id).hold(hold.id).plain("kind", "no_approver"))
}

fn finish(call: &mut Call, fence: u64, outcome: &Outcome, now: Time) -> Result<Moved, Rejection> {
    current(call, fence)?;
    match call.state {
        CallState::Executing => {}
        CallState::InDoubt => return Ok(settle_late(call, outcome, now)),
        _ if call.outcome.as_ref() == Some(outcome) => return Ok(Moved::default()),
        state => return Err(Rejection::WrongState(state)),
    }
    let refused_inside = call.holds.iter().any(|hold| {
        let harmless = [HoldState::Pending, HoldState::Approved, HoldState::Released, HoldState::Superseded];
        hold.in_run() && !harmless.contains(&hold.state)
    });
    let ended = Refusal::new(RefusalKind::Cancelled).because("the tool ended without waiting");
    let mut drafts = cancel_holds(call, &ended);
    call.outcome = Some(outcome.clone());
    let draft = |name| Draft::new(name).call(call.id).number("fence", fence as i64);
    match outcome {
        Outcome::Succeeded { .. } if refused_inside || !drafts.is_empty() => {
            let warning = "the tool went on after its question was refused or left open";
            drafts.extend(doubt(call, warning));
        }
        Outcome::Succeeded { output } => {
            drafts.push(draft(EventName::CallSucceeded).number("bytes", output.as_str().len() as i64));
            call.state = CallState::Succeeded;
        }
        Outcome::Failed { error, refusal } => {
            let kind = refusal.as_ref().map(|refusal| refusal.kind.as_str());
            drafts.push(draft(EventName::CallFailed).text("error", error).text_if("refusal", kind));
            call.state = CallState::Failed;
            call.refusal.clone_from(refusal);
        }
        Outcome::MayHaveApplied { why } if call.repeat.may_run_again() => {
            drafts.push(draft(EventName::CallFailed).text("error", why));
            call.state = CallState::Failed;
        }
        Outcome::MayHaveApplied { why } => drafts.extend(doubt(call, why)),
    }
    Ok(Moved { drafts, grant: None })
}

/// A late answer of the current attempt is evidence, and settles the doubt. Silence settles nothing.
fn settle_late(call: &mut Call, outcome: &Outcome, now: Time) -> Moved {
    let r#as = match outcome {
        Outcome::Succeeded { .. } => ResolvedAs::Applied,
        Outcome::Failed { .. } => ResolvedAs::NotApplied,
        Outcome::MayHaveApplied { .. } => return Moved::default(),
    };
    call.outcome = Some(outcome.clone());
    let reason = "the tool answered late".into();
    Moved::one(settle_doubt(call, Resolution { r#as, reason, by: "late-result".into(), at: now }))
}

fn settle_doubt(call: &mut Call, resolution: Resolution) -> Draft {
    let word = match resolution.r#as {
        ResolvedAs::Applied => "applied",
        ResolvedAs::NotApplied => "not_applied",
        ResolvedAs::Abandoned => "abandoned",
    };
    let draft = Draft::new(EventName::CallResolved)
        .call(call.id)
        .plain("as", word)
        .text("reason", &resolution.reason)
        .text("by", &resolution.by);
    call.state = CallState::Resolved;
    call.resolution = Some(resolution);
    draft
}

fn resolve(call: &mut Call, resolution: &Resolution) -> Result<Moved, Rejection> {
    match call.state {
        CallState::InDoubt => Ok(Moved::one(settle_doubt(call, resolution.clone()))),
        state => Err(Rejection::WrongState(state)),
    }
}

#[cfg(test)]
mod tests;
