//! A team: agents that know one another by name, so that two of them can hand a conversation to and fro.

use std::collections::HashMap;
use std::sync::Arc;

use crate::agent::{Agent, Inner};
use crate::builder::AgentBuilder;
use crate::error::AgentError;
use crate::toolbox::Lead;

/// Agents that lead to one another by name, in circles too.
///
/// An agent that is given to another with [`AgentBuilder::handoff`] must be built before it. In a team they are named
/// instead, and found when the team is built. Every hand-over stays a call that is judged, and whoever took part keeps
/// binding it: going round in circles drops no rule.
///
/// ```
/// # use countersign::Gate;
/// # use countersign_agent::{Agent, AgentError, Team, model::Model};
/// # fn build(gate: Gate, model: impl Model + Clone + 'static) -> Result<(), AgentError> {
/// let sales = Agent::builder("sales", model.clone()).gate(gate.clone()).handoff_to("support");
/// let support = Agent::builder("support", model).gate(gate).handoff_to("sales");
/// let team = Team::of([sales, support])?;
/// let agent = team.agent("sales"); // runs, streams and resumes as any other
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Team {
    members: Members,
}

/// The agents of one team. They hold one another by name alone, so that nothing is held for ever.
pub(crate) type Members = Arc<HashMap<Arc<str>, Arc<Inner>>>;

impl Team {
    /// Builds every agent, and refuses a team in which a name is missing or means two.
    pub fn of(builders: impl IntoIterator<Item = AgentBuilder>) -> Result<Team, AgentError> {
        let builders: Vec<AgentBuilder> = builders.into_iter().collect();
        let mut described = HashMap::new();
        for builder in &builders {
            if described.insert(Arc::clone(builder.name()), builder.described()).is_some() {
                return Err(AgentError::TwoAgents(Arc::clone(builder.name())));
            }
        }
        let mut members: HashMap<Arc<str>, Arc<Inner>> = HashMap::new();
        for builder in builders {
            let inner = builder.build_among(&described)?;
            if let Some(other) = members.values().find(|other| !other.gate.is_same(&inner.gate)) {
                return Err(AgentError::OtherGate(Arc::clone(&other.name)));
            }
            members.insert(Arc::clone(&inner.name), Arc::new(inner));
        }
        Ok(Team { members: Arc::new(members) })
    }

    /// One of its agents.
    pub fn agent(&self, name: &str) -> Option<Agent> {
        member(&self.members, name)
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.members.keys()).finish()
    }
}

fn member(members: &Members, name: &str) -> Option<Agent> {
    let inner = Arc::clone(members.get(name)?);
    Some(Agent { inner, team: Arc::clone(members) })
}

impl Agent {
    /// The agent that one of its tools leads to.
    pub(crate) fn led_to(&self, lead: &Lead) -> Option<Agent> {
        match lead {
            Lead::To(agent) => Some(agent.clone()),
            Lead::ToMember(name) => member(&self.team, name),
        }
    }

    /// All agents that are reached from it by name; itself, where it has no team.
    pub(crate) fn teammates(&self) -> Vec<Agent> {
        match self.team.is_empty() {
            true => vec![self.clone()],
            false => self.team.keys().filter_map(|name| member(&self.team, name)).collect(),
        }
    }
}
