//! Runs one operation on a store's state: the part every store shares.

use std::borrow::Cow;
use std::sync::Arc;

use crate::call::{Call, CallState, Chain};
use crate::event::{Draft, EventName};
use crate::grant::Grant;
use crate::id::CallId;
use crate::kept::Keep;
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{Applied, Claimant, Failure, Halted, MovedHeads, NewCall, Op, State, StoreError, Submission};
use crate::transition::{
    self, Claiming, Deciding, Edit, Rejection, Step, Unasked, about, doubtful, grant_made, open_hold,
};
use crate::verdict::{Effect, Verdict};

/// Runs one operation. Whatever was written to `state` is to be committed, also when the answer is a rejection; after
/// a [`StoreError`] nothing may be committed.
pub fn apply(op: &Op, state: &mut dyn State) -> Result<Applied, Failure> {
    match op {
        Op::Submit(submission) => submit(submission, state),
        Op::Decide(deciding) => {
            let call = state.call_of_hold(deciding.hold)?.ok_or(Rejection::NotFound("hold"))?;
            let deciding = judged(deciding, &call, state)?;
            advance(state, call, &Step::Decide(&deciding))
        }
        Op::Release { hold, grant } => {
            let grant = state.grant(*grant)?.ok_or(Rejection::NotFound("grant"))?;
            let call = state.call_of_hold(*hold)?.ok_or(Rejection::NotFound("hold"))?;
            advance(state, call, &Step::Release { hold: *hold, grant: &grant })
        }
        Op::Close { hold, refusal } => {
            let call = state.call_of_hold(*hold)?.ok_or(Rejection::NotFound("hold"))?;
            advance(state, call, &Step::Close { hold: *hold, refusal })
        }
        Op::Cancel { call, refusal } => with_call(state, *call, &Step::Cancel { refusal }),
        Op::Claim { call, claimant, policy } => {
            current_policy(state, policy.own_version())?;
            let call = state.call(*call)?.ok_or(Rejection::NotFound("call"))?;
            let changed = call.verdict.policy != *policy.version();
            let verdict = changed.then(|| policy.judge(&call.facts));
            claim(state, call, claimant, verdict)
        }
        Op::Renew { call, fence, lease } => with_call(state, *call, &Step::Renew { fence: *fence, lease: *lease }),
        Op::Ask { call, asking } => {
            let call = state.call(*call)?.ok_or(Rejection::NotFound("call"))?;
            let full = state.pending(&call.facts.path)?.beyond(&asking.limits);
            advance(state, call, &Step::Ask { asking, full })
        }
        Op::Finish { call, fence, outcome } => with_call(state, *call, &Step::Finish { fence: *fence, outcome }),
        Op::Resolve { call, resolution } => {
            let mut resolution = resolution.clone();
            resolution.at = state.now();
            with_call(state, *call, &Step::Resolve { resolution: &resolution })
        }
        Op::Tick { call } => with_call(state, *call, &Step::Tick),
        Op::Halt { agent, by, reason } => halt(state, agent.as_deref(), by, reason.as_deref()),
        Op::Lift { agent, by } => lift(state, agent.as_deref(), by),
        Op::Grant(grant) => make_grant(state, grant),
        Op::Revoke { grant, by } => revoke(state, *grant, &by.id),
        Op::Note { chain, draft } => {
            state.append(chain, draft.clone())?;
            Ok(Applied::default())
        }
        Op::Beside { grants, op } => apply(op, &mut grants.over(state)),
        Op::Checkpoint { signer } => checkpoint(state, signer),
        Op::OfferPolicy { .. } if state.policy_version()?.is_some() => {
            Ok(Applied { replayed: true, ..Applied::default() })
        }
        Op::OfferPolicy { version, source, by } | Op::SetPolicy { version, source, by } => {
            set_policy(state, version, source, by)
        }
    }
}

fn with_call(state: &mut dyn State, id: CallId, step: &Step<'_>) -> Result<Applied, Failure> {
    let call = state.call(id)?.ok_or(Rejection::NotFound("call"))?;
    advance(state, call, step)
}

