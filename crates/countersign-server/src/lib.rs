//! The approval server of Countersign: calls, holds and decisions over HTTP, a stream of events, and the web app.
//!
//! The only crate that knows axum. It reads no environment, prints nothing and never ends the process: whoever embeds it
//! opens the store, builds the gate and says when to stop.
//!
//! ```
//! use countersign::{Gate, Policy};
//! use countersign_server::{Server, tokens};
//! use countersign_api::wire::{NewToken, Role};
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let gate = Gate::builder().policy(Policy::ask_all()).decided_elsewhere().build()?;
//! let new = NewToken { role: Role::Agent, name: "bank-bot".into(), expires_after: None, r#for: None };
//! let token = tokens::create(&**gate.store(), new, "os:ann").await?;
//!
//! let server = Server::builder(gate).listen("127.0.0.1:0".parse()?).bind().await?;
//! println!("agents send their calls to {} with {}", server.url(), token.id);
//! server.run(async { /* until told to end */ }).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod again;
mod app;
mod auth;
mod dialects;
mod extract;
mod feed;
mod headers;
mod json;
pub mod limits;
mod list;
mod metrics;
pub mod notify;
mod openapi;
mod problem;
mod pulse;
mod rate;
mod room;
mod routes;
mod seen;
mod serve;
mod server;
mod sessions;
mod site;
mod table;
mod tail;
mod trace;
mod ui;

pub use auth::{people, tokens};
pub use openapi::openapi;
pub use serve::{ListenError, Tls, TlsError};
pub use server::{Server, ServerBuilder, StartError};
pub use table::{Row, table};
pub use trace::SPANS;
pub use ui::{Asset, Ui};
