//! What was acknowledged, and what was done.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use countersign::{CallId, HoldId};
use countersign_api::wire::{Claimed, NewDecision, NewOutcome};

use crate::kill::hash;

/// What servers acknowledged, one a line: what, call, and what it was about.
pub(super) fn journal(folder: &Path) -> PathBuf {
    folder.join("acknowledged")
}

/// What the tools did, one a line: call, hash of the arguments, fence.
pub(super) fn effects(folder: &Path) -> PathBuf {
    folder.join("effects")
}

/// Both files. They live as long as the supervisor, which nobody kills.
pub(super) struct Records {
    journal: Mutex<File>,
    effects: Mutex<File>,
}

impl Records {
    /// Begins both files.
    pub(super) fn create(folder: &Path) -> Result<Records> {
        let open = |path: PathBuf| {
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.map(Mutex::new).with_context(|| path.display().to_string())
        };
        Ok(Records { journal: open(journal(folder))?, effects: open(effects(folder))? })
    }

    /// A call was taken in.
    pub(super) fn submitted(&self, call: CallId) -> Result<()> {
        note(&self.journal, &format!("submit {call}"))
    }

    /// A decision was taken in.
    pub(super) fn decided(&self, call: CallId, hold: HoldId, decision: &NewDecision) -> Result<()> {
        let answer = decision.clone().answer().map_err(anyhow::Error::msg)?;
        note(&self.journal, &format!("decide {call} {hold} {} {}", decision.digest, answer.as_str()))
    }

    /// A call was handed out to run.
    pub(super) fn claimed(&self, claimed: &Claimed) -> Result<()> {
        note(&self.journal, &format!("claim {} {}", claimed.call, claimed.fence))
    }

    /// How a run ended was taken in.
    pub(super) fn reported(&self, call: CallId, outcome: &NewOutcome) -> Result<()> {
        note(&self.journal, &format!("outcome {call} {}", outcome.fence))
    }

    /// The tool acts.
    pub(super) fn act(&self, claimed: &Claimed) -> Result<()> {
        note(&self.effects, &format!("{} {} {}", claimed.call, hash(&claimed.arguments), claimed.fence))
    }
}

fn note(file: &Mutex<File>, line: &str) -> Result<()> {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(file.write_all(format!("{line}\n").as_bytes())?)
}
