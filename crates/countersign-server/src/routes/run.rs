//! Running a call elsewhere: claimed, renewed, asked from inside, reported.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing;
use countersign::call::{CallState, Outcome};
use countersign::digest::DefinitionDigest;
use countersign::json::Bounds;
use countersign::store::Op;
use countersign::transition::Asking;
use countersign::{Answer as Said, Call, CallId, Claimed, Gate, HoldId, Json as Exact, Permit, limits as core_limits};
use countersign_api::wire::{self, Code, timestamp};
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::auth::{Agent, Principal};
use crate::extract::{Body, Id};
use crate::json::Json;
use crate::problem::{Answer, Refused};
use crate::seen::Origin;
use crate::table::{Route, post};
use crate::trace::{self, SPANS};

/// The fewest bytes of an executor's name: shorter ones are not drawn at random.
const EXECUTOR_LEAST: usize = 16;

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/v1/calls/{id}/claim", Agent::ROLES, routing::post(claim), "Takes a call to run it, once.")
            .takes::<wire::Claim>()
            .answers::<wire::Claimed>("200")
            .refuses(&[
                Code::AlreadyClaimed,
                Code::WrongState,
                Code::Halted,
                Code::DigestMismatch,
                Code::Conflict,
                Code::BrokenPolicy,
            ]),
        post("/v1/calls/{id}/renew", Agent::ROLES, routing::post(renew), "Says that the run goes on.")
            .takes::<wire::Renew>()
            .answers::<wire::Renewed>("200")
            .refuses(&[Code::StaleFence, Code::WrongState, Code::Conflict]),
        post("/v1/calls/{id}/holds", Agent::ROLES, routing::post(ask), "Asks people from inside a run.")
            .takes::<wire::NewHold>()
            .answers::<wire::HoldBrief>("202")
            .refuses(&[Code::StaleFence, Code::WrongState, Code::Halted, Code::Conflict]),
        post("/v1/calls/{id}/outcome", Agent::ROLES, routing::post(report), "Reports how a run ended.")
            .takes::<wire::NewOutcome>()
            .answers::<wire::Call>("200")
            .refuses(&[Code::StaleFence, Code::WrongState, Code::Conflict]),
    ]
}

/// A call the caller may see. Absent and foreign are the same to an agent.
pub(super) async fn own(app: &App, caller: &Principal, id: CallId) -> Answer<Arc<Call>> {
    let call = app.gate.get(id).await?;
    match caller.is_agent() && call.facts.path.principal != caller.name {
        true => Err(Refused::not_found()),
        false => Ok(call),
    }
}

/// Where a call comes from that the caller may see; read only where it was not seen before.
pub(super) async fn origin(app: &App, caller: &Principal, id: CallId) -> Answer<Origin> {
    let origin = match app.seen.find(id) {
        Some(origin) => origin,
        None => app.seen.note(&*app.gate.get(id).await?),
    };
    match caller.is_agent() && origin.principal != caller.name {
        true => Err(Refused::not_found()),
        false => Ok(origin),
    }
}

/// Where a call comes from that the caller may run.
///
/// SECURITY: what a server's own agent runs, only that server claims, keeps, asks from and reports. Its session's client
/// knows the call and could guess the fence; an outcome that it made up would be told to the model as the tool's.
async fn at_client(app: &App, caller: &Principal, id: CallId) -> Answer<Origin> {
    let origin = origin(app, caller, id).await?;
    match origin.in_run && !app.sessions.may_be_claimed(&*app.gate.get(id).await?).await? {
        true => Err(run_by_its_server()),
        false => Ok(origin),
    }
}

/// What a client is told that wants to run a call of a session that a server runs.
pub(super) fn run_by_its_server() -> Refused {
    Refused::because(Code::WrongState, "the agent's own server runs this call")
}

async fn claim(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(body): Body<wire::Claim>,
) -> Answer<Json<wire::Claimed>> {
    let origin = at_client(&app, &caller.0, id).await?;
    claimed(&app, id, body.definition.or(origin.definition), body.executor).await.map(Json)
}

