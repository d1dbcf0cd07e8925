//! A server on a port of its own, and clients of every role.

use std::sync::Arc;

use countersign::memory::MemoryStore;
use countersign::redact::Redactor;
use countersign::signer::Signer;
use countersign::{Gate, Policy, Store};
use countersign_agent::Agent;
use countersign_api::wire::{NewToken, Role};
use countersign_server::{Server, ServerBuilder, people, tokens};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Asks about everything but reads; never about what is denied.
pub(crate) const POLICY: &str = "
rules:
  - { id: reads, allow: 'read_*' }
  - { id: writes, ask: 'write_*', reason: It changes files }
  - { id: pairs, ask: deploy, approvals: 2 }
  - { id: never, deny: 'drop_*', reason: Never }
";

/// A server that runs, and what is needed to talk to it.
pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) gate: Gate,
    pub(crate) client: reqwest::Client,
    pub(crate) signer: Arc<Signer>,
    end: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

/// One client with its credential.
#[derive(Clone)]
pub(crate) struct Client {
    url: String,
    client: reqwest::Client,
    token: Option<String>,
}

/// An answer, read.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answered {
    /// Fails unless it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:#}", self.body);
        self.body
    }

    /// Fails unless it is this problem.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{:#}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["type"], format!("urn:countersign:problem:{code}"));
        self.body
    }
}

impl Stage {
    /// A server over memory, with the policy of these tests.
    pub(crate) async fn new() -> Stage {
        Stage::over(Arc::new(MemoryStore::new()), POLICY).await
    }

    /// A server over a store.
    pub(crate) async fn over(store: Arc<dyn Store>, policy: &str) -> Stage {
        Stage::built(store, policy, |_, builder| builder).await
    }

    /// A server over a store, with agents behind its gate.
    pub(crate) async fn with_agents(
        store: Arc<dyn Store>,
        policy: &str,
        agents: impl FnOnce(&Gate) -> Vec<Agent>,
    ) -> Stage {
        Stage::built(store, policy, |gate, builder| builder.agents(agents(gate))).await
    }

    /// A server over a store, with more than its policy.
    pub(crate) async fn built(
        store: Arc<dyn Store>,
        policy: &str,
        more: impl FnOnce(&Gate, ServerBuilder) -> ServerBuilder,
    ) -> Stage {
        let signer = Arc::new(Signer::generate().unwrap());
        let redactor = Redactor::new(&["*password*".to_owned()], &[]).unwrap().and_standard();
        let gate = Gate::builder().policy(Policy::from_yaml(policy).unwrap()).store(store).decided_elsewhere();
        let gate = gate.signer(Arc::clone(&signer)).redactor(redactor).build().unwrap();
        Stage::behind(gate.clone(), signer, |builder| more(&gate, builder)).await
    }

    /// A server before a gate.
    pub(crate) async fn behind(
        gate: Gate,
        signer: Arc<Signer>,
        more: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Stage {
        // Several tests share the process; the first installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Server::builder(gate.clone()).listen("127.0.0.1:0".parse().unwrap()).signer(Arc::clone(&signer));
        let server = more(builder).bind().await.unwrap();
        let url = server.url().to_owned();
        let (end, ended) = oneshot::channel();
        let served = tokio::spawn(server.run(async move {
            let _ = ended.await;
        }));
        Stage { url, gate, client: reqwest::Client::new(), signer, end: Some(end), served }
    }

    /// Without a credential.
    pub(crate) fn nobody(&self) -> Client {
        Client { url: self.url.clone(), client: self.client.clone(), token: None }
    }

    /// With a token of this role.
    pub(crate) async fn with(&self, role: Role, name: &str) -> Client {
        let new = NewToken { role, name: name.to_owned(), expires_after: None, r#for: None };
        let made = tokens::create(&**self.gate.store(), new, "test").await.unwrap();
        Client { token: Some(made.token), ..self.nobody() }
    }

    /// A client of another server on the same store, here with the same credential.
    pub(crate) fn also(&self, client: &Client) -> Client {
        Client { token: client.token.clone(), ..self.nobody() }
    }

    /// An agent.
    pub(crate) async fn agent(&self) -> Client {
        self.with(Role::Agent, "bot").await
    }

    /// An approver.
    pub(crate) async fn ann(&self) -> Client {
        self.with(Role::Approver, "ann").await
    }

    /// A one-time link for a person who may do everything but submit.
    pub(crate) async fn link(&self, name: &str) -> String {
        let roles = [Role::Approver, Role::Operator, Role::Auditor];
        people::put_user(&**self.gate.store(), name, &roles).await.unwrap();
        people::create_link(&**self.gate.store(), name, "test").await.unwrap()
    }

    /// Host and port.
    pub(crate) fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Ends the server and waits until it has.
    pub(crate) async fn end(mut self) {
        self.end.take().unwrap().send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }

    /// Takes the server away as a crash would: nothing is finished, nothing is given back.
    pub(crate) async fn crash(self) {
        self.served.abort();
        let _ = self.served.await;
    }
}

impl Client {
    /// A client with this credential.
    pub(crate) fn token(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.clone() }
    }

    /// A request on its way.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Reads something.
    pub(crate) async fn get(&self, path: &str) -> Answered {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    /// Changes something.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        read(self.request(Method::POST, path).json(body).send().await.unwrap()).await
    }

    /// Ends something.
    pub(crate) async fn delete(&self, path: &str) -> Answered {
        read(self.request(Method::DELETE, path).json(&json!({})).send().await.unwrap()).await
    }

    /// Submits a call of a tool in session `s`.
    pub(crate) async fn submit(&self, tool: &str, arguments: Value) -> Answered {
        self.post("/v1/calls", &json!({ "session": "s", "tool": tool, "arguments": arguments })).await
    }
}

/// Reads an answer whole.
pub(crate) async fn read(response: Response) -> Answered {
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    Answered { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

/// The text of a member.
#[track_caller]
pub(crate) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("no `{member}` in {value:#}"))
}
