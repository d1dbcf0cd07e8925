//! Grants: remembered approvals.

use std::collections::BTreeMap;

use countersign::digest::ArgumentDigest;
use countersign::gate::Counted;
use countersign::grant::{Covers, RememberScope, Scope};
use countersign::{CallId, GrantId, HoldId, Json, Time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::{Remember, timestamp};

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// Its id.
    #[schema(value_type = String)]
    pub id: GrantId,
    /// How it reads as a rule. Holds names that others chose: escape it before it is printed.
    pub rule: String,
    /// Whether it covers anything now.
    pub live: bool,
    /// `session` or `global`.
    #[schema(value_type = String)]
    pub scope: RememberScope,
    /// The session, where it is one's.
    pub session: Option<String>,
    /// Whose calls it covers.
    pub principal: String,
    /// The root agent whose tree it covers.
    pub agent: Option<String>,
    /// The tool's name.
    pub tool: String,
    /// The tool's server.
    pub server: Option<String>,
    /// Which of the tool's calls: `{"exact": DIGEST}`, `{"fields": {…}}`, `{"folder": {"field", "folder"}}` or `"tool"`.
    #[schema(value_type = serde_json::Value)]
    pub covers: Coverage,
    /// Who made it.
    pub made_by: String,
    /// The hold it came from.
    #[schema(value_type = Option<String>)]
    pub hold: Option<HoldId>,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// How many calls it still covers; any number, if none.
    pub uses_left: Option<u32>,
    /// Who revoked it.
    pub revoked_by: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// What a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Exactly these arguments.
    Exact(ArgumentDigest),
    /// Calls equal in these fields.
    Fields(BTreeMap<String, Json>),
    /// Calls one of whose arguments leads into this folder.
    Folder {
        /// The argument.
        field: String,
        /// The folder.
        folder: String,
    },
    /// Every call of the tool.
    Tool,
}

impl Grant {
    /// The grant as it stands at this moment.
    pub fn of(grant: &countersign::grant::Grant, now: Time) -> Grant {
        let (scope, session) = match &grant.scope {
            Scope::Session { session } => (RememberScope::Session, Some(session.to_string())),
            Scope::Global => (RememberScope::Global, None),
        };
        Grant {
            id: grant.id,
            rule: grant.as_rule(),
            live: grant.is_live(now),
            scope,
            session,
            principal: grant.principal.to_string(),
            agent: grant.agent.as_deref().map(str::to_owned),
            tool: grant.tool.name.to_string(),
            server: grant.tool.server.as_deref().map(str::to_owned),
            covers: Coverage::from(&grant.covers),
            made_by: grant.made_by.id.to_string(),
            hold: grant.hold,
            made_at: timestamp(grant.made_at),
            expires_at: timestamp(grant.expires_at),
            uses_left: grant.uses_left,
            revoked_by: grant.revoked.as_ref().map(|(_, by)| by.to_string()),
            revoked_at: grant.revoked.as_ref().map(|(at, _)| timestamp(*at)),
        }
    }
}

impl From<&Covers> for Coverage {
    fn from(covers: &Covers) -> Coverage {
        match covers {
            Covers::Exact(digest) => Coverage::Exact(*digest),
            Covers::Fields(fields) => Coverage::Fields(fields.clone()),
            Covers::Folder { field, made_for } => {
                let folder = made_for.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
                Coverage::Folder { field: field.clone(), folder }
            }
            Covers::Tool => Coverage::Tool,
        }
    }
}

/// A grant that an operator makes without a hold: for calls like one that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    /// The call that was made: the grant is for its principal, agent and tool, as they were then.
    #[schema(value_type = String)]
    pub like: CallId,
    /// Where and what.
    pub remember: Remember,
}

/// Asks what a grant would say and cover, before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewGrant {
    /// The grant.
    pub remember: Remember,
    /// The arguments, where the decision also edits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Json>,
}

/// A grant as it would be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantPreview {
    /// How it reads as a rule. Holds names that others chose: escape it before it is printed.
    pub rule: String,
    /// Calls it covers: the one that waits, then past ones.
    pub examples: Vec<GrantExample>,
    /// How many past calls it would have covered.
    pub past_calls: usize,
    /// Whether that is all of them; if not, there may be more.
    pub counted_all: bool,
}

/// One call a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantExample {
    /// The call.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// The tool's server.
    pub server: Option<String>,
    /// The arguments, secrets masked.
    #[schema(value_type = Object)]
    pub arguments: Json,
}

impl From<countersign::gate::GrantPreview> for GrantPreview {
    fn from(preview: countersign::gate::GrantPreview) -> GrantPreview {
        let example = |example: countersign::gate::Example| GrantExample {
            call: example.call,
            tool: example.tool.name.to_string(),
            server: example.tool.server.as_deref().map(str::to_owned),
            arguments: example.arguments,
        };
        GrantPreview {
            rule: preview.rule,
            examples: preview.examples.into_iter().map(example).collect(),
            past_calls: preview.past_calls,
            counted_all: preview.counted == Counted::All,
        }
    }
}