/// Lets time pass for the call, then takes the step; writes state and events together.
fn advance(state: &mut dyn State, before: Arc<Call>, step: &Step<'_>) -> Result<Applied, Failure> {
    let now = state.now();
    let mut call = Call::clone(&before);
    let ticked = transition::step(&mut call, &Step::Tick, now)?;
    let mut drafts = ticked.drafts;
    let stepped = match step {
        Step::Tick => Ok(transition::Moved::default()),
        Step::Decide(_)
        | Step::Release { .. }
        | Step::Close { .. }
        | Step::Cancel { .. }
        | Step::Claim(_)
        | Step::Renew { .. }
        | Step::Ask { .. }
        | Step::Finish { .. }
        | Step::Resolve { .. } => transition::step(&mut call, step, now),
    };
    let (moved, rejection) = match stepped {
        Ok(moved) => (moved, None),
        Err(rejection) => (transition::Moved::default(), Some(rejection)),
    };
    let repeats = moved.drafts.is_empty();
    drafts.extend(moved.drafts);
    // What is kept in mind alone is kept by whoever asked for it, once all this is durable.
    let stored = !matches!(step, Step::Decide(deciding) if deciding.keep == Keep::InMind);
    if let Some(grant) = moved.grant.as_ref().filter(|_| stored) {
        state.put_grant(grant)?;
    }
    // What has an event has changed; what has none, such as a longer lease, may have.
    let unchanged = drafts.is_empty() && call == *before;
    let replayed = rejection.is_none() && repeats && unchanged;
    let call = if unchanged { before } else { write(state, call, &before, drafts)? };
    match rejection {
        Some(rejection) => Err(rejection.into()),
        None => Ok(Applied { call: Some(call), grant: moved.grant, replayed }),
    }
}

fn write(state: &mut dyn State, mut call: Call, before: &Call, drafts: Vec<Draft>) -> Result<Arc<Call>, StoreError> {
    call.version = before.version + 1;
    call.updated_at = state.now();
    let call = Arc::new(call);
    let chain = call.facts.path.chain();
    state.put_call(&chain, Arc::clone(&call), Some(before))?;
    for draft in drafts {
        state.append(&chain, draft)?;
    }
    Ok(call)
}

fn current_policy(state: &mut dyn State, version: &Arc<str>) -> Result<(), Failure> {
    match state.policy_version()? {
        Some(current) if current != *version => Err(Rejection::StalePolicy.into()),
        _ => Ok(()),
    }
}

/// SECURITY: an edit is held against what is true where it is written: the policy in force, and doubts about its bytes.
fn judged<'a>(deciding: &'a Deciding, call: &Call, state: &mut dyn State) -> Result<Cow<'a, Deciding>, Failure> {
    let Some(edit) = &deciding.edit else { return Ok(Cow::Borrowed(deciding)) };
    current_policy(state, &edit.policy)?;
    let doubt = match call.repeat.may_run_again() {
        true => None,
        false => state.doubt(&call.facts.path, &edit.argument_digest)?,
    };
    let edit = Some(Edit { doubt, ..edit.clone() });
    Ok(Cow::Owned(Deciding { edit, ..deciding.clone() }))
}

fn claim(
    state: &mut dyn State,
    call: Arc<Call>,
    claimant: &Claimant,
    verdict: Option<Verdict>,
) -> Result<Applied, Failure> {
    let mut grant = match call.grant {
        Some(id) => state.grant(id)?,
        None => None,
    };
    let halted = state.halted(&call.facts.path)?;
    let first_attempt = call.lease.is_none();
    let claiming = Claiming {
        owner: Arc::clone(&claimant.owner),
        definition: claimant.definition,
        verdict,
        grant: grant.as_ref(),
        halted,
        lease: claimant.lease,
        attempts: claimant.attempts,
    };
    let applied = advance(state, call, &Step::Claim(&claiming))?;
    let executing = applied.call.as_ref().is_some_and(|call| call.state == CallState::Executing);
    if let Some(grant) = &mut grant
        && let Some(uses) = &mut grant.uses_left
        && executing
        && first_attempt
    {
        *uses = uses.saturating_sub(1);
        grant.version += 1;
        state.put_grant(grant)?;
    }
    Ok(applied)
}

