//! The server: an address, or a process that is started in a group of its own and ended with all that it started.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};

use super::post::Address;

/// A connection to an MCP server.
pub struct Upstream {
    pub(crate) kind: Kind,
}

/// What the server is spoken to by.
pub(crate) enum Kind {
    /// A pair of pipes.
    Program {
        stdin: Box<dyn AsyncWrite + Send + Unpin>,
        stdout: Box<dyn AsyncRead + Send + Unpin>,
        stderr: Box<dyn AsyncRead + Send + Unpin>,
        process: Process,
    },
    /// Streamable HTTP.
    Address(Address),
}

impl Upstream {
    /// Starts the server. Its standard error is kept apart: it goes to the gateway's notes.
    pub fn spawn(mut command: Command) -> io::Result<Upstream> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let gone = || io::Error::other("the server has no pipes");
        let kind = Kind::Program {
            stdin: Box::new(child.stdin.take().ok_or_else(gone)?),
            stdout: Box::new(child.stdout.take().ok_or_else(gone)?),
            stderr: Box::new(child.stderr.take().ok_or_else(gone)?),
            process: Process { child },
        };
        Ok(Upstream { kind })
    }

    /// A server that listens at an address. Nothing is sent before the client says something.
    pub fn at(address: Address) -> Upstream {
        Upstream { kind: Kind::Address(address) }
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
