//! The agent runtime: models, the loop, tools, hooks, hand-offs and sub-agents, with the gate in the middle.
//!
//! An agent proposes calls; each goes through the [`Gate`](countersign::Gate) and runs only with a permit. What the
//! agent did is a transcript in the store, so a run goes on after a restart where it stopped.
//!
//! ```
//! use countersign::{Answer, Gate, Policy, Running, ToolError};
//! use countersign_agent::{Agent, tool};
//! # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
//! # use countersign_agent::model::{self, Model, ModelError, Piece, Prompt, Stop, Wanted};
//! # #[derive(Default)]
//! # struct Echo(AtomicBool);
//! # #[async_trait::async_trait]
//! # impl Model for Echo {
//! #     fn name(&self) -> Arc<str> { "echo".into() }
//! #     async fn answer(&self, _prompt: Prompt) -> Result<model::Answer, ModelError> {
//! #         let arguments = r#"{"amount": 100, "to": "Bo"}"#.into();
//! #         let pieces = match self.0.swap(true, Ordering::SeqCst) {
//! #             true => vec![Piece::Text("Bo has it.".into()), Piece::End(Stop::Done)],
//! #             false => vec![
//! #                 Piece::Call(Wanted { label: "1".into(), name: "transfer_money".into(), arguments }),
//! #                 Piece::End(Stop::Calls),
//! #             ],
//! #         };
//! #         Ok(Box::pin(futures::stream::iter(pieces.into_iter().map(Ok))))
//! #     }
//! # }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Transfer {
//!     /// How much, in dollars.
//!     amount: u64,
//!     /// To whom.
//!     to: String,
//! }
//!
//! async fn transfer(input: Transfer, cx: Running) -> Result<String, ToolError> {
//!     if input.amount > 10_000 {
//!         cx.confirm("Large transfer", &input.amount).await?; // asks once more, in mid-run
//!     }
//!     Ok(format!("sent {} to {}", input.amount, input.to))
//! }
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! # let model = Echo::default();
//! let gate = Gate::builder()
//!     .policy(Policy::declared())
//!     .approver(|hold| async move {
//!         assert_eq!(hold.call.facts.arguments.as_str(), r#"{"amount":100,"to":"Bo"}"#);
//!         Ok(Answer::approve()) // ask somebody
//!     })
//!     .build()?;
//! let agent = Agent::builder("banker", model)
//!     .gate(gate)
//!     .tool(tool("transfer_money", "Moves money to somebody.", transfer).asks_first())
//!     .build()?;
//!
//! let reply = agent.run("send 100 to Bo").await?; // or .spawn(..), .stream(..), .resume(session)
//! assert_eq!(&*reply.text, "Bo has it.");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # One path
//!
//! ```text
//! user → model → calls, each through the gate → results → model → … → reply, each step written down before the next
//! ```
//!
//! What to do next follows from the transcript alone, and each call is proposed under the name of its place in it. A
//! step that is taken again after a restart is therefore the same step: the gate gives back what came of it. Hand-overs
//! and sub-agents are calls of `agent:NAME`, judged like any other; a child works on a thread of its own, and its holds
//! show on the root's stream.
//!
//! | face | what it is for |
//! |---|---|
//! | [`Agent::run`] | waits for the reply, and for people on the way |
//! | [`Agent::spawn`] | the same in a task: await it, cancel it, or park it and resume it elsewhere |
//! | [`Agent::stream`] | tells text, calls and holds as they happen; decide holds from anywhere |
//! | [`Agent::resume`] | goes on with a session that a crash, a restart or a parked run left |
//! | [`Agent::session`] | a conversation of several runs |

mod agent;
mod builder;
mod client;
pub mod config;
mod error;
mod event;
pub mod limits;
pub mod lint;
pub mod model;
mod reading;
mod run;
mod session;
mod stillness;
mod stream;
mod team;
mod toolbox;
pub mod tools;
mod transcript;
mod turnstile;
mod typed;

pub use agent::{Agent, Batch, RunLimits};
pub use builder::AgentBuilder;
pub use client::{ClientCall, ClientError};
pub use error::{AgentError, RunError};
pub use event::{Place, RunEvent};
pub use reading::{Outline, SessionReader, Standing, ThreadOutline, every_session, sessions};
pub use session::{Created, Listed, Reply, Session};
pub use stream::{RunHandle, RunStream};
pub use team::Team;
pub use transcript::{Entry, Spent, Started, Stopped};
pub use typed::{TypedTool, tool};
