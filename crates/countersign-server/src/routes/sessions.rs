//! Sessions: conversations with agents that this server runs.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::routing;
use countersign_agent::{SessionReader, every_session, sessions};
use countersign_api::wire::{self, Code, Page, timestamp};
use futures::stream::{Stream, unfold};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Agent, Anyone, Principal};
use crate::extract::{Body, Id, Query};
use crate::json::Json;
use crate::limits;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::sessions::{Eyes, Key, Mark, Watch, Watched, entry, refused, usage};
use crate::table::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/v1/sessions", Agent::ROLES, routing::post(begin), "Begins a session with an agent of this server.")
            .takes::<wire::NewSession>()
            .answers::<wire::Session>("201")
            .refuses(&[Code::Conflict]),
        get("/v1/sessions", Anyone::ROLES, routing::get(list), "Lists sessions; an agent sees its own.")
            .lists::<wire::Session>(),
        get("/v1/sessions/{id}", Anyone::ROLES, routing::get(read), "Shows a session and one page of its transcript.")
            .query(&["principal", "thread", "after", "limit"])
            .answers::<wire::SessionDetail>("200"),
        post("/v1/sessions/{id}/messages", Agent::ROLES, routing::post(say), "Says something in a session.")
            .takes::<wire::NewMessage>()
            .answers::<wire::Session>("202")
            .refuses(&[Code::WrongState, Code::Conflict]),
        post("/v1/sessions/{id}/cancel", Agent::ROLES, routing::post(cancel), "Ends the run that goes on.")
            .takes::<wire::CancelRun>()
            .answers::<wire::Session>("202")
            .refuses(&[Code::WrongState, Code::Conflict]),
        post(
            "/v1/sessions/{id}/tool-results",
            Agent::ROLES,
            routing::post(give),
            "Gives the result of a client's call.",
        )
        .takes::<wire::ToolResult>()
        .answers::<wire::Call>("200"),
        get(
            "/v1/sessions/{id}/events",
            Anyone::ROLES,
            routing::get(stream),
            "Streams a session from its beginning on.",
        )
        .query(&["principal", "after"])
        .resumes()
        .streams(
            "200",
            "Server-sent events: `event` is the name, `id` the place, `data` as docs/reference/api.md says.",
        ),
    ]
}

async fn begin(
    State(app): State<App>,
    caller: Agent,
    Body(mut new): Body<wire::NewSession>,
) -> Answer<(StatusCode, Json<wire::Session>)> {
    app.rates.submit(&*caller)?;
    new.requester = caller.requester(new.requester.take())?.map(|person| person.to_string());
    let reader = app.sessions.begin(&caller.name, new).await?;
    Ok((StatusCode::CREATED, Json(brief(&app, &reader).await?)))
}

async fn list(State(app): State<App>, caller: Anyone, list: List) -> Answer<Json<Page<wire::Session>>> {
    let after = list.after::<String>()?;
    let found = found(&app, &caller.0, after.as_deref().map(place).transpose()?, list.read()).await?;
    let page = list.page(found, |(key, _)| format!("{}/{}", key.principal, key.session), |row| Ok(row.clone()))?;
    let (mut items, next) = (Vec::with_capacity(page.items.len()), page.next);
    for (key, listed) in page.items {
        let state = app.sessions.state(&key).await?;
        items.push(shown(&key, &listed, state));
    }
    Ok(Json(Page { items, next }))
}

/// A cursor of the list: whose session, and its name.
fn place(text: &str) -> Answer<(&str, &str)> {
    text.split_once('/').ok_or_else(|| Refused::because(Code::BadRequest, "`after` is no cursor of this list"))
}

