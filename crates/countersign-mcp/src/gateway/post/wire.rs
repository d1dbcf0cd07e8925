//! The wire to an address: requests side by side, notifications in order, and streams that are taken up again.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::address::{Address, Answer};
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
/// As many headers as a message mostly has, so that their map does not grow.
const HEADERS: usize = 12;
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

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

impl Asking {
    fn of(method: &str, version: Option<&str>) -> Asking {
        Asking {
            is_opening: method == "initialize",
            // A call has a limit of its own, and a subscription is there to go on.
            is_bounded: !matches!(method, "tools/call" | "subscriptions/listen"),
            ends_with_stream: version.is_some(),
        }
    }
}

struct Underway {
    stop: Stop,
    ends_with_stream: bool,
}

/// How a request that is under way is stopped.
enum Stop {
    /// It has a task of its own.
    Task(AbortHandle),
    /// Whoever asks sees to it, and is told.
    Asker(oneshot::Sender<()>),
}

/// What came of a request: its answer, where nothing was said before it and whoever asked may have it at once; none where
/// everything was passed on.
type Came = Option<(String, Share)>;

/// A request on its way, for as long as there is somebody who sees to it.
pub(crate) type Exchanging = BoxFuture<'static, Result<Came, Missing>>;

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
    pub(crate) async fn send(&self, line: String, mirrored: Mirrored) -> io::Result<()> {
        let envelope = Envelope::read(&line)?;
        let version = protocol_version(&envelope);
        let headers = self.state.headers(&envelope, version.as_deref(), mirrored);
        match (envelope.method.as_deref(), envelope.id.and_then(Id::read)) {
            (Some(method), Some(id)) => {
                let asking = Asking::of(method, version.as_deref());
                self.state.begin(id, self.state.post(headers, line), asking);
                Ok(())
            }
            (Some("notifications/cancelled"), None) if self.cut(&envelope).await => Ok(()),
            (method, _) => {
                let begins = method == Some("notifications/initialized");
                let request = self.state.post(headers, line);
                let taken = tokio::time::timeout(limits::NOTICE_WITHIN, self.state.address.send(request)).await;
                let answer = taken.map_err(io::Error::other)?.map_err(io::Error::other)?;
                if begins && answer.status().is_success() {
                    tokio::spawn(Arc::clone(&self.state).until_ended(Arc::clone(&self.state).stand()));
                }
                Ok(())
            }
        }
    }

    /// A request that whoever asks sees to: it is on its way while that is polled, and no more once it is dropped. What
    /// else is said in answer to it is heard as everything is.
    pub(crate) fn exchange(&self, line: String, mirrored: Mirrored) -> io::Result<Exchanging> {
        let envelope = Envelope::read(&line)?;
        let version = protocol_version(&envelope);
        let headers = self.state.headers(&envelope, version.as_deref(), mirrored);
        let named = envelope.method.as_deref().zip(envelope.id.and_then(Id::read));
        let (method, id) = named.ok_or_else(|| io::Error::other("no request"))?;
        let asking = Asking::of(method, version.as_deref());
        let request = self.state.post(headers, line);
        let exchange = Exchange::new(&self.state, id, asking);
        if !asking.ends_with_stream {
            return Ok(Box::pin(exchange.run(request)));
        }
        let (stop, stopped) = oneshot::channel();
        let known = Known::new(&self.state, &exchange.id, Stop::Asker(stop));
        Ok(Box::pin(async move {
            let _known = known;
            tokio::select! {
                biased;
                came = exchange.run(request) => came,
                _ = stopped => Err(Missing::Cut(CANCELLED.to_owned())),
            }
        }))
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
        match underway.map(|underway| underway.stop) {
            None => return false,
            Some(Stop::Asker(asker)) => drop(asker.send(())),
            Some(Stop::Task(task)) => {
                task.abort();
                let cut = Missing::Cut(CANCELLED.to_owned());
                let _ = self.state.heard.send(Heard::Nothing(id, cut)).await;
            }
        }
        true
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        let session = self.state.session();
        if let Some(id) = session.id {
            let request = self.state.request(Method::DELETE, HeaderMap::from_iter([(SESSION, id)]));
            let _ = tokio::time::timeout(limits::END_WITHIN, self.state.address.send(request)).await;
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

    /// A request without a message. The operator's headers stand in the place of ours.
    fn request(&self, method: Method, mut headers: HeaderMap) -> Request<String> {
        for (name, value) in &self.address.headers {
            headers.insert(name.clone(), value.clone());
        }
        headers.append(ACCEPT, EITHER);
        let mut request = Request::new(String::new());
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        request
    }

    fn post(&self, headers: HeaderMap, line: String) -> Request<String> {
        let mut request = self.request(Method::POST, headers).map(|_| line);
        request.headers_mut().append(CONTENT_TYPE, HeaderValue::from_static(JSON));
        request
    }

    /// The headers of a message. SECURITY: made from the very bytes that are sent.
    fn headers(&self, envelope: &Envelope<'_>, version: Option<&str>, mirrored: Mirrored) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        let Some(version) = version.and_then(|version| HeaderValue::try_from(version).ok()) else {
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

    fn begin(self: &Arc<Self>, id: Id, request: Request<String>, asking: Asking) {
        let (state, exchange) = (Arc::clone(self), Exchange::new(self, id.clone(), asking));
        // Held until the task is known, so that one that ends at once finds itself to remove.
        let mut requests = self.requests();
        let ours = id.clone();
        let task = tokio::spawn(Arc::clone(self).until_ended(async move {
            let came = exchange.run(request).await;
            state.requests().remove(&ours);
            let heard = match came {
                Ok(None) => return,
                Ok(Some((line, share))) => Heard::Message(line, Some(ours), share),
                Err(missing) => Heard::Nothing(ours, missing),
            };
            let _ = state.heard.send(heard).await;
        }));
        let stop = Stop::Task(task.abort_handle());
        requests.insert(id, Underway { stop, ends_with_stream: asking.ends_with_stream });
    }

    async fn until_ended(self: Arc<Self>, work: impl Future<Output = ()>) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = work => {}
        }
    }

    async fn resume(&self, last: &str) -> Option<Answer> {
        let mut headers = HeaderMap::new();
        let session = self.session();
        headers.extend(session.id.map(|id| (SESSION, id)));
        headers.extend(session.version.map(|version| (VERSION, version)));
        headers.insert(LAST, HeaderValue::from_str(last).ok()?);
        let answer = self.address.send(self.request(Method::GET, headers)).await.ok()?;
        (answer.status().is_success() && is(&answer, EVENTS)).then_some(answer)
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
            let Ok(answer) = self.address.send(self.request(Method::GET, headers)).await else { return };
            if !answer.status().is_success() || !is(&answer, EVENTS) {
                return;
            }
            let mut events = self.budget.events(answer);
            while let Some(Ok(event)) = events.next().await {
                last = event.id.or(last);
                round = 0;
                if let Some(data) = event.data.filter(|data| !data.trim().is_empty()) {
                    let Some(share) = self.budget.share_of(&data) else { break };
                    self.pass(one_line(data), None, share).await;
                }
            }
            tokio::time::sleep(wait_before(round)).await;
            round += 1;
        }
    }

    /// Passes a message on.
    async fn pass(&self, line: String, about: Option<&Id>, share: Share) {
        let _ = self.heard.send(Heard::Message(line, about.cloned(), share)).await;
    }
}

