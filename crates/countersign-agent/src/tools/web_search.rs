//! `web_search`: asks the search service that an operator configured.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use countersign::call::{Declared, Repeat};
use countersign::config::Secret;
use countersign::{Definition, Json, Running, Tool, ToolError};
use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{answer, clip, define, http};
use crate::limits;

/// Searches the web through a service. There is none until an operator names one.
///
/// The service gets `POST` with `{"query": "…", "count": 10}` and `Authorization: Bearer KEY`, and answers
/// `{"results": [{"title": "…", "url": "…", "snippet": "…"}]}`; further members are ignored.
pub struct WebSearch {
    definition: Arc<Definition>,
    endpoint: Url,
    key: Option<Secret>,
    client: OnceLock<Result<Client, String>>,
}

/// Why a search service cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebSearchError {
    /// The endpoint is not an HTTP address.
    #[error("the endpoint of the web search is not an http or https URL")]
    Endpoint,
}

#[derive(Deserialize)]
struct Input {
    query: String,
    count: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Hit>,
}

#[derive(Serialize, Deserialize)]
struct Hit {
    #[serde(default)]
    title: String,
    url: String,
    #[serde(default)]
    snippet: String,
}

impl WebSearch {
    /// Searches through this endpoint, with this key. A TLS provider must be installed before its first run.
    pub fn new(endpoint: &str, key: Option<Secret>) -> Result<WebSearch, WebSearchError> {
        let endpoint = Url::parse(endpoint).map_err(|_| WebSearchError::Endpoint)?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(WebSearchError::Endpoint);
        }
        Ok(WebSearch { definition: Arc::new(definition()), endpoint, key, client: OnceLock::new() })
    }

    fn client(&self) -> Result<&Client, ToolError> {
        let build = || http::client().timeout(limits::FETCH_TIME).build().map_err(http::problem);
        self.client.get_or_init(build).as_ref().map_err(|error| ToolError::Failed(error.clone()))
    }

    async fn search(&self, input: &Input) -> Result<Json, ToolError> {
        let failed = |error| ToolError::Failed(format!("the search service failed: {}", http::problem(error)));
        let count = input.count.unwrap_or(limits::SEARCH_RESULTS / 2).min(limits::SEARCH_RESULTS);
        let mut request = self.client()?.post(self.endpoint.clone());
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.reveal());
        }
        let request = request.json(&json!({ "query": input.query, "count": count }));
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(ToolError::Failed(format!("the search service answered {}", response.status())));
        }
        let (bytes, more) = http::body(&mut response, limits::FETCH_BYTES).await.map_err(failed)?;
        let found: Option<Answer> = if more { None } else { serde_json::from_slice(&bytes).ok() };
        let found = found.ok_or_else(|| ToolError::Failed("the search service's answer cannot be read".to_owned()))?;
        answer(&json!({ "results": fitting(found.results, count) }))
    }
}

/// As many results as fit, each shortened where it is long.
fn fitting(hits: Vec<Hit>, count: usize) -> Vec<Hit> {
    let each = limits::RESULT_BYTES / limits::SEARCH_RESULTS / 3;
    let short = |text: &str| clip::head(text, each).0.to_owned();
    let hits = hits.into_iter().take(count).filter(|hit| hit.url.len() <= each);
    hits.map(|hit| Hit { title: short(&hit.title), snippet: short(&hit.snippet), url: hit.url }).collect()
}

fn definition() -> Definition {
    let description = "Searches the web and returns titles, addresses and short excerpts of what it found, best \
        first. Use `fetch_url` to read one of the pages. Never put secrets or private data into the query.";
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1, "maxLength": 400, "description": "What to search for." },
            "count": {
                "type": "integer", "minimum": 1, "maximum": limits::SEARCH_RESULTS,
                "default": limits::SEARCH_RESULTS / 2,
                "description": "How many results to return at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let mut definition = define("web_search", description, "Search the web", &schema);
    definition.repeat = Repeat::ReadOnly;
    definition
}

#[async_trait]
impl Tool for WebSearch {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Ask)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        self.search(&running.input()?).await
    }
}
