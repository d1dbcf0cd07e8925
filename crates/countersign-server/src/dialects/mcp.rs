//! MCP servers behind the gate, over streamable HTTP: `/mcp/{server}`, or `/mcp` where there is only one.
//!
//! A client's credential is a token of ours, for the gate alone; the server never sees it. Where one is missing, the
//! client is told where to read what it needs (RFC 9728).

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::RequestExt as _;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use countersign_api::wire::Code;
use countersign_mcp::gateway::face::{self, Events, Face, Reply};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Agent;
use crate::limits;
use crate::problem::{Answer, Refused};
use crate::rate::{StreamPlace, Whose};
use crate::table::{Route, delete, get, post};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Headers of a response at most, with those that every answer has.
const HEADERS: usize = 12;
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The routes of the servers of the configuration.
pub(crate) fn routes() -> Vec<Route> {
    let server = "/mcp/{server}";
    vec![
        post(server, Agent::ROLES, messages(routing::post(take)), "A message to an MCP server behind the gate")
            .streams("200", "A message, or messages as server-sent events"),
        get(server, Agent::ROLES, messages(routing::get(listen)), "What an MCP server says outside of answers")
            .streams("200", "Messages as server-sent events"),
        delete(server, Agent::ROLES, messages(routing::delete(end)), "End a session with an MCP server")
            .streams("204", "It has ended"),
        get("/.well-known/oauth-protected-resource/mcp/{server}", &[], routing::get(metadata), "Who lets clients in")
            .streams("200", "The metadata of the resource, as RFC 9728 has it"),
    ]
}

/// The routes of a gateway in front of one server: `/mcp`, and nothing else.
pub(crate) fn lone() -> [(&'static str, MethodRouter<App>); 3] {
    let all = messages(routing::post(take).get(listen).delete(end));
    [
        ("/mcp", all),
        ("/.well-known/oauth-protected-resource/mcp", routing::get(metadata)),
        (METADATA, routing::get(metadata)),
    ]
}

fn messages(handler: MethodRouter<App>) -> MethodRouter<App> {
    handler.layer(DefaultBodyLimit::max(countersign_mcp::limits::CLIENT_MESSAGE_BYTES))
}

/// Whoever may speak to a server, and the server.
struct Caller {
    principal: Arc<str>,
    server: Option<Arc<str>>,
}

impl Caller {
    /// Lets a client in, or says where to read how to get in.
    async fn admit(app: &App, request: &mut Request) -> Result<Caller, Response> {
        let named: Result<Option<Path<Arc<str>>>, _> = request.extract_parts().await;
        let Ok(named) = named else { return Err(Refused::not_found().into_response()) };
        let server = named.map(|Path(server)| server);
        if app.open && !request.headers().contains_key(header::AUTHORIZATION) {
            return Ok(Caller { principal: "local".into(), server });
        }
        let agent = request.extract_parts_with_state::<Agent, App>(app).await;
        match agent {
            // SECURITY: what comes this way does not say for whom, so it must not come where that is bound.
            Ok(agent) if agent.requester.is_some() => {
                Err(Refused::because(Code::Forbidden, "a token for one person's calls is not taken here")
                    .into_response())
            }
            Ok(agent) => Ok(Caller { principal: Arc::clone(&agent.name), server }),
            Err(refused) => Err(unauthorized(app, server.as_deref(), refused)),
        }
    }

    fn face<'a>(&self, app: &'a App) -> Answer<&'a Face> {
        find(app, self.server.as_deref()).ok_or_else(Refused::not_found)
    }
}

fn find<'a>(app: &'a App, server: Option<&str>) -> Option<&'a Face> {
    match server {
        Some(server) => app.faces.get(server),
        None => app.faces.values().next().filter(|_| app.faces.len() == 1),
    }
}

