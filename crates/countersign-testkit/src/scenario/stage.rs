//! Does what a story says, through a gate.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use countersign::call::{CallState, Resolution};
use countersign::store::Op;
use countersign::testing::TestStore;
use countersign::tool::{FnTool, Tool as _, tool};
use countersign::transition::Asking;
use countersign::{
    Call, CallId, Claimed, Decision, Definition, Gate, GateError, HoldId, Json, Policy, Proposal, Time, ToolId, Who,
};

use super::step::Step;
use super::tell::{Teller, code};
use super::{Reach, Scenario};

/// A gate on a store, and what the story calls its calls.
pub(super) struct Stage<'a> {
    scenario: &'a Scenario,
    store: &'a dyn TestStore,
    gate: Gate,
    teller: Teller,
    tools: HashMap<String, FnTool>,
    calls: HashMap<String, (CallId, String)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(scenario: &'a Scenario, store: &'a dyn TestStore) -> Result<Stage<'a>> {
        let gate = build(scenario, store, &scenario.policy)?;
        let (tools, calls) = (HashMap::new(), HashMap::new());
        Ok(Stage { scenario, store, gate, teller: Teller::default(), tools, calls })
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
            Err(error) => match error.downcast_ref::<GateError>() {
                Some(GateError::Rejected(rejection)) => Some(format!("rejected {about} {}", code(rejection))),
                Some(GateError::BadEdit(_)) => Some(format!("rejected {about} bad-edit")),
                Some(GateError::BrokenPolicy(_)) => Some("rejected policy broken".to_owned()),
                _ => return Err(error),
            },
        };
        let names = self.calls.iter().map(|(alias, (id, _))| (*id, alias.clone())).collect();
        self.teller.catch_up(self.gate.store(), &names).await?;
        self.teller.told.extend(remark);
        Ok(())
    }

    async fn act(&mut self, step: Step) -> Result<Option<String>> {
        match step {
            Step::Submit { call, tool, options, arguments } => self.submit(call, tool, options, arguments).await,
            Step::Decide { by, call, seen, answer } => self.decide(by, &call, &seen, answer).await,
            Step::Clock(time) => {
                self.store.advance(time).await;
                self.gate.sweep().await?;
                Ok(None)
            }
            Step::Claim { call, changed } => self.claim(&call, changed).await,
            Step::Ask { call, payload } => self.ask(&call, payload).await,
            Step::Finish { call, outcome, fence } => {
                let found = self.call(&call).await?;
                let fence = fence.unwrap_or_else(|| found.lease.as_ref().map_or(0, |lease| lease.fence));
                let after = self.gate.finish(found.id, fence, outcome).await?;
                Ok((after.version == found.version).then(|| format!("replayed {call}")))
            }
            Step::Crash => {
                self.store.advance(countersign::limits::LEASE).await;
                self.gate.sweep().await?;
                Ok(None)
            }
            Step::Cancel(call) => {
                let found = self.call(&call).await?;
                let after = self.gate.cancel(found.id).await?;
                Ok((after.version == found.version).then(|| format!("replayed {call}")))
            }
            Step::Resolve { call, word, reason } => {
                let resolution = Resolution { r#as: word, reason, by: "ann".into(), at: Time::default() };
                let op = Op::Resolve { call: self.id(&call)?, resolution };
                self.gate.store().run(op).await.map_err(GateError::from)?;
                Ok(None)
            }
            Step::Halt(agent) => self.gate.halt(agent.as_deref(), "op", None).await.map(|()| None).map_err(Into::into),
            Step::Resume(agent) => self.gate.lift(agent.as_deref(), "op").await.map(|()| None).map_err(Into::into),
            Step::Revoke(grant) => {
                let id = self.teller.grant(&grant).with_context(|| format!("no grant `{grant}`"))?;
                self.gate.revoke(id, Who::person("op")).await?;
                Ok(None)
            }
            Step::Policy(yaml) => self.gate.load_policy(&yaml).await.map(|()| None).map_err(Into::into),
            Step::Reopen => {
                let policy = self.gate.policy().source().map_or(self.scenario.policy.clone(), str::to_owned);
                self.store.reopen().await;
                self.gate = build(self.scenario, self.store, &policy)?;
                Ok(None)
            }
        }
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
        let gate = self.gate.clone();
        let call = gate.submit(self.tool(&tool), proposal).await?;
        let known = self.calls.values().find(|(id, _)| *id == call.id);
        let remark = known.map(|_| format!("replayed {alias}"));
        self.calls.insert(alias, (call.id, tool));
        Ok(remark)
    }

    async fn decide(&self, by: Who, alias: &str, seen: &str, answer: countersign::Answer) -> Result<Option<String>> {
        let (call, shown) = (self.call(alias).await?, self.call(seen).await?);
        let hold = call.open_hold().or(call.holds.last()).context("it has no hold")?;
        let digest = shown.open_hold().or(shown.holds.last()).context("it shows no hold")?.digest;
        let decided = self.gate.decide(hold.id, Decision::new(by, "scenario", digest, answer)).await?;
        Ok(decided.replayed.then(|| format!("replayed {alias}")))
    }

    async fn claim(&mut self, alias: &str, changed: bool) -> Result<Option<String>> {
        let (id, tool) = self.calls.get(alias).cloned().with_context(|| format!("no call `{alias}`"))?;
        let definition = match changed {
            true => Definition::new(tool.as_str(), "Another description.").digest(),
            false => self.tool(&tool).definition().digest(),
        };
        match self.gate.claim(id, Some(definition)).await? {
            Claimed::Permit(permit) => {
                // The story says how the run ends; until then nobody runs anything.
                drop(permit.start());
                Ok(None)
            }
            Claimed::Not(call) => Ok(Some(format!("not claimed {alias} {}", call.state))),
        }
    }

    async fn ask(&self, alias: &str, payload: Json) -> Result<Option<String>> {
        let call = self.call(alias).await?;
        let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
        let hold = HoldId::new();
        let asking =
            Asking { hold, fence, hint: Some("go on?".into()), payload: Some(payload), unattended: None, most: 10 };
        let op = Op::Ask { call: call.id, asking: Box::new(asking) };
        self.gate.store().run(op).await.map_err(GateError::from)?;
        Ok(None)
    }

    fn id(&self, alias: &str) -> Result<CallId> {
        self.calls.get(alias).map(|(id, _)| *id).with_context(|| format!("no call `{alias}`"))
    }

    async fn call(&self, alias: &str) -> Result<Arc<Call>> {
        Ok(self.gate.get(self.id(alias)?).await?)
    }

    fn tool(&mut self, name: &str) -> &FnTool {
        let repeat = self.scenario.repeat.get(name).copied().unwrap_or_default();
        self.tools.entry(name.to_owned()).or_insert_with(|| {
            let mut definition = Definition::new(name, "A tool of the story.");
            definition.repeat = repeat;
            if let Some((server, name)) = name.split_once('/') {
                definition.tool = ToolId::on(server, name);
            }
            tool(definition, |_| async { Ok(Json::empty()) })
        })
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
