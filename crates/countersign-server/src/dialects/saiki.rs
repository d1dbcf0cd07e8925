//! Saiki's tool confirmations: its REST route and its WebSocket messages.
//!
//! An `executionId` is the id of a hold, and a hold is bound to one digest for good: naming it names what is approved.
//! Saiki knows two answers, "done" and "not found or expired"; whatever else stands in the way is one of our problems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use countersign::event::EventName;
use countersign::grant::{Grant, RememberCovers, RememberScope};
use countersign::verdict::Memory;
use countersign::{Hold, HoldId, Json as Exact};
use countersign_api::wire::{self, Code, NewDecision, timestamp};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::{Approver, Principal};
use crate::extract::{Body, Id};
use crate::feed::{Feed, Item};
use crate::limits;
use crate::problem::{Answer, Refused};
use crate::pulse::{self, Pulse};
use crate::routes::holds::{REFUSES, decide_as, find};
use crate::table::{Route, get, post};

const NOT_FOUND: &str = "Confirmation not found or expired";

pub(super) fn routes() -> Vec<Route> {
    vec![
        post(
            "/saiki/api/tool-confirmation/{id}",
            Approver::ROLES,
            routing::post(confirm),
            "Saiki: answers a tool confirmation.",
        )
        .takes::<Confirmation>()
        .answers::<Confirmed>("200")
        .answers::<Unknown>("404")
        .refuses(&REFUSES),
        get("/saiki/ws", Approver::ROLES, routing::any(upgrade), "Saiki: sends tool confirmations and takes answers.")
            .streams("101", "Messages `toolConfirmationRequest` out, `toolConfirmationResponse` in."),
    ]
}

/// What Saiki asks.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    tool_name: String,
    /// Secrets masked.
    args: Exact,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    execution_id: HoldId,
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// What is answered.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SaikiConfirmation)]
struct Confirmation {
    /// Which confirmation. The address says it already; here it must say the same.
    execution_id: Option<String>,
    /// Yes or no.
    approved: bool,
    /// Whether the same call need not be asked again. A no is never remembered.
    #[serde(default)]
    remember_choice: bool,
    /// The session it is for.
    session_id: Option<String>,
}

/// It was recorded.
#[derive(Serialize, ToSchema)]
#[schema(as = SaikiConfirmed)]
struct Confirmed {
    /// Always true.
    success: bool,
}

/// There is no such confirmation.
#[derive(Serialize, ToSchema)]
#[schema(as = SaikiUnknown)]
struct Unknown {
    /// In Saiki's words.
    error: String,
}

/// A message to a client.
#[derive(Serialize)]
#[serde(tag = "type", content = "data", rename_all = "camelCase")]
enum Outgoing {
    ToolConfirmationRequest(Box<Request>),
    /// Why an answer did not count. Saiki has no message for it; silence would pass for a yes.
    Error {
        message: String,
    },
}

/// A message from a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Incoming {
    r#type: String,
    data: Confirmation,
}

async fn confirm(
    State(app): State<App>,
    caller: Approver,
    Id(id): Id<String>,
    Body(body): Body<Confirmation>,
) -> Answer<Response> {
    let same = body.execution_id.as_ref().is_none_or(|named| *named == id);
    let done = if same { decide(&app, &caller.0, &id, &body).await } else { Err(Refused::not_found()) };
    match done {
        Ok(()) => Ok(Json(Confirmed { success: true }).into_response()),
        Err(refused) if is_gone(&refused) => {
            Ok((StatusCode::NOT_FOUND, Json(Unknown { error: NOT_FOUND.to_owned() })).into_response())
        }
        Err(refused) => Err(refused),
    }
}

fn is_gone(refused: &Refused) -> bool {
    matches!(refused.0.code, Code::NotFound | Code::HoldClosed | Code::AlreadyDecided)
}

async fn decide(app: &App, caller: &Principal, id: &str, said: &Confirmation) -> Answer<()> {
    let id: HoldId = id.parse().map_err(|_| Refused::not_found())?;
    let hold = find(app, id).await?;
    // A session can only narrow: an answer for another one is not for this hold.
    let session = hold.call.facts.path.session.as_deref();
    if said.session_id.is_some() && said.session_id.as_deref() != session {
        return Err(Refused::not_found());
    }
    let decision = match said.approved {
        true => {
            NewDecision { remember: remember(app, caller, &hold, said).await?, ..NewDecision::approve(hold.digest) }
        }
        false => NewDecision::deny(hold.digest, None),
    };
    match decide_as(app, caller, id, decision).await?.replayed {
        // A second answer to one question changes nothing, and is told so.
        true => Err(Refused::new(Code::HoldClosed)),
        false => Ok(()),
    }
}

