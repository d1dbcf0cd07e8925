//! Where the configuration is less careful than it would be if it said nothing.

use std::time::Duration;

use countersign::config::{AgentConfig, Config};
use countersign::limits::SHORT_HOLD_LIFE;
use countersign::policy::{InClient, LintKind, Unattended};

use super::Finding;

/// Whether holds live long enough for somebody to read them.
pub(super) fn expiry(config: &Config) -> Finding {
    let lints = config.policy.lint();
    let rules = lints.iter().filter(|lint| lint.kind == LintKind::ShortExpiry);
    let mut short: Vec<String> = rules.map(|lint| format!("rule `{}`: {}", lint.rule, lint.message)).collect();
    short.extend(config.agents.iter().filter_map(|agent| {
        let life = life(agent).filter(|life| *life < SHORT_HOLD_LIFE)?;
        Some(format!("agent `{}`: its holds expire after {} s", agent.name, life.as_secs()))
    }));
    match short.is_empty() {
        true => Finding::ok("expiry", "there is time to decide"),
        false => Finding::warn(
            "expiry",
            short.join("; "),
            "what nobody decided in time is refused: a longer `expires_after` or `approval_timeout` leaves time to read",
        ),
    }
}

/// How long the holds of an agent may wait at most, as far as the agent says.
fn life(agent: &AgentConfig) -> Option<Duration> {
    agent.approval_timeout.into_iter().chain(agent.timeout).min()
}

/// What runs or is believed that would be asked about or doubted by default.
pub(super) fn loosened(config: &Config) -> Finding {
    let policy = &config.policy;
    let mut found: Vec<String> = Vec::new();
    if policy.allows_unmatched() {
        found.push("`otherwise: allow` runs every call that no rule matches".to_owned());
    }
    if policy.unattended() == Unattended::Allow {
        found.push("`unattended: allow` runs calls that nobody could be asked about".to_owned());
    }
    if policy.in_client() == InClient::Allow {
        found.push("`in_client: allow` lets a prompt of the agent's own program decide".to_owned());
    }
    if config.server.dangerously_run_tools_as_server {
        found.push("`dangerously_run_tools_as_server` gives tools the store and the keys".to_owned());
    }
    let trusted = config.mcp_servers.iter().filter(|server| server.trust_hints);
    found.extend(trusted.map(|server| format!("`trust_hints` lets the server `{}` loosen rules", server.name)));
    if !config.fetch.allow.is_empty() {
        let allowed: Vec<String> = config.fetch.allow.iter().map(ToString::to_string).collect();
        found.push(format!("`fetch.allow` opens {} to what a model fetches", allowed.join(", ")));
    }
    match found.is_empty() {
        true => Finding::ok("safe defaults", "none is loosened"),
        false => Finding::warn("safe defaults", found.join("; "), "take out of the configuration what is not needed"),
    }
}
