//! What the writer remembers from one transaction to the next, while the database proves that it is still so.
//!
//! INVARIANT: `PRAGMA data_version` is read inside every transaction, and it moves whenever anybody else committed. Then
//! everything is forgotten. So another process on the same file is never missed, and one writer alone reads no row twice.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::call::Chain;
use countersign::digest::EventHash;
use countersign::event::Head;
use rusqlite::Connection;

use crate::known::{Known, MOST};

/// The rows the writer read or wrote last.
#[derive(Default)]
pub(super) struct Cache {
    version: Option<i64>,
    pub(super) chains: HashMap<Chain, ChainRow>,
    pub(super) waiting: HashMap<Arc<str>, WaitingRow>,
    /// How many calls wait, whoever's.
    pub(super) waiting_in_all: Option<u64>,
    pub(super) meta: Option<Meta>,
    pub(super) halts: Option<Vec<String>>,
    /// Calls, each with the number of its row.
    pub(super) calls: Known<i64>,
    /// Whether there is any grant, any doubt, any remembered denial at all; mostly there is none to look for.
    pub(super) any: Any,
}

/// Whether rows of a kind exist at all; unknown until somebody looked.
#[derive(Default)]
pub(super) struct Any {
    pub(super) grant: Option<bool>,
    pub(super) doubt: Option<bool>,
    pub(super) denial: Option<bool>,
}

/// The end of a chain, as its row has it or will have it.
pub(super) struct ChainRow {
    pub(super) id: i64,
    pub(super) head: Head,
    /// The ids of its first and last event; zero where there is none.
    pub(super) ends: (i64, i64),
    pub(super) signed: u64,
    pub(super) pending: u64,
    /// The sequence number its row has.
    pub(super) stored: u64,
    pub(super) changed: bool,
}

impl ChainRow {
    /// The chain's newest event got this id.
    pub(super) fn reaches(&mut self, event: i64) {
        let first = if self.ends.0 == 0 { event } else { self.ends.0 };
        self.ends = (first, event);
    }
}

/// How many calls of a principal wait.
pub(super) struct WaitingRow {
    pub(super) pending: u64,
    pub(super) changed: bool,
}

/// The row of things there is one of.
pub(super) struct Meta {
    pub(super) policy: Option<Arc<str>>,
    pub(super) signed_event: i64,
    pub(super) last_checkpoint: Option<EventHash>,
    pub(super) changed: bool,
}

impl Cache {
    /// Forgets everything if anybody else wrote. To be called first in every transaction.
    pub(super) fn check(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version != Some(version) || self.chains.len().max(self.calls.len()).max(self.waiting.len()) > MOST {
            self.forget();
            self.version = Some(version);
        }
        Ok(())
    }

    /// Forgets everything: what was written is rolled back, or may be.
    pub(super) fn forget(&mut self) {
        *self = Cache::default();
    }
}
