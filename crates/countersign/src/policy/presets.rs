//! Policies that come ready made, each a text like any other.

use super::Policy;
use super::build;
use super::error::Problems;
use super::read::{self, Draft};
use super::yaml;
use crate::verdict::Life;

/// Every preset.
pub(crate) const NAMES: [&str; 10] = [
    "ask-all",
    "allow-all",
    "deny-all",
    "declared",
    "starter",
    "development",
    "production",
    "high-security",
    "ci",
    "patient",
];

/// The text of a preset.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    match name {
        "ask-all" => Some(include_str!("presets/ask-all.yml")),
        "allow-all" => Some(include_str!("presets/allow-all.yml")),
        "deny-all" => Some(include_str!("presets/deny-all.yml")),
        "declared" => Some(include_str!("presets/declared.yml")),
        "starter" => Some(include_str!("presets/starter.yml")),
        "development" => Some(include_str!("presets/development.yml")),
        "production" => Some(include_str!("presets/production.yml")),
        "high-security" => Some(include_str!("presets/high-security.yml")),
        "ci" => Some(include_str!("presets/ci.yml")),
        "patient" => Some(include_str!("presets/patient.yml")),
        _ => None,
    }
}

/// The policy of one of [`NAMES`].
pub(crate) fn load(name: &str) -> Policy {
    // PROOF: the tests load every preset; a name that is none gives the strictest policy there is.
    let text = text(name).unwrap_or("rules: [{ id: deny-all, deny: '*' }]");
    build::from_yaml(name, text).expect("every preset loads")
}

/// Reads a preset's rules, to which a policy adds its own.
pub(crate) fn draft(name: &str, life: Life) -> Option<Draft> {
    let text = text(name)?;
    let mut problems = Problems::new(name, text);
    let node = yaml::read(text, &mut problems)?;
    Some(read::section(&node, &read::POLICY_KEYS, life, &mut problems))
}
