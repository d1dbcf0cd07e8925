//! Every scenario file through a listener: what agents, approvers and operators do goes over HTTP, by the typed client.
//!
//! Time, crashes and restarts have no route: they happen to the store. Nor has loading a policy, which a server reads
//! from its file. The testkit does these to the gate behind the server. That a call is a replay, and what state it is
//! in, is looked up there too, so that the whole log is compared and not what the server says of it.

use std::path::Path;

use async_trait::async_trait;
use countersign::call::{Outcome, ResolvedAs};
use countersign::digest::{CallDigest, DefinitionDigest};
use countersign::hold::WhoKind;
use countersign::tool::{FnTool, Tool as _};
use countersign::{Answer, Call, CallId, Gate, GrantId, HoldId, Json, Proposal, Who};
use countersign_api::client::{Client, ClientError};
use countersign_api::wire::{self, AnswerWord, Code, NewDecision, NewOutcome, NewToken, Role, Span};
use countersign_server::{Server, tokens};
use countersign_testkit::anyhow::{self, Context as _, Result};
use countersign_testkit::scenario::{Door, Rejected, Scenario, files};
use countersign_testkit::stores::Kind;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

/// A server before the gate, from one restart to the next.
#[derive(Default)]
pub(crate) struct Http {
    served: Option<Served>,
}

struct Served {
    gate: Gate,
    url: String,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Http {
    /// A client with a token of its own: stories pass more time than a token lives.
    async fn with(&self, role: Role, name: &str) -> Result<Client> {
        let (url, token) = self.credential(role, name).await?;
        Ok(Client::new(&url, &token)?)
    }

    /// Where the server is, and a token for it.
    pub(crate) async fn credential(&self, role: Role, name: &str) -> Result<(String, String)> {
        let served = self.served.as_ref().context("the door is not open")?;
        let new = NewToken { role, name: name.to_owned(), expires_after: None, r#for: None };
        let made = tokens::create(&**served.gate.store(), new, "test").await?;
        Ok((served.url.clone(), made.token))
    }

    /// The gate behind the server.
    pub(crate) fn gate(&self) -> Result<&Gate> {
        Ok(&self.served.as_ref().context("the door is not open")?.gate)
    }

    /// Whoever a call belongs to.
    async fn agent_of(&self, call: &Call) -> Result<Client> {
        self.with(Role::Agent, &call.facts.path.principal).await
    }

    async fn operator(&self) -> Result<Client> {
        self.with(Role::Operator, "op").await
    }

    pub(crate) async fn end(&mut self) -> Result<()> {
        let Some(served) = self.served.take() else { return Ok(()) };
        let _ = served.end.send(());
        Ok(served.task.await??)
    }
}

/// A problem in the word that stories use for it.
fn told(error: ClientError) -> anyhow::Error {
    let ClientError::Refused(problem) = error else { return error.into() };
    let detail = problem.detail.as_deref().unwrap_or_default();
    let after = |words: &str| detail.strip_prefix(words).unwrap_or(detail).to_owned();
    Rejected(match problem.code {
        Code::HoldClosed => format!("closed {}", after("the hold is already ")),
        Code::WrongState => format!("is {}", after("the call is ")),
        Code::DigestMismatch => "digest".to_owned(),
        Code::AlreadyDecided => "repeated".to_owned(),
        Code::GrantRefused => "grant".to_owned(),
        Code::InvalidEdit => "bad-edit".to_owned(),
        // The others have the same name, spelled with dashes.
        code => code.as_str().replace('_', "-"),
    })
    .into()
}

fn decision(digest: CallDigest, answer: Answer) -> NewDecision {
    let approve = NewDecision::approve(digest);
    match answer {
        Answer::Approve { arguments, payload, remember } => {
            let remember = remember.map(|wish| wire::Remember {
                scope: wish.scope,
                covers: wish.covers,
                expires_after: wish.expires_after.map(Span),
                uses: wish.uses,
            });
            NewDecision { arguments, payload, remember, ..approve }
        }
        Answer::Deny { reason } => NewDecision::deny(digest, reason),
        Answer::Respond { response } => {
            NewDecision { answer: AnswerWord::Respond, response: Some(response), ..approve }
        }
    }
}

#[async_trait]
impl Door for Http {
    async fn open(&mut self, gate: &Gate) -> Result<()> {
        self.end().await?;
        let server = Server::builder(gate.clone()).listen("127.0.0.1:0".parse()?).bind().await?;
        let url = server.url().to_owned();
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.run(async move {
            let _ = ended.await;
        }));
        self.served = Some(Served { gate: gate.clone(), url, end, task });
        Ok(())
    }

    async fn submit(&mut self, tool: &FnTool, proposal: Proposal) -> Result<CallId> {
        let text = |text: Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        // Nobody can have a token in the name of this machine's own agents.
        let principal = if &*proposal.path.principal == "local" { "agent" } else { &proposal.path.principal };
        let agent = self.with(Role::Agent, principal).await?;
        let call = wire::NewCall {
            session: text(proposal.path.session),
            run: text(proposal.path.run),
            thread: text(proposal.path.thread),
            agent: proposal.path.agents.iter().map(ToString::to_string).collect(),
            requester: text(proposal.path.requester),
            server: text(proposal.tool.server),
            definition: Some(wire::Definition::from(&*tool.definition())),
            label: text(proposal.label),
            hint: text(proposal.hint),
            payload: proposal.payload,
            key: text(proposal.key),
            ..wire::NewCall::new(proposal.tool.name.to_string(), RawValue::from_string(proposal.arguments)?)
        };
        Ok(agent.submit(&call).await.map_err(told)?.id)
    }

    async fn decide(&mut self, hold: HoldId, by: Who, digest: CallDigest, answer: Answer) -> Result<bool> {
        let name = match by.kind {
            WhoKind::Program => format!("program:{}", by.id),
            WhoKind::Person => by.id.to_string(),
        };
        let approver = self.with(Role::Approver, &name).await?;
        Ok(approver.decide(hold, &decision(digest, answer)).await.map_err(told)?.replayed)
    }

    async fn claim(&mut self, call: &Call, definition: DefinitionDigest) -> Result<bool> {
        let claim = wire::Claim { definition: Some(definition), executor: None };
        match self.agent_of(call).await?.claim(call.id, &claim).await {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(problem)) if matches!(problem.code, Code::WrongState | Code::AlreadyClaimed) => {
                Ok(false)
            }
            Err(error) => Err(told(error)),
        }
    }

