//! How the server is, and what it speaks.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use countersign_api::wire::Health;

use crate::app::App;
use crate::json::Json;
use crate::metrics::Gauges;
use crate::problem::Answer;
use crate::table::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/healthz", &[], routing::get(alive), "Says that the process answers.").answers::<Health>("200"),
        get("/readyz", &[], routing::get(ready), "Says that the store answers, too.").answers::<Health>("200"),
        get("/metrics", &[], routing::get(metrics), "Counts, for Prometheus.").streams("200", "Prometheus text."),
        get("/openapi.json", &[], routing::get(openapi), "This description.").streams("200", "OpenAPI 3.1."),
    ]
}

async fn alive() -> Json<Health> {
    Json(Health { status: "ok".to_owned() })
}

async fn ready(State(app): State<App>) -> Answer<Json<Health>> {
    app.store().now().await?;
    Ok(Json(Health { status: "ok".to_owned() }))
}

async fn metrics(State(app): State<App>) -> Answer<Response> {
    let holds = app.store().holding().await?;
    let gauges = Gauges {
        holds,
        streams: app.rates.open_streams(),
        deliveries: app.notifier.pending(),
        undelivered: app.notifier.failures(),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], app.metrics.text(&gauges)).into_response())
}

async fn openapi() -> Answer<Response> {
    let text = serde_json::to_string(&crate::openapi::openapi())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
