//! Calls of a server as the core knows them.

use std::sync::Arc;

use countersign::call::{Call, CallState, Facts, Lease, Path, Resolution, ToolId};
use countersign::digest::{ArgumentDigest, CallDigest, Nonce, argument_digest};
use countersign::hold::{Answer, Decision, HoldKind, HoldRow, HoldState, Who};
use countersign::place::Places;
use countersign::verdict::{Effect, Terms, Verdict};
use countersign::{GateError, Json, Time};
use jiff::Timestamp;

use crate::wire;

fn time(timestamp: Timestamp) -> Time {
    Time(timestamp.as_microsecond())
}

fn shared(text: Option<String>) -> Option<Arc<str>> {
    text.map(Arc::from)
}

/// A call as its server shows it: arguments masked where they are masked there. Nothing can be run by it.
pub(super) fn shown(call: wire::Call) -> Call {
    let verdict = Verdict {
        effect: call.verdict.effect,
        matched: call.verdict.matched.into(),
        policy: call.verdict.policy.into(),
        ..unknown_verdict()
    };
    let holds = call.holds.into_iter().map(|hold| held(hold, &verdict, call.response.as_ref())).collect();
    let path = Path {
        principal: call.principal.into(),
        requester: shared(call.requester),
        session: shared(call.session),
        run: shared(call.run),
        thread: shared(call.thread),
        agents: call.agent.into_iter().map(Arc::from).collect(),
    };
    let tool = ToolId { server: shared(call.server), name: call.tool.into() };
    Call {
        key: shared(call.key),
        label: shared(call.label),
        definition: call.definition,
        redacted: call.masked.then(|| call.arguments.clone()),
        repeat: call.repeat,
        argument_digest: argument_digest(&tool, call.definition.as_ref(), &call.arguments),
        // What it was before an edit is not told; that it was something else is.
        proposed_digest: call.edited.then(|| ArgumentDigest::from_bytes([0; 32])),
        digest: call.digest,
        verdict: Arc::new(verdict),
        state: call.state,
        holds: Arc::new(holds),
        grant: call.grant,
        claim_by: call.claim_by.map(time),
        lease: call.lease.map(|lease| Lease {
            owner: "".into(),
            fence: lease.fence,
            attempt: lease.attempt,
            until: time(lease.until),
        }),
        outcome: call.outcome,
        response: call.response,
        resolution: call.resolution.map(|resolution| Resolution {
            r#as: resolution.r#as,
            reason: resolution.reason,
            by: resolution.by.into(),
            at: time(resolution.at),
        }),
        refusal: call.refusal,
        updated_at: time(call.updated_at),
        version: call.version,
        ..bare(call.id, tool, call.arguments, path, call.digest, time(call.created_at))
    }
}

/// A call that was claimed, with everything its digest covers as the server says it. The gate computes it anew.
pub(super) fn claimed(claimed: wire::Claimed, owner: &str) -> Result<Call, GateError> {
    let bound = claimed.bound;
    let nonce = u128::from_str_radix(&bound.nonce, 16)
        .map_err(|_| GateError::Refused("it handed over a call without a nonce".to_owned()))?;
    let path = Path {
        principal: bound.principal.into(),
        requester: shared(bound.requester),
        session: shared(bound.session),
        run: shared(bound.run),
        thread: shared(bound.thread),
        agents: bound.agent.into_iter().map(Arc::from).collect(),
    };
    let tool = ToolId { server: shared(bound.server), name: bound.tool.into() };
    let effect = if bound.hold.is_some() { Effect::Ask } else { Effect::Allow };
    let verdict = Verdict { effect, policy: bound.policy.into(), ..unknown_verdict() };
    let at = time(claimed.claimed_at);
    let decision = claimed.decision.map(|decision| decided(decision, claimed.digest, claimed.payload, None));
    // SECURITY: whatever is not plainly to run does not run.
    if claimed.state != CallState::Executing {
        return Err(GateError::Refused(format!("it handed over a call that is {}", claimed.state)));
    }
    if decision.as_ref().is_some_and(|decision| !matches!(decision.answer, Answer::Approve { .. })) {
        return Err(GateError::Refused("it handed over a call whose last answer is no yes".to_owned()));
    }
    let holds = bound.hold.map(|hold| HoldRow {
        id: hold.id,
        kind: HoldKind::BeforeRun,
        state: if decision.is_some() { HoldState::Approved } else { HoldState::Released },
        digest: claimed.digest,
        nonce: Nonce(nonce),
        hint: shared(hold.hint),
        payload: hold.payload,
        terms: Arc::clone(&verdict.terms),
        because: Arc::from([]),
        opened_at: at,
        expires_at: hold.expires_at_us.map(Time),
        decisions: decision.into_iter().collect(),
        refusal: None,
    });
    let mut call = Call {
        definition: bound.definition,
        argument_digest: argument_digest(&tool, bound.definition.as_ref(), &claimed.arguments),
        nonce: Nonce(nonce),
        verdict: Arc::new(verdict),
        state: CallState::Executing,
        holds: Arc::new(holds.into_iter().collect()),
        lease: Some(Lease {
            owner: owner.into(),
            fence: claimed.fence,
            attempt: claimed.attempt,
            until: time(claimed.lease_until),
        }),
        ..bare(claimed.call, tool, claimed.arguments, path, claimed.digest, at)
    };
    Arc::make_mut(&mut call.facts).places = bound.places;
    Ok(call)
}

