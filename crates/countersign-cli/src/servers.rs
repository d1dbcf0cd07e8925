//! Connects the MCP servers that agents need.

use std::path::Path;
use std::sync::Arc;

use countersign::config::{Config, McpServerConfig};
use countersign::{Gate, Toolset};
use countersign_agent::config;
use countersign_agent::tools::User;
use countersign_mcp::gateway::Identity;
use countersign_mcp::{McpServer, McpToolset};
use futures::future::try_join_all;

use crate::agents::this_program;
use crate::commands::RUN_AS;
use crate::fault::Fault;
use crate::out;

/// What a server gets of our environment, unless its `env:` says otherwise: what programs need to find their way.
///
/// SECURITY: nothing else. Keys to models and stores lie in the environment too.
const PASSED_ON: [&str; 8] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// What belongs to our own user, and means nothing to another.
const OUR_OWN: [&str; 4] = ["HOME", "LOGNAME", "SHELL", "USER"];

/// Connects all servers that the agents and those they lead to name, at once and each once. Those that are programs run
/// as `user`, if one is given.
pub(crate) async fn connect(
    config: &Config,
    base: &Path,
    agents: &[&str],
    gate: &Gate,
    user: Option<User>,
) -> Result<Vec<Arc<dyn Toolset>>, Fault> {
    let mut needed: Vec<&McpServerConfig> = Vec::new();
    for agent in agents {
        for server in config::servers(config, agent)? {
            if !needed.iter().any(|known| known.name == server.name) {
                needed.push(server);
            }
        }
    }
    let connected = try_join_all(needed.into_iter().map(|server| connect_one(server, base, gate, user))).await?;
    connected.iter().for_each(tell_left_out);
    Ok(connected.into_iter().map(|toolset| Arc::new(toolset) as Arc<dyn Toolset>).collect())
}

/// Connects one server.
pub(crate) async fn connect_one(
    server: &McpServerConfig,
    base: &Path,
    gate: &Gate,
    user: Option<User>,
) -> Result<McpToolset, Fault> {
    Ok(described(server, base, user)?.connect(gate).await?)
}

fn described(config: &McpServerConfig, base: &Path, user: Option<User>) -> Result<McpServer, Fault> {
    let started = run_as(config, user)?;
    let mut server = McpServer::from_config(&started, base);
    if let Some(command) = &config.command {
        // What it is does not change with who starts it.
        let words = std::iter::once(command).chain(&config.args).map(String::as_str);
        server = server.identity(Identity::of_command(words));
    }
    Ok(passed_on(user).fold(server, |server, (name, value)| server.env_or(name, value)))
}

/// The server as it is to be started: where it is a program and a user is given, through ourselves. This program becomes
/// that user, then the server.
pub(crate) fn run_as(config: &McpServerConfig, user: Option<User>) -> Result<McpServerConfig, Fault> {
    let mut config = config.clone();
    if let Some(user) = user
        && let Some(command) = config.command.take()
    {
        let words = [RUN_AS.to_owned(), user.to_word(), command];
        config.args.splice(0..0, words);
        config.command = Some(this_program()?.to_string_lossy().into_owned());
    }
    Ok(config)
}

/// What a server that is a program gets of our environment.
pub(crate) fn passed_on(user: Option<User>) -> impl Iterator<Item = (&'static str, String)> {
    let names = PASSED_ON.into_iter().filter(move |name| user.is_none() || !OUR_OWN.contains(name));
    names.filter_map(|name| Some((name, std::env::var(name).ok()?)))
}

/// Says which tools nobody is offered, before somebody looks for them.
pub(crate) fn tell_left_out(toolset: &McpToolset) {
    for left_out in toolset.left_out() {
        out::warn(out::safe_lines(&left_out.to_string()));
    }
}
