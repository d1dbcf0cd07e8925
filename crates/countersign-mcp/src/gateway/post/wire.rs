//! The wire to an address: requests side by side, notifications in order, and streams that are taken up again.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::address::Address;
use super::budget::{Budget, Share, TOO_MUCH};
use super::headers::{Mirrored, encoded, name_of};
use super::one_line;
use crate::gateway::link::Missing;
use crate::gateway::message::{Envelope, Id, pick};
use crate::gateway::request::protocol_version;
use crate::limits;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// What comes over the wire.
pub(crate) enum Heard {
    /// A message, the request in whose answer it came, and what it takes of the budget.
    Message(String, Option<Id>, Share),
    /// That there will be no answer to a request.
    Nothing(Id, Missing),
    /// That the server has nothing more to say.
    Ended,
}

/// The wire to one server.
pub(crate) struct Wire {
    state: Arc<State>,
    _ended: DropGuard,
}

struct State {
    address: Address,
    budget: Arc<Budget>,
    /// How long the server may take to answer a request that is no call and is to have an end.
    answer_within: Duration,
    heard: mpsc::Sender<Heard>,
    session: Mutex<Session>,
    requests: Mutex<HashMap<Id, Underway>>,
    ended: CancellationToken,
}

/// What the server told about the session, to be repeated.
#[derive(Clone, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

/// What matters about a request on its way.
#[derive(Clone, Copy)]
struct Asking {
    /// A session begins with it.
    is_opening: bool,
    /// It is not waited for without end.
    is_bounded: bool,
    /// Without a handshake, to close a request's stream is to cancel it.
    ends_with_stream: bool,
}

struct Underway {
    task: AbortHandle,
    ends_with_stream: bool,
}

impl Wire {
    /// A wire, and where to hear what comes over it: no more at once than the budget, and no answer later than that.
    pub(crate) fn new(address: Address, budget: Arc<Budget>, answer_within: Duration) -> (Wire, mpsc::Receiver<Heard>) {
        let (heard, hearing) = mpsc::channel(limits::BEHIND);
        let ended = CancellationToken::new();
        let state = State {
            address,
            budget,
            answer_within,
            heard,
            session: Mutex::default(),
            requests: Mutex::default(),
            ended: ended.clone(),
        };
        (Wire { state: Arc::new(state), _ended: ended.drop_guard() }, hearing)
    }

    /// Sends one message. A request is under way when this returns; anything else has been taken.
    pub(crate) async fn send(&self, line: &str, mirrored: Mirrored) -> io::Result<()> {
        let envelope = Envelope::read(line)?;
        let headers = self.state.headers(&envelope, mirrored);
        let request = self.state.request(Method::POST, headers).header(CONTENT_TYPE, JSON).body(line.to_owned());
        match (envelope.method.as_deref(), envelope.id.and_then(Id::read)) {
            (Some(method), Some(id)) => {
                let asking = Asking {
                    is_opening: method == "initialize",
                    // A call has a limit of its own, and a subscription is there to go on.
                    is_bounded: !matches!(method, "tools/call" | "subscriptions/listen"),
                    ends_with_stream: protocol_version(&envelope).is_some(),
                };
                self.state.begin(id, request, asking);
                Ok(())
            }
            (Some("notifications/cancelled"), None) if self.cut(&envelope).await => Ok(()),
            (method, _) => {
                let taken = tokio::time::timeout(limits::NOTICE_WITHIN, request.send()).await;
                let response = taken.map_err(io::Error::other)?.map_err(|error| io::Error::other(plain(error)))?;
                if method == Some("notifications/initialized") && response.status().is_success() {
                    tokio::spawn(Arc::clone(&self.state).until_ended(Arc::clone(&self.state).stand()));
                }
                Ok(())
            }
        }
    }

    /// Cancels a request by closing its stream, where that is how it is done.
    async fn cut(&self, cancel: &Envelope<'_>) -> bool {
        let named = cancel.params.and_then(|params| pick(params.get(), ["requestId"]).ok());
        let Some(id) = named.and_then(|[raw]| Id::read(raw?)) else { return false };
        let underway = {
            let mut requests = self.state.requests();
            match requests.get(&id) {
                Some(underway) if underway.ends_with_stream => requests.remove(&id),
                _ => None,
            }
        };
        let Some(underway) = underway else { return false };
        underway.task.abort();
        let cut = Missing::Cut("it was cancelled".to_owned());
        let _ = self.state.heard.send(Heard::Nothing(id, cut)).await;
        true
    }

