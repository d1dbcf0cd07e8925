//! Kills a worker again and again, and joins what it did with what the store says.
//!
//! One program plays both parts: the supervisor starts itself as a child, kills it, starts it again on the same store,
//! and after each start compares three records: the journal of what was acknowledged, the file of effects, and the store.

mod child;
pub(crate) mod join;
mod operator;
mod supervisor;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

pub use child::{Life, run as run_child};
pub use join::Report;
pub use supervisor::run as run_supervisor;

/// Which durable store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Backend {
    /// Reads the name used on the command line.
    ///
    /// # Errors
    ///
    /// For any other name.
    pub fn read(name: &str) -> Result<Backend> {
        match name {
            "sqlite" => Ok(Backend::Sqlite),
            "postgres" => Ok(Backend::Postgres),
            other => bail!("`{other}` is no durable store: sqlite or postgres"),
        }
    }
}

/// The key that signs the worker's checkpoints.
const SIGNER: &str = "a2lsbGVkLWFnYWluLWFuZC1hZ2Fpbi1hbmQtYWdhaW4=";

/// What the store acknowledged, one a line: `decide` with call, hold, digest, answer and approver, or what an operator
/// did.
fn journal(folder: &Path) -> PathBuf {
    folder.join("acknowledged")
}

/// What the tool did, one a line: call, hash of the arguments, attempt.
fn effects(folder: &Path) -> PathBuf {
    folder.join("effects")
}

/// The hash of the bytes a tool got.
pub(crate) fn hash(arguments: &countersign::Json) -> String {
    countersign::digest::EventHash::of(arguments.as_str().as_bytes()).to_string()
}
