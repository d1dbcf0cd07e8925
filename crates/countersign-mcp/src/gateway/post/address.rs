//! Where a server listens, and what is sent to it with every message.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::limits;

/// Where a server listens, and the operator's own headers for it. Its connections are pooled; clones share them.
///
/// A TLS provider must be installed before it is made.
#[derive(Clone)]
pub struct Address {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) client: Client,
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
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| BadAddress::Client(error.to_string()))?;
        Ok(Address { url, headers: kept, client })
    }
}
