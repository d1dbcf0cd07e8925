//! What models cost, and how much a run may take.

use super::parts::{AgentConfig, ModelConfig};
use crate::limits;
use crate::policy::Problems;
use crate::policy::yaml::{Fields, Node, Tree};

/// What a model costs, in millionths of a dollar for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriceConfig {
    /// For tokens read.
    pub input: u64,
    /// For tokens read that came from a cache; as much as others, if nobody says.
    pub cached: u64,
    /// For tokens written.
    pub output: u64,
}

/// How much one run of an agent may take, its children included. What is not said is not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunLimitsConfig {
    /// Turns of models.
    pub turns: Option<u64>,
    /// Tokens read and written.
    pub tokens: Option<u64>,
    /// Cost, in millionths of a dollar.
    pub micro_dollars: Option<u64>,
    /// How often people may extend each limit, by as much again.
    pub extensions: Option<u32>,
}

/// Keys of a model's `price`.
pub(super) const PRICE_KEYS: [&str; 3] = ["input", "output", "cached"];
/// Keys of an agent's `limits`.
pub(super) const RUN_LIMIT_KEYS: [&str; 4] = ["turns", "tokens", "dollars", "extensions"];

pub(super) fn price(node: &Node, problems: &mut Problems<'_>) -> Option<PriceConfig> {
    let fields = node.fields("`price`", &PRICE_KEYS, problems);
    let [input, output, cached] = PRICE_KEYS.map(|key| dollars(&fields, key, problems));
    if fields.get("input").is_none() || fields.get("output").is_none() {
        problems.add(node.at, "`price` needs `input` and `output`, in dollars for a million tokens");
    }
    let input = input?;
    Some(PriceConfig { input, output: output?, cached: cached.unwrap_or(input) })
}

pub(super) fn run_limits(node: &Node, problems: &mut Problems<'_>) -> RunLimitsConfig {
    let fields = node.fields("`limits`", &RUN_LIMIT_KEYS, problems);
    let micro_dollars = dollars(&fields, "dollars", problems);
    if let Some(node) = fields.get("dollars").filter(|_| micro_dollars == Some(0)) {
        problems.add(node.at, "`dollars` must be more than 0");
    }
    let extensions = fields.get("extensions").and_then(|node| node.whole::<u32>("`extensions`", problems));
    if let Some(node) = fields.get("extensions").filter(|_| extensions > Some(limits::RUN_EXTENSIONS)) {
        problems.add(node.at, format!("`extensions` must be at most {}", limits::RUN_EXTENSIONS));
    }
    RunLimitsConfig {
        turns: at_least_one(&fields, "turns", problems),
        tokens: at_least_one(&fields, "tokens", problems),
        micro_dollars,
        extensions,
    }
}

/// A whole number that is not 0.
pub(super) fn at_least_one<T: TryFrom<i128>>(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Option<T> {
    let node = fields.get(key)?;
    if matches!(node.value, Tree::Int(0)) {
        problems.add(node.at, format!("`{key}` must be at least 1"));
        return None;
    }
    node.whole(&format!("`{key}`"), problems)
}

/// Refuses a limit in dollars that some model of the run would never count towards.
pub(super) fn check_prices(
    node: &Node,
    agents: &[AgentConfig],
    common: Option<&ModelConfig>,
    problems: &mut Problems<'_>,
) {
    for agent in agents.iter().filter(|agent| agent.limits.micro_dollars.is_some()) {
        for taking_part in reached_from(agent, agents) {
            let model = taking_part.model.as_ref().or(common);
            if model.is_some_and(|model| model.costs() && model.price.is_none()) {
                let words = format!(
                    "agent `{}` has a limit in `dollars`, so the model of agent `{}` needs a `price`",
                    agent.name, taking_part.name
                );
                problems.add(node.at, words);
            }
        }
    }
}

/// Whoever may take part in a run of this agent, itself first.
fn reached_from<'a>(agent: &'a AgentConfig, agents: &'a [AgentConfig]) -> Vec<&'a AgentConfig> {
    let mut reached = vec![agent];
    let mut at = 0;
    while let Some(agent) = reached.get(at).copied() {
        let next = agent.sub_agents.iter().chain(&agent.handoffs);
        for other in next.filter_map(|name| agents.iter().find(|agent| agent.name == *name)) {
            if !reached.iter().any(|known| known.name == other.name) {
                reached.push(other);
            }
        }
        at += 1;
    }
    reached
}

/// Dollars in millionths, exactly: money is no place for rounding.
fn dollars(fields: &Fields<'_>, key: &str, problems: &mut Problems<'_>) -> Option<u64> {
    let node = fields.get(key)?;
    // Neither is written with an exponent here.
    let amount = match node.value {
        Tree::Int(value) => millionths(&value.to_string()),
        Tree::Float(value) => millionths(&value.to_string()),
        Tree::Null | Tree::Bool(_) | Tree::Text(_) | Tree::List(_) | Tree::Map(_) => None,
    };
    if amount.is_none() {
        problems.add(node.at, format!("`{key}` must be dollars, as in `2.50`, with six decimals at most"));
    }
    amount
}

fn millionths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 {
        return None;
    }
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part)
}
