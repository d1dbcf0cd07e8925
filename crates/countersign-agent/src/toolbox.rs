//! The tools of an agent: what the model is offered, and what its names mean.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::call::Repeat;
use countersign::digest::DefinitionDigest;
use countersign::tool::came_with;
use countersign::{Definition, Gate, GateError, Json, Running, Tool, ToolError, ToolId, Toolset};

use crate::agent::Agent;
use crate::error::AgentError;
use crate::limits;
use crate::model::Offer;

/// What happens once a call of a tool is through the gate.
#[derive(Clone)]
pub(crate) enum Kind {
    /// It runs in this process.
    Here,
    /// The session's client runs it.
    Client,
    /// The thread goes over to this agent.
    Handoff(Lead),
    /// This agent gets a task, and the call ends with its answer.
    Sub(Lead),
    /// This agent gets a task; its answer comes later.
    Background(Lead),
}

/// The agent a tool leads to.
#[derive(Clone)]
pub(crate) enum Lead {
    /// This one.
    To(Agent),
    /// The one of this name in the same team.
    ToMember(Arc<str>),
}

impl Lead {
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Lead::To(agent) => agent.name(),
            Lead::ToMember(name) => name,
        }
    }

    fn description(&self, told: Option<Arc<str>>) -> Option<Arc<str>> {
        match self {
            Lead::To(agent) => agent.inner.description.clone(),
            Lead::ToMember(_) => told,
        }
    }
}

impl Kind {
    /// Where it leads to.
    pub(crate) fn lead(&self) -> Option<&Lead> {
        match self {
            Kind::Handoff(lead) | Kind::Sub(lead) | Kind::Background(lead) => Some(lead),
            Kind::Here | Kind::Client => None,
        }
    }
}

/// One tool, and what it leads to.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) kind: Kind,
}

impl Slot {
    pub(crate) fn client(definition: Definition) -> Slot {
        Slot { tool: Arc::new(Stub(Arc::new(definition))), kind: Kind::Client }
    }

    pub(crate) fn handoff(lead: Lead, told: Option<Arc<str>>) -> Slot {
        let schema = r#"{"properties":{"reason":{"description":"Why the other agent should go on.","type":"string"}},"type":"object"}"#;
        Slot {
            tool: delegation(&lead, told, "Hands the whole conversation over to", schema),
            kind: Kind::Handoff(lead),
        }
    }

    pub(crate) fn sub_agent(lead: Lead, told: Option<Arc<str>>) -> Slot {
        Slot { tool: delegation(&lead, told, "Gives a task to, and waits for,", TASK), kind: Kind::Sub(lead) }
    }

    pub(crate) fn background(lead: Lead, told: Option<Arc<str>>) -> Slot {
        let tool = delegation(&lead, told, "Gives a task, to be worked on in the background, to", TASK);
        Slot { tool, kind: Kind::Background(lead) }
    }

    /// The name a model is offered, if nothing else has it.
    fn offered(&self) -> String {
        let tool = &self.tool.definition().tool;
        let name = match (&self.kind, &tool.server) {
            (Kind::Handoff(lead), _) => format!("transfer_to_{}", lead.name()),
            (Kind::Sub(lead) | Kind::Background(lead), _) => format!("ask_{}", lead.name()),
            (Kind::Here | Kind::Client, Some(server)) => format!("{server}__{}", tool.name),
            (Kind::Here | Kind::Client, None) => tool.name.to_string(),
        };
        let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        name.chars().map(fits).take(limits::OFFERED_NAME).collect()
    }
}

const TASK: &str = r#"{"properties":{"task":{"description":"What to do, with all that it needs to know.","type":"string"}},"required":["task"],"type":"object"}"#;

