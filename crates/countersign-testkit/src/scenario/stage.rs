//! Does what a story says, through a door to a gate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use countersign::call::CallState;
use countersign::testing::TestStore;
use countersign::tool::{FnTool, Tool as _, tool};
use countersign::{Call, CallId, Definition, Gate, GateError, Json, Policy, Proposal, ToolId, Who};

use super::door::{Door, Rejected};
use super::step::Step;
use super::tell::{Teller, code};
use super::{Reach, Scenario};

/// A gate on a store, the door to it, and what the story calls its calls.
pub(super) struct Stage<'a> {
    scenario: &'a Scenario,
    store: &'a dyn TestStore,
    door: &'a mut dyn Door,
    gate: Gate,
    teller: Teller,
    tools: HashMap<String, Arc<FnTool>>,
    calls: HashMap<String, (CallId, String)>,
}

impl<'a> Stage<'a> {
    pub(super) async fn new(
        scenario: &'a Scenario,
        store: &'a dyn TestStore,
        door: &'a mut dyn Door,
    ) -> Result<Stage<'a>> {
        let gate = build(scenario, store, &scenario.policy)?;
        door.open(&gate).await?;
        let (tools, calls) = (HashMap::new(), HashMap::new());
        Ok(Stage { scenario, store, door, gate, teller: Teller::default(), tools, calls })
    }

    /// Everything told so far.
    pub(super) fn told(&self) -> Vec<String> {
        self.teller.told.clone()
    }

    pub(super) async fn state(&self, alias: &str) -> Result<CallState> {
        Ok(self.call(alias).await?.state)
    }

    /// Does one step, and tells what came of it.
    pub(super) async fn perform(&mut self, text: &str) -> Result<()> {
        let step = Step::read(text)?;
        let about = about(&step);
        let remark = match self.act(step).await {
            Ok(remark) => remark,
            Err(error) => Some(refused(&about, error)?),
        };
        let names = self.calls.iter().map(|(alias, (id, _))| (*id, alias.clone())).collect();
        self.teller.catch_up(self.gate.store(), &names).await?;
        self.teller.told.extend(remark);
        Ok(())
    }

    /// Time, crashes, restarts and policies come to a gate by no door: they happen to it.
    async fn act(&mut self, step: Step) -> Result<Option<String>> {
        match step {
            Step::Submit { call, tool, options, arguments } => {
                return self.submit(call, tool, options, arguments).await;
            }
            Step::Decide { by, call, seen, answer } => return self.decide(by, &call, &seen, answer).await,
            Step::Claim { call, changed } => return self.claim(&call, changed).await,
            Step::Finish { call, outcome, fence } => {
                let found = self.call(&call).await?;
                let fence = fence.unwrap_or_else(|| found.lease.as_ref().map_or(0, |lease| lease.fence));
                self.door.finish(&found, fence, outcome).await?;
                return self.replayed(&call, &found).await;
            }
            Step::Cancel(call) => {
                let found = self.call(&call).await?;
                self.door.cancel(&found).await?;
                return self.replayed(&call, &found).await;
            }
            Step::Ask { call, payload } => self.ask(&call, payload).await?,
            Step::Resolve { call, word, reason } => self.door.resolve(self.id(&call)?, word, reason).await?,
            Step::Halt(agent) => self.door.halt(agent.as_deref()).await?,
            Step::Resume(agent) => self.door.resume(agent.as_deref()).await?,
            Step::Revoke(grant) => {
                let id = self.teller.grant(&grant).with_context(|| format!("no grant `{grant}`"))?;
                self.door.revoke(id).await?;
            }
            Step::Clock(time) => self.pass(time).await?,
            Step::Crash => self.pass(countersign::limits::LEASE).await?,
            Step::Policy(yaml) => self.gate.load_policy(&yaml).await?,
            Step::Reopen => self.reopen().await?,
        }
        Ok(None)
    }

    async fn pass(&self, time: Duration) -> Result<()> {
        self.store.advance(time).await;
        self.gate.sweep().await?;
        Ok(())
    }

    async fn reopen(&mut self) -> Result<()> {
        let policy = self.gate.policy().source().map_or(self.scenario.policy.clone(), str::to_owned);
        self.store.reopen().await;
        self.gate = build(self.scenario, self.store, &policy)?;
        self.door.open(&self.gate).await
    }

    /// What is told of a step that found everything done.
    async fn replayed(&self, alias: &str, before: &Call) -> Result<Option<String>> {
        let after = self.call(alias).await?;
        Ok((after.version == before.version).then(|| format!("replayed {alias}")))
    }

    async fn submit(
        &mut self,
        alias: String,
        tool: String,
        options: Vec<(String, String)>,
        arguments: String,
    ) -> Result<Option<String>> {
        let mut proposal = Proposal::new(tool.as_str(), arguments).session("s1");
        for (key, value) in options {
            match key.as_str() {
                "session" if value == "none" => proposal.path.session = None,
                "session" => proposal.path.session = Some(value.into()),
                "run" => proposal.path.run = Some(value.into()),
                "key" => proposal.key = Some(value.into()),
                "principal" => proposal.path.principal = value.into(),
                "requester" => proposal.path.requester = Some(value.into()),
                "agent" => proposal.path.agents = [value.into()].into(),
                other => bail!("a call has no `{other}`"),
            }
        }
        let defined = self.tool(&tool);
        proposal.tool = defined.definition().tool.clone();
        let id = self.door.submit(&defined, proposal).await?;
        let known = self.calls.values().find(|(known, _)| *known == id);
        let remark = known.map(|_| format!("replayed {alias}"));
        self.calls.insert(alias, (id, tool));
        Ok(remark)
    }

    async fn decide(
        &mut self,
        by: Who,
        alias: &str,
        seen: &str,
        answer: countersign::Answer,
    ) -> Result<Option<String>> {
        let (call, shown) = (self.call(alias).await?, self.call(seen).await?);
        let hold = call.open_hold().or(call.holds.last()).context("it has no hold")?.id;
        let digest = shown.open_hold().or(shown.holds.last()).context("it shows no hold")?.digest;
        let replayed = self.door.decide(hold, by, digest, answer).await?;
        Ok(replayed.then(|| format!("replayed {alias}")))
    }

    async fn claim(&mut self, alias: &str, changed: bool) -> Result<Option<String>> {
        let (id, tool) = self.calls.get(alias).cloned().with_context(|| format!("no call `{alias}`"))?;
        let definition = match changed {
            true => Definition::new(tool.as_str(), "Another description.").digest(),
            false => self.tool(&tool).definition().digest(),
        };
        let call = self.gate.get(id).await?;
        match self.door.claim(&call, definition).await? {
            true => Ok(None),
            false => Ok(Some(format!("not claimed {alias} {}", self.state(alias).await?))),
        }
    }

    async fn ask(&mut self, alias: &str, payload: Json) -> Result<()> {
        let call = self.call(alias).await?;
        let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
        self.door.ask(&call, fence, payload).await
    }

    fn id(&self, alias: &str) -> Result<CallId> {
        self.calls.get(alias).map(|(id, _)| *id).with_context(|| format!("no call `{alias}`"))
    }

    async fn call(&self, alias: &str) -> Result<Arc<Call>> {
        Ok(self.gate.get(self.id(alias)?).await?)
    }

    fn tool(&mut self, name: &str) -> Arc<FnTool> {
        let repeat = self.scenario.repeat.get(name).copied().unwrap_or_default();
        let made = self.tools.entry(name.to_owned()).or_insert_with(|| {
            let mut definition = Definition::new(name, "A tool of the story.");
            definition.repeat = repeat;
            if let Some((server, name)) = name.split_once('/') {
                definition.tool = ToolId::on(server, name);
            }
            Arc::new(tool(definition, |_| async { Ok(Json::empty()) }))
        });
        Arc::clone(made)
    }
}

