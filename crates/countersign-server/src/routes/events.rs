//! The stream of events, as server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::routing;
use countersign::event::Cursor;
use futures::stream::{Stream, unfold};
use serde::Deserialize;

use crate::app::App;
use crate::auth::Anyone;
use crate::extract::Query;
use crate::feed::{Feed, Item};
use crate::limits;
use crate::problem::Answer;
use crate::routes::cursor;
use crate::table::{Route, get};
use crate::tail::Told;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(
            "/v1/events",
            Anyone::ROLES,
            routing::get(stream),
            "Streams what happens, and what happened since a cursor.",
        )
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
) -> Answer<Sse<impl Stream<Item = Result<Sent, Infallible>>>> {
    // A browser that reconnects says where it was; that is later than where the page once began.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let after = cursor::<Cursor>(last.or(query.after.as_deref()))?;
    let feed = Feed::begin(app, caller.0, after)?;
    let sent = unfold(feed, async |mut feed| feed.next().await.map(|item| (Ok(sent(&item)), feed)));
    Ok(Sse::new(sent).keep_alive(KeepAlive::new().interval(limits::KEEP_ALIVE)))
}

fn sent(item: &Item) -> Sent {
    match item {
        Item::Waiting(event) => told(event),
        Item::Event(event) => told(event).id(event.cursor.to_string()),
        Item::Ready(cursor) => {
            Sent::default().event("ready").id(cursor.to_string()).data(format!("{{\"cursor\":\"{cursor}\"}}"))
        }
        Item::Resync => Sent::default().event("resync").data("{}"),
    }
}

fn told(event: &Told) -> Sent {
    match event.text() {
        Some(text) => Sent::default().event(event.name.as_str()).data(text),
        // An event that cannot be told must not pass for one that did not happen.
        None => Sent::default().event("resync").data("{}"),
    }
}
