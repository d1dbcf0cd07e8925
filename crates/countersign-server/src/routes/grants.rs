//! Grants: listed, made, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, routing};
use countersign::grant::Grant;
use countersign::hold::Who;
use countersign::store::Op;
use countersign::transition::Rejection;
use countersign::{GrantId, HoldId};
use countersign_api::wire::{self, Code, Page, Role};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Granter, Operator, Principal};
use crate::extract::{Body, Id, Query};
use crate::problem::{Answer, Refused};
use crate::routes::{cursor, page, rows};
use crate::table::{Route, delete, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/grants", Granter::ROLES, routing::get(list), "Lists grants; an approver sees their own.")
            .lists::<wire::Grant>()
            .query(&["all"]),
        post("/v1/grants", Operator::ROLES, routing::post(make), "Makes a grant like a call that was made.")
            .takes::<wire::NewGrant>()
            .answers::<wire::Grant>("201"),
        get("/v1/grants/{id}", Granter::ROLES, routing::get(read), "Reads a grant.").answers::<wire::Grant>("200"),
        delete("/v1/grants/{id}", Granter::ROLES, routing::delete(revoke), "Revokes a grant.")
            .answers::<wire::Grant>("200"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    all: bool,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list(
    State(app): State<App>,
    caller: Granter,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<wire::Grant>>> {
    let rows = rows(query.limit);
    let after = cursor::<GrantId>(query.after.as_deref())?;
    let now = app.store().now().await?;
    let mut grants = app.store().grants().await?;
    grants.retain(|grant| (query.all || grant.is_live(now)) && may_touch(&caller.0, grant));
    let mut grants: Vec<Grant> = match after {
        Some(after) => grants.into_iter().skip_while(|grant| grant.id != after).skip(1).collect(),
        None => grants,
    };
    grants.truncate(rows + 1);
    Ok(Json(page(grants, rows, |grant| grant.id.to_string(), |grant| wire::Grant::of(grant, now))))
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
