//! Posts to an address that was checked, and follows no redirect.

use std::error::Error;
use std::time::Duration;

use countersign::reach::{Forbidden, Reach};
use countersign_agent::tools::Checked;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};

use super::{NotifyError, Undelivered};
use crate::limits;

/// Posts to one address.
pub(super) struct Post {
    client: Client,
    url: Url,
}

impl Post {
    /// A way to an address. The process must have installed a provider of cryptography.
    pub(super) fn new(url: &str, reach: Reach) -> Result<Post, NotifyError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(NotifyError::NoProvider);
        }
        let url = Url::parse(url).map_err(|_| NotifyError::BadUrl)?;
        let host = url.host_str().ok_or(NotifyError::BadUrl)?;
        reach.check_literal(host)?;
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .timeout(limits::TELL_WITHIN)
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Checked(reach));
        Ok(Post { client: client.build().map_err(|_| NotifyError::NoProvider)?, url })
    }

    /// The host, for people. The rest of an address may be a secret.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// A request on its way there.
    pub(super) fn request(&self) -> RequestBuilder {
        self.client.post(self.url.clone())
    }
}

/// Sends a request. Whatever the receiver says beside its status is not read.
pub(super) async fn send(request: RequestBuilder) -> Result<u16, Undelivered> {
    let response = request.send().await.map_err(|error| Undelivered::later(problem(error)))?;
    let status = response.status();
    let code = Some(status.as_u16());
    if status.is_success() {
        return Ok(status.as_u16());
    }
    if status == StatusCode::GONE {
        let problem = "the receiver says that it is gone for good".to_owned();
        return Err(Undelivered { problem, status: code, again: None });
    }
    let problem = match status.is_redirection() {
        true => format!("the receiver answered {}, and redirects are not followed", status.as_u16()),
        false => format!("the receiver answered {}", status.as_u16()),
    };
    Err(Undelivered { problem, status: code, again: Some(wanted(&response)) })
}

/// How long the receiver wants to be left alone.
fn wanted(response: &Response) -> Duration {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(limits::TELL_AGAIN_MOST)
}

/// What went wrong, without the address.
fn problem(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", limits::TELL_WITHIN.as_secs());
    }
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
    format!("the receiver cannot be reached: {last}")
}
