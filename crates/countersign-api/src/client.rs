//! A typed client of the server.
//!
//! ```no_run
//! # async fn example() -> Result<(), countersign_api::client::ClientError> {
//! use countersign_api::client::Client;
//! use countersign_api::wire::NewDecision;
//!
//! let client = Client::new("http://127.0.0.1:7117", "cs_approver_…")?;
//! for hold in client.all_holds(None).await? {
//!     println!("{} wants {}", hold.principal, hold.title);
//!     client.decide(hold.id, &NewDecision::deny(hold.digest, Some("not today".into()))).await?;
//! }
//! # Ok(()) }
//! ```

mod events;
mod frames;
mod sessions;

use std::fmt;
use std::time::Duration;

use countersign::{CallId, GrantId, HoldId};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::{self, Page, Problem};

pub use events::{Events, Told};
use frames::Frames;
pub use sessions::SessionEvents;

/// How long a server may take to answer, beyond the time it is asked to wait.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to be reached.
const REACHED_WITHIN: Duration = Duration::from_secs(10);
/// How long a stream may be silent. A server says every fifteen seconds that it is alive.
const SILENT_FOR: Duration = Duration::from_secs(45);
/// The most an answer may hold.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Why a request did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address cannot be used.
    #[error("`{0}` is not the address of a server: {1}")]
    Address(String, &'static str),
    /// The process has no cryptography to speak TLS with.
    #[error("no provider of cryptography is installed; install one before the first client")]
    NoProvider,
    /// The server cannot be reached, or went away before it answered. What was asked may have been done.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server says no, and why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The answer is not one of ours.
    #[error("the server answered what this version cannot read: {0}")]
    Strange(String),
}

/// What came of a call that was to be claimed with its submission.
#[derive(Clone, Debug)]
pub enum Submitted {
    /// It may be run, by this client.
    Claimed(wire::Claimed),
    /// It may not, or not yet, or it is in other hands.
    Call(wire::Call),
}

/// Talks to a server with one credential. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// For streams: they may last, but not be silent.
    streams: reqwest::Client,
    url: Url,
    token: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.url)
    }
}