/// Why nothing more is heard of a request that was cancelled.
const CANCELLED: &str = "it was cancelled";

/// A request that can be stopped. Dropped, it is over.
struct Known {
    state: Arc<State>,
    id: Id,
}

impl Known {
    fn new(state: &Arc<State>, id: &Id, stop: Stop) -> Known {
        state.requests().insert(id.clone(), Underway { stop, ends_with_stream: true });
        Known { state: Arc::clone(state), id: id.clone() }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.state.requests().remove(&self.id);
    }
}

/// A request, and what is said in answer to it.
struct Exchange {
    state: Arc<State>,
    id: Id,
    asking: Asking,
    /// Whether anything was passed on: what comes then must come after it.
    has_spoken: bool,
}

impl Exchange {
    fn new(state: &Arc<State>, id: Id, asking: Asking) -> Exchange {
        Exchange { state: Arc::clone(state), id, asking, has_spoken: false }
    }

    /// Sends the request and hears everything that comes in answer to it.
    async fn run(mut self, request: Request<String>) -> Result<Came, Missing> {
        let came = match self.asking.is_bounded {
            true => within(self.state.answer_within, self.ask(request)).await,
            false => self.ask(request).await,
        };
        if !self.has_spoken {
            return came;
        }
        match came {
            Ok(Some((line, share))) => self.state.pass(line, Some(&self.id), share).await,
            Ok(None) => {}
            Err(missing) => drop(self.state.heard.send(Heard::Nothing(self.id, missing)).await),
        }
        Ok(None)
    }

