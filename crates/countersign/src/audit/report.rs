//! What a log that holds together says about itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::call::Chain;
use crate::time::Time;

/// How much was checked, and how much of it is under a signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The session an export is about; all, if none.
    pub session: Option<Arc<str>>,
    /// How many events.
    pub events: u64,
    /// The chains, sorted by name.
    pub chains: Vec<ChainReport>,
    /// How many signed checkpoints.
    pub checkpoints: u64,
    /// How many events no signature covers: they may have been cut or rewritten, and nobody could tell.
    pub unproven: u64,
    /// How many events have a name this version does not know. Their hashes were checked, their meaning was not.
    pub unknown: u64,
    /// How many calls had not come to an end when the log did.
    pub open_calls: u64,
    /// The public keys that signed, sorted.
    pub keys: Vec<String>,
    /// When the earliest event happened.
    pub first_at: Option<Time>,
    /// When the latest event happened.
    pub last_at: Option<Time>,
    /// Where the clock went back by more than two seconds inside a chain: the first hundred.
    pub clock_steps: Vec<ClockStep>,
    /// How often it did.
    pub clock_steps_total: u64,
    /// Whether a signature covers every event, so that nothing can be missing from the end.
    ///
    /// A live store can prove this only up to its last checkpoint: whoever cuts a store back to an earlier checkpoint
    /// is found by comparing with an export kept elsewhere.
    pub complete: bool,
}

/// One chain of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReport {
    /// Its name.
    pub chain: Chain,
    /// How many events it has.
    pub events: u64,
    /// How many of them, from the first, a checkpoint covers.
    pub signed_up_to: u64,
}

/// A place where time ran backwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The chain.
    pub chain: Chain,
    /// The event that is older than the one before it.
    pub seq: u64,
    /// By how much.
    pub back: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chains = self.chains.len();
        write!(f, "{} events in {chains} chains hold together, {} checkpoints", self.events, self.checkpoints)?;
        if self.complete {
            write!(f, ", every event is under a signature")?;
        } else {
            let proven = self.events.saturating_sub(self.unproven);
            write!(f, ", not provable beyond {proven} events: {} are under no signature", self.unproven)?;
        }
        if self.clock_steps_total > 0 {
            write!(f, "; the clock went back {} times", self.clock_steps_total)?;
        }
        if self.unknown > 0 {
            write!(f, "; {} events have names this version does not know", self.unknown)?;
        }
        Ok(())
    }
}
