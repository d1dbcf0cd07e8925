//! A gate whose policy, store and people are at a server: the same library code runs against it.
//!
//! ```no_run
//! # async fn example(tool: &dyn countersign::Tool) -> Result<(), Box<dyn std::error::Error>> {
//! use countersign::Proposal;
//!
//! let gate = countersign_api::remote("https://approvals.example", "cs_agent_…")?;
//! let call = gate.call(tool, Proposal::new("deploy", r#"{"to": "production"}"#).session("s1")).await?;
//! println!("{}", call.state);
//! # Ok(()) }
//! ```
//!
//! The server judges, holds and records; the tool runs here. What keeps that honest over a network that loses answers:
//!
//! | lost | then |
//! |---|---|
//! | the answer to a submission | it is asked for again under the same key: the same call |
//! | the answer to a claim | it is asked for again under the name of that one claim; anybody else is told that it is taken |
//! | the answer to a renewal | it is renewed again; a claim that cannot be renewed in time, or is refused, ends the run |
//! | the answer to a question from inside a run | it is asked for again under the same name: one hold |
//! | the answer to an outcome | it is reported again under the same fence; the server knows it already |
//! | the server | the call does not run, and the caller gets [`GateError::Unreachable`](countersign::GateError::Unreachable) |
//!
//! A permit is made from what the server hands over only after its digest was computed here and is the one that people
//! saw, and after the receipt was checked that a server with a key sends along. What is done by people (decide, halt, revoke, set a policy) is
//! [`GateError::Remote`](countersign::GateError::Remote): an agent's credential could not do it either.

mod backend;
mod call;
mod log;
mod patience;
mod receipt;
mod store;

use std::sync::Arc;
use std::time::Duration;

use countersign::memory::MemoryStore;
use countersign::{Gate, Store};

use crate::client::{Client, ClientError};
use backend::Server;
use patience::Patience;
use store::View;

/// A gate at a server, with an agent's token. Speaks to it when it is first used.
///
/// Records of whoever runs on it, such as an agent's transcripts, live in memory; [`Remote`] takes another store.
pub fn remote(url: &str, token: &str) -> Result<Gate, ClientError> {
    Ok(Remote::new(url, token)?.gate())
}

/// Builds a gate at a server.
pub struct Remote {
    client: Client,
    records: Option<Arc<dyn Store>>,
    patience: Patience,
    key: Option<Arc<str>>,
}

impl Remote {
    /// A gate at the server of this address, with an agent's token.
    pub fn new(url: &str, token: &str) -> Result<Remote, ClientError> {
        Ok(Remote { client: Client::new(url, token)?, records: None, patience: Patience::default(), key: None })
    }

    /// Where records of whoever runs on the gate are kept, such as an agent's transcripts. No call is kept there.
    #[must_use]
    pub fn records(mut self, store: Arc<dyn Store>) -> Self {
        self.records = Some(store);
        self
    }

    /// How long a server may be away before what was asked of it fails. A minute, if not said.
    #[must_use]
    pub fn away_for(mut self, most: Duration) -> Self {
        self.patience = Patience::of(most);
        self
    }

    /// Runs only what comes with a receipt that is signed by this key, as the server's `/v1/keys` has it.
    ///
    /// Without it a receipt must be about the call and rightly signed where there is one, by whatever key.
    #[must_use]
    pub fn signed_by(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The gate.
    pub fn gate(self) -> Gate {
        let records = self.records.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let server = Server { client: self.client, patience: self.patience, key: self.key };
        let store = Arc::new(View::new(server.clone(), records));
        Gate::over(Arc::new(backend::Remote { server, store }))
    }
}
