//! Calls: submitted, listed, waited for, withdrawn, and doubts settled.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use countersign::call::{CallState, Resolution};
use countersign::callers::{self, WhoWaits};
use countersign::hold::HoldState;
use countersign::store::{CallFilter, Order};
use countersign::{Call, CallId, Claimed, Time};
use countersign_api::wire::{self, Code, Page};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Agent, Anyone, Operator, Principal};
use crate::extract::{Body, Id, Query};
use crate::json::Json;
use crate::limits;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::routes::run::{claimed, handed_out, origin, own, run_by_its_server};
use crate::table::{Route, get, post};
use crate::trace::{self, SPANS};

mod elsewhere;
mod find;
mod propose;

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/v1/calls", Agent::ROLES, routing::post(submit), "Submits a call.")
            .takes::<wire::NewCall>()
            .answers::<wire::Submitted>("200")
            .answers::<wire::Call>("202")
            .refuses(&[
                Code::KeyReused,
                Code::Halted,
                Code::WrongState,
                Code::AlreadyClaimed,
                Code::Conflict,
                Code::BrokenPolicy,
            ]),
        get("/v1/calls", Anyone::ROLES, routing::get(list), "Lists calls; an agent sees its own.")
            .lists::<wire::Call>()
            .query(&["state", "session", "q", "order"]),
        get("/v1/calls/{id}", Anyone::ROLES, routing::get(read), "Reads a call; with `wait=` until nobody is asked.")
            .query(&["wait"])
            .answers::<wire::Call>("200"),
        post("/v1/calls/{id}/caller", Agent::ROLES, routing::post(caller_told), "Says who waits for a call.")
            .takes::<wire::NewCaller>()
            .answers::<wire::Call>("200"),
        post("/v1/calls/{id}/cancel", Agent::ROLES, routing::post(cancel), "Withdraws a call that does not run yet.")
            .takes::<wire::Cancel>()
            .answers::<wire::Call>("200")
            .refuses(&[Code::WrongState, Code::Conflict]),
        post("/v1/calls/{id}/resolve", Operator::ROLES, routing::post(resolve), "Settles a doubt.")
            .takes::<wire::Resolve>()
            .answers::<wire::Call>("200")
            .refuses(&[Code::WrongState, Code::Conflict]),
    ]
}

#[tracing::instrument(level = "debug", target = SPANS, name = "submit", skip_all, fields(call, hold, state))]
async fn submit(State(app): State<App>, caller: Agent, Body(new): Body<wire::NewCall>) -> Answer<Response> {
    app.rates.submit(&*caller)?;
    check_claim(&app, &caller, &new).await?;
    let (claim, executor) = (new.claim, new.executor.clone());
    let call = match propose::propose(&app, &caller.0, new).await? {
        Claimed::Permit(permit) => {
            trace::tell(permit.call());
            return Ok(Json(handed_out(&app, permit)?).into_response());
        }
        Claimed::Not(call) if claim && call.state == CallState::Allowed => {
            return Ok(Json(claimed(&app, call.id, call.definition, executor).await?).into_response());
        }
        Claimed::Not(call) => call,
    };
    app.seen.note(&call);
    trace::tell(&call);
    let status = if call.state == CallState::Pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(wire::Call::from(&*call))).into_response())
}

