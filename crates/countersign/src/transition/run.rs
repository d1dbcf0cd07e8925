//! Steps that executors take: claim, renew, ask, finish; and the end of a doubt.

use std::sync::Arc;

use super::{
    Asking, Claiming, Moved, Rejection, Unasked, cancel_holds, close_hold, doubt, expiry, hold_at, hold_mut,
    holds_where, lapse, opened,
};
use crate::call::{Call, CallState, Lease, Outcome, Resolution, ResolvedAs};
use crate::digest::{Bound, Nonce};
use crate::event::{Draft, EventName};
use crate::hold::{HoldKind, HoldRow, HoldState, Who, WhoKind};
use crate::id::HoldId;
use crate::refusal::{Refusal, RefusalKind};
use crate::time::Time;
use crate::verdict::{Because, Effect, Memory, Terms};

/// What the attempt before asked, nobody waits for any more: the next attempt asks for itself.
fn supersede_holds(call: &mut Call) -> Vec<Draft> {
    let id = call.id;
    let superseded = holds_where(call, HoldRow::is_pending).map(|hold| {
        let refusal = Refusal::new(RefusalKind::Superseded).because("another attempt began");
        close_hold(hold, HoldState::Superseded, Some(refusal));
        Draft::new(EventName::HoldSuperseded).call(id).hold(hold.id)
    });
    superseded.collect()
}

pub(super) fn claim(call: &mut Call, claiming: &Claiming<'_>, now: Time) -> Result<Moved, Rejection> {
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
    }
    let asked = verdict.effect == Effect::Ask;
    if asked && verdict.terms.human_required && !approved_by(call, |who| who.kind == WhoKind::Person) {
        return Err(Refusal::new(RefusalKind::Lapsed).because("the policy now wants a person to be asked about it"));
    }
    // The first attempt or a later one: what let it run must still be enough.
    if asked && call.grant.is_none() && !call.unattended && !approved_by(call, |_| true) {
        return Err(Refusal::new(RefusalKind::Lapsed).because("the policy now asks about it"));
    }
    Ok(())
}

/// Whether the call waited before it ran, and one of these approved it.
fn approved_by(call: &Call, counts: impl Fn(&Who) -> bool) -> bool {
    let approved = |hold: &&HoldRow| !hold.in_run() && hold.state == HoldState::Approved;
    call.holds.iter().filter(approved).flat_map(|hold| &hold.decisions).any(|decision| counts(&decision.by))
}

fn current(call: &Call, fence: u64) -> Result<(), Rejection> {
    let current = call.lease.as_ref().map_or(0, |lease| lease.fence);
    if current == fence { Ok(()) } else { Err(Rejection::StaleFence { found: fence, current }) }
}

pub(super) fn renew(call: &mut Call, fence: u64, until: Time) -> Result<Moved, Rejection> {
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

pub(super) fn ask(call: &mut Call, asking: &Asking, full: Option<&str>, now: Time) -> Result<Moved, Rejection> {
    if call.state != CallState::Executing {
        return Err(Rejection::WrongState(call.state));
    }
    current(call, asking.fence)?;
    if call.holds.iter().any(|hold| hold.id == asking.hold) {
        // The same question again, by an executor that did not hear that it was asked.
        return Ok(Moved::default());
    }
    let most = asking.limits.holds_per_call;
    if call.holds.len() >= most {
        return Err(Rejection::Limit { what: "holds in one call", limit: most as u64 });
    }
    let terms = Terms { remember: Memory::None, ..(*call.verdict.terms).clone() };
    let expires_at = expiry(&terms, now);
    let nonce = Nonce::new();
    let digest = Bound {
        arguments: &call.argument_digest,
        call: call.id,
        hold: Some(asking.hold),
        path: &call.facts.path,
        places: &call.facts.places,
        policy: &call.verdict.policy,
        expires_at,
        payload: asking.payload.as_ref(),
        hint: asking.hint.as_deref(),
        nonce,
    }
    .digest();
    let because = Because { rule: "in-run".into(), effect: Effect::Ask, reason: None };
    Arc::make_mut(&mut call.holds).push(HoldRow {
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
    drafts.extend(match (asking.unattended, full) {
        (Some(unasked), _) => close_unasked(call, asking.hold, unasked),
        (None, Some(text)) => close_refused(call, asking.hold, Refusal::new(RefusalKind::Limit).because(text)),
        (None, None) => None,
    });
    Ok(Moved { drafts, grant: None })
}

/// Closes a hold that just opened, before anybody is asked.
fn close_refused(call: &mut Call, hold: HoldId, refusal: Refusal) -> Option<Draft> {
    let id = call.id;
    let hold = hold_mut(call, hold)?;
    let draft = Draft::new(EventName::HoldCancelled).call(id).hold(hold.id).plain("kind", refusal.kind.as_str());
    close_hold(hold, HoldState::Cancelled, Some(refusal));
    Some(draft)
}

fn close_unasked(call: &mut Call, asked: HoldId, unasked: Unasked) -> Option<Draft> {
    let id = call.id;
    let must_ask = call.verdict.terms.human_required;
    let hold = hold_mut(call, asked)?;
    if unasked == Unasked::Allow && !must_ask {
        close_hold(hold, HoldState::Released, None);
        return Some(Draft::new(EventName::HoldReleased).call(id).hold(hold.id).flag("unattended", true));
    }
    close_refused(call, asked, Refusal::new(RefusalKind::NoApprover))
}

pub(super) fn finish(call: &mut Call, fence: u64, outcome: &Outcome, now: Time) -> Result<Moved, Rejection> {
    current(call, fence)?;
    let refused_inside = refused_inside(call);
    match call.state {
        CallState::Executing => {}
        // An executor that did not hear that we know reports again; a doubt is not settled by its own cause.
        _ if call.outcome.as_ref() == Some(outcome) => return Ok(Moved::default()),
        // SECURITY: whoever went on after a no does not get to say afterwards that all is well.
        CallState::InDoubt if !refused_inside => return Ok(settle_late(call, outcome, now)),
        state => return Err(Rejection::WrongState(state)),
    }
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

/// Whether the running tool asked and was not told yes: a no, an expiry, a question nobody could be asked.
fn refused_inside(call: &Call) -> bool {
    let harmless = [HoldState::Pending, HoldState::Approved, HoldState::Released, HoldState::Superseded];
    call.holds.iter().any(|hold| hold.in_run() && !harmless.contains(&hold.state))
}

/// A late answer of the current attempt is evidence, and settles the doubt. Silence settles nothing.
fn settle_late(call: &mut Call, outcome: &Outcome, now: Time) -> Moved {
    let r#as = match outcome {
        Outcome::Succeeded { .. } => ResolvedAs::Applied,
        Outcome::Failed { .. } => ResolvedAs::Failed,
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
        ResolvedAs::Failed => "failed",
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

pub(super) fn resolve(call: &mut Call, resolution: &Resolution) -> Result<Moved, Rejection> {
    match call.state {
        CallState::InDoubt => Ok(Moved::one(settle_doubt(call, resolution.clone()))),
        state => Err(Rejection::WrongState(state)),
    }
}
