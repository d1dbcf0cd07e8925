//! Tools of MCP servers: what they are pinned as, and what people accept.

use std::sync::Arc;

use axum::extract::State;
use axum::routing;
use countersign_api::wire::{self, Code, Page, timestamp};
use countersign_mcp::gateway::{self, AcceptError, PinState, Pinned};

use crate::app::App;
use crate::auth::{Agent, Granter, Operator};
use crate::extract::Body;
use crate::json::Json;
use crate::limits;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::table::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/tools", Granter::ROLES, routing::get(list), "Lists the tools of MCP servers, as they are pinned.")
            .lists::<wire::Tool>(),
        post("/v1/tools/accept", Operator::ROLES, routing::post(accept), "Accepts a tool as it was looked at.")
            .takes::<wire::AcceptTool>()
            .answers::<wire::Tool>("200")
            .refuses(&[Code::NotFound, Code::ToolChanged]),
        post("/v1/tools/hidden", Agent::ROLES, routing::post(hidden), "Says which tools a rule hides from models.")
            .takes::<wire::AskHidden>()
            .answers::<wire::Hidden>("200"),
    ]
}

async fn list(State(app): State<App>, _caller: Granter, list: List) -> Answer<Json<Page<wire::Tool>>> {
    let after: Option<String> = list.after()?;
    let read = gateway::pinned_after(&**app.store(), after.as_deref(), list.read()).await?;
    list.page(read, Pinned::key, |pinned| Ok(shown(pinned))).map(Json)
}

async fn accept(
    State(app): State<App>,
    caller: Operator,
    Body(body): Body<wire::AcceptTool>,
) -> Answer<Json<wire::Tool>> {
    let (by, _) = caller.0.decider();
    let accepted = gateway::accept(&app.gate, &body.server, &body.tool, &body.definition, &by).await;
    accepted.map(|pinned| Json(shown(&pinned))).map_err(|error| match error {
        AcceptError::Unknown => Refused::not_found(),
        AcceptError::Gate(error) => error.into(),
        // Whatever else there is, it is not what was looked at.
        error => Refused::because(Code::ToolChanged, error.to_string()),
    })
}

async fn hidden(
    State(app): State<App>,
    _caller: Agent,
    Body(ask): Body<wire::AskHidden>,
) -> Answer<Json<wire::Hidden>> {
    if ask.names.len() > limits::HIDDEN_NAMES {
        return Err(Refused::because(Code::BadRequest, "too many `names`"));
    }
    let names: Vec<Arc<str>> = ask.names.into_iter().map(Arc::from).collect();
    let hidden = app.gate.hidden(ask.server.as_deref(), &names).await?;
    let hidden = names.iter().filter(|name| hidden.contains(*name)).map(ToString::to_string).collect();
    Ok(Json(wire::Hidden { hidden }))
}

fn shown(pinned: &Pinned) -> wire::Tool {
    wire::Tool {
        server: pinned.server.clone(),
        name: pinned.tool.clone(),
        state: match pinned.state() {
            PinState::New => wire::ToolState::New,
            PinState::Accepted => wire::ToolState::Accepted,
            PinState::Changed => wire::ToolState::Changed,
        },
        definition: pinned.seal(),
        accepted: Some(pinned.definition().clone()),
        found: pinned.found().cloned(),
        difference: pinned.difference(),
        other_server: pinned.is_other_server(),
        accepted_by: pinned.accepted_by().map(|by| by.id.to_string()),
        since: pinned.since().map(timestamp),
    }
}
