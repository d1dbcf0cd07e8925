//! Steps that people take: decisions, what they approve, and what a grant releases.

use std::sync::Arc;

use super::{Deciding, Edit, Moved, Rejection, close_hold, doubtful, hold_at, hold_mut, open_hold, refused};
use crate::call::{Call, CallState};
use crate::digest::Nonce;
use crate::event::{Draft, EventName};
use crate::grant::{Grant, GrantError};
use crate::hold::{Answer, Decision, HoldRow, HoldState, WhoKind};
use crate::id::HoldId;
use crate::json::Json;
use crate::kept::Keep;
use crate::limits;
use crate::place::Places;
use crate::refusal::{Refusal, RefusalKind};
use crate::time::Time;
use crate::verdict::{Effect, Terms};

pub(super) fn decide(call: &mut Call, deciding: &Deciding, now: Time) -> Result<Moved, Rejection> {
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
fn open_at(hold: &HoldRow, now: Time) -> Result<(), Rejection> {
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
    let asked_by = hold_at(call, deciding.hold).into_iter().flat_map(|hold| hold.because.iter());
    Draft::new(EventName::HoldDecided)
        .call(call.id)
        .hold(deciding.hold)
        .list("rules", asked_by.map(|because| &because.rule))
        .plain("answer", decision.answer.as_str())
        .text("by", &decision.by.id)
        .plain("by_kind", kind)
        .text("channel", &decision.channel)
        .plain("digest", decision.digest)
        .flag("closes", closes)
}

fn record(call: &mut Call, deciding: &Deciding, counts_for: Vec<usize>, state: HoldState, now: Time) {
    if let Some(hold) = hold_mut(call, deciding.hold) {
        hold.decisions.reserve_exact(1);
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
    let in_run = match hold_mut(call, deciding.hold) {
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
    let answered = Draft::new(EventName::CallAnswered)
        .call(call.id)
        .text("by", &deciding.decision.by.id)
        .json_if("response", deciding.shown(Some(response)));
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
    let mut drafts = vec![decided(call, deciding, closes).json_if("payload", deciding.shown(payload.as_ref()))];
    if closes {
        settle(call, deciding.hold, in_run, now);
    }
    drafts.extend(grant.as_ref().map(|grant| made(grant, deciding.keep)));
    Ok(Moved { drafts, grant: grant.map(Box::new) })
}

fn settle(call: &mut Call, hold: HoldId, in_run: bool, now: Time) {
    if let Some(hold) = hold_mut(call, hold) {
        hold.state = HoldState::Approved;
    }
    if !in_run {
        call.state = CallState::Approved;
        call.claim_by = Some(now.after(limits::CLAIM_WITHIN));
    }
}

/// The event of a grant that a decision makes.
fn made(grant: &Grant, keep: Keep) -> Draft {
    match keep {
        Keep::Stored => grant_made(grant),
        Keep::InMind => grant_made(grant).plain("kept", "memory"),
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

impl Edit {
    /// The call as it would be with the edited arguments, whatever becomes of its holds.
    pub(crate) fn applied_to(&self, call: &Call) -> Call {
        let mut edited = call.clone();
        let facts = Arc::make_mut(&mut edited.facts);
        facts.arguments = self.arguments.clone();
        facts.declared = self.declared;
        // Nobody resolved where the edited arguments point.
        facts.places = Places::default();
        edited.redacted = self.redacted.clone();
        edited.raw = None;
        edited.proposed_digest = Some(call.proposed_digest.unwrap_or(call.argument_digest));
        edited.argument_digest = self.argument_digest;
        edited.verdict = match self.doubt {
            Some(earlier) => Arc::new(doubtful(&self.verdict, earlier)),
            None => Arc::clone(&self.verdict),
        };
        edited.nonce = Nonce::new();
        edited.grant = None;
        edited
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
        // Whoever edits into something that may already have happened has not been told so.
        Effect::Allow | Effect::Ask if edit.doubt.is_some() => false,
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
    let edited = edit.applied_to(call);
    // A decision is taken whole or not at all, its memory included.
    let grant = match remember {
        Some(remember) => Some(Grant::asked_for(remember, &edited, deciding.hold, deciding.decision.by.clone(), now)?),
        None => None,
    };
    if grant.is_some() && !met {
        return Err(GrantError::AskedAnew.into());
    }
    let before = call.shown_arguments().clone();
    *call = edited;
    let draft = decided(call, deciding, true).json_if("payload", deciding.shown(payload.as_ref()));
    let draft = draft.json("before", &before).json("after", call.shown_arguments());
    if met {
        record(call, deciding, counts, HoldState::Approved, now);
        settle(call, deciding.hold, false, now);
        call.digest = call.compute_digest();
        let mut drafts = vec![draft.plain("runs", call.digest)];
        drafts.extend(grant.as_ref().map(|grant| made(grant, deciding.keep)));
        return Ok(Moved { drafts, grant: grant.map(Box::new) });
    }
    record(call, deciding, counts, HoldState::Superseded, now);
    let superseded = Draft::new(EventName::HoldSuperseded).call(call.id).hold(deciding.hold);
    let opened = open_hold(call, None, None, now);
    Ok(Moved { drafts: vec![draft, superseded, opened], grant: None })
}

pub(super) fn release(call: &mut Call, hold: HoldId, grant: &Grant, now: Time) -> Result<Moved, Rejection> {
    let open = hold_at(call, hold).ok_or(Rejection::NotFound("hold"))?;
    open_at(open, now)?;
    let maker = Deciding::new(hold, Decision::new(grant.made_by.clone(), "grant", open.digest, Answer::approve()));
    let simple = open.terms.quorums.iter().all(|quorum| quorum.approvals <= 1);
    let covered = grant.covers(&call.facts, call.definition.as_ref(), &call.argument_digest, &call.verdict, now);
    let may_decide = counts_for(&open.terms, call, &maker).is_ok();
    if open.in_run() || !simple || !covered || !may_decide || !open.decisions.is_empty() {
        return Err(Rejection::NotCovered);
    }
    if let Some(open) = hold_mut(call, hold) {
        open.state = HoldState::Released;
    }
    call.grant = Some(grant.id);
    call.state = CallState::Approved;
    call.claim_by = Some(now.after(limits::CLAIM_WITHIN));
    Ok(Moved::one(Draft::new(EventName::HoldReleased).call(call.id).hold(hold).plain("grant", grant.id)))
}

pub(super) fn close(call: &mut Call, hold: HoldId, refusal: &Refusal) -> Result<Moved, Rejection> {
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
    if let Some(open) = hold_mut(call, hold) {
        close_hold(open, HoldState::Cancelled, Some(refusal.clone()));
    }
    if !in_run {
        drafts.push(refused(call, refusal));
        call.state = CallState::Cancelled;
        call.refusal = Some(refusal.clone());
    }
    Ok(Moved { drafts, grant: None })
}