fn submit(submission: &Submission, state: &mut dyn State) -> Result<Applied, Failure> {
    let new = &submission.call;
    if let Some(key) = &new.key
        && let Some(earlier) = state.call_by_key(&new.facts.path, key)?
    {
        // An approver's edit changes what runs, not what the agent asked for under this key.
        if earlier.proposed_digest.unwrap_or(earlier.argument_digest) != new.argument_digest {
            return Err(Rejection::KeyReused.into());
        }
        return Ok(Applied { call: Some(earlier), grant: None, replayed: true });
    }
    current_policy(state, submission.policy.own_version())?;
    let mut call = proposed(new, state.now());
    let chain = call.facts.path.chain();
    let settled = settle_new(submission, &mut call, state)?;
    if call.holds.is_empty() {
        // A hold that opened has bound the call already, with its own id and expiry.
        call.digest = call.compute_digest();
    }
    let call = Arc::new(call);
    // First the call: an id that is taken fails here, before anything is said of it.
    state.put_call(&chain, Arc::clone(&call), None)?;
    state.append(&chain, submitted(&call))?;
    state.append(&chain, settled)?;
    match &submission.claim {
        Some(claimant) if call.state == CallState::Allowed => match claim(state, Arc::clone(&call), claimant, None) {
            // The call is allowed all the same; only its claim must wait.
            Err(Failure::Rejected(_)) => Ok(Applied { call: Some(call), ..Applied::default() }),
            claimed => claimed,
        },
        _ => Ok(Applied { call: Some(call), ..Applied::default() }),
    }
}

fn proposed(new: &NewCall, now: crate::Time) -> Call {
    Call {
        id: new.id,
        key: new.key.clone(),
        label: new.label.clone(),
        facts: Arc::clone(&new.facts),
        description: new.description.clone(),
        definition: new.definition,
        redacted: new.redacted.clone(),
        raw: new.raw.clone(),
        repeat: new.repeat,
        argument_digest: new.argument_digest,
        proposed_digest: None,
        digest: crate::digest::CallDigest::from_bytes([0; 32]),
        nonce: new.nonce,
        verdict: Arc::clone(&new.verdict),
        state: CallState::Denied,
        holds: Arc::default(),
        grant: None,
        unattended: false,
        claim_by: None,
        lease: None,
        outcome: None,
        response: None,
        resolution: None,
        refusal: None,
        created_at: now,
        updated_at: now,
        version: 1,
    }
}

fn submitted(call: &Call) -> Draft {
    let path = &call.facts.path;
    let draft = Draft::new(EventName::CallSubmitted)
        .call(call.id)
        .text("tool", &call.facts.tool.name)
        .text_if("server", call.facts.tool.server.as_deref())
        .text("principal", &path.principal)
        .text_if("session", path.session.as_deref())
        .text_if("run", path.run.as_deref())
        .text_if("thread", path.thread.as_deref())
        .text_if("label", call.label.as_deref())
        .json("arguments", call.shown_arguments())
        .plain("digest", call.digest)
        .text("policy", &call.verdict.policy);
    let draft = if path.agents.is_empty() { draft } else { draft.list("agents", path.agents.iter()) };
    if call.facts.places.is_empty() { draft } else { draft.places("places", &call.facts.places) }
}

/// Gives a new call its first state, and the event that says so.
fn settle_new(submission: &Submission, call: &mut Call, state: &mut dyn State) -> Result<Draft, StoreError> {
    let new = &submission.call;
    if let Some(refusal) = &new.refusal {
        return Ok(refuse(call, refusal.clone()));
    }
    raise_for_doubt(call, state)?;
    match call.verdict.effect {
        Effect::Deny => {
            let mut refusal = Refusal::new(RefusalKind::DeniedByRule).by(call.verdict.rules().join(", "));
            refusal.reason = call.verdict.reason().map(str::to_owned);
            Ok(refuse(call, refusal))
        }
        Effect::Allow => Ok(allow(call, None, state)),
        Effect::Ask => ask(submission, call, state),
    }
}

fn raise_for_doubt(call: &mut Call, state: &mut dyn State) -> Result<(), StoreError> {
    if call.verdict.effect == Effect::Deny || call.repeat.may_run_again() {
        return Ok(());
    }
    if let Some(earlier) = state.doubt(&call.facts.path, &call.argument_digest)? {
        call.verdict = Arc::new(doubtful(&call.verdict, earlier));
    }
    Ok(())
}

fn ask(submission: &Submission, call: &mut Call, state: &mut dyn State) -> Result<Draft, StoreError> {
    if let Some(refusal) = state.denial(&call.facts.path, &call.argument_digest)? {
        return Ok(refuse(call, refusal));
    }
    let now = state.now();
    let grants = state.grants_for(&call.facts.path, &call.facts.tool, &call.argument_digest)?;
    let covers =
        |grant: &&Grant| grant.covers(&call.facts, call.definition.as_ref(), &call.argument_digest, &call.verdict, now);
    if let Some(grant) = grants.iter().find(covers) {
        return Ok(allow(call, Some(grant), state));
    }
    match submission.unasked {
        Some(Unasked::Allow) if !call.verdict.terms.human_required => {
            call.unattended = true;
            return Ok(allow(call, None, state).flag("unattended", true));
        }
        Some(Unasked::Allow | Unasked::Deny) => return Ok(refuse(call, Refusal::new(RefusalKind::NoApprover))),
        None => {}
    }
    if let Some(text) = state.pending(&call.facts.path)?.beyond(&submission.limits) {
        return Ok(refuse(call, Refusal::new(RefusalKind::Limit).because(text)));
    }
    Ok(open_hold(call, submission.call.hint.clone(), submission.call.payload.clone(), now))
}

