//! `fetch_url`: reads a page of the web.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use countersign::call::{Declared, Repeat};
pub use countersign::reach::Reach;
use countersign::{Definition, Json, Running, Tool, ToolError};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};
use serde::Deserialize;
use serde_json::json;

use super::address::Checked;
use super::{answer, clip, define, http, markup};
use crate::limits;

/// Fetches text from the web: `GET` only, to public addresses only unless told otherwise.
///
/// A TLS provider must be installed before its first run.
pub struct FetchUrl {
    definition: Arc<Definition>,
    reach: Reach,
    client: OnceLock<Result<Client, String>>,
}

#[derive(Deserialize)]
struct Input {
    url: String,
}

impl FetchUrl {
    /// Fetches from what is in reach.
    pub fn new(reach: Reach) -> FetchUrl {
        FetchUrl { definition: Arc::new(definition()), reach, client: OnceLock::new() }
    }

    fn client(&self) -> Result<&Client, ToolError> {
        let build = || http::client().dns_resolver(Checked(self.reach.clone())).build().map_err(http::problem);
        self.client.get_or_init(build).as_ref().map_err(|error| ToolError::Failed(error.clone()))
    }

    async fn fetch(&self, input: &Input) -> Result<Json, ToolError> {
        let mut url = self.checked(&input.url)?;
        for _ in 0..=limits::FETCH_REDIRECTS {
            let response = self.client()?.get(url.clone()).send().await;
            let response = response.map_err(|error| ToolError::Failed(http::problem(error)))?;
            match redirect(&response)? {
                Some(next) => url = self.checked(next.as_str())?,
                None => return read(response).await,
            }
        }
        Err(ToolError::Failed(format!("more than {} redirects", limits::FETCH_REDIRECTS)))
    }

    /// Refuses what may not be fetched. Names are checked when they are looked up; addresses are never looked up, so
    /// they are checked here.
    fn checked(&self, text: &str) -> Result<Url, ToolError> {
        let refuse = |why: String| Err(ToolError::Failed(why));
        if text.len() > limits::URL_BYTES {
            return refuse(format!("the URL has over {} bytes", limits::URL_BYTES));
        }
        let Ok(url) = Url::parse(text) else { return refuse("the URL cannot be read".to_owned()) };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse(format!("`{}` is neither http nor https", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("the URL holds a user name or a password".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        match self.reach.check_literal(host) {
            Ok(()) => Ok(url),
            Err(forbidden) => refuse(forbidden.to_string()),
        }
    }
}

fn redirect(response: &Response) -> Result<Option<Url>, ToolError> {
    if !response.status().is_redirection() {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let next = location.to_str().ok().and_then(|location| response.url().join(location).ok());
    next.map(Some).ok_or_else(|| ToolError::Failed("the redirect leads nowhere".to_owned()))
}

async fn read(mut response: Response) -> Result<Json, ToolError> {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("text/plain");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !status.is_success() {
        return Err(ToolError::Failed(format!("the server answered {status}")));
    }
    if !is_text(&kind) {
        return Err(ToolError::Failed(format!("the answer is `{kind}`, which is no text")));
    }
    let read = http::body(&mut response, limits::FETCH_BYTES).await;
    let (bytes, more) = read.map_err(|error| ToolError::Failed(http::problem(error)))?;
    let text = String::from_utf8_lossy(&bytes);
    let text = if kind.ends_with("html") { markup::text(&text) } else { text.into_owned() };
    let (content, cut) = clip::head(&text, limits::RESULT_BYTES);
    answer(&json!({ "url": response.url().as_str(), "content": content, "more": more || cut > 0 }))
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || ["application/json", "application/xml", "application/javascript"].contains(&kind)
        || kind.ends_with("+json")
        || kind.ends_with("+xml") && kind != "image/svg+xml"
}

fn definition() -> Definition {
    let description = "Fetches a page or file of the web with an HTTP GET and returns its text; HTML is reduced to the \
        text that people read. Follows redirects. Refuses addresses that are not public, and answers that are not \
        text. Of a long text only the beginning is returned. Never put secrets or private data into the URL.";
    let schema = json!({
        "type": "object",
        "properties": {
            "url": {
                "type": "string", "minLength": 1, "maxLength": limits::URL_BYTES,
                "description": "The full address, beginning with `https://` or `http://`.",
            },
        },
        "required": ["url"],
        "additionalProperties": false,
    });
    let mut definition = define("fetch_url", description, "Fetch from the web", &schema);
    definition.repeat = Repeat::ReadOnly;
    definition
}

#[async_trait]
impl Tool for FetchUrl {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    /// Reading the web also tells the web something: the address itself.
    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Ask)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let input: Input = running.input()?;
        let late = || ToolError::Failed(format!("no answer within {} s", limits::FETCH_TIME.as_secs()));
        tokio::time::timeout(limits::FETCH_TIME, self.fetch(&input)).await.unwrap_or_else(|_| Err(late()))
    }
}
