//! Tokens: credentials of programs and people, one role each.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::Span;

/// What a credential may do. A token has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Submits, waits for, claims and reports its own calls. Never decides.
    Agent,
    /// Reads holds and decides.
    Approver,
    /// Policy, grants, doubts, halt, tokens.
    Operator,
    /// Reads and verifies everything.
    Auditor,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Agent, Role::Approver, Role::Operator, Role::Auditor];

    /// The word used on the wire, and in the prefix of a token.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Approver => "approver",
            Role::Operator => "operator",
            Role::Auditor => "auditor",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| format!("`{}` is not a role", text.chars().take(40).collect::<String>()))
    }
}

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its role.
    pub role: Role,
    /// Whose it is: an agent's principal, or a person's name.
    pub name: String,
    /// For how long: `8h`. Left out, the default of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// The person for whom an agent's calls are made, whatever the calls say themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#for: Option<String>,
}

/// A token that was just made. The secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Its name for `DELETE /v1/tokens/{id}`. Not secret.
    pub id: String,
    /// The secret.
    pub token: String,
    /// Its role.
    pub role: Role,
    /// Whose it is.
    pub name: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

impl fmt::Debug for MadeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MadeToken({}, {} of `{}`)", self.id, self.role, self.name)
    }
}

/// A token as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its name.
    pub id: String,
    /// Its role.
    pub role: Role,
    /// Whose it is.
    pub name: String,
    /// The person for whom its calls are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#for: Option<String>,
    /// Who made it.
    pub made_by: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    pub revoked_by: Option<String>,
    /// Whether it is good now.
    pub live: bool,
}
