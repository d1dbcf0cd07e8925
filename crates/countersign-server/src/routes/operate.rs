//! Stopping everything, and letting it go on.

use axum::extract::State;
use axum::routing;
use countersign::limits as core_limits;
use countersign_api::wire::{self, Code};

use crate::app::App;
use crate::auth::Operator;
use crate::extract::Body;
use crate::json::Json;
use crate::problem::{Answer, Refused};
use crate::table::{Route, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/v1/halt", Operator::ROLES, routing::post(halt), "Stops every claim, or one agent's.")
            .takes::<wire::Halt>()
            .answers::<wire::Halted>("200"),
        post("/v1/resume", Operator::ROLES, routing::post(resume), "Lets claims go on.")
            .takes::<wire::Halt>()
            .answers::<wire::Halted>("200"),
    ]
}

async fn halt(State(app): State<App>, caller: Operator, Body(body): Body<wire::Halt>) -> Answer<Json<wire::Halted>> {
    check(&body)?;
    app.gate.halt(body.agent.as_deref(), &caller.0.name, body.reason.as_deref()).await?;
    Ok(Json(wire::Halted { halted: true, agent: body.agent, reason: body.reason }))
}

async fn resume(State(app): State<App>, caller: Operator, Body(body): Body<wire::Halt>) -> Answer<Json<wire::Halted>> {
    check(&body)?;
    if body.reason.is_some() {
        return Err(Refused::because(Code::BadRequest, "`reason` goes with halt, not with resume"));
    }
    app.gate.lift(body.agent.as_deref(), &caller.0.name).await?;
    Ok(Json(wire::Halted { halted: false, agent: body.agent, reason: None }))
}

fn check(body: &wire::Halt) -> Answer<()> {
    let long_name = body.agent.as_ref().is_some_and(|agent| agent.is_empty() || agent.len() > core_limits::NAME_BYTES);
    let long_reason = body.reason.as_ref().is_some_and(|reason| reason.len() > core_limits::NOTE_BYTES);
    match long_name || long_reason {
        true => Err(Refused::because(Code::BadRequest, "the agent's name or the reason is empty or too long")),
        false => Ok(()),
    }
}