    /// Hears no more of a request that nobody waits for: the server might go on about it for ever.
    pub(crate) fn abandon(&self, id: &Id) {
        if let Some(underway) = self.state.requests().remove(id) {
            underway.task.abort();
        }
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        let session = self.state.session();
        if let Some(id) = session.id {
            let request = self.state.request(Method::DELETE, HeaderMap::from_iter([(SESSION, id)]));
            let _ = tokio::time::timeout(limits::END_WITHIN, request.send()).await;
        }
        let _ = self.state.heard.try_send(Heard::Ended);
        self.state.ended.cancel();
    }
}

impl State {
    fn session(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Id, Underway>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, method: Method, headers: HeaderMap) -> RequestBuilder {
        let request = self.address.client.request(method, self.address.url.clone());
        request.headers(headers).headers(self.address.headers.clone()).header(ACCEPT, [JSON, EVENTS].join(", "))
    }

    /// The headers of a message. SECURITY: made from the very bytes that are sent.
    fn headers(&self, envelope: &Envelope<'_>, mirrored: Mirrored) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(version) = protocol_version(envelope).and_then(|version| HeaderValue::try_from(version).ok()) else {
            let session = self.session();
            headers.extend(session.id.map(|id| (SESSION, id)));
            headers.extend(session.version.map(|version| (VERSION, version)));
            return headers;
        };
        headers.extend(mirrored);
        headers.insert(VERSION, version);
        if let Some(method) = &envelope.method {
            headers.extend(encoded(method).map(|method| (METHOD, method)));
            headers.extend(name_of(method, envelope.params).and_then(|name| Some((NAME, encoded(&name)?))));
        }
        headers
    }

    fn begin(self: &Arc<Self>, id: Id, request: RequestBuilder, asking: Asking) {
        let (state, ours) = (Arc::clone(self), id.clone());
        // Held until the task is known, so that one that ends at once finds itself to remove.
        let mut requests = self.requests();
        let task = tokio::spawn(Arc::clone(self).until_ended(async move {
            let asked = match asking.is_bounded {
                true => within(state.answer_within, state.ask(&ours, request, asking.is_opening)).await,
                false => state.ask(&ours, request, asking.is_opening).await,
            };
            state.requests().remove(&ours);
            if let Err(missing) = asked {
                let _ = state.heard.send(Heard::Nothing(ours, missing)).await;
            }
        }));
        requests.insert(id, Underway { task: task.abort_handle(), ends_with_stream: asking.ends_with_stream });
    }

    async fn until_ended(self: Arc<Self>, work: impl Future<Output = ()>) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = work => {}
        }
    }

    /// Sends a request and hears everything that comes in answer to it.
    async fn ask(&self, id: &Id, request: RequestBuilder, is_opening: bool) -> Result<(), Missing> {
        let response = request.send().await.map_err(|error| match error.is_connect() {
            true => Missing::Unsent(plain(error)),
            false => Missing::Cut(plain(error)),
        })?;
        let status = response.status();
        if !status.is_success() {
            return self.refused(id, response).await;
        }
        if is_opening {
            let session = response.headers().get(&SESSION).cloned();
            self.session.lock().unwrap_or_else(PoisonError::into_inner).id = session;
        }
        if is(&response, EVENTS) {
            return self.stream(id, response, is_opening).await;
        }
        let cut = |why: &str| Missing::Cut(why.to_owned());
        let (body, share) = self.budget.text(response).await.map_err(cut)?;
        match self.hear(body, share, Some(id), is_opening).await {
            true => Ok(()),
            false => Err(cut("the server's answer is for another request")),
        }
    }

    /// What an answer that is no success means.
    async fn refused(&self, id: &Id, response: Response) -> Result<(), Missing> {
        let status = response.status();
        if is(&response, JSON)
            && let Ok((said, share)) = self.budget.text(response).await
            && let Ok([Some(error)]) = pick(&said, ["error"])
        {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#, id.0, error.get());
            self.hear(answer, share, Some(id), false).await;
            return Ok(());
        }
        let why = format!("HTTP {status}");
        if status == StatusCode::NOT_FOUND && self.session().id.is_some() {
            // SECURITY: a session that the server forgot is over here, too: the next one lists and pins anew.
            let _ = self.heard.send(Heard::Nothing(id.clone(), Missing::Unsent(why))).await;
            let _ = self.heard.send(Heard::Ended).await;
            return Ok(());
        }
        // A server that says no has not looked at the call; one that failed may have.
        let looked = !status.is_redirection() && (!status.is_client_error() || status == StatusCode::REQUEST_TIMEOUT);
        Err(if looked { Missing::Cut(why) } else { Missing::Unsent(why) })
    }

    /// Hears a stream until the answer is there; one that was cut is taken up again where the server can.
    async fn stream(&self, id: &Id, response: Response, is_opening: bool) -> Result<(), Missing> {
        let mut response = response;
        let mut last = None;
        for round in 0..=limits::RESUMES {
            let mut wait = wait_before(round);
            let mut events = self.budget.events(response);
            while let Some(Ok(event)) = events.next().await {
                last = event.id.or(last);
                wait = event.retry.map_or(wait, Duration::from_millis).min(limits::BACK_OFF_MOST);
                let Some(data) = event.data.filter(|data| !data.trim().is_empty()) else { continue };
                let share = self.budget.share_of(&data).ok_or_else(|| Missing::Cut(TOO_MUCH.to_owned()))?;
                if self.hear(data, share, Some(id), is_opening).await {
                    return Ok(());
                }
            }
            let Some(seen) = &last else { break };
            tokio::time::sleep(wait).await;
            match self.resume(seen).await {
                Some(again) => response = again,
                None => break,
            }
        }
        Err(Missing::Cut("the stream ended without it".to_owned()))
    }

    async fn resume(&self, last: &str) -> Option<Response> {
        let mut headers = HeaderMap::new();
        let session = self.session();
        headers.extend(session.id.map(|id| (SESSION, id)));
        headers.extend(session.version.map(|version| (VERSION, version)));
        headers.insert(LAST, HeaderValue::from_str(last).ok()?);
        let response = self.request(Method::GET, headers).send().await.ok()?;
        (response.status().is_success() && is(&response, EVENTS)).then_some(response)
    }

    /// Hears what belongs to no request, for as long as the server offers it.
    async fn stand(self: Arc<Self>) {
        let mut last: Option<String> = None;
        let mut round = 0;
        while round <= limits::RESUMES {
            let session = self.session();
            let mut headers = HeaderMap::new();
            headers.extend(session.id.map(|id| (SESSION, id)));
            headers.extend(session.version.map(|version| (VERSION, version)));
            headers.extend(last.as_deref().and_then(|last| Some((LAST, HeaderValue::from_str(last).ok()?))));
            let Ok(response) = self.request(Method::GET, headers).send().await else { return };
            if !response.status().is_success() || !is(&response, EVENTS) {
                return;
            }
            let mut events = self.budget.events(response);
            while let Some(Ok(event)) = events.next().await {
                last = event.id.or(last);
                round = 0;
                if let Some(data) = event.data.filter(|data| !data.trim().is_empty()) {
                    let Some(share) = self.budget.share_of(&data) else { break };
                    self.hear(data, share, None, false).await;
                }
            }
            tokio::time::sleep(wait_before(round)).await;
            round += 1;
        }
    }

    /// Passes a message on; whether it was the answer to the request.
    async fn hear(&self, text: String, share: Share, about: Option<&Id>, is_opening: bool) -> bool {
        let line = one_line(text);
        let envelope = Envelope::read(&line).ok();
        let answers = envelope.as_ref().filter(|envelope| envelope.is_answer());
        let is_answer = answers.and_then(|envelope| Id::read(envelope.id?)).as_ref() == about && about.is_some();
        if is_opening && let Some(result) = answers.and_then(|envelope| envelope.result) {
            let [version] = pick(result.get(), ["protocolVersion"]).unwrap_or_default();
            let version = version.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
            let version = version.and_then(|version| HeaderValue::try_from(version).ok());
            self.session.lock().unwrap_or_else(PoisonError::into_inner).version = version;
        }
        let _ = self.heard.send(Heard::Message(line, about.cloned(), share)).await;
        is_answer
    }
}

fn wait_before(round: usize) -> Duration {
    let times = u32::try_from(round).ok().and_then(|round| 2_u32.checked_pow(round)).unwrap_or(u32::MAX);
    limits::BACK_OFF_FIRST.checked_mul(times).unwrap_or(limits::BACK_OFF_MOST).min(limits::BACK_OFF_MOST)
}

/// Waits for an answer for so long and no longer.
async fn within(limit: Duration, asked: impl Future<Output = Result<(), Missing>>) -> Result<(), Missing> {
    let late = |_| Err(Missing::Cut(format!("it did not come within {limit:?}")));
    tokio::time::timeout(limit, asked).await.unwrap_or_else(late)
}

/// An error without the address, which may hold a secret.
fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn is(response: &Response, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
}
