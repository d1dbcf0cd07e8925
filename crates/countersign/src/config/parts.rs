//! The sections of the file that are not policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobBuilder;
use regex::RegexBuilder;

use super::Secret;
use super::budget::{self, PriceConfig, RunLimitsConfig};
use crate::call::Repeat;
use crate::json::{Bounds, Json};
use crate::limits::{self, Limits};
use crate::policy::yaml::{Fields, Key, Node, Tree};
use crate::policy::{Problems, duration};
use crate::verdict::Life;

/// A model and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// `anthropic`, `openai`, `gemini`, `openai-compatible`, `scripted` or `manual`.
    pub provider: String,
    /// The model's name there.
    pub name: Option<String>,
    /// Where the provider is, if not at its usual place.
    pub base_url: Option<String>,
    /// The key to it.
    pub api_key: Option<Secret>,
    /// The most tokens that one answer may have.
    pub max_tokens: Option<u32>,
    /// What it costs, so that what runs take can be counted in dollars.
    pub price: Option<PriceConfig>,
}

impl ModelConfig {
    /// Whether somebody takes money for its answers.
    pub fn costs(&self) -> bool {
        !matches!(&*self.provider, "scripted" | "manual")
    }
}

/// How the server runs agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The user that local tools of its agents run as: a name, or `UID:GID`.
    pub tools_as: Option<String>,
    /// Whether local tools may run as the server's own user where nobody sits at a terminal to say so.
    pub dangerously_run_tools_as_server: bool,
}

/// A custom tool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolConfig {
    /// Its name.
    pub name: Arc<str>,
    /// What the model reads about it.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub input_schema: Option<Json>,
    /// What a crash while it runs means.
    pub repeat: Repeat,
    /// How it runs.
    pub run: ToolRun,
    /// How long its program may run.
    pub timeout: Option<Duration>,
    /// Where it stands in the file: line and column, from 1.
    pub at: (usize, usize),
}

/// How a custom tool runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolRun {
    /// As a program that reads its arguments.
    Command(Vec<String>),
    /// As an HTTP request, described by this object.
    Http(Json),
    /// The session's client runs it and sends the result.
    Client,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpServerConfig {
    /// The operator's name for it.
    pub name: Arc<str>,
    /// The program to start.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables it gets.
    pub env: BTreeMap<String, Secret>,
    /// The folder it starts in.
    pub cwd: Option<String>,
    /// Where it listens, in place of a program.
    pub url: Option<String>,
    /// Headers sent to it.
    pub headers: BTreeMap<String, Secret>,
    /// Whether what it claims about its tools may loosen.
    pub trust_hints: bool,
    /// Where it stands in the file: line and column, from 1.
    pub at: (usize, usize),
}

/// How the calls of one turn hang together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// Each runs when it may.
    #[default]
    Independent,
    /// None runs until all are decided.
    Barrier,
    /// One after the other.
    Sequential,
}

/// An agent. Its `policy:` is part of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentConfig {
    /// Its name.
    pub name: Arc<str>,
    /// What other agents read about it.
    pub description: Option<String>,
    /// What it is told.
    pub instructions: Option<String>,
    /// The model it uses, if not the common one.
    pub model: Option<ModelConfig>,
    /// The tools it has.
    pub tools: Vec<Arc<str>>,
    /// The MCP servers whose tools it has.
    pub mcp_servers: Vec<Arc<str>>,
    /// Agents it may use as tools.
    pub sub_agents: Vec<Arc<str>>,
    /// Agents it may hand over to.
    pub handoffs: Vec<Arc<str>>,
    /// How the calls of one turn hang together.
    pub batch: Batch,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// How long a hold of it may wait.
    pub approval_timeout: Option<Duration>,
    /// How much a run may take.
    pub limits: RunLimitsConfig,
}

/// What is never recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedactConfig {
    /// Globs over the names of fields.
    pub keys: Vec<String>,
    /// Regular expressions over texts.
    pub values: Vec<String>,
}

