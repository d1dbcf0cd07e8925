//! Where a server listens, and what is sent to it with every message.

use std::io;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use hyper::body::Bytes;
use hyper::{Request, Response};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::nearby::Nearby;
use crate::gateway::link::Missing;
use crate::limits;

/// Who we are to a server.
pub(super) const AGENT: &str = concat!("countersign/", env!("CARGO_PKG_VERSION"));

/// What comes back for a request.
pub(super) type Answer = Response<BoxStream<'static, io::Result<Bytes>>>;

/// Where a server listens, and the operator's own headers for it. Its connections are pooled; clones share them.
///
/// A TLS provider must be installed before it is made.
#[derive(Clone)]
pub struct Address {
    url: Url,
    pub(super) headers: HeaderMap,
    client: Client,
    /// The quicker way, where there is one.
    nearby: Option<Arc<Nearby>>,
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// Not an address of the web.
    #[error("the address is not an http or https URL")]
    Url,
    /// A header that no message can carry.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// The machine cannot make a client.
    #[error("no HTTP client can be made here: {0}")]
    Client(String),
}

impl Address {
    /// An address with headers that go along with every message to it, and to nobody else.
    pub fn new<'a>(url: &str, headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Address, BadAddress> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or(BadAddress::Url)?;
        let mut kept = HeaderMap::new();
        for (name, value) in headers {
            let bad = || BadAddress::Header(name.to_owned());
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            kept.insert(HeaderName::try_from(name).map_err(|_| bad())?, value);
        }
        // SECURITY: a redirect would carry the operator's headers to somebody else.
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(limits::BACK_WITHIN)
            .user_agent(AGENT)
            .build()
            .map_err(|error| BadAddress::Client(error.to_string()))?;
        let nearby = Nearby::at(&url).map(Arc::new);
        Ok(Address { url, headers: kept, client, nearby })
    }

    /// Sends a request, which says everything but where to. Dropped before it is answered, its connection is closed.
    pub(super) async fn send(&self, request: Request<String>) -> Result<Answer, Missing> {
        if let Some(nearby) = &self.nearby {
            return nearby.ask(request).await;
        }
        let (head, body) = request.into_parts();
        let mut request = self.client.request(head.method, self.url.clone()).headers(head.headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        let mut response = request.send().await.map_err(|error| match error.is_connect() {
            true => Missing::Unsent(plain(error)),
            false => Missing::Cut(plain(error)),
        })?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut answer = Response::new(response.bytes_stream().map(|piece| piece.map_err(io::Error::other)).boxed());
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

/// An error without the address, which may hold a secret.
fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