async fn found(
    app: &App,
    caller: &Principal,
    after: Option<(&str, &str)>,
    limit: usize,
) -> Answer<Vec<(Key, countersign_agent::Listed)>> {
    let store = &**app.store();
    if caller.is_agent() {
        let listed = sessions(store, &caller.name, after.map(|(_, session)| session), limit).await.map_err(refused)?;
        return Ok(listed.into_iter().map(|listed| (Key::new(&caller.name, &listed.session), listed)).collect());
    }
    let listed = every_session(store, after, limit).await.map_err(refused)?;
    Ok(listed.into_iter().map(|(principal, listed)| (Key::new(&principal, &listed.session), listed)).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFilter {
    principal: Option<Arc<str>>,
    thread: Option<String>,
}

async fn read(
    State(app): State<App>,
    caller: Anyone,
    Id(id): Id<String>,
    list: List<ReadFilter>,
) -> Answer<Json<wire::SessionDetail>> {
    let reader = visible(&app, &caller.0, list.filter.principal.clone(), &id).await?;
    let outline = reader.outline().await.map_err(refused)?;
    let threads = reader.threads(limits::SESSION_THREADS).await.map_err(refused)?;
    let thread = |found: countersign_agent::ThreadOutline| wire::SessionThread {
        thread: found.thread.to_string(),
        agents: found.agents.iter().map(ToString::to_string).collect(),
    };
    Ok(Json(wire::SessionDetail {
        session: brief(&app, &reader).await?,
        status: app.sessions.status(&reader).await?,
        threads: threads.into_iter().map(thread).collect(),
        usage: usage(&outline.spent),
        transcript: transcript(&app, &caller.0, &reader, &list).await?,
    }))
}

async fn transcript(
    app: &App,
    caller: &Principal,
    reader: &SessionReader,
    list: &List<ReadFilter>,
) -> Answer<Page<wire::SessionEntry>> {
    let from = list.after::<u32>()?.map_or(0, |after| after.saturating_add(1));
    let thread = list.filter.thread.as_deref().unwrap_or("main");
    let entries = reader.entries(thread, from, list.read()).await.map_err(refused)?;
    let agents = reader.agents_of(thread).await.map_err(refused)?;
    let eyes = if caller.is_agent() { Eyes::Own } else { Eyes::Others(&app.redactor) };
    let numbered: Vec<_> = (from..).zip(entries).collect();
    let shown = |(number, found): &(u32, _)| Ok(entry(thread, &agents, *number, found, eyes));
    list.page(numbered, |(number, _)| number.to_string(), shown)
}

async fn say(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<String>,
    Body(new): Body<wire::NewMessage>,
) -> Answer<(StatusCode, Json<wire::Session>)> {
    app.rates.submit(&*caller)?;
    let reader = app.sessions.find(&caller.name, &id).await?;
    let requester = &reader.listed().requester;
    if caller.requester(requester.as_deref().map(str::to_owned))? != *requester {
        return Err(Refused::because(Code::WrongState, "this session is not the one of whom the token speaks for"));
    }
    app.sessions.say(&Key::new(&caller.name, &id), &new.text).await?;
    Ok((StatusCode::ACCEPTED, Json(brief(&app, &reader).await?)))
}

async fn cancel(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<String>,
    Body(_): Body<wire::CancelRun>,
) -> Answer<(StatusCode, Json<wire::Session>)> {
    let reader = app.sessions.find(&caller.name, &id).await?;
    app.sessions.cancel(&reader).await?;
    Ok((StatusCode::ACCEPTED, Json(brief(&app, &reader).await?)))
}

async fn give(
    State(app): State<App>,
    caller: Agent,
    Id(id): Id<String>,
    Body(result): Body<wire::ToolResult>,
) -> Answer<Json<wire::Call>> {
    let reader = app.sessions.find(&caller.name, &id).await?;
    let call = app.sessions.give(&reader, result).await?;
    Ok(Json(wire::Call::from(&*call)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    principal: Option<Arc<str>>,
    after: Option<String>,
}

async fn stream(
    State(app): State<App>,
    caller: Anyone,
    Id(id): Id<String>,
    headers: HeaderMap,
    Query(query): Query<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Sent, Infallible>>>> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let bad = |_| Refused::because(Code::BadRequest, "`after` is no place of this stream");
    let after = last.or(query.after.as_deref()).map(str::parse::<Mark>).transpose().map_err(bad)?;
    let reader = visible(&app, &caller.0, query.principal, &id).await?;
    let watch = Watch::begin(app, caller.0, reader, after).await?;
    let sent = unfold(watch, async |mut watch| watch.next().await.map(|watched| (Ok(sent(&watched)), watch)));
    Ok(Sse::new(sent).keep_alive(KeepAlive::new().interval(limits::KEEP_ALIVE)))
}

fn sent(watched: &Watched) -> Sent {
    match (watched.event.data(), &watched.place) {
        (Ok(data), Some(place)) => Sent::default().event(watched.event.name()).id(place).data(data),
        (Ok(data), None) => Sent::default().event(watched.event.name()).data(data),
        // An event that cannot be told must not pass for one that did not happen.
        (Err(_), _) => Sent::default().event("resync").data("{}"),
    }
}

/// A session the caller may see: an agent its own, the others the one they name with its principal.
async fn visible(app: &App, caller: &Principal, principal: Option<Arc<str>>, id: &str) -> Answer<SessionReader> {
    let principal = match (caller.is_agent(), principal) {
        (true, None) => Arc::clone(&caller.name),
        (true, Some(principal)) if principal == caller.name => principal,
        (true, Some(_)) => return Err(Refused::not_found()),
        (false, Some(principal)) => principal,
        (false, None) => return Err(Refused::because(Code::BadRequest, "say whose session it is: `principal=`")),
    };
    app.sessions.find(&principal, id).await
}

async fn brief(app: &App, reader: &SessionReader) -> Answer<wire::Session> {
    let key = Key::new(reader.principal(), &reader.listed().session);
    Ok(shown(&key, reader.listed(), app.sessions.state(&key).await?))
}

fn shown(key: &Key, listed: &countersign_agent::Listed, state: wire::SessionState) -> wire::Session {
    wire::Session {
        session: key.session.to_string(),
        principal: key.principal.to_string(),
        agent: listed.agent.to_string(),
        requester: listed.requester.as_deref().map(str::to_owned),
        state,
        created_at: timestamp(listed.created_at),
    }
}
