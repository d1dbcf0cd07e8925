//! The policy in force, and why it says what it says.

use countersign::Json;
use countersign::policy::Unattended;
use countersign::verdict::{Because, Effect};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::{Grant, Quorum};

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its version: a digest of its text.
    pub version: String,
    /// Its text; none for one that was built in code.
    pub source: Option<String>,
    /// How many rules it has.
    pub rules: usize,
    /// What becomes of a hold that reaches nobody: `deny`, `allow` or `wait`.
    pub unattended: String,
    /// What its author may want to look at.
    pub lints: Vec<String>,
}

impl From<&countersign::Policy> for Policy {
    fn from(policy: &countersign::Policy) -> Policy {
        let unattended = match policy.unattended() {
            Unattended::Deny => "deny",
            Unattended::Allow => "allow",
            Unattended::Wait => "wait",
        };
        Policy {
            version: policy.version().to_string(),
            source: policy.source().map(str::to_owned),
            rules: policy.rules(),
            unattended: unattended.to_owned(),
            lints: policy.lint().into_iter().map(|lint| lint.message).collect(),
        }
    }
}

/// Asks what the rules make of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The tool's name.
    pub tool: String,
    /// The tool's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whose call it would be; `local`, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The agents from the root to the one that calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent: Vec<String>,
    /// The arguments.
    #[schema(value_type = Object)]
    pub arguments: Json,
}

/// One rule's part in a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The rule's id; `otherwise`, `declared` or `code` where no written rule spoke.
    pub rule: String,
    /// `allow`, `ask` or `deny`.
    #[schema(value_type = String)]
    pub effect: Effect,
    /// What its author wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&Because> for Reason {
    fn from(because: &Because) -> Reason {
        Reason {
            rule: because.rule.to_string(),
            effect: because.effect,
            reason: because.reason.as_deref().map(str::to_owned),
        }
    }
}

/// What the rules make of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// `allow`, `ask` or `deny`.
    #[schema(value_type = String)]
    pub effect: Effect,
    /// The rules that decided.
    pub because: Vec<Reason>,
    /// Every rule that matched.
    pub matched: Vec<Reason>,
    /// A grant that lifts the ask.
    pub grant: Option<Grant>,
    /// Who would have to approve, where people are asked.
    pub approvals: Vec<Quorum>,
    /// What would make it come out otherwise, in words.
    pub would_change: Vec<String>,
    /// The version of the policy.
    pub policy: String,
}

/// Stops claims, or lets them go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Halt {
    /// Only this agent; all, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Why, for the record. Only with `halt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether claims are stopped now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Halted {
    /// Whether they are.
    pub halted: bool,
    /// For which agent; all, if none.
    pub agent: Option<String>,
    /// Why.
    pub reason: Option<String>,
}
