//! Connects the MCP servers that agents need.

use std::path::Path;
use std::sync::Arc;

use countersign::config::{Config, McpServerConfig};
use countersign::{Gate, Toolset};
use countersign_agent::config;
use countersign_mcp::{McpServer, McpToolset};
use futures::future::try_join_all;

use crate::fault::Fault;
use crate::out;

/// What a server gets of our environment, unless its `env:` says otherwise: what programs need to find their way.
///
/// SECURITY: nothing else. Keys to models and stores lie in the environment too.
pub(crate) const PASSED_ON: [&str; 8] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// Connects all servers that the agents and those they lead to name, at once and each once.
pub(crate) async fn connect(
    config: &Config,
    base: &Path,
    agents: &[&str],
    gate: &Gate,
) -> Result<Vec<Arc<dyn Toolset>>, Fault> {
    let mut needed: Vec<&McpServerConfig> = Vec::new();
    for agent in agents {
        for server in config::servers(config, agent)? {
            if !needed.iter().any(|known| known.name == server.name) {
                needed.push(server);
            }
        }
    }
    let connected = try_join_all(needed.into_iter().map(|server| described(server, base).connect(gate))).await?;
    connected.iter().for_each(tell_left_out);
    Ok(connected.into_iter().map(|toolset| Arc::new(toolset) as Arc<dyn Toolset>).collect())
}

fn described(config: &McpServerConfig, base: &Path) -> McpServer {
    let passed_on = PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
    passed_on.fold(McpServer::from_config(config, base), |server, (name, value)| server.env_or(name, value))
}

/// Says which tools nobody is offered, before somebody looks for them.
fn tell_left_out(toolset: &McpToolset) {
    for left_out in toolset.left_out() {
        out::warn(out::safe_lines(&left_out.to_string()));
    }
}
