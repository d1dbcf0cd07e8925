//! The agents that a configuration describes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersign::config::{self, AgentConfig, Config, ModelConfig};
use countersign::{Definition, Gate, Tool};

use crate::agent::{Agent, Batch};
use crate::builder::AgentBuilder;
use crate::error::AgentError;
use crate::model::{Model, ModelError};
use crate::tools::{self, BUILTIN, CustomError, Made, Workspace};

/// The name of the agent there is when the file names none.
pub const DEFAULT_AGENT: &str = "agent";

/// What the default agent is told about itself.
const DEFAULT_INSTRUCTIONS: &str = "You work in the user's folder with the tools you have. People may be asked about \
     your calls and may refuse them: then do not try the same call again, and say what you would have done.";

/// Gives an agent its model. It gets the agent's name and what the configuration says about its model, if anything.
pub type Casting<'a> = dyn Fn(&str, Option<&ModelConfig>) -> Result<Arc<dyn Model>, ModelError> + 'a;

/// Everything agents are made of.
#[derive(Clone, Copy)]
pub struct Makings<'a> {
    /// What the file says.
    pub config: &'a Config,
    /// The folder that relative paths in the file start from.
    pub base: &'a Path,
    /// The folder that the agents work in.
    pub workspace: &'a Workspace,
    /// The gate that judges their calls.
    pub gate: &'a Gate,
    /// Where their models come from.
    pub casting: &'a Casting<'a>,
}

