//! A tool that is an HTTP request: the arguments are its body, the answer's body is the result.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use countersign::config::Secret;
use countersign::{Definition, Json, Running, Tool, ToolError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::result_of;
use crate::limits;
use crate::tools::{clip, http};

/// Sends requests of the operator's choice. The agent chooses the body, never the address.
///
/// A TLS provider must be installed before its first run.
pub(super) struct HttpTool {
    definition: Arc<Definition>,
    url: Url,
    method: Method,
    headers: HeaderMap,
    secrets: Vec<Secret>,
    time: Duration,
    client: OnceLock<Result<Client, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    timeout: Option<Timeout>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Timeout {
    Seconds(u64),
    Text(String),
}

impl HttpTool {
    /// Reads what the operator wrote. No error repeats a value of it: any of them may be a secret.
    pub(super) fn new(definition: Arc<Definition>, json: &Json) -> Result<HttpTool, String> {
        let description: Description =
            json.read().map_err(|_| "it takes `url`, `method`, `headers` and `timeout`, all but `url` optional")?;
        let url = Url::parse(&description.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("`url` is not an http or https URL")?;
        let method = match description.method.as_deref().unwrap_or("POST") {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            _ => return Err("`method` is none of POST, PUT, PATCH and DELETE".to_owned()),
        };
        let time = description.timeout.as_ref().map_or(Some(limits::FETCH_TIME), Timeout::read);
        let time = time.filter(|time| !time.is_zero() && *time <= limits::HTTP_TIME_MOST);
        let time = time.ok_or("`timeout` is no time such as `30s`, or too long a one")?;
        let headers = headers(&description.headers)?;
        let secrets = description.headers.into_values().map(Secret::new).collect();
        Ok(HttpTool { definition, url, method, headers, secrets, time, client: OnceLock::new() })
    }

    fn client(&self) -> Result<&Client, ToolError> {
        let build = || http::client().timeout(self.time).build().map_err(http::problem);
        self.client.get_or_init(build).as_ref().map_err(|error| ToolError::Failed(error.clone()))
    }

    async fn send(&self, running: &Running) -> Result<Json, ToolError> {
        let request = self.client()?.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.header("Idempotency-Key", running.idempotency_key());
        let response = request.body(running.arguments().as_str().to_owned()).send().await;
        match response {
            Ok(response) => self.read(response).await,
            // Nobody was there to take the request, so surely nothing happened. All else may have left us.
            Err(error) if error.is_connect() || error.is_builder() => Err(ToolError::Failed(http::problem(error))),
            Err(error) => Err(ToolError::NoAnswer(http::problem(error))),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Json, ToolError> {
        let status = response.status();
        let body = http::body(&mut response, limits::COMMAND_RESULT_BYTES).await;
        match (body, status) {
            (Ok((body, _)), status) if status.is_success() => Ok(result_of(self.masked(&body).as_bytes())),
            (Err(error), status) if status.is_success() => {
                Err(ToolError::NoAnswer(format!("the answer broke off: {}", http::problem(error))))
            }
            // The server took the request and fell over, or gave up on what it passed it on to.
            (_, status) if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
                Err(ToolError::NoAnswer(format!("the server answered {status}")))
            }
            (body, status) => {
                let text = self.masked(&body.map(|(body, _)| body).unwrap_or_default());
                let (text, _) = clip::head(text.trim(), limits::FAILURE_BYTES);
                Err(ToolError::Failed(format!("the server answered {status}: {text}")))
            }
        }
    }

    /// A server may repeat what it was sent. The secrets among it do not reach the model.
    fn masked(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body).into_owned();
        let secrets = self.secrets.iter().map(Secret::reveal).filter(|secret| secret.len() >= SHORTEST_SECRET);
        secrets.fold(text, |text, secret| {
            let bare = secret.rsplit(' ').next().filter(|bare| bare.len() >= SHORTEST_SECRET);
            text.replace(bare.unwrap_or(secret), "[secret]")
        })
    }
}

/// A shorter value is no secret, and masking it would only garble answers.
const SHORTEST_SECRET: usize = 8;

fn headers(written: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in written {
        let bad = || format!("header `{name}` cannot be sent");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

impl Timeout {
    fn read(&self) -> Option<Duration> {
        match self {
            Timeout::Seconds(seconds) => Some(Duration::from_secs(*seconds)),
            Timeout::Text(text) => {
                let at = text.find(|char: char| !char.is_ascii_digit())?;
                let (number, unit) = text.split_at(at);
                let number: u64 = number.parse().ok()?;
                match unit {
                    "ms" => Some(Duration::from_millis(number)),
                    "s" => Some(Duration::from_secs(number)),
                    "m" => number.checked_mul(60).map(Duration::from_secs),
                    _ => None,
                }
            }
        }
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        self.send(&running).await
    }
}
