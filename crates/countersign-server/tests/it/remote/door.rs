//! Every scenario file with a remote gate for whatever agents do: the library's own methods, answered by a server.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::{Outcome, ResolvedAs};
use countersign::digest::{CallDigest, DefinitionDigest};
use countersign::tool::FnTool;
use countersign::{Answer, Call, CallId, Claimed, Gate, GrantId, HoldId, Json, Proposal, Running, Who};
use countersign_api::wire::Role;
use countersign_testkit::anyhow::{Context as _, Result, bail};
use countersign_testkit::scenario::{Door, Scenario, files};
use countersign_testkit::stores::Kind;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::scenarios::Http;

/// People go through HTTP as before; agents have a gate.
#[derive(Default)]
struct Agents {
    people: Http,
    running: HashMap<CallId, Arc<Running>>,
    /// Tools that ask from inside, until they are answered or the story ends.
    asking: Vec<AbortOnDropHandle<()>>,
}

impl Agents {
    async fn gate(&self, principal: &str) -> Result<Gate> {
        let (url, token) = self.people.credential(Role::Agent, principal).await?;
        Ok(countersign_api::remote(&url, &token)?)
    }

    async fn gate_of(&self, call: &Call) -> Result<Gate> {
        self.gate(&call.facts.path.principal).await
    }
}

#[async_trait]
impl Door for Agents {
    async fn open(&mut self, gate: &Gate) -> Result<()> {
        self.running.clear();
        self.asking.clear();
        self.people.open(gate).await
    }

    async fn submit(&mut self, tool: &FnTool, proposal: Proposal) -> Result<CallId> {
        let principal = if &*proposal.path.principal == "local" { "agent" } else { &proposal.path.principal };
        Ok(self.gate(principal).await?.submit(tool, proposal).await?.id)
    }

    async fn decide(&mut self, hold: HoldId, by: Who, digest: CallDigest, answer: Answer) -> Result<bool> {
        self.people.decide(hold, by, digest, answer).await
    }

    async fn claim(&mut self, call: &Call, definition: DefinitionDigest) -> Result<bool> {
        match self.gate_of(call).await?.claim(call.id, Some(definition)).await? {
            Claimed::Permit(permit) => {
                self.running.insert(call.id, Arc::new(permit.start()));
                Ok(true)
            }
            Claimed::Not(_) => Ok(false),
        }
    }

    async fn ask(&mut self, call: &Call, _fence: u64, payload: Json) -> Result<()> {
        let running = Arc::clone(self.running.get(&call.id).context("nobody runs it")?);
        let payload: serde_json::Value = payload.read()?;
        let (ended, mut has_ended) = oneshot::channel();
        let asks = tokio::spawn(async move {
            let answer = running.confirm("go on?", &payload).await;
            let _ = ended.send(answer.err());
        });
        self.asking.push(AbortOnDropHandle::new(asks));
        let behind = self.people.gate()?;
        loop {
            let rung = behind.store().bell().listen(call.id);
            if behind.get(call.id).await?.holds.len() > call.holds.len() {
                return Ok(());
            }
            tokio::select! {
                () = rung => {}
                refusal = &mut has_ended => bail!("it was not asked: {refusal:?}"),
            }
        }
    }

    async fn finish(&mut self, call: &Call, fence: u64, outcome: Outcome) -> Result<()> {
        self.gate_of(call).await?.finish(call.id, fence, outcome).await?;
        Ok(())
    }

    async fn cancel(&mut self, call: &Call) -> Result<()> {
        self.gate_of(call).await?.cancel(call.id).await?;
        Ok(())
    }

    async fn resolve(&mut self, call: CallId, word: ResolvedAs, reason: String) -> Result<()> {
        self.people.resolve(call, word, reason).await
    }

    async fn halt(&mut self, agent: Option<&str>) -> Result<()> {
        self.people.halt(agent).await
    }

    async fn resume(&mut self, agent: Option<&str>) -> Result<()> {
        self.people.resume(agent).await
    }

    async fn revoke(&mut self, grant: GrantId) -> Result<()> {
        self.people.revoke(grant).await
    }
}

/// B137: one scenario file gives the same events when the agent's half is a remote gate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_on_a_remote_gate() {
    // Several tests share the process; the first installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")).unwrap();
    assert!(files.len() >= 25, "only {} scenarios", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let (scenario, store) = (Scenario::read(path).unwrap(), Kind::Memory.fresh().await.unwrap());
        let mut door = Agents::default();
        let replayed = scenario.replay_through(store.as_ref(), &mut door).await;
        door.asking.clear();
        if let Err(error) = replayed.and(door.people.end().await) {
            wrong.push(format!("{}: {error:#}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