/// The call behind a hand-off or a task. Running it begins the child and nothing more, and its thread is named by the
/// call, so that running it again begins nothing twice.
fn delegation(lead: &Lead, told: Option<Arc<str>>, does: &str, schema: &str) -> Arc<dyn Tool> {
    let what = match lead.description(told) {
        Some(description) => format!("{does} the agent `{}`. {description}", lead.name()),
        None => format!("{does} the agent `{}`.", lead.name()),
    };
    let mut definition = Definition::new(format!("agent:{}", lead.name()), what);
    definition.input_schema =
        Json::ingest(schema, countersign::json::Bounds::PAYLOAD).unwrap_or_else(|_| Json::empty());
    definition.repeat = Repeat::Idempotent;
    Arc::new(Begin(Arc::new(definition)))
}

struct Begin(Arc<Definition>);

#[async_trait]
impl Tool for Begin {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.0)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        Json::of(&serde_json::json!({"thread": running.id()})).map_err(|error| ToolError::Failed(error.to_string()))
    }
}

/// A tool that somebody else runs.
struct Stub(Arc<Definition>);

#[async_trait]
impl Tool for Stub {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.0)
    }

    async fn run(&self, _running: Running) -> Result<Json, ToolError> {
        Err(ToolError::Failed("only the session's client runs this tool".into()))
    }
}

/// What a model is offered in one turn, and what each name means. Names are looked up, never taken apart.
pub(crate) struct Listing {
    pub(crate) offers: Arc<[Offer]>,
    named: HashMap<Arc<str>, Arc<Slot>>,
    /// The policy that hid tools, and the definitions of tools that come and go.
    policy: Arc<str>,
    moving: Vec<DefinitionDigest>,
}

impl Listing {
    /// The tool of an offered name, also of one that a rule hides: calling it gives the rule's refusal.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Slot>> {
        self.named.get(name)
    }
}

/// All tools of an agent.
pub(crate) struct Toolbox {
    fixed: Vec<Arc<Slot>>,
    sets: Vec<(Arc<str>, Arc<dyn Toolset>)>,
    listing: Mutex<Arc<Listing>>,
}

impl Toolbox {
    /// Tries every tool against the policy; one that cannot be judged stops the start.
    pub(crate) fn new(
        slots: Vec<Slot>,
        sets: Vec<(Arc<str>, Arc<dyn Toolset>)>,
        gate: &Gate,
    ) -> Result<Toolbox, AgentError> {
        let fixed: Vec<Arc<Slot>> = slots.into_iter().map(Arc::new).collect();
        let moving = moving(&sets);
        let mut seen = std::collections::HashSet::new();
        for slot in fixed.iter().chain(&moving) {
            gate.admit(&*slot.tool)?;
            let tool = slot.tool.definition().tool.clone();
            let named = tool.to_string();
            if !seen.insert(tool) {
                return Err(AgentError::TwoTools(named));
            }
        }
        if seen.len() > limits::TOOLS_PER_AGENT {
            return Err(AgentError::TooManyTools(limits::TOOLS_PER_AGENT));
        }
        let listing = Mutex::new(Arc::new(list(&fixed, &moving, gate)));
        Ok(Toolbox { fixed, sets, listing })
    }

    /// What to offer now. Built anew only when the policy or a toolset changed.
    pub(crate) fn listing(&self, gate: &Gate) -> Arc<Listing> {
        let moving = moving(&self.sets);
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let same = listing.moving.iter().copied().eq(moving.iter().map(|slot| slot.tool.definition().digest()));
        if !same || listing.policy != *gate.policy().version() {
            *listing = Arc::new(list(&self.fixed, &moving, gate));
        }
        Arc::clone(&listing)
    }

