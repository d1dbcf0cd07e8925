//! Programs that tools started, written down while they run, so that one that outlives us is found.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign::{CallId, Running};
use serde::{Deserialize, Serialize};

use super::proc::{self, Alive};

/// A folder with one file for each program that runs.
///
/// A program is written down before it starts, and its pid, its start time and the boot it belongs to right after. The
/// file goes when the program and all that it started are gone. Whoever begins later finds what was left behind with
/// [`Processes::survivors`]. Needs Linux: elsewhere nothing is found.
#[derive(Clone, Debug)]
pub struct Processes {
    folder: Arc<Path>,
}

/// A program that outlived the process that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its number now.
    pub pid: u32,
    /// The call it was started for.
    pub call: CallId,
    /// The tool that started it.
    pub tool: String,
}

/// What is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    call: CallId,
    tool: String,
    /// What the program and its descendants carry in their environment.
    mark: String,
    /// The process that started it.
    owner: Option<Alive>,
    /// The program itself, once it runs.
    program: Option<Alive>,
}

impl Processes {
    /// Uses a folder, which is made where it is missing. Keep tools from it: see
    /// [`Workspace::protect`](crate::tools::Workspace::protect).
    pub fn at(folder: impl AsRef<Path>) -> io::Result<Processes> {
        fs::create_dir_all(folder.as_ref())?;
        Ok(Processes { folder: folder.as_ref().into() })
    }

    /// What still runs of what processes before this one started. Entries of which nothing runs are forgotten.
    pub fn survivors(&self) -> io::Result<Vec<Survivor>> {
        let mut survivors = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            let Some(entry) = read(&path).filter(|_| path.extension() == Some(OsStr::new("json"))) else { continue };
            if entry.owner.as_ref().is_some_and(Alive::is_alive) {
                continue;
            }
            let mut pids = proc::marked(&entry.mark);
            pids.extend(entry.program.as_ref().filter(|program| program.is_alive()).map(|program| program.pid));
            pids.sort_unstable();
            pids.dedup();
            if pids.is_empty() {
                fs::remove_file(&path)?;
            }
            let found = pids.into_iter().map(|pid| Survivor { pid, call: entry.call, tool: entry.tool.clone() });
            survivors.extend(found);
        }
        survivors.sort_by_key(|survivor| (survivor.call, survivor.pid));
        Ok(survivors)
    }
}

/// For which call a program runs, and where that is written down.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    call: CallId,
    tool: String,
    ledger: Option<Processes>,
}

impl Watch {
    pub(crate) fn of(running: &Running, ledger: Option<&Processes>) -> Watch {
        let tool = running.call().facts.tool.name.to_string();
        Watch { call: running.id(), tool, ledger: ledger.cloned() }
    }

    /// Writes down that a program is about to start. What cannot be written down must not start.
    pub(super) fn begin(&self, mark: &str) -> io::Result<Option<Noted>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let owner = Alive::of(std::process::id());
        let entry = Entry { call: self.call, tool: self.tool.clone(), mark: mark.to_owned(), owner, program: None };
        let noted = Noted { path: ledger.folder.join(format!("{mark}.json")), entry };
        noted.write()?;
        Ok(Some(noted))
    }
}

/// A program that is written down. Dropped when it is gone, with all that it started.
#[derive(Debug)]
pub(super) struct Noted {
    path: PathBuf,
    entry: Entry,
}

impl Noted {
    /// Adds which process it became.
    pub(super) fn runs_as(&mut self, pid: Option<u32>) {
        self.entry.program = pid.and_then(Alive::of);
        // It can be found by its mark all the same.
        if let Err(error) = self.write() {
            tracing::warn!(%error, "the number of a program could not be written down");
        }
    }

    /// Beside, then over the old one: dying in between must not cost what was written down before.
    fn write(&self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&self.entry)?)?;
        file.sync_all()?;
        fs::rename(beside, &self.path)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A file that cannot be read is one that was cut while it was written: the whole one stands beside it, or no program
/// began.
fn read(path: &Path) -> Option<Entry> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
