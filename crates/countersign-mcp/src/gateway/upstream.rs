//! The server's process: started in a group of its own, and ended with all that it started.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};

/// An MCP server that speaks on a pair of pipes.
pub struct Upstream {
    pub(crate) stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) stderr: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) process: Process,
}

impl Upstream {
    /// Starts the server. Its standard error is kept apart: it goes to the gateway's notes.
    pub fn spawn(mut command: Command) -> io::Result<Upstream> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let gone = || io::Error::other("the server has no pipes");
        Ok(Upstream {
            stdin: Box::new(child.stdin.take().ok_or_else(gone)?),
            stdout: Box::new(child.stdout.take().ok_or_else(gone)?),
            stderr: Box::new(child.stderr.take().ok_or_else(gone)?),
            process: Process { child },
        })
    }
}

/// The process itself.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Waits for the process to end; kills it and its group where it does not in time.
    pub(crate) async fn end(&mut self, within: std::time::Duration) -> io::Result<ExitStatus> {
        if let Ok(ended) = tokio::time::timeout(within, self.child.wait()).await {
            return ended;
        }
        self.kill();
        self.child.wait().await
    }

    fn kill(&self) {
        // INVARIANT: only a child that is not reaped has an id, so no stranger's group is ever hit.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // The only error left is that there is nobody to kill.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
