//! The stream of events on a WebSocket, and decisions on the same one.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::Method;
use axum::response::Response;
use axum::routing;
use countersign::event::Cursor;
use countersign_api::wire::{self, Code, FromSocket, Role, ToSocket};

use crate::app::App;
use crate::auth::{Anyone, Principal, refusals};
use crate::feed::{Feed, Item};
use crate::limits;
use crate::problem::{Answer, Refused};
use crate::pulse::{self, Pulse};
use crate::routes::{cursor, holds};
use crate::table::{Route, get};

const PATH: &str = "/v1/ws";

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(PATH, Anyone::ROLES, routing::any(upgrade), "Streams events and takes decisions.")
            .streams("101", "Messages `FromSocket` in, `ToSocket` out."),
    ]
}

async fn upgrade(
    State(app): State<App>,
    caller: Anyone,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade = upgrade.map_err(|_| Refused::because(Code::BadRequest, "this is no WebSocket upgrade"))?;
    let upgrade = upgrade.max_message_size(limits::MESSAGE_BYTES).max_frame_size(limits::MESSAGE_BYTES);
    let pulse = Pulse::begin(app.rates.stream(&*caller)?);
    Ok(upgrade.on_upgrade(move |socket| talk(app, caller.0, pulse, socket)))
}

/// Speaks until either side goes. What cannot be sent ends the talk: the client begins anew from its cursor.
async fn talk(app: App, principal: Arc<Principal>, mut pulse: Pulse, mut socket: WebSocket) {
    let mut feed: Option<Feed> = None;
    let why = loop {
        let next = async {
            match &mut feed {
                Some(feed) => feed.next().await,
                None => std::future::pending().await,
            }
        };
        let sent = tokio::select! {
            received = socket.recv() => {
                pulse.hear();
                match received {
                    Some(Ok(Message::Text(text))) => match answer(&app, &principal, &text, &mut feed).await {
                        Some(answer) => send(&mut socket, &answer).await,
                        None => Ok(()),
                    },
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                    Some(Ok(Message::Binary(_))) => break "text only",
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                }
            }
            item = next => match item.and_then(|item| shown(&item)) {
                Some(message) => send(&mut socket, &message).await,
                None => break "the stream ended",
            },
            () = pulse.beat() => pulse.ask(&app, &principal, &mut socket).await,
            () = app.ended() => break "the server ends",
        };
        if let Err(why) = sent {
            break why;
        }
    };
    pulse::close(&mut socket, why).await;
}

async fn send(socket: &mut WebSocket, message: &ToSocket) -> Result<(), &'static str> {
    let text = serde_json::to_string(message).map_err(|_| "a message could not be written")?;
    pulse::send(socket, Message::Text(text.into())).await
}

fn shown(item: &Item) -> Option<ToSocket> {
    match item {
        Item::Waiting(event) | Item::Event(event) => {
            let told = wire::Event::try_from(&***event).ok()?;
            Some(ToSocket::Event { cursor: told.cursor.clone(), event: told })
        }
        Item::Ready(cursor) => Some(ToSocket::Ready { cursor: cursor.to_string() }),
        Item::Resync => Some(ToSocket::Resync {}),
    }
}

async fn answer(app: &App, principal: &Arc<Principal>, text: &str, feed: &mut Option<Feed>) -> Option<ToSocket> {
    let message: FromSocket = match serde_json::from_str(text) {
        Ok(message) => message,
        Err(error) => {
            let refused = Refused::because(Code::BadRequest, format!("the message: {error}"));
            return Some(ToSocket::Problem { id: None, problem: *refused.0 });
        }
    };
    let id = message.id.clone();
    match handle(app, principal, message, feed).await {
        Ok(Some(decided)) => Some(ToSocket::Decided { id, decided: Box::new(decided) }),
        Ok(None) => None,
        Err(refused) => Some(ToSocket::Problem { id, problem: *refused.0 }),
    }
}

async fn handle(
    app: &App,
    principal: &Arc<Principal>,
    message: FromSocket,
    feed: &mut Option<Feed>,
) -> Answer<Option<wire::Decided>> {
    app.rates.request(&**principal)?;
    let mut message = message;
    let decision = message.take_decision().map_err(|why| Refused::because(Code::BadRequest, why))?;
    match (message.r#type.as_str(), message.after, message.hold, decision) {
        ("subscribe", after, None, None) => {
            let after = cursor::<Cursor>(after.as_deref())?;
            *feed = Some(Feed::begin(app.clone(), Arc::clone(principal), after));
            Ok(None)
        }
        ("decide", None, Some(hold), Some(decision)) => {
            // SECURITY: the credential was good when the talk began; a decision needs it to be good now.
            if !principal.still_holds(app).await {
                return Err(Refused::new(Code::Unauthenticated));
            }
            if !principal.has(&[Role::Approver]) {
                refusals::note(app, principal, &Method::GET, PATH).await;
                return Err(Refused::new(Code::Forbidden));
            }
            holds::decide_as(app, principal, hold, decision).await.map(Some)
        }
        ("subscribe" | "decide", ..) => Err(Refused::because(Code::BadRequest, "members that do not belong together")),
        _ => Err(Refused::because(Code::BadRequest, "`type` is `subscribe` or `decide`")),
    }
}
