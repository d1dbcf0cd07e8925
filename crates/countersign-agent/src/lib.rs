//! The agent runtime: models, the loop, tools, hooks, hand-offs and sub-agents, with the gate in the middle.
//!
//! An agent proposes calls; each goes through the [`Gate`](countersign::Gate) and runs only with a permit. What the
//! agent did is a transcript in the store, so a run goes on after a restart where it stopped.

mod agent;
mod client;
pub mod config;
mod error;
mod event;
pub mod limits;
pub mod lint;
pub mod model;
mod run;
mod session;
mod stream;
mod toolbox;
pub mod tools;
mod transcript;
mod typed;

pub use agent::{Agent, AgentBuilder, Batch, RunLimits};
pub use client::{ClientCall, ClientError};
pub use error::{AgentError, RunError};
pub use event::{Place, RunEvent};
pub use session::{Listed, Reply, Session, sessions};
pub use stream::{RunHandle, RunStream};
pub use typed::{TypedTool, tool};