/// Keys of `model`.
pub(super) const MODEL_KEYS: [&str; 6] = ["provider", "name", "base_url", "api_key", "max_tokens", "price"];
pub(super) const PROVIDERS: [(&str, &str); 6] = [
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("gemini", "gemini"),
    ("openai-compatible", "openai-compatible"),
    ("scripted", "scripted"),
    ("manual", "manual"),
];
/// Keys of `server`.
pub(super) const RUNNER_KEYS: [&str; 2] = ["tools_as", "dangerously_run_tools_as_server"];
/// Keys of `limits`: the names of what they bound.
pub(super) const LIMIT_KEYS: [&str; 10] = [
    "argument_bytes",
    "argument_depth",
    "argument_keys",
    "pending_per_session",
    "pending_per_agent",
    "pending_total",
    "submits_per_second",
    "attempts",
    "holds_per_call",
    "lease_seconds",
];
/// Keys of `redact`.
pub(super) const REDACT_KEYS: [&str; 2] = ["keys", "values"];
/// Keys of a tool.
pub(super) const TOOL_KEYS: [&str; 8] =
    ["name", "description", "input_schema", "permission", "repeat", "run", "http", "client"];
/// Keys of a tool's `run`.
pub(super) const RUN_KEYS: [&str; 4] = ["command", "timeout", "http", "client"];
pub(super) const REPEATS: [(&str, Repeat); 5] = [
    ("read_only", Repeat::ReadOnly),
    ("idempotent", Repeat::Idempotent),
    ("keyed", Repeat::Keyed),
    ("verifiable", Repeat::Verifiable),
    ("at_most_once", Repeat::AtMostOnce),
];
/// Keys of an MCP server.
pub(super) const SERVER_KEYS: [&str; 8] = ["command", "args", "env", "cwd", "url", "headers", "confirm", "trust_hints"];
/// Keys of an agent.
pub(super) const AGENT_KEYS: [&str; 12] = [
    "description",
    "instructions",
    "model",
    "tools",
    "mcp_servers",
    "sub_agents",
    "handoffs",
    "policy",
    "batch",
    "timeout",
    "approval_timeout",
    "limits",
];
pub(super) const BATCHES: [(&str, Batch); 3] =
    [("independent", Batch::Independent), ("barrier", Batch::Barrier), ("sequential", Batch::Sequential)];

