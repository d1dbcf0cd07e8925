//! Who asks, and how the server is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::Role;

/// Who the credential says you are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The name decisions are recorded under, or an agent's principal.
    pub name: String,
    /// What you may do. A token has one role, a browser's session may have several, never `agent`.
    pub roles: Vec<Role>,
    /// `token` or `session`.
    pub by: String,
    /// The groups that the policy and your account count you to.
    pub groups: Vec<String>,
    /// With a session: send it as the header `x-countersign-csrf` with everything that is not a GET.
    pub csrf: Option<String>,
    /// When the credential ends.
    pub expires_at: Timestamp,
    /// Whether every claim is halted now.
    pub halted: bool,
    /// Whether tools of the server's agents run as its own user, who has the store and the keys. Shown to overseers.
    #[serde(default)]
    pub tools_as_server: bool,
    /// The version of the policy in force.
    pub policy: String,
    /// The store's clock.
    pub now: Timestamp,
}

/// Trades a one-time link for a session cookie.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// What stands behind the `#` of the link.
    pub link: String,
}

/// Whether the server is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or what is wrong.
    pub status: String,
}