/// The gate for a claim by this name, if it has one: then the same claim may be asked for again.
pub(super) fn claiming(gate: &Gate, executor: Option<String>) -> Answer<Gate> {
    match executor {
        None => Ok(gate.clone()),
        Some(name) if (EXECUTOR_LEAST..=core_limits::NAME_BYTES).contains(&name.len()) => Ok(gate.claiming_as(name)),
        Some(_) => {
            let detail = format!("an executor's name has {EXECUTOR_LEAST} to {} bytes", core_limits::NAME_BYTES);
            Err(Refused::because(Code::BadRequest, detail))
        }
    }
}

/// Claims a call for an executor elsewhere.
#[tracing::instrument(level = "debug", target = SPANS, name = "claim", skip_all, fields(call, hold, state))]
pub(super) async fn claimed(
    app: &App,
    call: CallId,
    definition: Option<DefinitionDigest>,
    executor: Option<String>,
) -> Answer<wire::Claimed> {
    match claiming(&app.gate, executor)?.claim(call, definition).await? {
        Claimed::Permit(permit) => {
            trace::tell(permit.call());
            handed_out(app, permit)
        }
        Claimed::Not(call) => {
            trace::tell(&call);
            Err(not_claimed(&call))
        }
    }
}

/// Gives a claimed call to an executor elsewhere. The permit ends here: its bytes go out to one claim.
pub(super) fn handed_out(app: &App, permit: Permit) -> Answer<wire::Claimed> {
    let running = permit.start();
    let call = running.call();
    let lease = call.lease.as_ref().ok_or_else(|| Refused::new(Code::Internal))?;
    Ok(wire::Claimed {
        call: call.id,
        state: call.state,
        arguments: running.arguments().clone(),
        digest: call.digest,
        fence: lease.fence,
        attempt: lease.attempt,
        lease_until: timestamp(lease.until),
        payload: running.payload().cloned(),
        receipt: receipt(app, call)?,
        claimed_at: timestamp(call.updated_at),
        decision: running.decision().map(wire::Decision::from),
        bound: wire::Bound::from(call),
    })
}

fn not_claimed(call: &Call) -> Refused {
    let detail = format!("the call is {}", call.state);
    let claimed_before = matches!(
        call.state,
        CallState::Executing | CallState::Succeeded | CallState::Failed | CallState::InDoubt | CallState::Resolved
    );
    Refused::because(if claimed_before { Code::AlreadyClaimed } else { Code::WrongState }, detail)
}

/// Proof for others that this exact call was allowed, by whom, and until when.
fn receipt(app: &App, call: &Call) -> Answer<Option<wire::Receipt>> {
    let Some(signer) = &app.signer else { return Ok(None) };
    let hold = call.holds.iter().rev().find(|hold| !hold.in_run());
    let yes = |decision: &&countersign::Decision| matches!(decision.answer, Said::Approve { .. });
    let approvers = hold.into_iter().flat_map(|hold| hold.decisions.iter()).filter(yes);
    let statement = Exact::of(&serde_json::json!({
        "approvers": approvers.map(|decision| &decision.by.id).collect::<Vec<_>>(),
        "call": call.id,
        "digest": call.digest,
        "expires_at": call.lease.as_ref().map(|lease| timestamp(lease.until)),
        "fence": call.lease.as_ref().map(|lease| lease.fence),
        "grant": call.grant,
        "hold": hold.map(|hold| hold.id),
        "policy": call.verdict.policy,
        "v": 1,
    }));
    let statement = statement.map_err(|_| Refused::new(Code::Internal))?.to_string();
    Ok(Some(wire::Receipt { signature: signer.sign(&statement), key: signer.public_key(), statement }))
}

async fn renew(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(body): Body<wire::Renew>,
) -> Answer<Json<wire::Renewed>> {
    at_client(&app, &caller.0, id).await?;
    let applied = app.store().run(Op::Renew { call: id, fence: body.fence, lease: app.limits.lease() }).await?;
    let lease =
        applied.call.as_ref().and_then(|call| call.lease.clone()).ok_or_else(|| Refused::new(Code::WrongState))?;
    Ok(Json(wire::Renewed { fence: lease.fence, lease_until: timestamp(lease.until) }))
}

