//! Countersign puts a human hand on an AI agent's dangerous tool calls.
//!
//! The agent proposes a call; a rule or a person countersigns it; only then does it run: with exactly the bytes that
//! were shown, at most once, on the record.
//!
//! ```
//! use countersign::{Answer, Definition, Gate, Json, Policy, Proposal, tool};
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let gate = Gate::builder()
//!     .policy(Policy::from_yaml("rules: [{ id: writes, ask: 'write_*', reason: It changes your files }]")?)
//!     .approver(|hold| async move {
//!         // Ask somebody. What they see is what runs: `hold.call.facts.arguments`.
//!         assert_eq!(hold.because[0].rule.as_ref(), "writes");
//!         Ok(Answer::approve())
//!     })
//!     .build()?;
//!
//! let write = tool::tool(Definition::new("write_note", "Writes a note."), |running| async move {
//!     let note: serde_json::Value = running.input()?;
//!     Ok(Json::of(&format!("wrote {note}")).expect("a string is JSON"))
//! });
//!
//! let call = gate.call(&write, Proposal::new("write_note", r#"{"text": "buy milk"}"#).session("s1")).await?;
//! assert_eq!(call.state, countersign::CallState::Succeeded);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Ten words
//!
//! | word | what it is |
//! |---|---|
//! | [call](call) | what an agent wants to do: a tool, its arguments, and how far it has come |
//! | [policy](policy) | rules with one effect each: allow, ask or deny; the strictest that matches wins |
//! | [verdict](verdict) | the policy's word on a call, and the rules behind it |
//! | [hold](hold) | a call that waits for people |
//! | [approver](approver) | whoever decides |
//! | [decision](hold::Decision) | a person's word on a hold, made for exactly one digest |
//! | [grant](grant) | a remembered approval: it turns ask into allow, never deny |
//! | [permit](permit) | proof that one exact call may run, once; no permit, no run |
//! | [refusal](refusal) | why a call will not run, as data that the model reads |
//! | [event](event) | what happened, hash-chained; what is not in the log did not happen |
//!
//! *Rules allow, people approve; both can deny. A verdict is the policy's; a decision is a person's.*
//!
//! # One path
//!
//! ```text
//! validate → hooks → authorizer → freeze → judge → (hold → decide) → claim → run → outcome, an event at every arrow
//! ```
//!
//! [`Gate::call`] takes a call the whole way and blocks where people are asked. [`Gate::submit`] and [`Gate::wait`] are
//! the same in two steps, also in two processes on one [`Store`]. Everything fails closed: no approver, no store, a
//! broken policy, a hook that errs, a time-out: the call does not run.

pub mod apply;
pub mod approver;
pub mod audit;
pub mod bell;
pub mod call;
pub mod callers;
pub mod config;
pub mod digest;
pub mod event;
pub mod gate;
pub mod grant;
pub mod hold;
pub mod id;
pub mod json;
pub mod kept;
pub mod limits;
pub mod looks;
pub mod memory;
pub mod permit;
pub mod place;
pub mod policy;
pub mod reach;
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
pub mod wrapper;

pub use approver::{Approver, Hold, ScriptedApprover};
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
