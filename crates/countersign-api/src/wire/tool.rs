//! Tools of MCP servers: what they were pinned as, and what was found since.

use countersign::Json;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a tool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Somebody accepted it as it is.
    Accepted,
    /// It is not what it was: it is refused until somebody accepts it.
    Changed,
    /// It was seen, and nobody has looked at it yet. Rules apply to it.
    New,
}

/// A tool that a server was seen to offer. Everything in it but `state` is others' words: escape it before it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// The server's name in rules; after `agents:`, where an agent's own connection to it pinned the tool.
    pub server: String,
    /// The tool's name.
    pub name: String,
    /// How it stands.
    pub state: ToolState,
    /// Names what was found last, and which server said so. Whoever accepts the tool hands it back.
    pub definition: String,
    /// The definition that calls are held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub accepted: Option<Json>,
    /// The definition that was found instead, where the tool has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub found: Option<Json>,
    /// How they differ, line by line, with what nobody could see made visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Whether another command or address answers under the server's name.
    pub other_server: bool,
    /// Who accepted it last; nobody, where it was only seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    /// Since when it stands as it does; none where that was never written down.
    pub since: Option<Timestamp>,
}

/// Accepts a tool as it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptTool {
    /// The server, as the tool names it.
    pub server: String,
    /// The tool's name.
    pub tool: String,
    /// The `definition` of what was looked at.
    pub definition: String,
}

/// Asks which tools of a server, or which local ones, a rule hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskHidden {
    /// The server's name in rules; none for local tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The names of the tools; at most 1,000.
    pub names: Vec<String>,
}

/// The tools that a rule hides: no model is to know of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hidden {
    /// Their names, in the order in which they were asked about.
    pub hidden: Vec<String>,
}