#[tracing::instrument(level = "debug", target = SPANS, name = "hold", skip_all, fields(call, hold, state))]
async fn ask(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(body): Body<wire::NewHold>,
) -> Answer<(StatusCode, Json<wire::HoldBrief>)> {
    at_client(&app, &caller.0, id).await?;
    let hold = match &body.key {
        None => HoldId::new(),
        Some(key) if key.len() <= core_limits::NAME_BYTES => asked_as(id, body.fence, key),
        Some(_) => return Err(Refused::because(Code::BadRequest, "the key is too long")),
    };
    let asking = asking(&app, hold, body)?;
    let applied = app.store().run(Op::Ask { call: id, asking: Box::new(asking) }).await?;
    let call = applied.call.ok_or_else(Refused::not_found)?;
    trace::tell(&call);
    let row = call.holds.iter().find(|row| row.id == hold).ok_or_else(|| Refused::new(Code::Internal))?;
    Ok((StatusCode::ACCEPTED, Json(wire::HoldBrief::from(row))))
}

/// The hold of a question that has a name: the same for the same name, and like no other call's.
fn asked_as(call: CallId, fence: u64, key: &str) -> HoldId {
    let mut hash = Sha256::new();
    hash.update(b"countersign hold\0");
    hash.update(call.as_bytes());
    hash.update(fence.to_be_bytes());
    hash.update(key.as_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, f, ..] = *call.as_bytes();
    let millis = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let random = hash.first_chunk().expect("a hash has more than ten bytes");
    HoldId::from_bytes(uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid().into_bytes())
}

/// What a running tool asks, with its secrets masked: it is written down and shown.
fn asking(app: &App, hold: HoldId, body: wire::NewHold) -> Answer<Asking> {
    if body.hint.len() > core_limits::NOTE_BYTES {
        return Err(Refused::because(Code::BadRequest, "the hint is too long"));
    }
    let bounded = |json: Exact| Exact::ingest(json.as_str(), Bounds::PAYLOAD);
    let payload = body.payload.map(bounded).transpose();
    let payload = payload.map_err(|error| Refused::because(Code::BadRequest, format!("the payload: {error}")))?;
    Ok(Asking {
        hold,
        fence: body.fence,
        hint: Some(app.redactor.text(&body.hint).into()),
        payload: payload.map(|json| app.redactor.arguments(&json, None).unwrap_or(json)),
        // People decide here: whoever asks waits for them.
        unattended: None,
        limits: Arc::new(app.limits.clone()),
    })
}

#[tracing::instrument(level = "debug", target = SPANS, name = "outcome", skip_all, fields(call, hold, state))]
async fn report(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(body): Body<wire::NewOutcome>,
) -> Answer<Json<wire::Call>> {
    at_client(&app, &caller.0, id).await?;
    let fence = body.fence;
    let call = app.gate.finish(id, fence, bounded(&app, body.outcome())).await?;
    trace::tell(&call);
    Ok(Json(wire::Call::from(&*call)))
}

/// What is kept of an outcome: not more than may be, and no secrets in its words.
fn bounded(app: &App, outcome: Outcome) -> Outcome {
    let words = |text: &str| {
        let head = text.get(..text.floor_char_boundary(core_limits::NOTE_BYTES)).unwrap_or_default();
        app.redactor.text(head).into_owned()
    };
    match outcome {
        Outcome::Succeeded { output } if output.as_str().len() > core_limits::OUTPUT_BYTES => {
            let bytes = output.as_str().len();
            let text = format!(
                "[output of {bytes} bytes is over the limit of {} and was not kept]",
                core_limits::OUTPUT_BYTES
            );
            Outcome::Succeeded { output: Exact::string(&text) }
        }
        Outcome::Succeeded { output } => Outcome::Succeeded { output },
        Outcome::Failed { error, refusal } => Outcome::Failed { error: words(&error), refusal },
        Outcome::MayHaveApplied { why } => Outcome::MayHaveApplied { why: words(&why) },
    }
}
