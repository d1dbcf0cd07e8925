//! `countersign.yml`: the whole configuration, read strictly.
//!
//! Unknown keys are errors with a suggestion, every problem is reported at its place, and what another section says
//! about permission (`permission:`, `confirm:`, `toolConfirmation:`) becomes rules of the one policy.

mod budget;
mod environment;
mod notify;
mod parts;
mod schema;
mod web;

use std::fmt;

pub use budget::{PriceConfig, RunLimitsConfig};
pub use notify::{EmailConfig, NotifyConfig, NotifyFilter, NotifyTo, SmtpTls};
pub use parts::{AgentConfig, Batch, McpServerConfig, ModelConfig, RedactConfig, ServerConfig, ToolConfig, ToolRun};
pub use web::{FetchConfig, WebSearchConfig};

use crate::limits::Limits;
use crate::policy::yaml::{self, Node};
use crate::policy::{FILE_KEYS, Policy, PolicyErrors, Problems, Sections, build, finish};

/// Everything a `countersign.yml` says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where calls are kept: `memory:`, `sqlite:PATH` or `postgres://…`. Relative paths are the caller's to resolve.
    pub store: Option<String>,
    /// The address the server listens on.
    pub listen: Option<String>,
    /// How the server runs agents.
    pub server: ServerConfig,
    /// The model agents use unless they name another.
    pub model: Option<ModelConfig>,
    /// The policy, with all that other sections say about permission.
    pub policy: Policy,
    /// The bounds.
    pub limits: Limits,
    /// What is never recorded.
    pub redact: RedactConfig,
    /// The service behind `web_search`; without one there is no such tool.
    pub web_search: Option<WebSearchConfig>,
    /// What `fetch_url` may reach.
    pub fetch: FetchConfig,
    /// Custom tools.
    pub tools: Vec<ToolConfig>,
    /// MCP servers.
    pub mcp_servers: Vec<McpServerConfig>,
    /// Agents.
    pub agents: Vec<AgentConfig>,
    /// Who is told what happens.
    pub notify: Vec<NotifyConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            store: None,
            listen: None,
            server: ServerConfig::default(),
            model: None,
            policy: Policy::ask_all(),
            limits: Limits::default(),
            redact: RedactConfig::default(),
            web_search: None,
            fetch: FetchConfig::default(),
            tools: Vec::new(),
            mcp_servers: Vec::new(),
            agents: Vec::new(),
            notify: Vec::new(),
        }
    }
}

impl Config {
    /// Reads a whole file. `name` is how errors call it; `env` gives the value of `${NAME}`, or nothing.
    pub fn from_yaml(name: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, PolicyErrors> {
        let mut problems = Problems::new(name, text);
        let mut config = None;
        if let Some(mut root) = yaml::read(text, &mut problems) {
            environment::fill_in(&mut root, env, &mut problems);
            config = Config::read(&root, &mut problems);
        }
        finish(config, problems)
    }

    /// The JSON Schema of such a file, for editors. It says less than reading the file does, and nothing else.
    pub fn schema() -> serde_json::Value {
        schema::file()
    }

    fn read(root: &Node, problems: &mut Problems<'_>) -> Option<Config> {
        let policy = build(Sections::of(root, problems), None, problems);
        // `Sections::of` has reported the keys it does not know.
        let fields = root.fields("the file", &FILE_KEYS, &mut Problems::new("", ""));
        let mut text = |key: &str| fields.get(key).and_then(|node| node.text(&format!("`{key}`"), problems));
        let (store, listen) = (text("store").map(str::to_owned), text("listen").map(str::to_owned));
        let model = fields.get("model").and_then(|node| parts::model(node, problems));
        let agents = fields.get("agents").map_or_else(Vec::new, |node| parts::agents(node, model.as_ref(), problems));
        Some(Config {
            store,
            listen,
            server: fields.get("server").map_or_else(ServerConfig::default, |node| parts::server(node, problems)),
            model,
            limits: fields.get("limits").map_or_else(Limits::default, |node| parts::limits(node, problems)),
            redact: fields.get("redact").map_or_else(RedactConfig::default, |node| parts::redact(node, problems)),
            web_search: fields.get("web_search").and_then(|node| web::web_search(node, problems)),
            fetch: fields.get("fetch").map_or_else(FetchConfig::default, |node| web::fetch(node, problems)),
            tools: fields.get("tools").map_or_else(Vec::new, |node| parts::tools(node, problems)),
            mcp_servers: fields.get("mcp_servers").map_or_else(Vec::new, |node| parts::servers(node, problems)),
            agents,
            notify: fields.get("notify").map_or_else(Vec::new, |node| notify::notify(node, problems)),
            policy: policy?,
        })
    }
}

/// A text that must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text from being printed.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests;