    async fn ask(&mut self, request: Request<String>) -> Result<Came, Missing> {
        let answer = self.state.address.send(request).await?;
        if !answer.status().is_success() {
            return self.refused(answer).await;
        }
        if self.asking.is_opening {
            let session = answer.headers().get(&SESSION).cloned();
            self.state.session.lock().unwrap_or_else(PoisonError::into_inner).id = session;
        }
        if is(&answer, EVENTS) {
            return self.stream(answer).await;
        }
        let cut = |why: &str| Missing::Cut(why.to_owned());
        let (body, share) = self.state.budget.text(answer).await.map_err(cut)?;
        match self.hear(body, share).await {
            None => Err(cut("the server's answer is for another request")),
            answer => Ok(answer),
        }
    }

    /// What an answer that is no success means.
    async fn refused(&mut self, answer: Answer) -> Result<Came, Missing> {
        let status = answer.status();
        if is(&answer, JSON)
            && let Ok((said, share)) = self.state.budget.text(answer).await
            && let Ok([Some(error)]) = pick(&said, ["error"])
        {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#, self.id.0, error.get());
            return Ok(Some((one_line(answer), share)));
        }
        let why = format!("HTTP {status}");
        if status == StatusCode::NOT_FOUND && self.state.session().id.is_some() {
            // SECURITY: a session that the server forgot is over here, too: the next one lists and pins anew.
            let _ = self.state.heard.send(Heard::Nothing(self.id.clone(), Missing::Unsent(why))).await;
            let _ = self.state.heard.send(Heard::Ended).await;
            return Ok(None);
        }
        // A server that says no has not looked at the call; one that failed may have.
        let looked = !status.is_redirection() && (!status.is_client_error() || status == StatusCode::REQUEST_TIMEOUT);
        Err(if looked { Missing::Cut(why) } else { Missing::Unsent(why) })
    }

    /// Hears a stream until the answer is there; one that was cut is taken up again where the server can.
    async fn stream(&mut self, mut answer: Answer) -> Result<Came, Missing> {
        let mut last = None;
        for round in 0..=limits::RESUMES {
            let mut wait = wait_before(round);
            let mut events = self.state.budget.events(answer);
            while let Some(Ok(event)) = events.next().await {
                last = event.id.or(last);
                wait = event.retry.map_or(wait, Duration::from_millis).min(limits::BACK_OFF_MOST);
                let Some(data) = event.data.filter(|data| !data.trim().is_empty()) else { continue };
                let share = self.state.budget.share_of(&data).ok_or_else(|| Missing::Cut(TOO_MUCH.to_owned()))?;
                if let Some(answer) = self.hear(data, share).await {
                    return Ok(Some(answer));
                }
            }
            let Some(seen) = &last else { break };
            tokio::time::sleep(wait).await;
            match self.state.resume(seen).await {
                Some(again) => answer = again,
                None => break,
            }
        }
        Err(Missing::Cut("the stream ended without it".to_owned()))
    }

    /// Reads a message: none where it is passed on, because it is not the answer.
    async fn hear(&mut self, text: String, share: Share) -> Came {
        let line = one_line(text);
        let envelope = Envelope::read(&line).ok();
        let answer = envelope.as_ref().filter(|envelope| envelope.is_answer());
        let is_answer = answer.and_then(|envelope| Id::read(envelope.id?)).is_some_and(|id| id == self.id);
        if self.asking.is_opening
            && let Some(result) = answer.and_then(|envelope| envelope.result)
        {
            let [version] = pick(result.get(), ["protocolVersion"]).unwrap_or_default();
            let version = version.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
            let version = version.and_then(|version| HeaderValue::try_from(version).ok());
            self.state.session.lock().unwrap_or_else(PoisonError::into_inner).version = version;
        }
        if is_answer {
            return Some((line, share));
        }
        self.has_spoken = true;
        self.state.pass(line, Some(&self.id), share).await;
        None
    }
}

fn wait_before(round: usize) -> Duration {
    let times = u32::try_from(round).ok().and_then(|round| 2_u32.checked_pow(round)).unwrap_or(u32::MAX);
    limits::BACK_OFF_FIRST.checked_mul(times).unwrap_or(limits::BACK_OFF_MOST).min(limits::BACK_OFF_MOST)
}

/// Waits for an answer for so long and no longer.
async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Missing>>) -> Result<T, Missing> {
    let late = |_| Err(Missing::Cut(format!("it did not come within {limit:?}")));
    tokio::time::timeout(limit, asked).await.unwrap_or_else(late)
}

fn is(answer: &Answer, kind: &str) -> bool {
    answer.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
}
