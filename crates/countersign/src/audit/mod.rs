//! The audit trail: a log that leaves the store whole, and proves offline that nobody edited it.
//!
//! [`export`] writes the log as JSON lines that need nothing else to be checked; [`verify`] checks such a file, and
//! [`verify_store`] checks a live store with the same code. Three things are proven, each by its own means:
//!
//! - *Nothing was changed, removed or moved inside a chain*: each event's hash covers the event before it.
//! - *Nobody rewrote a chain from its beginning*: checkpoints sign the heads of all chains, and one another.
//! - *Nobody cut the end off*: the last line of an export signs the digest of all lines before it. Events of a live
//!   store that no checkpoint covers yet are counted and reported as not provable.
//!
//! Beyond that, [`verify`] walks every call through its states: a call that ran without being allowed or approved, or
//! a decision about bytes nobody was shown, is found even where every hash and signature is right.
//!
//! ```
//! # use std::sync::Arc;
//! # use countersign::audit::{self, ExportOptions, VerifyOptions};
//! # use countersign::{memory::MemoryStore, signer::Signer};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let store = MemoryStore::new();
//! let signer = Arc::new(Signer::generate().unwrap());
//! let mut file = Vec::new();
//! audit::export(&store, Some(&signer), &ExportOptions::default(), &mut file).await.unwrap();
//!
//! let pinned = VerifyOptions { pinned: vec![signer.public_key()] };
//! let report = audit::verify(file.as_slice(), &pinned).unwrap();
//! assert!(report.complete);
//! # }
//! ```

mod body;
mod export;
mod file;
mod frame;
mod keys;
mod log;
mod order;
mod problem;
mod report;
#[cfg(test)]
mod tests;
mod verify;
mod walk;

pub use export::{ExportError, ExportOptions, Exported, export, export_log};
pub use file::verify;
pub use keys::{checkpoint, keys};
pub use log::{OfStore, Readable};
pub use problem::{Problem, What};
pub use report::{ChainReport, ClockStep, Report};
pub use verify::{Verifier, VerifyOptions, verify_log, verify_store};

use crate::call::Chain;
use crate::memory::is_of_session;

/// Whether a log of one session, or of all, holds this chain. Every log holds the chain `system`.
fn in_scope(session: Option<&str>, chain: &Chain) -> bool {
    session.is_none_or(|session| *chain == Chain::system() || is_of_session(chain, session))
}