fn unauthorized(app: &App, server: Option<&str>, refused: Refused) -> Response {
    let mut response = refused.into_response();
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(url) = app.origins().next()
        && let Ok(value) =
            HeaderValue::try_from(format!("Bearer resource_metadata=\"{url}{METADATA}{}\"", path_of(server)))
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

fn path_of(server: Option<&str>) -> String {
    server.map_or_else(|| "/mcp".to_owned(), |server| format!("/mcp/{server}"))
}

async fn take(State(app): State<App>, mut request: Request) -> Response {
    let caller = match Caller::admit(&app, &mut request).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    let headers = std::mem::take(request.headers_mut());
    let body = match request.extract::<Bytes, _>().await {
        Ok(body) => body,
        Err(rejection) => return rejection.into_response(),
    };
    let place = match app.rates.wait(Whose::agent(&caller.principal), limits::EXCHANGES) {
        Ok(place) => place,
        Err(refused) => return refused.into_response(),
    };
    match caller.face(&app) {
        Ok(face) => shown(face.post(&caller.principal, &headers, body.into()).await, Some(place)),
        Err(refused) => refused.into_response(),
    }
}

async fn listen(State(app): State<App>, mut request: Request) -> Response {
    let caller = match Caller::admit(&app, &mut request).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    let place = match app.rates.stream(Whose::agent(&caller.principal)) {
        Ok(place) => place,
        Err(refused) => return refused.into_response(),
    };
    match caller.face(&app) {
        Ok(face) => shown(face.listen(&caller.principal, request.headers()).await, Some(place)),
        Err(refused) => refused.into_response(),
    }
}

async fn end(State(app): State<App>, mut request: Request) -> Response {
    let caller = match Caller::admit(&app, &mut request).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    match caller.face(&app) {
        Ok(face) => shown(face.end(&caller.principal, request.headers()), None),
        Err(refused) => refused.into_response(),
    }
}

/// Tells clients what this is and how they show who they are. Tokens are made by the operator: there is no server that
/// would give them one.
async fn metadata(State(app): State<App>, server: Option<Path<Arc<str>>>) -> Answer<Json<Value>> {
    let server = server.as_ref().map(|Path(server)| &**server);
    if find(&app, server).is_none() {
        return Err(Refused::not_found());
    }
    let url = app.origins().next().ok_or_else(|| Refused::new(Code::Internal))?;
    Ok(Json(json!({
        "resource": format!("{url}{}", path_of(server)),
        "resource_name": "Countersign",
        "bearer_methods_supported": ["header"],
    })))
}

/// Writes an event. Our own writing: an event whose message is empty says so, and nothing else can.
fn tell(text: &mut String, event: &face::Event) {
    text.push_str("event: message\n");
    if let Some(id) = &event.id {
        text.extend(["id: ", id, "\n"]);
    }
    if let Some(retry) = event.retry {
        text.extend(["retry: ", &retry.as_millis().to_string(), "\n"]);
    }
    // Line breaks in JSON stand between its parts only.
    text.extend(["data: ", &event.data.replace(['\n', '\r'], " "), "\n\n"]);
}

/// What tells a client now and then that its stream is still there.
const ALIVE: &str = ":\n\n";

/// Events as they come, and a sign of life where none do. What is there already is one piece, and all of it where nothing
/// comes after that.
fn stream(mut events: Events, place: Option<StreamPlace>) -> Response {
    let mut there = String::new();
    while let Some(event) = events.next().now_or_never() {
        match event {
            Some(event) => tell(&mut there, &event),
            None if there.is_empty() => break,
            None => return of_events(there.into()),
        }
    }
    let there = Some(there).filter(|there| !there.is_empty());
    let written = futures::stream::unfold((there, events, place), |(there, mut events, place)| async move {
        let text = match there {
            Some(there) => there,
            None => match tokio::time::timeout(limits::KEEP_ALIVE, events.next()).await {
                Ok(Some(event)) => {
                    let mut text = String::new();
                    tell(&mut text, &event);
                    text
                }
                Ok(None) => return None,
                Err(_) => ALIVE.to_owned(),
            },
        };
        Some((Ok::<_, Infallible>(text), (None, events, place)))
    });
    of_events(Body::from_stream(written))
}

fn of_events(body: Body) -> Response {
    let mut response = of_kind("text/event-stream", body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A response with room for all the headers that it will have: a map that grows costs more than what goes into it.
fn of_kind(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The answer. A stream keeps its place until it ends.
fn shown(reply: Reply, place: Option<StreamPlace>) -> Response {
    let (mut response, session) = match reply {
        Reply::Empty(status) => return status.into_response(),
        Reply::Message { status, body, session } => {
            let mut response = of_kind("application/json", body.into());
            *response.status_mut() = status;
            (response, session)
        }
        Reply::Stream { events, session } => (stream(events, place), session),
    };
    if let Some(session) = session.and_then(|session| HeaderValue::try_from(&*session).ok()) {
        response.headers_mut().insert(SESSION, session);
    }
    response
}
