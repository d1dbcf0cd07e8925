//! Countersign puts a human hand on an AI agent's dangerous tool calls.

pub mod apply;
pub mod approver;
pub mod bell;
pub mod call;
pub mod config;
pub mod digest;
pub mod event;
pub mod gate;
pub mod grant;
pub mod hold;
pub mod id;
pub mod json;
pub mod limits;
pub mod memory;
pub mod permit;
pub mod policy;
pub mod redact;
pub mod refusal;
pub mod schema;
pub mod show;
pub mod signer;
pub mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod tool;
pub mod transition;
pub mod verdict;

pub use approver::{Approver, OpenHold as Hold, ScriptedApprover};
pub use call::{Call, CallState, Facts, Path, ToolId};
pub use gate::{Claimed, Gate, GateError, Proposal};
pub use hold::{Answer, Decision, Who};
pub use id::{CallId, GrantId, HoldId};
pub use json::Json;
pub use limits::Limits;
pub use permit::{Permit, Running};
pub use policy::Policy;
pub use refusal::{Refusal, RefusalKind};
pub use store::Store;
pub use time::Time;
pub use tool::{Definition, Tool, ToolError, Toolset};
pub use verdict::{Effect, Verdict};