impl Client {
    /// A client of the server at this address.
    ///
    /// SECURITY: without TLS only this machine is spoken to, and no redirect is followed: both would hand the credential
    /// to others. The process must have installed a provider of cryptography; this library never does.
    pub fn new(url: &str, token: &str) -> Result<Client, ClientError> {
        let bad = |why| ClientError::Address(url.chars().take(200).collect(), why);
        let parsed = Url::parse(url).map_err(|_| bad("it is no URL"))?;
        let local = matches!(parsed.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        match parsed.scheme() {
            "https" => {}
            "http" if local => {}
            "http" => return Err(bad("without TLS, others on the way could read the token; use https")),
            _ => return Err(bad("it begins with neither https:// nor http://")),
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(ClientError::NoProvider);
        }
        let begin =
            || reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(REACHED_WITHIN);
        let failed = |error: reqwest::Error| ClientError::Unreachable(error.to_string());
        let http = begin().build().map_err(failed)?;
        let streams = begin().read_timeout(SILENT_FOR).build().map_err(failed)?;
        Ok(Client { http, streams, url: parsed, token: token.to_owned() })
    }

    /// Whether the server answers. Needs no valid credential.
    pub async fn health(&self) -> Result<wire::Health, ClientError> {
        self.get("/healthz", &[]).await
    }

    /// Whether the server's store answers, too. Needs no valid credential.
    pub async fn ready(&self) -> Result<wire::Health, ClientError> {
        self.get("/readyz", &[]).await
    }

    /// Who the credential says you are.
    pub async fn me(&self) -> Result<wire::Me, ClientError> {
        self.get("/v1/me", &[]).await
    }

    /// Submits a call.
    pub async fn submit(&self, call: &wire::NewCall) -> Result<wire::Call, ClientError> {
        self.post("/v1/calls", call).await
    }

    /// Submits a call with `claim` set. It comes back claimed only where that made it this client's to run.
    pub async fn submit_and_claim(&self, call: &wire::NewCall) -> Result<Submitted, ClientError> {
        let call = wire::NewCall { claim: true, ..call.clone() };
        let bytes = bytes(self.request(Method::POST, "/v1/calls", &[])?.json(&call)).await?;
        // Read twice and not by an untagged type: that would go through a buffer that rounds numbers.
        match serde_json::from_slice(&bytes) {
            Ok(claimed) => Ok(Submitted::Claimed(claimed)),
            Err(_) => parse(&bytes).map(Submitted::Call),
        }
    }

    /// Reads a call.
    pub async fn call(&self, id: CallId) -> Result<wire::Call, ClientError> {
        self.get(&format!("/v1/calls/{id}"), &[]).await
    }

    /// Reads a call when nobody is asked about it any more, or after this time as it stands then.
    pub async fn wait(&self, id: CallId, most: Duration) -> Result<wire::Call, ClientError> {
        let seconds = most.as_secs().to_string();
        let request = self.request(Method::GET, &format!("/v1/calls/{id}"), &[("wait", &seconds)])?;
        read(request.timeout(most + ANSWERS_WITHIN)).await
    }

    /// One page of calls: `state`, `session`, `q`, `order`, `after`, `limit`.
    pub async fn calls(&self, query: &[(&str, &str)]) -> Result<Page<wire::Call>, ClientError> {
        self.get("/v1/calls", query).await
    }

    /// All calls of one query, oldest first.
    pub async fn all_calls(&self, query: &[(&str, &str)]) -> Result<Vec<wire::Call>, ClientError> {
        self.all("/v1/calls", query).await
    }

    /// Takes a call to run it, once.
    pub async fn claim(&self, id: CallId, claim: &wire::Claim) -> Result<wire::Claimed, ClientError> {
        self.post(&format!("/v1/calls/{id}/claim"), claim).await
    }

    /// Says who waits for a call.
    pub async fn tell_caller(&self, id: CallId, caller: &wire::NewCaller) -> Result<wire::Call, ClientError> {
        self.post(&format!("/v1/calls/{id}/caller"), caller).await
    }

    /// Says that a run goes on.
    pub async fn renew(&self, id: CallId, fence: u64) -> Result<wire::Renewed, ClientError> {
        self.post(&format!("/v1/calls/{id}/renew"), &wire::Renew { fence }).await
    }

    /// Asks people from inside a run. The answer is read with [`Client::wait`].
    pub async fn ask(&self, id: CallId, hold: &wire::NewHold) -> Result<wire::HoldBrief, ClientError> {
        self.post(&format!("/v1/calls/{id}/holds"), hold).await
    }

    /// Reports how a run ended.
    pub async fn report(&self, id: CallId, outcome: &wire::NewOutcome) -> Result<wire::Call, ClientError> {
        self.post(&format!("/v1/calls/{id}/outcome"), outcome).await
    }

    /// Withdraws a call that does not run yet.
    pub async fn cancel(&self, id: CallId) -> Result<wire::Call, ClientError> {
        self.post(&format!("/v1/calls/{id}/cancel"), &wire::Cancel {}).await
    }

    /// Settles a doubt.
    pub async fn resolve(&self, id: CallId, resolve: &wire::Resolve) -> Result<wire::Call, ClientError> {
        self.post(&format!("/v1/calls/{id}/resolve"), resolve).await
    }

    /// One page of holds: `state`, `session`, `after`, `limit`.
    pub async fn holds(&self, query: &[(&str, &str)]) -> Result<Page<wire::Hold>, ClientError> {
        self.get("/v1/holds", query).await
    }

    /// All holds that wait, oldest first.
    pub async fn all_holds(&self, session: Option<&str>) -> Result<Vec<wire::Hold>, ClientError> {
        let query: Vec<(&str, &str)> = session.map(|session| ("session", session)).into_iter().collect();
        self.all("/v1/holds", &query).await
    }

    /// A hold with all that is needed to decide.
    pub async fn hold(&self, id: HoldId) -> Result<wire::HoldDetail, ClientError> {
        self.get(&format!("/v1/holds/{id}"), &[]).await
    }

    /// Decides a hold.
    pub async fn decide(&self, id: HoldId, decision: &wire::NewDecision) -> Result<wire::Decided, ClientError> {
        self.post(&format!("/v1/holds/{id}/decisions"), decision).await
    }

    /// Shows what a grant would cover.
    pub async fn preview_grant(
        &self,
        id: HoldId,
        preview: &wire::PreviewGrant,
    ) -> Result<wire::GrantPreview, ClientError> {
        self.post(&format!("/v1/holds/{id}/preview-grant"), preview).await
    }

    /// All grants that are live, or all there are.
    pub async fn grants(&self, all: bool) -> Result<Vec<wire::Grant>, ClientError> {
        self.all("/v1/grants", &[("all", if all { "true" } else { "false" })]).await
    }

    /// Revokes a grant.
    pub async fn revoke_grant(&self, id: GrantId) -> Result<wire::Grant, ClientError> {
        read(self.request(Method::DELETE, &format!("/v1/grants/{id}"), &[])?.json(&serde_json::json!({}))).await
    }

    /// The policy in force.
    pub async fn policy(&self) -> Result<wire::Policy, ClientError> {
        self.get("/v1/policy", &[]).await
    }

    /// What the rules make of a call, and why.
    pub async fn explain(&self, explain: &wire::Explain) -> Result<wire::Explained, ClientError> {
        self.post("/v1/policy/explain", explain).await
    }

    /// Asks which tools of a server a rule hides.
    pub async fn hidden(&self, ask: &wire::AskHidden) -> Result<wire::Hidden, ClientError> {
        self.post("/v1/tools/hidden", ask).await
    }

    /// Stops every claim, or one agent's.
    pub async fn halt(&self, halt: &wire::Halt) -> Result<wire::Halted, ClientError> {
        self.post("/v1/halt", halt).await
    }

    /// Lets claims go on.
    pub async fn resume(&self, agent: Option<&str>) -> Result<wire::Halted, ClientError> {
        self.post("/v1/resume", &wire::Halt { agent: agent.map(str::to_owned), reason: None }).await
    }

    /// One page of the record: `session`, `call`, `after`, `limit`.
    pub async fn audit(&self, query: &[(&str, &str)]) -> Result<Page<wire::Event>, ClientError> {
        self.get("/v1/audit", query).await
    }

    /// All of the record, or of one session in it, oldest first, handed on page by page.
    pub async fn audit_pages<E: From<ClientError>>(
        &self,
        session: Option<&str>,
        mut page: impl FnMut(Vec<wire::Event>) -> Result<(), E>,
    ) -> Result<(), E> {
        let query: Vec<(&str, &str)> = session.map(|session| ("session", session)).into_iter().collect();
        self.pages("/v1/audit", &query, &mut page).await
    }

    /// All signed checkpoints, oldest first.
    pub async fn checkpoints(&self) -> Result<Vec<wire::Event>, ClientError> {
        self.all("/v1/audit/checkpoints", &[]).await
    }

    /// The keys that sign the record.
    pub async fn keys(&self) -> Result<wire::Keys, ClientError> {
        self.get("/v1/keys", &[]).await
    }

    /// How people and rules got along in the last hours.
    pub async fn insights(&self, hours: u32) -> Result<wire::Insights, ClientError> {
        self.get("/v1/insights", &[("hours", &hours.to_string())]).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<wire::Token>, ClientError> {
        self.all("/v1/tokens", &[]).await
    }

    /// Makes a token. Its secret is in the answer, this once.
    pub async fn create_token(&self, token: &wire::NewToken) -> Result<wire::MadeToken, ClientError> {
        self.post("/v1/tokens", token).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<wire::Token, ClientError> {
        read(self.request(Method::DELETE, &format!("/v1/tokens/{id}"), &[])?.json(&serde_json::json!({}))).await
    }

    /// What happens from now on, or since a cursor. Without one it begins with the holds that wait.
    ///
    /// A server that goes away, or is silent for too long, ends the stream with an error.
    pub async fn events(&self, after: Option<&str>) -> Result<Events, ClientError> {
        let query: Vec<(&str, &str)> = after.map(|after| ("after", after)).into_iter().collect();
        let request = self.streams.get(self.address("/v1/events", &query)?).bearer_auth(&self.token);
        Ok(Events::new(frames(request).await?))
    }

    /// All doubts.
    pub async fn doubts(&self) -> Result<Vec<wire::Call>, ClientError> {
        self.all("/v1/calls", &[("state", "in_doubt")]).await
    }

    async fn all<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let keep = |page: Vec<T>| -> Result<(), ClientError> {
            items.extend(page);
            Ok(())
        };
        self.pages(path, query, keep).await?;
        Ok(items)
    }

    /// Reads a list to its end, page by page.
    async fn pages<T: DeserializeOwned, E: From<ClientError>>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        mut take: impl FnMut(Vec<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = None::<String>;
        loop {
            let after = next.as_deref().map(|next| ("after", next));
            let query: Vec<(&str, &str)> = query.iter().copied().chain([("limit", "1000")]).chain(after).collect();
            let page: Page<T> = self.get(path, &query).await?;
            take(page.items)?;
            match page.next {
                Some(cursor) if next.as_ref() == Some(&cursor) => {
                    return Err(ClientError::Strange("a list without end".into()).into());
                }
                Some(cursor) => next = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, ClientError> {
        read(self.request(Method::GET, path, query)?).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &(impl Serialize + Sync)) -> Result<T, ClientError> {
        read(self.request(Method::POST, path, &[])?.json(body)).await
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> Result<RequestBuilder, ClientError> {
        let url = self.address(path, query)?;
        Ok(self.http.request(method, url).bearer_auth(&self.token).timeout(ANSWERS_WITHIN))
    }

    fn address(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, ClientError> {
        let mut url =
            self.url.join(path).map_err(|_| ClientError::Address(self.url.to_string(), "it takes no paths"))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ClientError> {
    parse(&bytes(request).await?)
}

async fn bytes(request: RequestBuilder) -> Result<Vec<u8>, ClientError> {
    let response = request.send().await.map_err(lost)?;
    match response.status().is_success() {
        true => whole(response).await,
        false => Err(failed(response).await),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::Strange(error.to_string()))
}

/// Opens a stream of server-sent events.
async fn frames(request: RequestBuilder) -> Result<Frames, ClientError> {
    let response = request.send().await.map_err(lost)?;
    match response.status().is_success() {
        true => Ok(Frames::new(response)),
        false => Err(failed(response).await),
    }
}

async fn whole(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER_BYTES {
            return Err(ClientError::Strange(format!("more than {ANSWER_BYTES} bytes")));
        }
    }
    Ok(bytes)
}

/// Why a request was not done.
async fn failed(response: Response) -> ClientError {
    let status = response.status();
    match whole(response).await.map(|bytes| serde_json::from_slice::<Problem>(&bytes)) {
        Ok(Ok(problem)) => ClientError::Refused(Box::new(problem)),
        Ok(Err(_)) => ClientError::Strange(format!("status {status}")),
        Err(error) => error,
    }
}

fn lost(error: reqwest::Error) -> ClientError {
    ClientError::Unreachable(error.without_url().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_no_other_machine_in_the_clear() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for url in
            ["http://example.com", "http://127.0.0.1.evil.example:7117", "http://10.0.0.1", "ftp://127.0.0.1", "7117"]
        {
            assert!(matches!(Client::new(url, "x"), Err(ClientError::Address(..))), "{url}");
        }
        assert!(Client::new("http://127.0.0.1:7117", "x").is_ok() && Client::new("http://[::1]:7117", "x").is_ok());
        assert!(!format!("{:?}", Client::new("http://localhost:1", "cs_secret").unwrap()).contains("cs_secret"));
    }
}
