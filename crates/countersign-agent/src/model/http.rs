//! The one wire all providers are reached by: one request, one event stream, bounds and patience.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use countersign::config::Secret;
use futures::stream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, redirect};

use super::dialect::{Ask, Dialect, Reader};
use super::fault::{Failure, Fault, Speaker};
use super::retry::{Patience, jitter, named_pause};
use super::sse::Events;
use super::{Answer, Model, ModelError, Piece, Pricing, Prompt};
use crate::limits;

/// A model behind HTTP: [`Anthropic`](super::Anthropic), [`OpenAi`](super::OpenAi), [`Responses`](super::Responses) or
/// [`Gemini`](super::Gemini), by the dialect `D` it speaks.
///
/// A request that fails in passing (no connection, 429, 5xx) is sent again, as long as nothing of an answer has
/// reached the caller. Redirects are not followed: they would carry the key elsewhere.
#[derive(Debug)]
pub struct Remote<D> {
    dialect: D,
    speaker: Speaker,
    base: String,
    usual: bool,
    pricing: Pricing,
    patience: Patience,
    max_tokens: Option<u32>,
    client: OnceLock<Result<Client, ModelError>>,
}

impl<D> Remote<D> {
    pub(crate) fn over(dialect: D, base: &str, key: impl Into<String>, model: impl Into<Arc<str>>) -> Remote<D> {
        Remote {
            dialect,
            speaker: Speaker { model: model.into(), key: Secret::new(key.into().trim()) },
            base: base.to_owned(),
            usual: true,
            pricing: Pricing::default(),
            patience: Patience::default(),
            max_tokens: None,
            client: OnceLock::new(),
        }
    }

    /// Asks at another place, such as a proxy or a server of one's own.
    #[must_use]
    pub fn base_url(mut self, base: impl Into<String>) -> Self {
        self.base = base.into();
        self.usual = false;
        self.client = OnceLock::new();
        self
    }

    /// Sets what its tokens cost.
    #[must_use]
    pub fn pricing(mut self, pricing: Pricing) -> Self {
        self.pricing = pricing;
        self
    }

    /// Sets how long it is waited for and how often it is asked.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self.client = OnceLock::new();
        self
    }

    /// Bounds the tokens of an answer where the prompt does not.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }
}

#[async_trait]
impl<D: Dialect> Model for Remote<D> {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.speaker.model)
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        let request = self.request(&prompt)?;
        let mut attempt = 1;
        loop {
            let failure = match self.open(&request).await {
                Ok(reading) => return Ok(reading.into_answer()),
                Err(failure) => failure,
            };
            let Some(pause) = self.patience.pause_before(attempt, failure.again, jitter()) else {
                return Err(failure.error);
            };
            tracing::debug!(error = %failure.error, attempt, ?pause, "asking the model again");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }
}

/// One request, ready to be sent more than once.
struct Request {
    client: Client,
    url: Url,
    headers: HeaderMap,
    body: Arc<[u8]>,
}

#[allow(private_bounds, reason = "nobody else writes a dialect")]
impl<D: Dialect> Remote<D> {
    fn request(&self, prompt: &Prompt) -> Result<Request, ModelError> {
        let max_tokens = prompt.max_tokens.or(self.max_tokens);
        let ask = Ask { model: &self.speaker.model, prompt, max_tokens, usual: self.usual };
        Ok(Request {
            client: self.client.get_or_init(|| client(&self.patience, &self.base)).clone()?,
            url: self.url()?,
            headers: self.headers()?,
            body: self.dialect.body(&ask)?.into(),
        })
    }

    fn url(&self) -> Result<Url, ModelError> {
        let base = Url::parse(self.base.trim_end_matches('/')).ok();
        let base = base.filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none());
        let url = base.and_then(|base| self.dialect.url(base, &self.speaker.model));
        // The text itself is not repeated: people put keys into URLs.
        url.ok_or_else(|| self.settings("its `base_url` is not an `http://` or `https://` address without a query"))
    }

    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for &(name, value) in self.dialect.headers() {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let key = self.speaker.key.reveal();
        if !key.is_empty() {
            let (name, prefix) = self.dialect.key_header();
            let mut value = HeaderValue::from_str(&format!("{prefix}{key}"))
                .map_err(|_| self.settings("its key holds characters that no header can carry"))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    fn settings(&self, why: &str) -> ModelError {
        ModelError::Settings(format!("the model `{}` cannot be asked: {why}", self.speaker.model))
    }

    /// Sends the request and reads until there is something worth giving to the caller.
    async fn open(&self, request: &Request) -> Result<Reading, Failure> {
        let sent = request
            .client
            .post(request.url.clone())
            .headers(request.headers.clone())
            .body(request.body.to_vec())
            .timeout(self.patience.whole)
            .send()
            .await;
        let response = sent.map_err(|error| self.speaker.transport(error))?;
        let response = self.event_stream(response).await?;
        let mut reading = Reading {
            response,
            events: Events::default(),
            reader: self.dialect.reader(),
            speaker: self.speaker.clone(),
            pricing: self.pricing,
            ready: VecDeque::new(),
            bytes: 0,
            ended: false,
        };
        // INVARIANT: whoever got a piece never gets it again, so everything that may be retried happens before.
        while !reading.ready.iter().any(|piece| !matches!(piece, Piece::Usage(_))) {
            reading.read_on().await?;
        }
        Ok(reading)
    }

    /// Refuses everything that is not a good answer, with what the provider says about it.
    async fn event_stream(&self, mut response: Response) -> Result<Response, Failure> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
        if status == StatusCode::OK && kind.starts_with("text/event-stream") {
            return Ok(response);
        }
        let kind = kind.to_owned();
        let named = named_pause(response.headers(), jiff::Timestamp::now());
        let body = beginning(&mut response).await;
        if status.is_success() {
            return Err(self.speaker.unreadable(&format!("`{kind}` in place of an event stream")));
        }
        Err(self.speaker.status(status, named, &body))
    }
}