fn build(scenario: &Scenario, store: &dyn TestStore, policy: &str) -> Result<Gate> {
    let policy = Policy::from_yaml(policy)?.with_groups(scenario.groups.clone());
    let builder = Gate::builder().store(store.store()).policy(policy).limits(scenario.limits.clone());
    let builder = builder.owner("worker").without_sweeper();
    Ok(match scenario.reach {
        Reach::Elsewhere => builder.decided_elsewhere(),
        Reach::Nobody => builder,
    }
    .build()?)
}

/// What is told of a step that was refused; any other failure is one of the story's.
fn refused(about: &str, error: anyhow::Error) -> Result<String> {
    if let Some(Rejected(word)) = error.downcast_ref() {
        return Ok(format!("rejected {about} {word}"));
    }
    match error.downcast_ref::<GateError>() {
        Some(GateError::Rejected(rejection)) => Ok(format!("rejected {about} {}", code(rejection))),
        Some(GateError::BadEdit(_)) => Ok(format!("rejected {about} bad-edit")),
        Some(GateError::BrokenPolicy(_)) => Ok("rejected policy broken".to_owned()),
        _ => Err(error),
    }
}

/// What a remark about a refused step names.
fn about(step: &Step) -> String {
    match step {
        Step::Submit { call, .. }
        | Step::Decide { call, .. }
        | Step::Claim { call, .. }
        | Step::Ask { call, .. }
        | Step::Finish { call, .. }
        | Step::Resolve { call, .. }
        | Step::Cancel(call) => call.clone(),
        Step::Revoke(grant) => grant.clone(),
        Step::Clock(_) | Step::Crash | Step::Halt(_) | Step::Resume(_) | Step::Policy(_) | Step::Reopen => {
            "it".to_owned()
        }
    }
}