pub(super) fn text(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Option<String> {
    fields.get(key)?.text(&format!("`{key}`"), problems).map(str::to_owned)
}

fn texts(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Vec<String> {
    let Some(node) = fields.get(key) else { return Vec::new() };
    let what = format!("`{key}`");
    let list: Vec<&Node> = node.list(&what, problems).iter().collect();
    list.into_iter().filter_map(|node| node.text(&what, problems).map(str::to_owned)).collect()
}

fn names(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Vec<Arc<str>> {
    texts(fields, key, problems).into_iter().map(Arc::from).collect()
}

fn secrets(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> BTreeMap<String, Secret> {
    let Some(node) = fields.get(key) else { return BTreeMap::new() };
    let mut secrets = BTreeMap::new();
    for (name, value) in node.entries(&format!("`{key}`"), problems) {
        if let Some(value) = value.text(&format!("`{}`", name.text), problems) {
            secrets.insert(name.text.clone(), Secret::new(value));
        }
    }
    secrets
}

fn finite(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Option<Duration> {
    let node = fields.get(key)?;
    match duration(node, &format!("`{key}`"), problems)? {
        Life::For(length) => Some(length),
        Life::Never => {
            problems.add(node.at, format!("`{key}` must end"));
            None
        }
    }
}

/// Refuses names no rule could be about.
fn plausible(key: &Key, what: &str, problems: &mut Problems<'_>) {
    let bad = key.text.trim().is_empty()
        || key.text.len() > limits::NAME_BYTES
        || key.text.chars().any(|char| char.is_whitespace() || char.is_control() || "/:*?[]{}\\".contains(char));
    if bad {
        problems.add(key.at, format!("`{}` cannot be the name of {what}", key.text));
    }
}

pub(super) fn model(node: &Node, problems: &mut Problems<'_>) -> Option<ModelConfig> {
    let fields = node.fields("`model`", &MODEL_KEYS, problems);
    let provider = match fields.get("provider") {
        Some(provider) => provider.word("`provider`", &PROVIDERS, problems),
        None => {
            problems.add(node.at, "`model` needs a `provider`");
            None
        }
    };
    Some(ModelConfig {
        name: text(&fields, "name", problems),
        base_url: text(&fields, "base_url", problems),
        api_key: text(&fields, "api_key", problems).map(Secret::new),
        max_tokens: budget::at_least_one(&fields, "max_tokens", problems),
        price: fields.get("price").and_then(|node| budget::price(node, problems)),
        provider: provider?.to_owned(),
    })
}

pub(super) fn server(node: &Node, problems: &mut Problems<'_>) -> ServerConfig {
    let fields = node.fields("`server`", &RUNNER_KEYS, problems);
    let flag = "dangerously_run_tools_as_server";
    let as_server = fields.get(flag).and_then(|node| node.boolean(&format!("`{flag}`"), problems));
    ServerConfig {
        tools_as: text(&fields, "tools_as", problems),
        dangerously_run_tools_as_server: as_server.unwrap_or_default(),
    }
}

pub(super) fn limits(node: &Node, problems: &mut Problems<'_>) -> Limits {
    let fields = node.fields("`limits`", &LIMIT_KEYS, problems);
    for key in LIMIT_KEYS {
        if let Some(value) = fields.get(key)
            && value.whole::<u32>(&format!("`{key}`"), problems) == Some(0)
        {
            problems.add(value.at, format!("`{key}` must be at least 1"));
        }
    }
    // What does not read back was reported above.
    serde_json::from_str(&node.to_json()).unwrap_or_default()
}

pub(super) fn redact(node: &Node, problems: &mut Problems<'_>) -> RedactConfig {
    let fields = node.fields("`redact`", &REDACT_KEYS, problems);
    let keys = texts(&fields, "keys", problems);
    let values = texts(&fields, "values", problems);
    for key in &keys {
        if let Err(error) = GlobBuilder::new(key).build() {
            problems.add(node.at, format!("`{key}` is not a glob: {}", error.kind()));
        }
    }
    for value in &values {
        if RegexBuilder::new(value).size_limit(limits::REGEX_BYTES).build().is_err() {
            problems.add(node.at, format!("`{value}` is not a regular expression, or too big a one"));
        }
    }
    RedactConfig { keys, values }
}

pub(super) fn tools(node: &Node, problems: &mut Problems<'_>) -> Vec<ToolConfig> {
    let nodes: Vec<&Node> = node.list("`tools`", problems).iter().collect();
    let mut tools: Vec<ToolConfig> = Vec::new();
    for node in nodes {
        let Some(tool) = tool(node, problems) else { continue };
        if tools.iter().any(|earlier| earlier.name == tool.name) {
            problems.add(node.at, format!("there is another tool named `{}`", tool.name));
        }
        tools.push(tool);
    }
    tools
}

fn tool(node: &Node, problems: &mut Problems<'_>) -> Option<ToolConfig> {
    let fields = node.fields("a tool", &TOOL_KEYS, problems);
    let Some(name) = text(&fields, "name", problems) else {
        problems.add(node.at, "a tool needs a `name`");
        return None;
    };
    plausible(&Key { at: node.at, text: name.clone() }, "a tool", problems);
    let repeat = fields.get("repeat").and_then(|repeat| repeat.word("`repeat`", &REPEATS, problems));
    let input_schema = fields.get("input_schema").and_then(|schema| schema_of(schema, problems));
    let (run, timeout) = run(&fields, problems)?;
    Some(ToolConfig {
        name: name.into(),
        description: text(&fields, "description", problems),
        input_schema,
        repeat: repeat.unwrap_or_default(),
        run,
        timeout,
        at: (node.at.line, node.at.column),
    })
}

fn schema_of(node: &Node, problems: &mut Problems<'_>) -> Option<Json> {
    let bounds = Bounds { bytes: limits::SCHEMA_BYTES, ..Bounds::PAYLOAD };
    let schema = Json::ingest(&node.to_json(), bounds);
    if !matches!(node.value, Tree::Map(_)) {
        problems.add(node.at, "`input_schema` must be a mapping");
    }
    match schema {
        Ok(schema) => Some(schema),
        Err(error) => {
            problems.add(node.at, format!("`input_schema` cannot be read: {error}"));
            None
        }
    }
}

/// `run: { command: […] }`, `http: {…}` or `client: true`; the last two may also stand inside `run`.
///
/// A program may have a `timeout` beside it; an `http` has one of its own.
fn run(tool: &Fields<'_>, problems: &mut Problems<'_>) -> Option<(ToolRun, Option<Duration>)> {
    let inner = tool.get("run").map(|run| run.fields("`run`", &RUN_KEYS, problems));
    let timeout = inner.and_then(|inner| finite(&inner, "timeout", problems));
    let run = way(tool, inner, problems)?;
    if let Some(node) = inner.and_then(|inner| inner.get("timeout")).filter(|_| !matches!(run, ToolRun::Command(_))) {
        problems.add(node.at, "`timeout` is for a `command`");
    }
    Some((run, timeout))
}

fn way(tool: &Fields<'_>, inner: Option<Fields<'_>>, problems: &mut Problems<'_>) -> Option<ToolRun> {
    let get = |key: &str| inner.and_then(|inner| inner.get(key)).or_else(|| tool.get(key).filter(|_| key != "command"));
    match (get("command"), get("http"), get("client")) {
        (Some(command), None, None) => {
            let list: Vec<&Node> = command.list("`command`", problems).iter().collect();
            let words: Vec<String> =
                list.into_iter().filter_map(|word| word.text("`command`", problems).map(str::to_owned)).collect();
            if words.is_empty() {
                problems.add(command.at, "`command` is empty");
            }
            Some(ToolRun::Command(words))
        }
        (None, Some(http), None) => match Json::ingest(&http.to_json(), Bounds::PAYLOAD) {
            Ok(json) => Some(ToolRun::Http(json)),
            Err(error) => {
                problems.add(http.at, format!("`http` cannot be read: {error}"));
                None
            }
        },
        (None, None, Some(client)) => {
            if client.boolean("`client`", problems) == Some(false) {
                problems.add(client.at, "`client: false` leaves the tool without a way to run");
            }
            Some(ToolRun::Client)
        }
        _ => {
            problems.add(tool.at, "a tool needs one of `run: { command: […] }`, `http: {…}` and `client: true`");
            None
        }
    }
}

pub(super) fn servers(node: &Node, problems: &mut Problems<'_>) -> Vec<McpServerConfig> {
    let mut servers = Vec::new();
    for (key, node) in node.entries("`mcp_servers`", problems) {
        plausible(key, "a server", problems);
        let fields = node.fields("an MCP server", &SERVER_KEYS, problems);
        let server = McpServerConfig {
            name: key.text.as_str().into(),
            command: text(&fields, "command", problems),
            args: texts(&fields, "args", problems),
            env: secrets(&fields, "env", problems),
            cwd: text(&fields, "cwd", problems),
            url: text(&fields, "url", problems),
            headers: secrets(&fields, "headers", problems),
            // Reported, if wrong, where the policy reads it.
            trust_hints: matches!(fields.get("trust_hints").map(|hints| &hints.value), Some(Tree::Bool(true))),
            at: (key.at.line, key.at.column),
        };
        if server.command.is_some() && server.url.is_some() {
            problems.add(key.at, format!("server `{}` has both `command` and `url`", server.name));
        }
        servers.push(server);
    }
    servers
}

pub(super) fn agents(node: &Node, common: Option<&ModelConfig>, problems: &mut Problems<'_>) -> Vec<AgentConfig> {
    let entries: Vec<&(Key, Node)> = node.entries("`agents`", problems).iter().collect();
    let known: Vec<&str> = entries.iter().map(|(key, _)| key.text.as_str()).collect();
    let mut agents = Vec::new();
    for (key, node) in &entries {
        plausible(key, "an agent", problems);
        let agent = agent(key, node, problems);
        for other in agent.sub_agents.iter().chain(&agent.handoffs) {
            if !known.contains(&&**other) {
                problems.add(node.at, format!("agent `{}` names agent `{other}`, which is not there", agent.name));
            }
        }
        agents.push(agent);
    }
    budget::check_prices(node, &agents, common, problems);
    agents
}

fn agent(key: &Key, node: &Node, problems: &mut Problems<'_>) -> AgentConfig {
    let fields = node.fields("an agent", &AGENT_KEYS, problems);
    let agent = AgentConfig {
        name: key.text.as_str().into(),
        description: text(&fields, "description", problems),
        instructions: text(&fields, "instructions", problems),
        model: fields.get("model").and_then(|node| model(node, problems)),
        tools: names(&fields, "tools", problems),
        mcp_servers: names(&fields, "mcp_servers", problems),
        sub_agents: names(&fields, "sub_agents", problems),
        handoffs: names(&fields, "handoffs", problems),
        batch: fields.get("batch").and_then(|batch| batch.word("`batch`", &BATCHES, problems)).unwrap_or_default(),
        timeout: finite(&fields, "timeout", problems),
        approval_timeout: finite(&fields, "approval_timeout", problems),
        limits: fields.get("limits").map_or_else(Default::default, |node| budget::run_limits(node, problems)),
    };
    if let (Some(run), Some(wait)) = (agent.timeout, agent.approval_timeout)
        && wait >= run
        && let Some((key, _)) = fields.entry("approval_timeout")
    {
        problems.add(key.at, "`approval_timeout` must be less than `timeout`");
    }
    agent
}
