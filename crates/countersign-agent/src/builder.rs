//! Builds an agent, and refuses one that could not work or would let calls pass unjudged.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use countersign::approver::Approver;
use countersign::gate::{Authorized, HookAnswer, Proposed, Scope};
use countersign::refusal::Wording;
use countersign::{Answer, Call, Definition, Gate, Hold, Tool, Toolset};

use crate::agent::{Agent, Batch, Inner, RunLimits};
use crate::error::AgentError;
use crate::limits;
use crate::model::Model;
use crate::team::Members;
use crate::toolbox::{Kind, Lead, Slot, Toolbox};
use crate::turnstile::Turnstile;

/// Collects the parts of an agent.
pub struct AgentBuilder {
    name: Arc<str>,
    description: Option<Arc<str>>,
    instructions: Option<Arc<str>>,
    model: Arc<dyn Model>,
    gate: Option<Gate>,
    scope: Scope,
    slots: Vec<Slot>,
    named: Vec<(Way, Arc<str>)>,
    sets: Vec<(Arc<str>, Arc<dyn Toolset>)>,
    batch: Batch,
    limits: RunLimits,
    timeout: Option<Duration>,
    approval_timeout: Option<Duration>,
    max_tokens: Option<u32>,
    wording: Wording,
    has_client: bool,
}

impl AgentBuilder {
    pub(crate) fn new(name: Arc<str>, model: Arc<dyn Model>) -> AgentBuilder {
        AgentBuilder {
            name,
            description: None,
            instructions: None,
            model,
            gate: None,
            scope: Scope::new(),
            slots: Vec::new(),
            named: Vec::new(),
            sets: Vec::new(),
            batch: Batch::default(),
            limits: RunLimits::default(),
            timeout: None,
            approval_timeout: None,
            max_tokens: None,
            wording: Wording::default(),
            has_client: true,
        }
    }

