//! Runs a program in a process group of its own, and ends the whole group with it.
//!
//! A program can leave its group (`setsid`). On Linux what left it is found by a variable that descendants inherit, and
//! ended too; one that also clears its environment is not. Only a sandbox would hold it.

mod keeper;
mod ledger;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(not(target_os = "linux"))]
#[path = "process/no_proc.rs"]
mod proc;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use countersign::CallId;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

pub(crate) use keeper::Status;
pub use keeper::keep_status;
pub(crate) use ledger::Watch;
pub use ledger::{Processes, Survivor};

use super::clip::Clip;
use super::user::User;
use crate::limits;

/// Where programs are looked for, unless the caller says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command with nothing of ours in its surroundings: no variable, no open file, no terminal.
///
/// SECURITY: the environment of this process holds the keys to models and stores, so a program inherits none of it.
pub(crate) fn command(program: &str, folder: &Path, watch: &Watch, user: Option<User>) -> Command {
    let mut command = watch.command(program, user);
    command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").env("TERM", "dumb").env("HOME", folder);
    command.current_dir(folder).stdin(Stdio::null()).process_group(0);
    command
}

/// How the program of a call ended, where that was written down.
pub(crate) async fn status_of(ledger: Option<&Processes>, call: CallId) -> Option<Status> {
    let ledger = ledger?.clone();
    tokio::task::spawn_blocking(move || ledger.status_of(call)).await.ok()?
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that was not ours.
    Killed(i32),
    /// By us, since its time was over.
    TimedOut,
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    /// What it wrote; with its errors in between, where they share one pipe.
    pub(crate) output: Clip,
    pub(crate) errors: Clip,
}

/// Runs a command whose output and errors go to one pipe, in the order they are written.
pub(crate) async fn run_merged(mut command: Command, watch: &Watch, time: Duration, output: Clip) -> io::Result<Ran> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let group = Group::start(&mut command, watch)?;
    // The command keeps our ends of the pipe; while they are open there is no end to read.
    drop(command);
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    finish(group, time, Vec::new(), (reader, output), (tokio::io::empty(), Clip::new(0))).await
}

/// Runs a command that reads `input` and whose output and errors are kept apart.
pub(crate) async fn run_with_input(
    mut command: Command,
    watch: &Watch,
    time: Duration,
    input: Vec<u8>,
    output: Clip,
) -> io::Result<Ran> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(&mut command, watch)?;
    let pipes = group.child.as_mut().map(|child| (child.stdout.take(), child.stderr.take()));
    let Some((Some(stdout), Some(stderr))) = pipes else { return Err(io::Error::other("the pipes are missing")) };
    finish(group, time, input, (stdout, output), (stderr, Clip::new(limits::FAILURE_BYTES))).await
}

async fn finish(
    mut group: Group,
    time: Duration,
    input: Vec<u8>,
    (mut stdout, mut output): (impl AsyncRead + Unpin, Clip),
    (mut stderr, mut errors): (impl AsyncRead + Unpin, Clip),
) -> io::Result<Ran> {
    let stdin = group.child.as_mut().and_then(|child| child.stdin.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input has its reasons; how it ends tells.
            let _ = stdin.write_all(&input).await;
        }
    };
    let ended = {
        let read = async { tokio::join!(feed, drain(&mut stdout, &mut output), drain(&mut stderr, &mut errors)) };
        tokio::pin!(read);
        let mut read_all = false;
        let status = tokio::time::timeout(time, async {
            let exited = group.exited();
            tokio::pin!(exited);
            loop {
                tokio::select! {
                    exited = &mut exited => return exited,
                    _ = &mut read, if !read_all => read_all = true,
                }
            }
        });
        let in_time = status.await;
        let status = group.end().await?;
        if !read_all {
            // All that the command started is dead; only what hid from us could still hold a pipe open.
            let _ = tokio::time::timeout(limits::COMMAND_DRAIN, &mut read).await;
        }
        match in_time {
            Err(_) => Ended::TimedOut,
            Ok(waited) => waited.and_then(|()| how(group.status(status)))?,
        }
    };
    Ok(Ran { ended, output, errors })
}

fn how(status: Status) -> io::Result<Ended> {
    match status {
        Status::Exited(code) => Ok(Ended::Exited(code)),
        Status::Killed(signal) => Ok(Ended::Killed(signal)),
        Status::NotStarted(why) => Err(io::Error::other(why)),
    }
}

async fn drain(from: &mut (impl AsyncRead + Unpin), into: &mut Clip) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => into.push(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// A program and all it started, killed together when this is dropped.
///
/// INVARIANT: the group is signalled only while its leader is not reaped. Until then its number cannot belong to
/// anybody else, so no stranger is ever hit.
struct Group {
    child: Option<Child>,
    mark: String,
    /// Forgotten last: fields are dropped in order, after the group was killed.
    noted: Option<ledger::Noted>,
}

impl Group {
    fn start(command: &mut Command, watch: &Watch) -> io::Result<Group> {
        let mut noted = watch.begin()?;
        let child = command.env(proc::MARK, watch.mark()).spawn()?;
        if let Some(noted) = &mut noted {
            noted.runs_as(child.id());
        }
        Ok(Group { child: Some(child), mark: watch.mark().to_owned(), noted })
    }

    /// How the program ended: as its keeper wrote it down, else as its leader did.
    fn status(&self, leader: ExitStatus) -> Status {
        self.noted.as_ref().and_then(ledger::Noted::status).unwrap_or_else(|| Status::of(leader))
    }

    fn pid(&self) -> Option<Pid> {
        let id = self.child.as_ref().and_then(Child::id)?;
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    /// Waits until the leader has exited, and leaves it unreaped.
    async fn exited(&self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        let wait = move || loop {
            match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(io::Error::from(error)),
            }
        };
        tokio::task::spawn_blocking(wait).await.map_err(io::Error::other)?
    }

    fn kill(&self) {
        if let Some(pid) = self.pid() {
            // The only error left is that there is nobody to kill.
            let _ = kill_process_group(pid, Signal::KILL);
            proc::kill_strays(&self.mark);
        }
    }

    /// Kills what is left of the group, and reaps its leader.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        self.kill();
        match &mut self.child {
            Some(child) => child.wait().await,
            None => Err(io::Error::other("the program is gone")),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A reaped child has no id any more, so this kills only a group that still runs.
        self.kill();
    }
}