    async fn ask(&mut self, call: &Call, fence: u64, payload: Json) -> Result<()> {
        let hold = wire::NewHold { hint: "go on?".to_owned(), payload: Some(payload), fence, key: None };
        self.agent_of(call).await?.ask(call.id, &hold).await.map_err(told)?;
        Ok(())
    }

    async fn finish(&mut self, call: &Call, fence: u64, outcome: Outcome) -> Result<()> {
        let report = NewOutcome::new(&outcome, fence);
        self.agent_of(call).await?.report(call.id, &report).await.map_err(told)?;
        Ok(())
    }

    async fn cancel(&mut self, call: &Call) -> Result<()> {
        self.agent_of(call).await?.cancel(call.id).await.map_err(told)?;
        Ok(())
    }

    async fn resolve(&mut self, call: CallId, word: ResolvedAs, reason: String) -> Result<()> {
        self.operator().await?.resolve(call, &wire::Resolve { r#as: word, reason }).await.map_err(told)?;
        Ok(())
    }

    async fn halt(&mut self, agent: Option<&str>) -> Result<()> {
        let halt = wire::Halt { agent: agent.map(str::to_owned), reason: None };
        self.operator().await?.halt(&halt).await.map_err(told)?;
        Ok(())
    }

    async fn resume(&mut self, agent: Option<&str>) -> Result<()> {
        self.operator().await?.resume(agent).await.map_err(told)?;
        Ok(())
    }

    async fn revoke(&mut self, grant: GrantId) -> Result<()> {
        self.operator().await?.revoke_grant(grant).await.map_err(told)?;
        Ok(())
    }
}

/// B137: one scenario file gives the same events over HTTP.
async fn replay_all(kind: Kind) {
    // Several tests share the process; the first installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")).unwrap();
    assert!(files.len() >= 25, "only {} scenarios", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let (scenario, store) = (Scenario::read(path).unwrap(), kind.fresh().await.unwrap());
        let mut door = Http::default();
        let replayed = scenario.replay_through(store.as_ref(), &mut door).await;
        if let Err(error) = replayed.and(door.end().await) {
            wrong.push(format!("{}: {error:#}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_over_http() {
    replay_all(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_over_http_on_sqlite() {
    replay_all(Kind::Sqlite).await;
}