    /// What it is told about itself.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// What other agents are told about it.
    #[must_use]
    pub fn description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// The gate that judges its calls. Agents that work together share one.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// A tool it may call.
    #[must_use]
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// A tool it may call, which others may call too.
    #[must_use]
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.slots.push(Slot { tool, kind: Kind::Here });
        self
    }

    /// Tools it may call, as they are at each turn.
    #[must_use]
    pub fn toolset(self, toolset: impl Toolset + 'static) -> Self {
        self.shared_toolset(Arc::new(toolset))
    }

    /// Tools it may call, as they are at each turn, which others may call too.
    #[must_use]
    pub fn shared_toolset(mut self, toolset: Arc<dyn Toolset>) -> Self {
        self.sets.push((toolset.name(), toolset));
        self
    }

    /// Tools it may call that belong to a skill: rules on `skill:NAME` mean them.
    #[must_use]
    pub fn skill(mut self, name: impl Into<Arc<str>>, toolset: impl Toolset + 'static) -> Self {
        self.sets.push((name.into(), Arc::new(toolset)));
        self
    }

    /// A tool that the session's client runs: see [`Session::take`](crate::Session::take) and [`Session::give`](crate::Session::give).
    #[must_use]
    pub fn client_tool(mut self, definition: Definition) -> Self {
        self.slots.push(Slot::client(definition));
        self
    }

    /// Says that no client is there to run its client tools: their calls are refused at once, and nobody is asked.
    #[must_use]
    pub fn without_client(mut self) -> Self {
        self.has_client = false;
        self
    }

    /// An agent it may hand the conversation over to. That is a call of `agent:NAME`, judged like any other.
    #[must_use]
    pub fn handoff(mut self, agent: Agent) -> Self {
        self.slots.push(Slot::handoff(Lead::To(agent), None));
        self
    }

    /// An agent of its [`Team`](crate::Team) that it may hand the conversation over to, by its name.
    #[must_use]
    pub fn handoff_to(mut self, name: impl Into<Arc<str>>) -> Self {
        self.named.push((Way::Handoff, name.into()));
        self
    }

    /// An agent it may give a task to and wait for. That is a call of `agent:NAME`, judged like any other.
    #[must_use]
    pub fn sub_agent(mut self, agent: Agent) -> Self {
        self.slots.push(Slot::sub_agent(Lead::To(agent), None));
        self
    }

    /// An agent of its [`Team`](crate::Team) that it may give a task to and wait for, by its name.
    #[must_use]
    pub fn sub_agent_of_team(mut self, name: impl Into<Arc<str>>) -> Self {
        self.named.push((Way::Sub, name.into()));
        self
    }

    /// An agent it may give a task to without waiting. Its answer arrives before the run ends.
    #[must_use]
    pub fn background_agent(mut self, agent: Agent) -> Self {
        self.slots.push(Slot::background(Lead::To(agent), None));
        self
    }

    /// An agent of its [`Team`](crate::Team) that it may give a task to without waiting, by its name.
    #[must_use]
    pub fn background_agent_of_team(mut self, name: impl Into<Arc<str>>) -> Self {
        self.named.push((Way::Background, name.into()));
        self
    }

    /// A check before judging, after the gate's own: it may pass, rewrite, refuse or raise to ask. An error refuses.
    #[must_use]
    pub fn before_tool<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HookAnswer, String>> + Send + 'static,
    {
        self.scope = self.scope.before_tool(hook);
        self
    }

    /// A programmatic gate after the hooks: it may pass or deny.
    #[must_use]
    pub fn authorizer<F, Fut>(mut self, authorizer: F) -> Self
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Authorized, String>> + Send + 'static,
    {
        self.scope = self.scope.authorizer(authorizer);
        self
    }

    /// Is told how each of its calls ended, once.
    #[must_use]
    pub fn after_tool<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Arc<Call>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.scope = self.scope.after_tool(hook);
        self
    }

    /// A function that is asked about each hold, instead of whom the gate asks. Its answers are a program's.
    #[must_use]
    pub fn approver<F, Fut>(mut self, ask: F) -> Self
    where
        F: Fn(Hold) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, String>> + Send + 'static,
    {
        self.scope = self.scope.approver(ask);
        self
    }

    /// Somebody who is asked about each hold, answering under a name of their own.
    #[must_use]
    pub fn approver_as(mut self, approver: impl Approver + 'static) -> Self {
        self.scope = self.scope.approver_as(approver);
        self
    }

    /// How the calls of one turn run.
    #[must_use]
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = batch;
        self
    }

    /// How much a run that begins with this agent may take.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a run that begins with this agent may take, downtime included. Then it is cancelled.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The longest a hold may wait, whatever the rules say. Must be below the run's own time.
    #[must_use]
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        self.approval_timeout = Some(timeout);
        self
    }

    /// How many tokens one answer of the model may have.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// How refusals and doubts are worded for the model.
    #[must_use]
    pub fn wording(mut self, wording: Wording) -> Self {
        self.wording = wording;
        self
    }

    /// Builds the agent, and refuses one that could not work or would let calls pass unjudged.
    pub fn build(self) -> Result<Agent, AgentError> {
        let inner = self.build_among(&HashMap::new())?;
        Ok(Agent { inner: Arc::new(inner), team: Members::default() })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn described(&self) -> Option<Arc<str>> {
        self.description.clone()
    }

    /// Builds it among others that it may name, each with its description.
    pub(crate) fn build_among(mut self, others: &HashMap<Arc<str>, Option<Arc<str>>>) -> Result<Inner, AgentError> {
        plausible(&self.name)?;
        let gate = self.gate.take().ok_or_else(|| AgentError::NoGate(Arc::clone(&self.name)))?;
        for (way, name) in std::mem::take(&mut self.named) {
            let unknown = || AgentError::NoSuchAgent { agent: Arc::clone(&self.name), other: Arc::clone(&name) };
            let description = others.get(&name).ok_or_else(unknown)?.clone();
            self.slots.push(way.slot(Lead::ToMember(name), description));
        }
        for slot in &self.slots {
            match slot.kind.lead() {
                Some(Lead::To(other)) if !gate.is_same(other.gate()) => {
                    return Err(AgentError::OtherGate(Arc::clone(other.name())));
                }
                // A team looks at the gates of its members itself.
                Some(Lead::To(_) | Lead::ToMember(_)) | None => {}
            }
        }
        if let Some(life) = hold_life(self.timeout, self.approval_timeout)? {
            self.scope = self.scope.hold_life(life);
        }
        self.limits.extensions = self.limits.extensions.min(countersign::limits::RUN_EXTENSIONS);
        let tools = Toolbox::new(self.slots, self.sets, &gate)?;
        Ok(Inner {
            name: self.name,
            description: self.description,
            instructions: self.instructions,
            model: self.model,
            gate,
            scope: self.scope,
            tools,
            batch: self.batch,
            limits: self.limits,
            timeout: self.timeout,
            max_tokens: self.max_tokens,
            wording: self.wording,
            has_client: self.has_client,
            sessions: Turnstile::default(),
        })
    }
}

/// How one agent leads to another.
enum Way {
    Handoff,
    Sub,
    Background,
}

impl Way {
    fn slot(&self, lead: Lead, description: Option<Arc<str>>) -> Slot {
        match self {
            Way::Handoff => Slot::handoff(lead, description),
            Way::Sub => Slot::sub_agent(lead, description),
            Way::Background => Slot::background(lead, description),
        }
    }
}

/// Names stand in paths, rules and tool names that models are offered.
fn plausible(name: &Arc<str>) -> Result<(), AgentError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 48 || !name.chars().all(fits) {
        return Err(AgentError::BadName(Arc::clone(name)));
    }
    Ok(())
}

/// A hold ends before its run does, so that the model can still react.
fn hold_life(run: Option<Duration>, approval: Option<Duration>) -> Result<Option<Duration>, AgentError> {
    match (run, approval) {
        (None, approval) => Ok(approval),
        (Some(run), Some(approval)) if approval < run => Ok(Some(approval)),
        (Some(run), None) if run > limits::REACTION_TIME => Ok(Some(run.saturating_sub(limits::REACTION_TIME))),
        (Some(run), approval) => Err(AgentError::ApprovalTimeout { approval: approval.unwrap_or(run), run }),
    }
}
