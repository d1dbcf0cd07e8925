//! Grants: listed, made, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing;
use countersign::grant::Grant;
use countersign::hold::Who;
use countersign::store::Op;
use countersign::transition::Rejection;
use countersign::{GrantId, HoldId, limits as core_limits};
use countersign_api::wire::{self, Code, Page, Role};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Granter, Operator, Principal};
use crate::extract::{Body, Id};
use crate::json::Json;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::table::{Route, delete, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/grants", Granter::ROLES, routing::get(list), "Lists grants; an approver sees their own.")
            .lists::<wire::Grant>()
            .query(&["all"]),
        post("/v1/grants", Operator::ROLES, routing::post(make), "Makes a grant like a call that was made.")
            .takes::<wire::NewGrant>()
            .answers::<wire::Grant>("201")
            .refuses(&[Code::NotFound, Code::GrantRefused, Code::WrongState, Code::Conflict]),
        get("/v1/grants/{id}", Granter::ROLES, routing::get(read), "Reads a grant.").answers::<wire::Grant>("200"),
        delete("/v1/grants/{id}", Granter::ROLES, routing::delete(revoke), "Revokes a grant.")
            .answers::<wire::Grant>("200")
            .refuses(&[Code::Conflict]),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    #[serde(default)]
    all: bool,
}

async fn list(State(app): State<App>, caller: Granter, list: List<Filter>) -> Answer<Json<Page<wire::Grant>>> {
    let now = app.store().now().await?;
    let wanted = |grant: &Grant| (list.filter.all || grant.is_live(now)) && may_touch(&caller.0, grant);
    let (mut found, mut after) = (Vec::new(), list.after()?);
    // Page by page, until there is one of what may be shown: never all there are at once.
    while found.len() < list.read() {
        let read = app.store().grants_after(after, core_limits::PAGE_ROWS).await?;
        let Some(last) = read.last() else { break };
        after = Some(last.id);
        found.extend(read.into_iter().filter(wanted));
    }
    found.truncate(list.read());
    list.page(found, |grant| grant.id.to_string(), |grant| Ok(wire::Grant::of(grant, now))).map(Json)
}

/// An approver's own grants are theirs; an operator's are all.
fn may_touch(caller: &Principal, grant: &Grant) -> bool {
    caller.has(&[Role::Operator]) || grant.made_by.id == caller.name
}

async fn find(app: &App, caller: &Principal, id: GrantId) -> Answer<Grant> {
    let grant = app.store().grant(id).await?;
    grant.filter(|grant| may_touch(caller, grant)).ok_or_else(Refused::not_found)
}

async fn read(State(app): State<App>, caller: Granter, Id(id): Id<GrantId>) -> Answer<Json<wire::Grant>> {
    let grant = find(&app, &caller.0, id).await?;
    Ok(Json(wire::Grant::of(&grant, app.store().now().await?)))
}

async fn revoke(State(app): State<App>, caller: Granter, Id(id): Id<GrantId>) -> Answer<Json<wire::Grant>> {
    find(&app, &caller.0, id).await?;
    let (by, _) = caller.0.decider();
    let grant = app.gate.revoke(id, by).await?;
    Ok(Json(wire::Grant::of(&grant, app.store().now().await?)))
}

async fn make(
    State(app): State<App>,
    caller: Operator,
    Body(new): Body<wire::NewGrant>,
) -> Answer<(StatusCode, Json<wire::Grant>)> {
    let (by, _) = caller.0.decider();
    let grant = like(&app, new, by).await?;
    let now = grant.made_at;
    let applied = app.store().run(Op::Grant(Box::new(grant))).await?;
    let made = applied.grant.ok_or_else(|| Refused::new(Code::Internal))?;
    Ok((StatusCode::CREATED, Json(wire::Grant::of(&made, now))))
}

/// A grant like a call that was made, under the rules that bind the grants of decisions.
async fn like(app: &App, new: wire::NewGrant, by: Who) -> Answer<Grant> {
    let call = app.gate.get(new.like).await?;
    let now = app.store().now().await?;
    let made = Grant::asked_for(&new.remember.into(), &call, HoldId::new(), by, now).map_err(Rejection::Grant)?;
    Ok(Grant { hold: None, ..made })
}
