//! Deliveries: who was told, and whether it arrived.

use axum::extract::State;
use axum::routing;
use countersign_api::wire::{self, Code, Page};

use crate::app::App;
use crate::auth::Operator;
use crate::extract::Id;
use crate::json::Json;
use crate::list::List;
use crate::notify::{self, NotifyError};
use crate::problem::{Answer, Refused};
use crate::table::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/deliveries", Operator::ROLES, routing::get(list), "Lists who was told what, newest first.")
            .lists::<wire::Delivery>(),
        post("/v1/deliveries/{id}/retry", Operator::ROLES, routing::post(retry), "Tries a delivery again, now.")
            .takes_nothing()
            .answers::<wire::Delivery>("200")
            .refuses(&[Code::Conflict]),
        post("/v1/deliveries/test", Operator::ROLES, routing::post(test), "Sends every receiver a test message.")
            .takes_nothing()
            .answers::<wire::TestedAll>("200"),
    ]
}

impl From<NotifyError> for Refused {
    fn from(error: NotifyError) -> Refused {
        tracing::error!(%error, "receivers could not be tested");
        Refused::new(Code::Internal)
    }
}

async fn list(State(app): State<App>, _caller: Operator, list: List) -> Answer<Json<Page<wire::Delivery>>> {
    let deliveries = notify::list(&**app.store(), list.after::<String>()?.as_deref(), list.read()).await?;
    list.page(deliveries, |delivery| delivery.id.clone(), |delivery| Ok(delivery.clone())).map(Json)
}

async fn retry(State(app): State<App>, _caller: Operator, Id(id): Id<String>) -> Answer<Json<wire::Delivery>> {
    app.notifier.again(&**app.store(), &id).await?.map(Json).ok_or_else(Refused::not_found)
}

async fn test(State(app): State<App>, _caller: Operator) -> Answer<Json<wire::TestedAll>> {
    Ok(Json(wire::TestedAll { items: app.notifier.test(&**app.store()).await? }))
}