/// An answer that is being read.
struct Reading {
    response: Response,
    events: Events,
    reader: Box<dyn Reader>,
    speaker: Speaker,
    pricing: Pricing,
    ready: VecDeque<Piece>,
    bytes: usize,
    ended: bool,
}

impl Reading {
    fn into_answer(self) -> Answer {
        Box::pin(stream::try_unfold(self, |mut reading| async move {
            let piece = reading.next().await.map_err(|failure| failure.error)?;
            Ok(piece.map(|piece| (piece, reading)))
        }))
    }

    async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_on().await?;
        }
    }

    /// Waits for more bytes and makes them into pieces.
    async fn read_on(&mut self) -> Result<(), Failure> {
        let chunk = self.response.chunk().await.map_err(|error| self.speaker.transport(error))?;
        let Some(chunk) = chunk else {
            let last = self.reader.closed().map_err(|fault| self.speaker.fault(fault))?;
            self.take(last);
            // A reader that had no end to tell must not be asked for ever.
            return if self.ended { Ok(()) } else { Err(self.speaker.fault(Fault::cut())) };
        };
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > limits::MODEL_ANSWER_BYTES {
            let why = format!("it is longer than {} bytes", limits::MODEL_ANSWER_BYTES);
            return Err(self.speaker.unreadable(&why));
        }
        let mut whole = Vec::new();
        let broken = self.events.push(&chunk, &mut whole).err();
        for data in whole {
            let pieces = self.reader.frame(&data).map_err(|fault| self.speaker.fault(fault))?;
            self.take(pieces);
            if self.ended {
                return Ok(());
            }
        }
        broken.map_or(Ok(()), |broken| Err(self.speaker.unreadable(&broken.to_string())))
    }

    fn take(&mut self, pieces: Vec<Piece>) {
        for mut piece in pieces {
            if let Piece::Usage(usage) = &mut piece {
                usage.micro_dollars = self.pricing.cost(usage);
            }
            self.ended |= matches!(piece, Piece::End(_));
            self.ready.push_back(piece);
        }
    }
}

fn client(patience: &Patience, base: &str) -> Result<Client, ModelError> {
    // Programs choose their TLS provider; for those that did not, ring is as good as any. Losing the race to another
    // thread is fine: then there is one.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    let builder = Client::builder()
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(patience.connect)
        .read_timeout(patience.silence)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never());
    // Reading the system's certificates takes longer than all the rest of a start, and here nobody shows one.
    let builder = if is_plain_and_here(base) { builder.tls_certs_only([]) } else { builder };
    builder.build().map_err(|error| ModelError::Settings(format!("no HTTP client can be made: {error}")))
}

/// Whether the server is on this machine and speaks without encryption.
///
/// SECURITY: whatever is not surely so is asked with the system's certificates.
fn is_plain_and_here(base: &str) -> bool {
    let Ok(url) = Url::parse(base) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && is_here
}

/// The beginning of a body that will not be read as an answer.
async fn beginning(response: &mut Response) -> String {
    let mut body = Vec::new();
    while body.len() < limits::MODEL_ERROR_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(limits::MODEL_ERROR_BYTES);
    String::from_utf8_lossy(&body).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_server_on_this_machine_needs_no_certificates() {
        for base in ["http://127.0.0.1:8080/v1", "http://[::1]/", "http://localhost:11434"] {
            assert!(is_plain_and_here(base), "{base}");
        }
        for base in ["https://127.0.0.1/", "http://10.0.0.1/", "http://localhost.example/", "https://a.example", "x"] {
            assert!(!is_plain_and_here(base), "{base}");
        }
    }
}
