//! The record, for those who read it.

use std::sync::Arc;

use axum::extract::State;
use axum::{Json, routing};
use countersign::CallId;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::EventFilter;
use countersign_api::wire::{self, Page};
use serde::Deserialize;

use crate::app::App;
use crate::auth::Auditor;
use crate::extract::Query;
use crate::problem::Answer;
use crate::routes::{cursor, rows};
use crate::table::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/audit", Auditor::ROLES, routing::get(list), "Lists events, oldest first.")
            .lists::<wire::Event>()
            .query(&["session", "call"]),
        get("/v1/audit/checkpoints", Auditor::ROLES, routing::get(checkpoints), "Lists signed checkpoints.")
            .lists::<wire::Event>(),
        get("/v1/keys", Auditor::ROLES, routing::get(keys), "Lists the keys that sign the record.")
            .answers::<wire::Keys>("200"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    session: Option<Arc<str>>,
    call: Option<CallId>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list(
    State(app): State<App>,
    _caller: Auditor,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<wire::Event>>> {
    let rows = rows(query.limit);
    let after = cursor::<Cursor>(query.after.as_deref())?.unwrap_or_default();
    let filter = EventFilter { session: query.session, call: query.call, limit: Some(rows + 1), chain: None };
    let mut events = app.store().events(after, filter).await?;
    let more = events.len() > rows;
    events.truncate(rows);
    let next = events.last().filter(|_| more).map(|last| last.cursor.to_string());
    Ok(Json(Page { items: shown(&events)?, next }))
}

fn shown(events: &[Event]) -> Answer<Vec<wire::Event>> {
    Ok(events.iter().map(wire::Event::try_from).collect::<Result<_, _>>()?)
}

/// Checkpoints stand on the chain `system`: one page of it, and those among it.
async fn checkpoints(
    State(app): State<App>,
    _caller: Auditor,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<wire::Event>>> {
    let rows = rows(query.limit);
    let after = cursor::<Cursor>(query.after.as_deref())?.unwrap_or_default();
    let chain = Some(countersign::call::Chain::system());
    let filter = EventFilter { chain, limit: Some(rows), ..EventFilter::default() };
    let mut events = app.store().events(after, filter).await?;
    let next = events.last().filter(|_| events.len() == rows).map(|last| last.cursor.to_string());
    events.retain(|event| event.name == EventName::CheckpointSigned);
    Ok(Json(Page { items: shown(&events)?, next }))
}

async fn keys(State(app): State<App>, _caller: Auditor) -> Json<wire::Keys> {
    let key = |signer: &Arc<countersign::signer::Signer>| wire::Key {
        kind: "ed25519".to_owned(),
        key: signer.public_key(),
        current: true,
    };
    Json(wire::Keys { keys: app.signer.iter().map(key).collect() })
}