    /// What a model is offered now: nothing that a rule hides, here or at the server that judges.
    pub(crate) async fn offers(&self, gate: &Gate) -> Result<Arc<[Offer]>, GateError> {
        let listing = self.listing(gate);
        if !gate.is_remote() {
            return Ok(Arc::clone(&listing.offers));
        }
        let tool = |offer: &Offer| listing.find(&offer.name).map(|slot| slot.tool.definition().tool.clone());
        let mut names: BTreeMap<Option<Arc<str>>, Vec<Arc<str>>> = BTreeMap::new();
        for tool in listing.offers.iter().filter_map(tool) {
            names.entry(tool.server).or_default().push(tool.name);
        }
        let mut hidden = HashSet::new();
        for (server, names) in names {
            let found = gate.hidden(server.as_deref(), &names).await?;
            hidden.extend(found.into_iter().map(|name| ToolId { server: server.clone(), name }));
        }
        let is_shown = |offer: &&Offer| tool(offer).is_none_or(|tool| !hidden.contains(&tool));
        Ok(listing.offers.iter().filter(is_shown).cloned().collect())
    }

    /// Whether the tool of this definition is left to the client.
    pub(crate) fn is_clients(&self, definition: &DefinitionDigest) -> bool {
        let mut clients = self.fixed.iter().filter(|slot| matches!(slot.kind, Kind::Client));
        clients.any(|slot| slot.tool.definition().digest() == *definition)
    }

    /// The agents that work for this one, or take over from it; not those it only names.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.fixed.iter().filter_map(|slot| match slot.kind.lead()? {
            Lead::To(agent) => Some(agent),
            Lead::ToMember(_) => None,
        })
    }

    /// The agent of this name that the thread may go over to.
    pub(crate) fn handoff(&self, name: &str) -> Option<&Lead> {
        self.fixed.iter().find_map(|slot| match &slot.kind {
            Kind::Handoff(lead) if &**lead.name() == name => Some(lead),
            _ => None,
        })
    }

    /// The agent of this name that works in the background.
    pub(crate) fn background(&self, name: &str) -> Option<&Lead> {
        self.fixed.iter().find_map(|slot| match &slot.kind {
            Kind::Background(lead) if &**lead.name() == name => Some(lead),
            _ => None,
        })
    }
}

fn moving(sets: &[(Arc<str>, Arc<dyn Toolset>)]) -> Vec<Arc<Slot>> {
    let tools = sets.iter().flat_map(|(name, set)| set.tools().into_iter().map(|tool| came_with(name, tool)));
    tools.map(|tool| Arc::new(Slot { tool, kind: Kind::Here })).collect()
}

fn list(fixed: &[Arc<Slot>], moving: &[Arc<Slot>], gate: &Gate) -> Listing {
    let policy = gate.policy();
    let mut named: HashMap<Arc<str>, Arc<Slot>> = HashMap::new();
    let mut offers = Vec::new();
    for slot in fixed.iter().chain(moving).take(limits::TOOLS_PER_AGENT) {
        let definition = slot.tool.definition();
        // A tool that came later and cannot be judged is not offered, and calling it is calling an unknown tool.
        if let Err(error) = gate.admit(&*slot.tool) {
            tracing::warn!(%error, "a tool is not offered");
            continue;
        }
        let name = free_name(slot, &named);
        named.insert(Arc::clone(&name), Arc::clone(slot));
        if !policy.hides(&definition.tool) {
            let description = Arc::clone(&definition.description);
            offers.push(Offer { name, description, input_schema: definition.input_schema.clone() });
        }
    }
    let moving = moving.iter().map(|slot| slot.tool.definition().digest()).collect();
    Listing { offers: offers.into(), named, policy: Arc::clone(policy.version()), moving }
}

/// The offered name, told apart from others by a piece of the tool's own digest.
fn free_name(slot: &Slot, taken: &HashMap<Arc<str>, Arc<Slot>>) -> Arc<str> {
    let name = slot.offered();
    if !name.is_empty() && !taken.contains_key(name.as_str()) {
        return name.into();
    }
    let tool = &slot.tool.definition().tool;
    let identity = format!("{:?}\n{}", tool.server, tool.name);
    let digest = DefinitionDigest::of(identity.as_bytes());
    let suffix: String = digest.as_bytes().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let stem: String = name.chars().take(limits::OFFERED_NAME - suffix.len() - 1).collect();
    format!("{stem}_{suffix}").into()
}
