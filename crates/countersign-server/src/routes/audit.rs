//! The record, for those who read it.

use std::sync::Arc;

use axum::extract::State;
use axum::routing;
use countersign::event::{Event, EventName};
use countersign::store::EventFilter;
use countersign::{CallId, audit};
use countersign_api::wire::{self, Page};
use serde::Deserialize;

use crate::app::App;
use crate::auth::Auditor;
use crate::json::Json;
use crate::list::List;
use crate::problem::Answer;
use crate::table::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/audit", Auditor::ROLES, routing::get(list), "Lists events, oldest first.")
            .lists::<wire::Event>()
            .query(&["session", "call"]),
        get("/v1/audit/checkpoints", Auditor::ROLES, routing::get(checkpoints), "Lists signed checkpoints.")
            .lists::<wire::Event>(),
        get(
            "/v1/keys",
            Auditor::ROLES,
            routing::get(keys),
            "Lists the keys that sign the record, those of other servers on its store too.",
        )
        .answers::<wire::Keys>("200"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    session: Option<Arc<str>>,
    call: Option<CallId>,
}

async fn list(State(app): State<App>, _caller: Auditor, list: List<Filter>) -> Answer<Json<Page<wire::Event>>> {
    let Filter { session, call } = &list.filter;
    let filter = EventFilter { session: session.clone(), call: *call, limit: Some(list.read()), chain: None };
    let events = app.store().events(list.after()?.unwrap_or_default(), filter).await?;
    list.page(events, |event| event.cursor.to_string(), shown).map(Json)
}

fn shown(event: &Event) -> Answer<wire::Event> {
    Ok(wire::Event::try_from(event)?)
}

/// Checkpoints stand on the chain `system`: one page of it, and those among it.
async fn checkpoints(State(app): State<App>, _caller: Auditor, list: List) -> Answer<Json<Page<wire::Event>>> {
    let chain = Some(countersign::call::Chain::system());
    let filter = EventFilter { chain, limit: Some(list.read()), ..EventFilter::default() };
    let events = app.store().events(list.after()?.unwrap_or_default(), filter).await?;
    let mut page = list.page(events, |event| event.cursor.to_string(), shown)?;
    page.items.retain(|event| event.event == EventName::CheckpointSigned.as_str());
    Ok(Json(page))
}

/// The key of this server, and of every process that ever signed on its store.
async fn keys(State(app): State<App>, _caller: Auditor) -> Answer<Json<wire::Keys>> {
    let own = app.signer.as_ref().map(|signer| signer.public_key());
    let mut all = audit::keys(&**app.store()).await?;
    all.extend(own.clone());
    let key = |key: String| wire::Key { kind: "ed25519".to_owned(), current: own.as_ref() == Some(&key), key };
    Ok(Json(wire::Keys { keys: all.into_iter().map(key).collect() }))
}