/// Why a configured agent cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such agent.
    #[error("there is no agent `{name}`: the configuration names {known}")]
    NoAgent {
        /// The name asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// There are several, and nobody said which.
    #[error("which agent? The configuration names {0}")]
    SeveralAgents(String),
    /// An agent names a tool that is not there.
    #[error("agent `{agent}` names the tool `{tool}`, which is neither built in nor under `tools:`; there is {known}")]
    NoTool {
        /// The agent.
        agent: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// Those there are.
        known: String,
    },
    /// Agents that lead to each other have no end.
    #[error("agents lead to each other in a circle: {0}; take one of these out of `sub_agents` or `handoffs`")]
    Circle(String),
    /// A tool cannot be used.
    #[error(transparent)]
    Tool(#[from] CustomError),
    /// An agent cannot be built.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An agent has no model.
    #[error("agent `{agent}`: {why}")]
    Model {
        /// The agent.
        agent: Arc<str>,
        /// Why.
        why: ModelError,
    },
}

/// The name of the agent that is meant: the one asked for, or the only one there is.
pub fn agent_name<'a>(config: &'a Config, asked: Option<&'a str>) -> Result<&'a str, ConfigError> {
    match (asked, config.agents.as_slice()) {
        (None | Some(DEFAULT_AGENT), []) => Ok(DEFAULT_AGENT),
        (None, [only]) => Ok(&only.name),
        (None, _) => Err(ConfigError::SeveralAgents(known_agents(config))),
        (Some(name), agents) if agents.iter().any(|agent| &*agent.name == name) => Ok(name),
        (Some(name), _) => Err(ConfigError::NoAgent { name: name.to_owned(), known: known_agents(config) }),
    }
}

/// Every tool the configuration gives: its own, and the built-in ones whose names it does not take.
pub fn all_tools(config: &Config, base: &Path, workspace: &Workspace) -> Result<Vec<Made>, CustomError> {
    let own = config.tools.iter().map(|tool| tools::from_config(tool, base));
    let mut all: Vec<Made> = own.collect::<Result<_, _>>()?;
    for tool in tools::builtin(workspace) {
        let name = tool.definition().tool.clone();
        if !all.iter().any(|made| made.definition().tool == name) {
            all.push(Made::Tool(tool));
        }
    }
    Ok(all)
}

/// Makes an agent, and the agents that it leads to.
///
/// An agent whose `tools:` has the word `builtin` gets all built-in tools; one without `tools:` gets none.
pub fn agent(makings: Makings<'_>, name: &str) -> Result<Agent, ConfigError> {
    let tools = all_tools(makings.config, makings.base, makings.workspace)?;
    let mut troupe = Troupe { makings, tools, made: BTreeMap::new(), path: Vec::new() };
    if makings.config.agents.is_empty() && name == DEFAULT_AGENT {
        return troupe.default_agent();
    }
    troupe.agent(name)
}

fn known_agents(config: &Config) -> String {
    match config.agents.is_empty() {
        true => format!("none, so there is only the default one, `{DEFAULT_AGENT}`"),
        false => listed(config.agents.iter().map(|agent| &*agent.name)),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Agents in the making. One that several others lead to is made once.
struct Troupe<'a> {
    makings: Makings<'a>,
    tools: Vec<Made>,
    made: BTreeMap<String, Agent>,
    path: Vec<String>,
}

impl Troupe<'_> {
    fn default_agent(&self) -> Result<Agent, ConfigError> {
        let begun = self.begin(&DEFAULT_AGENT.into(), None)?.instructions(DEFAULT_INSTRUCTIONS);
        Ok(self.tools.iter().fold(begun, with_tool).build()?)
    }

    fn agent(&mut self, name: &str) -> Result<Agent, ConfigError> {
        if let Some(made) = self.made.get(name) {
            return Ok(made.clone());
        }
        if self.path.iter().any(|above| above == name) {
            self.path.push(name.to_owned());
            return Err(ConfigError::Circle(self.path.join(" → ")));
        }
        let config = self.makings.config;
        let missing = || ConfigError::NoAgent { name: name.to_owned(), known: known_agents(config) };
        let described = config.agents.iter().find(|agent| &*agent.name == name).ok_or_else(missing)?;
        self.path.push(name.to_owned());
        let made = self.make(described)?;
        self.path.pop();
        self.made.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    fn make(&mut self, described: &AgentConfig) -> Result<Agent, ConfigError> {
        let mut builder = self.begin(&described.name, described.model.as_ref())?.batch(match described.batch {
            config::Batch::Independent => Batch::Independent,
            config::Batch::Barrier => Batch::Barrier,
            config::Batch::Sequential => Batch::Sequential,
        });
        if let Some(text) = &described.description {
            builder = builder.description(text.as_str());
        }
        if let Some(text) = &described.instructions {
            builder = builder.instructions(text.as_str());
        }
        if let Some(timeout) = described.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(timeout) = described.approval_timeout {
            builder = builder.approval_timeout(timeout);
        }
        for tool in self.tools_of(described)? {
            builder = with_tool(builder, &tool);
        }
        for other in &described.sub_agents {
            builder = builder.sub_agent(self.agent(other)?);
        }
        for other in &described.handoffs {
            builder = builder.handoff(self.agent(other)?);
        }
        Ok(builder.build()?)
    }

    fn begin(&self, name: &Arc<str>, model: Option<&ModelConfig>) -> Result<AgentBuilder, ConfigError> {
        let model = model.or(self.makings.config.model.as_ref());
        let model = (self.makings.casting)(name, model);
        let model = model.map_err(|why| ConfigError::Model { agent: Arc::clone(name), why })?;
        Ok(Agent::builder(Arc::clone(name), model).gate(self.makings.gate.clone()))
    }

    fn tools_of(&self, described: &AgentConfig) -> Result<Vec<Made>, ConfigError> {
        let mut chosen: Vec<Made> = Vec::new();
        for name in &described.tools {
            let meant = self.tools.iter().filter(|made| means(name, &made.definition()));
            let before = chosen.len();
            let named_before = chosen.iter().any(|made| means(name, &made.definition()));
            for made in meant {
                if !chosen.iter().any(|earlier| earlier.definition().tool == made.definition().tool) {
                    chosen.push(made.clone());
                }
            }
            if chosen.len() == before && !named_before {
                let names: Vec<Arc<str>> = self.tools.iter().map(|made| made.definition().tool.name.clone()).collect();
                let known = listed(names.iter().map(|name| &**name).chain([BUILTIN]));
                let agent = Arc::clone(&described.name);
                return Err(ConfigError::NoTool { agent, tool: Arc::clone(name), known });
            }
        }
        Ok(chosen)
    }
}

/// Whether a name in `tools:` means this tool: by its own name, or by the toolset of all built-in ones.
fn means(name: &str, definition: &Definition) -> bool {
    &*definition.tool.name == name || (name == BUILTIN && definition.toolset.as_deref() == Some(BUILTIN))
}

fn with_tool(builder: AgentBuilder, made: &Made) -> AgentBuilder {
    match made {
        Made::Tool(tool) => builder.shared_tool(Arc::clone(tool) as Arc<dyn Tool>),
        Made::Client(definition) => builder.client_tool((**definition).clone()),
    }
}
