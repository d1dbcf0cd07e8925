//! Countersign puts a human hand on an AI agent's dangerous tool calls.

pub mod apply;
pub mod bell;
pub mod call;
pub mod digest;
pub mod event;
pub mod grant;
pub mod hold;
pub mod id;
pub mod json;
pub mod limits;
pub mod memory;
pub mod policy;
pub mod refusal;
pub mod signer;
pub mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod transition;
pub mod verdict;

pub use call::{Call, CallState, Facts, Path, ToolId};
pub use json::Json;
pub use limits::Limits;
pub use policy::Policy;
pub use time::Time;
pub use verdict::{Effect, Verdict};
