//! A model server that follows a script and speaks four dialects, with every way a stream can go wrong.
//!
//! It checks what it is sent as strictly as the providers do, and answers 400 in their words, so that a history it
//! accepts is one they would accept.

mod check;
mod frames;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A wire language of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Google's Gemini.
    Gemini,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 4] = [Dialect::Anthropic, Dialect::Chat, Dialect::Responses, Dialect::Gemini];

    fn of(path: &str) -> Option<Dialect> {
        match path {
            "/v1/messages" => Some(Dialect::Anthropic),
            "/v1/chat/completions" => Some(Dialect::Chat),
            "/v1/responses" => Some(Dialect::Responses),
            path if path.starts_with("/v1beta/models/") && path.ends_with(":streamGenerateContent") => {
                Some(Dialect::Gemini)
            }
            _ => None,
        }
    }
}

/// What the server answers to one request.
#[derive(Debug)]
pub enum Reply {
    /// A good answer, delivered whole.
    Turn(Turn),
    /// A good answer in pieces of so many bytes, which end within characters and between CR and LF.
    Split(Turn, usize),
    /// A good answer of which only the beginning comes: so many frames, then the connection breaks.
    Cut(Turn, usize),
    /// A good answer of which one frame comes for each message of the channel.
    Stepped(Turn, mpsc::Receiver<()>),
    /// An error of this status, with a `Retry-After` if one is given.
    Status(u16, Option<&'static str>),
    /// Any body of this kind.
    Raw(&'static str, String),
}

/// What a model says in one answer.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) thought: Option<String>,
    pub(crate) cut_by_length: bool,
}

/// A call, with its arguments as the model writes them: they may be anything.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) label: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl Turn {
    /// Says a text, which may be empty.
    pub fn new(text: impl Into<String>) -> Turn {
        Turn { text: text.into(), ..Turn::default() }
    }

    /// Also wants a call.
    #[must_use]
    pub fn call(mut self, label: &str, name: &str, arguments: &str) -> Turn {
        let [label, name, arguments] = [label, name, arguments].map(str::to_owned);
        self.calls.push(Call { label, name, arguments });
        self
    }

    /// Also has a signed thought, which must come back with the history.
    #[must_use]
    pub fn thought(mut self, signature: &str) -> Turn {
        self.thought = Some(signature.to_owned());
        self
    }

    /// Ends because the bound on tokens was reached.
    #[must_use]
    pub fn cut_by_length(mut self) -> Turn {
        self.cut_by_length = true;
        self
    }
}

/// Answers each good request by what it says.
type Answering = Box<dyn Fn(&Received) -> Reply + Send + Sync>;

/// A request the server received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The path and query.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub text: String,
    /// The body, read.
    pub body: Value,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

impl Received {
    /// The model that was asked.
    pub fn model(&self) -> &str {
        let named = self.body.get("model").and_then(Value::as_str);
        let in_path = || self.target.strip_prefix("/v1beta/models/")?.split(':').next();
        named.or_else(in_path).unwrap_or_default()
    }

    /// How often a model has spoken so far. All that it says between two other things is one turn.
    pub fn turns(&self) -> usize {
        let list = ["messages", "input", "contents"].iter().find_map(|key| self.body.get(key)?.as_array());
        let mut spoke = false;
        let begins = |item: &&Value| {
            let before = std::mem::replace(&mut spoke, is_models(item));
            spoke && !before
        };
        list.into_iter().flatten().filter(begins).count()
    }
}

fn is_models(item: &Value) -> bool {
    let is =
        |key: &str, words: &[&str]| item.get(key).and_then(Value::as_str).is_some_and(|word| words.contains(&word));
    is("role", &["assistant", "model"]) || is("type", &["function_call", "reasoning"])
}

/// A running model server. It stops when it is dropped.
pub struct ModelServer {
    address: SocketAddr,
    inner: Arc<Inner>,
    task: tokio::task::JoinHandle<()>,
}

struct Inner {
    answering: Answering,
    received: Mutex<Vec<Received>>,
}

impl ModelServer {
    /// Starts a server that gives these replies, one for each good request; after the last it says `over`.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Result<ModelServer> {
        let replies: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        let next = move |_: &Received| locked(&replies).pop_front().unwrap_or_else(|| Reply::Turn(Turn::new("over")));
        ModelServer::answering(next).await
    }

    /// Starts a server whose reply follows from the request: asked the same again, it says the same again.
    pub async fn answering(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Result<ModelServer> {
        let inner = Inner { answering: Box::new(reply), received: Mutex::default() };
        let inner = Arc::new(inner);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.ok();
        });
        Ok(ModelServer { address, inner, task })
    }

    /// Its address, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, refused ones included.
    pub fn received(&self) -> Vec<Received> {
        locked(&self.inner.received).clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(inner): State<Arc<Inner>>, uri: Uri, headers: HeaderMap, text: String) -> Response {
    let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let dialect = Dialect::of(uri.path());
    let refused = dialect.and_then(|dialect| check::request(dialect, &uri, &body).err());
    let received = Received { target: uri.to_string(), headers, text, body, refused: refused.clone() };
    let answer = match (dialect, refused) {
        (None, _) => error(404, None, "there is nothing here"),
        (Some(_), Some(why)) => error(400, None, &why),
        (Some(dialect), None) => deliver(dialect, (inner.answering)(&received)),
    };
    locked(&inner.received).push(received);
    answer
}

/// An error as all four providers shape it, up to fields nobody needs.
fn error(status: u16, retry_after: Option<&'static str>, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({ "type": "error", "error": { "type": "error", "message": message } }).to_string();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if status.is_redirection() {
        response.headers_mut().insert(header::LOCATION, header::HeaderValue::from_static("/elsewhere"));
    }
    if let Some(after) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(after));
    }
    response
}

fn deliver(dialect: Dialect, reply: Reply) -> Response {
    let good = |turn: &Turn| frames::of(dialect, turn);
    match reply {
        Reply::Turn(turn) => streamed(stream::iter([good(&turn).concat()]).map(Ok).boxed()),
        Reply::Split(turn, size) => {
            let pieces: Vec<Vec<u8>> = good(&turn).concat().as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            streamed(stream::iter(pieces).map(Ok).boxed())
        }
        Reply::Cut(turn, count) => {
            let beginning = stream::iter(good(&turn).into_iter().take(count)).map(Ok);
            // Pending once: what came before is on the wire when the connection breaks.
            let broken = stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the connection breaks here"))
            });
            streamed(beginning.chain(broken).boxed())
        }
        Reply::Stepped(turn, steps) => {
            let steps = stream::unfold(steps, |mut steps| async move { steps.recv().await.map(|()| ((), steps)) });
            streamed(stream::iter(good(&turn)).zip(steps).map(|(frame, ())| Ok(frame)).boxed())
        }
        Reply::Status(status, retry_after) => error(status, retry_after, "not this time"),
        Reply::Raw(kind, body) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
    }
}

fn streamed<T: Into<Bytes> + Send + 'static>(frames: BoxStream<'static, std::io::Result<T>>) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}
