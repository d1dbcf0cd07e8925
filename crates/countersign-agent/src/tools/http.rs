//! What the tools that speak HTTP share.

use std::error::Error;

use countersign::reach::Forbidden;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};

use crate::limits;

/// Begins a client that follows no redirect by itself and asks no environment for a proxy.
///
/// A TLS provider must be installed before a client is built; see the front page of `rustls`.
pub(super) fn client() -> ClientBuilder {
    Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(limits::CONNECT_TIME)
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
}

/// What went wrong, without the address: it may hold a secret.
pub(super) fn problem(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    let mut last = error.to_string();
    while let Some(cause) = source {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return forbidden.to_string();
        }
        last = cause.to_string();
        source = cause.source();
    }
    last
}

/// The beginning of an answer's body, and whether there is more.
pub(super) async fn body(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = most - bytes.len();
        bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        if chunk.len() > room {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}