/// SECURITY: a call that names its place in a session that a server runs is the one that its agent will propose there.
/// Claimed by the client, the client's outcome would be the agent's.
async fn check_claim(app: &App, caller: &Principal, new: &wire::NewCall) -> Answer<()> {
    match (&new.session, &new.run, &new.thread) {
        (Some(session), Some(_), Some(_)) if new.claim => match app.sessions.found(&caller.name, session).await? {
            Some(_) => Err(run_by_its_server()),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    state: Option<CallState>,
    session: Option<Arc<str>>,
    q: Option<String>,
    order: Option<Order>,
}

async fn list(State(app): State<App>, caller: Anyone, list: List<Filter>) -> Answer<Json<Page<wire::Call>>> {
    let Filter { state, session, q, order } = &list.filter;
    let filter = CallFilter {
        state: *state,
        session: session.clone(),
        principal: caller.0.is_agent().then(|| Arc::clone(&caller.0.name)),
        order: order.unwrap_or_default(),
        after: list.after()?,
        limit: Some(list.read()),
        ..CallFilter::default()
    };
    let found = find::find(app.store(), filter, q.as_deref(), list.rows()).await?;
    let Page { items: calls, next } = list.page(found, |call| call.id.to_string(), |call| Ok(Arc::clone(call)))?;
    let mut items = Vec::with_capacity(calls.len());
    for call in calls {
        items.push(shown_to(&app, &caller, &call).await?);
    }
    Ok(Json(Page { items, next }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    wait: Option<u64>,
}

async fn read(
    State(app): State<App>,
    caller: Anyone,
    Id(id): Id<CallId>,
    Query(query): Query<ReadQuery>,
) -> Answer<Json<wire::Call>> {
    let call = own(&app, &caller.0, id).await?;
    let call = match query.wait {
        Some(seconds) => {
            let _place = app.rates.wait(&*caller, limits::WAITS)?;
            wait(&app, call, seconds).await?
        }
        None => call,
    };
    shown_to(&app, &caller.0, &call).await.map(Json)
}

/// Waits until nobody is asked about the call any more, at most so many seconds, and not beyond the server's end.
#[tracing::instrument(level = "debug", target = SPANS, name = "wait", skip_all, fields(call, hold, state))]
async fn wait(app: &App, mut call: Arc<Call>, seconds: u64) -> Answer<Arc<Call>> {
    let most = std::time::Duration::from_secs(seconds).min(limits::LONGEST_WAIT);
    let deadline = tokio::time::Instant::now() + most;
    while call.open_hold().is_some() || withheld(app, &call).await? {
        let listener = app.store().bell().listen(call.id);
        call = app.gate.get(call.id).await?;
        if call.open_hold().is_none() && !withheld(app, &call).await? {
            break;
        }
        tokio::select! {
            () = listener => {}
            () = tokio::time::sleep_until(deadline) => break,
            () = app.ended() => break,
        }
        call = app.gate.get(call.id).await?;
    }
    trace::tell(&call);
    Ok(call)
}

/// Whether a halt keeps a yes to a running tool from being delivered, as it keeps claims from being made.
async fn withheld(app: &App, call: &Call) -> Answer<bool> {
    let yes = call.state == CallState::Executing && call.holds.iter().any(|hold| hold.in_run() && hold.is_yes());
    Ok(yes && app.store().halted(&call.facts.path).await?)
}

async fn shown_to(app: &App, caller: &Principal, call: &Call) -> Answer<wire::Call> {
    let mut shown = wire::Call::from(call);
    // A fence is for whoever runs the call.
    if caller.is_agent() && call.lease.is_some() && !app.sessions.may_be_claimed(call).await? {
        shown.lease = None;
    }
    if caller.is_agent() && withheld(app, call).await? {
        for hold in shown.holds.iter_mut().filter(|hold| hold.in_run && hold.state == HoldState::Approved) {
            hold.state = HoldState::Pending;
            hold.decisions.clear();
            hold.payload = None;
        }
    }
    Ok(shown)
}

async fn caller_told(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(told): Body<wire::NewCaller>,
) -> Answer<Json<wire::Call>> {
    let call = own(&app, &caller.0, id).await?;
    if told.by.len() > countersign::limits::NAME_BYTES {
        return Err(Refused::because(Code::BadRequest, "`by` is too long"));
    }
    let who = match told.caller {
        // SECURITY: nobody says of another's gateway that it is there.
        wire::Waits::Waits => WhoWaits::CallerOf(format!("{}/{}", caller.0.name, told.by).into()),
        wire::Waits::Gone => WhoWaits::Nobody,
        wire::Waits::Unknown => WhoWaits::Unknown,
    };
    callers::told(&**app.store(), &call, &who).await?;
    shown_to(&app, &caller.0, &call).await.map(Json)
}

async fn cancel(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<CallId>,
    Body(_): Body<wire::Cancel>,
) -> Answer<Json<wire::Call>> {
    origin(&app, &caller.0, id).await?;
    Ok(Json(wire::Call::from(&*app.gate.cancel(id).await?)))
}

async fn resolve(
    State(app): State<App>,
    caller: Operator,
    Id(id): Id<CallId>,
    Body(body): Body<wire::Resolve>,
) -> Answer<Json<wire::Call>> {
    let reason = body.reason.trim().to_owned();
    if reason.is_empty() || reason.len() > countersign::limits::NOTE_BYTES {
        return Err(Refused::because(Code::BadRequest, "a doubt is settled with a reason, and not too long a one"));
    }
    let by = Arc::clone(&caller.0.name);
    let resolution = Resolution { r#as: body.r#as, reason, by, at: Time::default() };
    Ok(Json(wire::Call::from(&*app.gate.resolve(id, resolution).await?)))
}
