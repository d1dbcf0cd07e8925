//! The agents that a configuration describes.

use std::path::Path;
use std::sync::Arc;

use countersign::config::{self, AgentConfig, Config, McpServerConfig, ModelConfig, RunLimitsConfig, ToolRun};
use countersign::{Definition, Gate, Tool, Toolset};

use crate::agent::{Agent, Batch, RunLimits};
use crate::builder::AgentBuilder;
use crate::error::AgentError;
use crate::model::{Model, ModelError};
use crate::team::Team;
use crate::tools::{self, BUILTIN, Bash, Builtin, CustomError, FetchUrl, Made, Processes, Reach, WebSearch, Workspace};

/// The name of the agent there is when the file names none.
pub const DEFAULT_AGENT: &str = "agent";

/// Built-in tools that touch nothing but the network.
const NETWORK_TOOLS: [&str; 2] = ["fetch_url", "web_search"];

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
    /// Whether somebody takes the calls of tools that a client runs.
    pub client: Client,
    /// Where programs are written down while they run.
    pub processes: Option<&'a Processes>,
    /// The tools of MCP servers that are connected, each set under its server's name.
    pub toolsets: &'a [Arc<dyn Toolset>],
}

/// Whether somebody takes the calls of tools that a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Somebody does.
    Present,
    /// Nobody does: such calls are refused at once.
    Absent,
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
    /// An agent names an MCP server that is not there.
    #[error("agent `{agent}` names the MCP server `{server}`, which is not under `mcp_servers:`; there is {known}")]
    NoServer {
        /// The agent.
        agent: Arc<str>,
        /// The server.
        server: Arc<str>,
        /// Those there are.
        known: String,
    },
    /// Agents that give each other tasks have no end.
    #[error("agents give each other tasks in a circle: {0}; take one of these out of `sub_agents`")]
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

/// Every tool the configuration gives: its own, and the built-in ones whose names it does not take. Those that run
/// programs or touch files do so as the workspace's user.
pub fn all_tools(
    config: &Config,
    base: &Path,
    workspace: &Workspace,
    processes: Option<&Processes>,
) -> Result<Vec<Made>, CustomError> {
    let own = config.tools.iter().map(|tool| tools::from_config(tool, base, processes, workspace.user()));
    let mut all: Vec<Made> = own.collect::<Result<_, _>>()?;
    let noted = processes.map(|processes| Arc::new(Bash::new(workspace).noted_in(processes.clone())) as Arc<dyn Tool>);
    let builtin = noted.into_iter().chain(web_tools(config)?).fold(Builtin::new(workspace), Builtin::with);
    for tool in builtin.tools() {
        let name = tool.definition().tool.clone();
        if !all.iter().any(|made| made.definition().tool == name) {
            all.push(Made::Tool(tool));
        }
    }
    Ok(all)
}

/// The tools of the web, as far as the file says more about them than usual.
fn web_tools(config: &Config) -> Result<Vec<Arc<dyn Tool>>, CustomError> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if !config.fetch.allow.is_empty() {
        tools.push(Arc::new(FetchUrl::new(Reach::PublicAnd(config.fetch.allow.as_slice().into()))));
    }
    if let Some(service) = &config.web_search {
        tools.push(Arc::new(WebSearch::new(&service.url, service.api_key.clone())?));
    }
    Ok(tools)
}

/// The tools of an agent that run programs or touch files, as whoever runs this process; built-in ones by name, and MCP
/// servers that it starts.
///
/// Requests over the network and tools that a client runs are not among them. A name that means no tool is: whatever it
/// will mean, nobody looked at it.
pub fn local_tools(config: &Config, described: &AgentConfig) -> Vec<Arc<str>> {
    let is_local = |name: &&Arc<str>| match config.tools.iter().find(|tool| tool.name == **name) {
        Some(tool) => !matches!(tool.run, ToolRun::Client | ToolRun::Http(_)),
        None => !NETWORK_TOOLS.contains(&&***name),
    };
    let is_started = |name: &&Arc<str>| {
        let server = config.mcp_servers.iter().find(|server| server.name == **name);
        server.is_none_or(|server| server.url.is_none())
    };
    let servers = described.mcp_servers.iter().filter(is_started);
    described.tools.iter().filter(is_local).chain(servers).cloned().collect()
}

/// The MCP servers that an agent needs, and the agents that it leads to. The default agent needs all there are.
pub fn servers<'a>(config: &'a Config, name: &str) -> Result<Vec<&'a McpServerConfig>, ConfigError> {
    if config.agents.is_empty() && name == DEFAULT_AGENT {
        return Ok(config.mcp_servers.iter().collect());
    }
    let reached = reached_from(config, name)?;
    for agent in &reached {
        for server in &agent.mcp_servers {
            if !config.mcp_servers.iter().any(|known| known.name == *server) {
                let known = match config.mcp_servers.is_empty() {
                    true => "none".to_owned(),
                    false => listed(config.mcp_servers.iter().map(|server| &*server.name)),
                };
                let (agent, server) = (Arc::clone(&agent.name), Arc::clone(server));
                return Err(ConfigError::NoServer { agent, server, known });
            }
        }
    }
    let needed = |server: &&McpServerConfig| reached.iter().any(|agent| agent.mcp_servers.contains(&server.name));
    Ok(config.mcp_servers.iter().filter(needed).collect())
}

