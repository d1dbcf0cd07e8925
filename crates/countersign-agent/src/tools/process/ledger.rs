//! Programs that tools started, written down while they run, so that one that outlives us is found.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign::{CallId, Running};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::keeper::{Status, as_word, write_synced};
use super::proc::{self, Alive};
use crate::limits;
use crate::tools::user::User;

/// A folder with one file for each program that runs.
///
/// A program is written down before it starts, and its pid, its start time and the boot it belongs to right after. The
/// file goes when the program and all that it started are gone. Whoever begins later finds what was left behind with
/// [`Processes::survivors`]. Needs Linux: elsewhere nothing is found.
///
/// With a keeper ([`Processes::kept_by`]) it is also known how a program ended whose starter was gone by then.
#[derive(Clone, Debug)]
pub struct Processes {
    folder: Arc<Path>,
    keeper: Option<Arc<[OsString]>>,
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
    /// The program itself, or its keeper, once it runs.
    program: Option<Alive>,
    /// Whether that is a keeper, which only waits.
    #[serde(default)]
    kept: bool,
}

impl Processes {
    /// Uses a folder, which is made where it is missing. Keep tools from it: see
    /// [`Workspace::protect`](crate::tools::Workspace::protect).
    pub fn at(folder: impl AsRef<Path>) -> io::Result<Processes> {
        fs::create_dir_all(folder.as_ref())?;
        Ok(Processes { folder: folder.as_ref().into(), keeper: None })
    }

    /// Starts programs through another one, the keeper, which runs them, waits for them and writes down how they ended:
    /// a call whose program came to its end after this process was killed is then told from one that nobody knows of.
    ///
    /// The keeper is called with `words`, then with what [`keep_status`](crate::tools::keep_status) takes, and must do
    /// nothing but call that and exit with what it returns.
    #[must_use]
    pub fn kept_by(mut self, keeper: impl AsRef<OsStr>, words: impl IntoIterator<Item = OsString>) -> Processes {
        let keeper = std::iter::once(keeper.as_ref().to_owned());
        self.keeper = Some(keeper.chain(words).collect());
        self
    }

    /// What still runs of what processes before this one started. Entries of which nothing runs are forgotten, and after
    /// a while also those that tell how their program ended.
    pub fn survivors(&self) -> io::Result<Vec<Survivor>> {
        self.forget_old()?;
        let mut survivors = Vec::new();
        for (path, entry) in self.entries()? {
            if entry.owner.as_ref().is_some_and(Alive::is_alive) {
                continue;
            }
            let pids = entry.pids();
            if pids.is_empty() && !status_file(&path).exists() {
                fs::remove_file(&path)?;
            }
            let keeper = entry.program.as_ref().filter(|_| entry.kept).map(|keeper| keeper.pid);
            let pids = pids.into_iter().filter(|pid| Some(*pid) != keeper);
            survivors.extend(pids.map(|pid| Survivor { pid, call: entry.call, tool: entry.tool.clone() }));
        }
        survivors.sort_by_key(|survivor| (survivor.call, survivor.pid));
        Ok(survivors)
    }

    /// How the program of a call ended, where that was written down.
    pub(crate) fn status_of(&self, call: CallId) -> Option<Status> {
        let (path, _) = self.entries().ok()?.into_iter().find(|(_, entry)| entry.call == call)?;
        Status::read(&status_file(&path))
    }

    /// What is written down, and where.
    fn entries(&self) -> io::Result<Vec<(PathBuf, Entry)>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            let is_entry = path.extension() == Some(OsStr::new("json"));
            entries.extend(read(&path).filter(|_| is_entry).map(|entry| (path, entry)));
        }
        Ok(entries)
    }

    /// Forgets how programs ended whose calls have long ended too.
    fn forget_old(&self) -> io::Result<()> {
        for (path, entry) in self.entries()? {
            let status = status_file(&path);
            let Some(age) = age(&status) else { continue };
            let is_ours = entry.owner.as_ref().is_some_and(Alive::is_alive);
            let life = if is_ours { limits::STATUS_OF_THE_LIVING } else { limits::STATUS_OF_THE_DEAD };
            if age > life {
                // The entry first: without it the status is nobody's.
                fs::remove_file(&path)?;
                fs::remove_file(&status)?;
            }
        }
        Ok(())
    }
}

impl Entry {
    /// What runs of it now.
    fn pids(&self) -> Vec<u32> {
        let mut pids = proc::marked(&self.mark);
        pids.extend(self.program.as_ref().filter(|program| program.is_alive()).map(|program| program.pid));
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Where it is written how the program of an entry ended.
fn status_file(entry: &Path) -> PathBuf {
    entry.with_extension("status")
}

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// For which call a program runs, and where that is written down. One for each program.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    call: CallId,
    tool: String,
    mark: String,
    ledger: Option<Processes>,
}

impl Watch {
    pub(crate) fn of(running: &Running, ledger: Option<&Processes>) -> Watch {
        let tool = running.call().facts.tool.name.to_string();
        let mark = uuid::Uuid::new_v4().simple().to_string();
        Watch { call: running.id(), tool, mark, ledger: ledger.cloned() }
    }

    /// What the program and its descendants carry in their environment.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// A command that runs a program, as another user if so wished, and through the keeper where there is one.
    ///
    /// The keeper stays ours, for it writes where that user must not; it is told whom to run the program as.
    pub(super) fn command(&self, program: &str, user: Option<User>) -> Command {
        let kept = self.ledger.as_ref().and_then(|ledger| Some((ledger, ledger.keeper.as_deref()?.split_first()?)));
        let Some((ledger, (keeper, words))) = kept else {
            let mut command = Command::new(program);
            user.into_iter().for_each(|user| user.apply(command.as_std_mut()));
            return command;
        };
        let mut command = Command::new(keeper);
        command.args(words).args(user.map(as_word)).arg(status_file(&self.entry(ledger))).arg(program);
        command
    }

    fn entry(&self, ledger: &Processes) -> PathBuf {
        ledger.folder.join(format!("{}.json", self.mark))
    }

    /// Writes down that a program is about to start. What cannot be written down must not start.
    pub(super) fn begin(&self) -> io::Result<Option<Noted>> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        ledger.forget_old()?;
        let owner = Alive::of(std::process::id());
        let (tool, mark, kept) = (self.tool.clone(), self.mark.clone(), ledger.keeper.is_some());
        let entry = Entry { call: self.call, tool, mark, owner, program: None, kept };
        let noted = Noted { path: self.entry(ledger), entry };
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

    /// How the program ended, where a keeper wrote that down.
    pub(super) fn status(&self) -> Option<Status> {
        Status::read(&status_file(&self.path))
    }

    fn write(&self) -> io::Result<()> {
        write_synced(&self.path, &serde_json::to_vec(&self.entry)?)
    }
}

impl Drop for Noted {
    /// How it ended stays on the disk for a while: what the call came to is not recorded yet.
    fn drop(&mut self) {
        if !status_file(&self.path).exists() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that cannot be read is one that was cut while it was written: the whole one stands beside it, or no program
/// began.
fn read(path: &Path) -> Option<Entry> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
