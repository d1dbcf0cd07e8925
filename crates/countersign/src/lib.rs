//! Countersign puts a human hand on an AI agent's dangerous tool calls.

pub mod call;
pub mod config;
pub mod digest;
pub mod grant;
pub mod hold;
pub mod id;
pub mod json;
pub mod limits;
pub mod policy;
pub mod refusal;
pub mod time;
pub mod verdict;

pub use call::{Call, CallState, Facts, Path, ToolId};
pub use json::Json;
pub use limits::Limits;
pub use policy::Policy;
pub use verdict::{Effect, Verdict};