/// Makes an agent, and the agents that it leads to. Those may hand over to one another in circles.
///
/// An agent whose `tools:` has the word `builtin` gets all built-in tools; one without `tools:` gets none.
pub fn agent(makings: Makings<'_>, name: &str) -> Result<Agent, ConfigError> {
    let tools = all_tools(makings.config, makings.base, makings.workspace, makings.processes)?;
    let troupe = Troupe { makings, tools };
    if makings.config.agents.is_empty() && name == DEFAULT_AGENT {
        return troupe.default_agent();
    }
    troupe.check_tasks(name, &mut Vec::new())?;
    let missing = || missing(makings.config, name);
    let builders: Result<Vec<AgentBuilder>, ConfigError> =
        reached_from(makings.config, name)?.into_iter().map(|described| troupe.begin_described(described)).collect();
    Team::of(builders?)?.agent(name).ok_or_else(missing)
}

fn missing(config: &Config, name: &str) -> ConfigError {
    ConfigError::NoAgent { name: name.to_owned(), known: known_agents(config) }
}

fn described<'a>(config: &'a Config, name: &str) -> Result<&'a AgentConfig, ConfigError> {
    let found = config.agents.iter().find(|agent| &*agent.name == name);
    found.ok_or_else(|| missing(config, name))
}

/// Every agent that a conversation which begins with this one may come to, this one first.
fn reached_from<'a>(config: &'a Config, name: &str) -> Result<Vec<&'a AgentConfig>, ConfigError> {
    let mut reached = vec![described(config, name)?];
    let mut at = 0;
    while let Some(agent) = reached.get(at).copied() {
        for other in agent.sub_agents.iter().chain(&agent.handoffs) {
            if !reached.iter().any(|known| known.name == *other) {
                reached.push(described(config, other)?);
            }
        }
        at += 1;
    }
    Ok(reached)
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

/// Agents in the making.
struct Troupe<'a> {
    makings: Makings<'a>,
    tools: Vec<Made>,
}

impl Troupe<'_> {
    fn default_agent(&self) -> Result<Agent, ConfigError> {
        let begun = self.begin(&DEFAULT_AGENT.into(), None)?.instructions(DEFAULT_INSTRUCTIONS);
        let begun = self.tools.iter().fold(begun, with_tool);
        Ok(self.makings.toolsets.iter().cloned().fold(begun, AgentBuilder::shared_toolset).build()?)
    }

    /// Refuses tasks that are given in a circle: they would go down until the depth limit, and never come back.
    fn check_tasks(&self, name: &str, path: &mut Vec<String>) -> Result<(), ConfigError> {
        let seen = path.iter().any(|above| above == name);
        path.push(name.to_owned());
        if seen {
            return Err(ConfigError::Circle(path.join(" → ")));
        }
        for other in &described(self.makings.config, name)?.sub_agents {
            self.check_tasks(other, path)?;
        }
        path.pop();
        Ok(())
    }

    fn begin_described(&self, described: &AgentConfig) -> Result<AgentBuilder, ConfigError> {
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
        builder = builder.limits(run_limits(&described.limits));
        for tool in self.tools_of(described)? {
            builder = with_tool(builder, &tool);
        }
        let named = |set: &&Arc<dyn Toolset>| described.mcp_servers.contains(&set.name());
        builder = self.makings.toolsets.iter().filter(named).cloned().fold(builder, AgentBuilder::shared_toolset);
        builder = described.sub_agents.iter().cloned().fold(builder, AgentBuilder::sub_agent_of_team);
        Ok(described.handoffs.iter().cloned().fold(builder, AgentBuilder::handoff_to))
    }

    fn begin(&self, name: &Arc<str>, model: Option<&ModelConfig>) -> Result<AgentBuilder, ConfigError> {
        let model = model.or(self.makings.config.model.as_ref());
        let model = (self.makings.casting)(name, model);
        let model = model.map_err(|why| ConfigError::Model { agent: Arc::clone(name), why })?;
        let builder = Agent::builder(Arc::clone(name), model).gate(self.makings.gate.clone());
        Ok(match self.makings.client {
            Client::Present => builder,
            Client::Absent => builder.without_client(),
        })
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

/// The limits that the file sets, and the usual ones where it sets none.
fn run_limits(said: &RunLimitsConfig) -> RunLimits {
    let usual = RunLimits::default();
    RunLimits {
        turns: said.turns.unwrap_or(usual.turns),
        tokens: said.tokens.or(usual.tokens),
        micro_dollars: said.micro_dollars.or(usual.micro_dollars),
        extensions: said.extensions.unwrap_or(usual.extensions),
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