fn refuse(call: &mut Call, refusal: Refusal) -> Draft {
    let draft = about(EventName::CallRefused, call, &refusal);
    call.state = CallState::Denied;
    call.refusal = Some(refusal);
    draft
}

fn allow(call: &mut Call, grant: Option<&Grant>, state: &dyn State) -> Draft {
    call.state = CallState::Allowed;
    call.claim_by = Some(state.now().after(limits::CLAIM_WITHIN));
    let draft = Draft::new(EventName::CallAllowed).call(call.id).list("rules", call.verdict.rules());
    match grant {
        Some(grant) => {
            call.grant = Some(grant.id);
            draft.plain("grant", grant.id)
        }
        None => draft,
    }
}

fn halt(state: &mut dyn State, agent: Option<&str>, by: &str, reason: Option<&str>) -> Result<Applied, Failure> {
    if state.halt_is_set(agent)? {
        return Ok(Applied { replayed: true, ..Applied::default() });
    }
    state.put_halt(agent, Halted::Yes)?;
    let draft = Draft::new(EventName::HaltSet).text_if("agent", agent).text("by", by).text_if("reason", reason);
    state.append(&Chain::system(), draft)?;
    Ok(Applied::default())
}

fn lift(state: &mut dyn State, agent: Option<&str>, by: &str) -> Result<Applied, Failure> {
    if !state.halt_is_set(agent)? {
        return Ok(Applied { replayed: true, ..Applied::default() });
    }
    state.put_halt(agent, Halted::No)?;
    state.append(&Chain::system(), Draft::new(EventName::HaltLifted).text_if("agent", agent).text("by", by))?;
    Ok(Applied::default())
}

fn make_grant(state: &mut dyn State, grant: &Grant) -> Result<Applied, Failure> {
    state.put_grant(grant)?;
    state.append(&Chain::system(), grant_made(grant))?;
    Ok(Applied { grant: Some(Box::new(grant.clone())), ..Applied::default() })
}

fn revoke(state: &mut dyn State, id: crate::id::GrantId, by: &Arc<str>) -> Result<Applied, Failure> {
    let mut grant = state.grant(id)?.ok_or(Rejection::NotFound("grant"))?;
    if grant.revoked.is_some() {
        return Ok(Applied { grant: Some(Box::new(grant)), replayed: true, call: None });
    }
    grant.revoked = Some((state.now(), Arc::clone(by)));
    grant.version += 1;
    state.put_grant(&grant)?;
    let draft = Draft::new(EventName::GrantRevoked).plain("grant", grant.id).text("by", by);
    state.append(&Chain::system(), draft)?;
    Ok(Applied { grant: Some(Box::new(grant)), ..Applied::default() })
}

fn checkpoint(state: &mut dyn State, signer: &crate::signer::Signer) -> Result<Applied, Failure> {
    let moved = state.moved_heads()?;
    if moved.heads.is_empty() {
        return Ok(Applied { replayed: true, ..Applied::default() });
    }
    let mut previous = moved.previous;
    for heads in signer.pages(moved.heads) {
        let page = MovedHeads { heads, previous };
        let draft = signer.checkpoint(&page).map_err(|error| StoreError::Failed(error.to_string()))?;
        state.put_checkpoint(&page.heads)?;
        state.append(&Chain::system(), draft)?;
        previous = state.moved_heads()?.previous;
    }
    Ok(Applied::default())
}

fn set_policy(state: &mut dyn State, version: &str, source: &str, by: &str) -> Result<Applied, Failure> {
    if state.policy_version()?.as_deref() == Some(version) {
        return Ok(Applied { replayed: true, ..Applied::default() });
    }
    state.put_policy(version, source)?;
    let draft = Draft::new(EventName::PolicyLoaded).text("policy", version).text("by", by);
    state.append(&Chain::system(), draft)?;
    Ok(Applied::default())
}
