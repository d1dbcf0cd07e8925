//! The stream of events, as server-sent events.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use countersign::event::Cursor;
use futures::stream::unfold;
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::app::App;
use crate::auth::Anyone;
use crate::extract::Query;
use crate::feed::{Feed, Item};
use crate::limits;
use crate::problem::Answer;
use crate::routes::cursor;
use crate::table::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(
            "/v1/events",
            Anyone::ROLES,
            routing::get(stream),
            "Streams what happens, and what happened since a cursor.",
        )
        .query(&["after"])
        .resumes()
        .streams("200", "Server-sent events: `event` is the name, `id` the cursor, `data` an Event."),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    after: Option<String>,
}

async fn stream(
    State(app): State<App>,
    caller: Anyone,
    headers: HeaderMap,
    Query(query): Query<StreamQuery>,
) -> Answer<Response> {
    // A browser that reconnects says where it was; that is later than where the page once began.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let after = cursor::<Cursor>(last.or(query.after.as_deref()))?;
    let place = app.rates.stream(&*caller)?;
    let feed = Feed::begin(app, caller.0, after);
    let mut alive = interval_at(Instant::now() + limits::KEEP_ALIVE, limits::KEEP_ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let frames = unfold((feed, alive, place), async |(mut feed, mut alive, place)| {
        let frame = tokio::select! {
            biased;
            item = feed.next() => frame(&item?),
            _ = alive.tick() => ALIVE,
        };
        Some((Ok::<_, Infallible>(frame), (feed, alive, place)))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((kind, Body::from_stream(frames)).into_response())
}

/// What a quiet stream says now and then.
const ALIVE: Bytes = Bytes::from_static(b":\n\n");
const RESYNC: Bytes = Bytes::from_static(b"event: resync\ndata: {}\n\n");

/// A thousand readers share the bytes of an event.
fn frame(item: &Item) -> Bytes {
    // An event that cannot be told must not pass for one that did not happen.
    match item {
        Item::Waiting(event) => event.frame_out_of_order().unwrap_or(RESYNC),
        Item::Event(event) => event.frame().unwrap_or(RESYNC),
        Item::Ready(cursor) => format!("event: ready\nid: {cursor}\ndata: {{\"cursor\":\"{cursor}\"}}\n\n").into(),
        Item::Resync => RESYNC,
    }
}
