//! Where the system does not tell which processes there are: nothing is found.

use serde::{Deserialize, Serialize};

/// The variable that a program and its descendants carry.
pub(super) const MARK: &str = "COUNTERSIGN_RUN";

/// One process. Here it cannot be told from another that gets its number later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alive {
    pub(super) pid: u32,
}

impl Alive {
    pub(super) fn of(pid: u32) -> Option<Alive> {
        Some(Alive { pid })
    }

    pub(super) fn is_alive(&self) -> bool {
        false
    }
}

pub(super) fn marked(_mark: &str) -> Vec<u32> {
    Vec::new()
}

pub(super) fn kill_strays(_mark: &str) {}