/// A call of which nothing more is known.
fn bare(id: countersign::CallId, tool: ToolId, arguments: Json, path: Path, digest: CallDigest, at: Time) -> Call {
    let digest_of_arguments = argument_digest(&tool, None, &arguments);
    let facts = Facts {
        tool,
        toolset: None,
        arguments,
        path,
        declared: countersign::call::Declared::Nothing,
        annotations: None,
        places: Places::default(),
        at,
    };
    Call {
        id,
        key: None,
        label: None,
        facts: Arc::new(facts),
        description: None,
        definition: None,
        redacted: None,
        raw: None,
        repeat: countersign::call::Repeat::default(),
        argument_digest: digest_of_arguments,
        proposed_digest: None,
        digest,
        nonce: Nonce(0),
        verdict: Arc::new(unknown_verdict()),
        state: CallState::InDoubt,
        holds: Arc::default(),
        grant: None,
        unattended: false,
        claim_by: None,
        lease: None,
        outcome: None,
        response: None,
        resolution: None,
        refusal: None,
        created_at: at,
        updated_at: at,
        version: 0,
    }
}

fn unknown_verdict() -> Verdict {
    Verdict {
        effect: Effect::Deny,
        matched: Arc::default(),
        terms: Arc::default(),
        hidden: false,
        inside_own: false,
        policy: "".into(),
    }
}

fn held(hold: wire::HoldBrief, verdict: &Verdict, response: Option<&Json>) -> HoldRow {
    let (digest, payload) = (hold.digest, hold.payload);
    let decided = |decision| decided(decision, digest, payload.clone(), response);
    HoldRow {
        id: hold.id,
        kind: if hold.in_run { HoldKind::InRun } else { HoldKind::BeforeRun },
        state: hold.state,
        digest,
        nonce: Nonce(0),
        hint: None,
        payload: None,
        terms: Arc::new(Terms { on_expired: hold.on_expired, ..Terms::default() }),
        because: verdict.because().into(),
        opened_at: time(hold.opened_at),
        expires_at: hold.expires_at.map(time),
        decisions: hold.decisions.into_iter().map(decided).collect(),
        refusal: hold.refusal,
    }
}

fn decided(decision: wire::Decision, digest: CallDigest, payload: Option<Json>, response: Option<&Json>) -> Decision {
    let answer = match decision.answer.as_str() {
        "approve" => Answer::Approve { arguments: None, payload, remember: None },
        "respond" => Answer::Respond { response: response.cloned().unwrap_or_else(Json::empty) },
        // Whatever else a newer server says, it is no yes.
        _ => Answer::Deny { reason: decision.reason },
    };
    let by = Who { id: decision.by.into(), kind: decision.kind };
    let mut told = Decision::new(by, decision.channel, digest, answer);
    told.at = time(decision.at);
    told
}
