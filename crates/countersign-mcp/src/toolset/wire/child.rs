//! A server that is a program: a process group of its own, and its last words.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use countersign::config::Secret;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::limits;

/// Where programs are looked for, unless the operator says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How to start a server.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, Secret>,
    pub(crate) folder: Option<PathBuf>,
}

/// The pipes of a server that runs.
pub(crate) struct Running {
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
    /// Why it was cut off, once it was.
    pub(crate) cut_off: Arc<OnceLock<&'static str>>,
}

/// How a server ended: why we cut it off or what the system says, and its last words.
pub(crate) struct Ended {
    pub(crate) cut_off: Option<&'static str>,
    pub(crate) how: Option<String>,
    pub(crate) said: String,
}

/// Where the program of a server sits. Emptying it, or dropping the last owner, kills all that the program started.
#[derive(Clone, Default)]
pub(crate) struct Seat(Arc<Mutex<Option<Group>>>);

impl Seat {
    /// Starts a program in place of the one that sat here.
    pub(crate) fn start(&self, program: &Program) -> io::Result<Running> {
        let mut group = Group::start(program)?;
        let pipes = (group.child.stdin.take(), group.child.stdout.take());
        let (Some(input), Some(output)) = pipes else { return Err(io::Error::other("the pipes are missing")) };
        let cut_off = Arc::clone(&group.cut_off);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
        Ok(Running { input, output, cut_off })
    }

    /// Kills what sits here.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Ends what sits here, and tells how it ended if it had ended by itself.
    pub(crate) async fn end(&self) -> Option<Ended> {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match group {
            Some(group) => Some(group.end().await),
            None => None,
        }
    }
}

/// A program and all it started, killed together when this is dropped.
///
/// INVARIANT: the group is signalled only while its leader is not reaped. Until then its number cannot belong to
/// anybody else, so no stranger is ever hit.
struct Group {
    child: Child,
    words: Arc<Mutex<VecDeque<u8>>>,
    /// Ends when all words are there.
    listening: Option<JoinHandle<()>>,
    cut_off: Arc<OnceLock<&'static str>>,
}

impl Group {
    fn start(program: &Program) -> io::Result<Group> {
        let mut command = Command::new(&program.command);
        // SECURITY: the environment of this process holds the keys to models and stores: a server inherits none of it.
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
        command.envs(program.env.iter().map(|(name, value)| (name, value.reveal())));
        command.args(&program.args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        let mut child = command.spawn()?;
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let listening = child.stderr.take().map(|stderr| tokio::spawn(listen(stderr, Arc::clone(&words))));
        Ok(Group { child, words, listening, cut_off: Arc::default() })
    }

    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Waits until the leader has exited, and leaves it unreaped.
    async fn exited(&self) {
        let Some(pid) = self.pid() else { return };
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let wait = move || while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {};
        // Given up on, it ends with the program, which is killed then.
        let _ = tokio::task::spawn_blocking(wait).await;
    }

    fn kill(&self) {
        if let Some(pid) = self.pid() {
            // The only error left is that there is nobody to kill.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    async fn end(mut self) -> Ended {
        // A program that has closed its output is about to end; how, is worth a moment.
        let by_itself = tokio::time::timeout(limits::END_WITHIN, self.exited()).await.is_ok();
        self.kill();
        let status = self.child.wait().await.ok().filter(|_| by_itself);
        let how = status.map(|status| status.to_string());
        // What it said last may still be in the pipe. Somebody who left the group may hold the other end for ever.
        if let Some(listening) = self.listening.take() {
            let _ = tokio::time::timeout(limits::END_WITHIN, listening).await;
        }
        let words: Vec<u8> = self.words.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        Ended { cut_off: self.cut_off.get().copied(), how, said: last_lines(&String::from_utf8_lossy(&words)) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A reaped child has no id any more, so this kills only a group that still runs.
        self.kill();
    }
}

/// Reads all a program says, so that it never blocks, and keeps the end.
async fn listen(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 4 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let mut words = into.lock().unwrap_or_else(PoisonError::into_inner);
                words.extend(buffer.get(..count).unwrap_or_default());
                let over = words.len().saturating_sub(limits::STDERR_BYTES);
                words.drain(..over);
            }
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let skipped = lines.len().saturating_sub(limits::STDERR_LINES);
    lines.into_iter().skip(skipped).collect::<Vec<_>>().join("\n")
}
