//! What the built-in tools may do on the web.

use std::net::IpAddr;

use super::Secret;
use super::parts::text;
use crate::policy::Problems;
use crate::policy::yaml::Node;

/// The service behind `web_search`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebSearchConfig {
    /// Where it is.
    pub url: String,
    /// The key to it.
    pub api_key: Option<Secret>,
}

/// What `fetch_url` may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchConfig {
    /// Addresses outside the open internet that it may connect to, too.
    pub allow: Vec<IpAddr>,
}

/// Keys of `web_search`.
pub(super) const WEB_SEARCH_KEYS: [&str; 2] = ["url", "api_key"];
/// Keys of `fetch`.
pub(super) const FETCH_KEYS: [&str; 1] = ["allow"];

pub(super) fn web_search(node: &Node, problems: &mut Problems<'_>) -> Option<WebSearchConfig> {
    let fields = node.fields("`web_search`", &WEB_SEARCH_KEYS, problems);
    let api_key = text(&fields, "api_key", problems).map(Secret::new);
    let Some(url) = text(&fields, "url", problems) else {
        if fields.get("url").is_none() {
            problems.add(node.at, "`web_search` needs a `url`");
        }
        return None;
    };
    if !["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)) {
        problems.add(node.at, "the `url` of `web_search` must begin with `https://` or `http://`");
    }
    Some(WebSearchConfig { url, api_key })
}

pub(super) fn fetch(node: &Node, problems: &mut Problems<'_>) -> FetchConfig {
    let fields = node.fields("`fetch`", &FETCH_KEYS, problems);
    let Some(list) = fields.get("allow") else { return FetchConfig::default() };
    let mut allow = Vec::new();
    for node in list.one_or_many() {
        let Some(address) = node.text("`allow`", problems) else { continue };
        match address.parse() {
            Ok(address) => allow.push(address),
            Err(_) => problems.add(node.at, format!("`{address}` is not an IP address, as in `10.0.0.5` or `fd00::5`")),
        }
    }
    FetchConfig { allow }
}