/// What a ticked box is taken for: these exact arguments, in the hold's session, or everywhere where the policy says
/// `allowedToolsStorage: storage`; as far as the rules allow. Where they allow nothing, the yes is for this one call: who
/// meant more is asked again, who meant less is not surprised.
async fn remember(app: &App, caller: &Principal, hold: &Hold, said: &Confirmation) -> Answer<Option<wire::Remember>> {
    if !said.remember_choice || hold.in_run() {
        return Ok(None);
    }
    let everywhere = app.gate.policy().saiki_storage() == Some(Memory::Global);
    let scopes: &[RememberScope] = match hold.call.facts.path.session {
        Some(_) if everywhere => &[RememberScope::Global, RememberScope::Session],
        Some(_) => &[RememberScope::Session],
        None => &[RememberScope::Global],
    };
    let (who, now) = (caller.decider().0, app.store().now().await?);
    let wish = |scope: &RememberScope| wire::Remember {
        scope: *scope,
        covers: RememberCovers::Exact,
        expires_after: None,
        uses: None,
    };
    let allowed =
        |wish: &wire::Remember| Grant::asked_for(&wish.clone().into(), &hold.call, hold.id, who.clone(), now).is_ok();
    Ok(scopes.iter().map(wish).find(allowed))
}

async fn upgrade(
    State(app): State<App>,
    caller: Approver,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade = upgrade.map_err(|_| Refused::because(Code::BadRequest, "this is no WebSocket upgrade"))?;
    let upgrade = upgrade.max_message_size(limits::MESSAGE_BYTES).max_frame_size(limits::MESSAGE_BYTES);
    let pulse = Pulse::begin(app.rates.stream(&*caller)?);
    let feed = Feed::begin(app.clone(), caller.0.clone(), None);
    Ok(upgrade.on_upgrade(move |socket| talk(app, caller.0, pulse, feed, socket)))
}

/// Asks what waits and what comes, and takes answers, until either side goes. A client that comes back is asked anew.
async fn talk(app: App, principal: Arc<Principal>, mut pulse: Pulse, mut feed: Feed, mut socket: WebSocket) {
    let why = loop {
        let message = tokio::select! {
            received = socket.recv() => {
                pulse.hear();
                match received {
                    Some(Ok(Message::Text(text))) => answered(&app, &principal, &text).await,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
                    Some(Ok(Message::Binary(_))) => break "text only",
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                }
            }
            item = feed.next() => match item {
                None | Some(Item::Resync) => break "the stream ended",
                Some(item) => match asked(&app, &item).await {
                    Ok(message) => message,
                    Err(_) => break "the store failed",
                },
            },
            () = pulse.beat() => match pulse.ask(&app, &principal, &mut socket).await {
                Ok(()) => None,
                Err(why) => break why,
            },
            () = app.ended() => break "the server ends",
        };
        let Some(text) = message.and_then(|message| serde_json::to_string(&message).ok()) else { continue };
        if let Err(why) = pulse::send(&mut socket, Message::Text(text.into())).await {
            break why;
        }
    };
    pulse::close(&mut socket, why).await;
}

/// The question of a hold that has just opened, or still waits.
async fn asked(app: &App, item: &Item) -> Answer<Option<Outgoing>> {
    let (Item::Waiting(event) | Item::Event(event)) = item else { return Ok(None) };
    let Some(id) = event.hold.filter(|_| event.name == EventName::HoldOpened) else { return Ok(None) };
    let hold = find(app, id).await?;
    let facts = &hold.call.facts;
    let request = Request {
        tool_name: facts.tool.to_string(),
        args: hold.call.shown_arguments().clone(),
        description: hold.hint.as_deref().map(str::to_owned),
        execution_id: id,
        timestamp: timestamp(hold.opened_at),
        session_id: facts.path.session.as_deref().map(str::to_owned),
    };
    Ok(hold.is_pending().then(|| Outgoing::ToolConfirmationRequest(Box::new(request))))
}

async fn answered(app: &App, principal: &Principal, text: &str) -> Option<Outgoing> {
    let refused = take(app, principal, text).await.err()?;
    let problem = &refused.0;
    let message = match is_gone(&refused) {
        true => NOT_FOUND.to_owned(),
        false => problem.detail.clone().unwrap_or_else(|| problem.title.clone()),
    };
    Some(Outgoing::Error { message })
}

async fn take(app: &App, principal: &Principal, text: &str) -> Answer<()> {
    app.rates.request(principal)?;
    let bad = |why: String| Refused::because(Code::BadRequest, why);
    let message: Incoming = serde_json::from_str(text).map_err(|error| bad(format!("the message: {error}")))?;
    if message.r#type != "toolConfirmationResponse" {
        return Err(bad("`type` is `toolConfirmationResponse`".to_owned()));
    }
    // SECURITY: the credential was good when the talk began; a decision needs it to be good now.
    if !principal.still_holds(app).await {
        return Err(Refused::new(Code::Unauthenticated));
    }
    let id = message.data.execution_id.clone().ok_or_else(|| bad("no `executionId`".to_owned()))?;
    decide(app, principal, &id, &message.data).await
}
