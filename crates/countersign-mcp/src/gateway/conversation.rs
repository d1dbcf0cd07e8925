//! One client's conversation with a connection of its own to the server, from its beginning to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use countersign::Path;
use tokio::io::AsyncRead;
use tokio::task::JoinHandle;

use super::caller::Client;
use super::frame::{Frame, Lines};
use super::link::Link;
use super::outbound::Left;
use super::post::Wire;
use super::upstream::{Kind, Process, Upstream};
use super::{Core, Ended, Shared};
use crate::limits;

/// A conversation that has begun.
pub(super) struct Conversation {
    pub(super) core: Arc<Core>,
    server: JoinHandle<Left>,
    lister: JoinHandle<()>,
    process: Option<Process>,
}

impl Conversation {
    /// Begins to listen to the server.
    pub(super) fn begin(shared: Arc<Shared>, path: Path, client: Client, upstream: Upstream) -> Conversation {
        let (core, server, process) = match upstream.kind {
            Kind::Program { stdin, stdout, stderr, process } => {
                let link = Link::to_pipe(&shared.server, stdin);
                let core = Arc::new(Core::new(shared, path, client, link));
                tokio::spawn(Arc::clone(&core).tell(stderr));
                (Arc::clone(&core), tokio::spawn(core.read_server(stdout)), Some(process))
            }
            Kind::Address(address) => {
                let (wire, heard) = Wire::new(address, Arc::clone(&shared.budget), shared.run_within);
                let link = Link::to_address(&shared.server, wire);
                let core = Arc::new(Core::new(shared, path, client, link));
                (Arc::clone(&core), tokio::spawn(core.hear_address(heard)), None)
            }
        };
        let lister = tokio::spawn(Arc::clone(&core).keep_listing());
        Conversation { core, server, lister, process }
    }

    /// Waits until the server has left, and says why. Only once.
    pub(super) async fn server_left(&mut self) -> Left {
        (&mut self.server).await.unwrap_or_else(|error| Left::Stopped(error.to_string()))
    }

    /// Lets running calls end, and everything else go. `left` says why the server is gone, if it is.
    pub(super) async fn end(mut self, left: Option<Left>) -> io::Result<Ended> {
        self.leave(left.is_none()).await;
        let patience = if matches!(left, Some(Left::Stopped(_))) { Duration::ZERO } else { limits::LEAVE_WITHIN };
        let status = match &mut self.process {
            Some(process) => Some(process.end(patience).await?),
            None => None,
        };
        Ok(match left {
            None => Ended::ClientLeft,
            Some(Left::Ended) => Ended::ServerLeft(status),
            Some(Left::Stopped(why)) => Ended::ServerStopped(why),
        })
    }

    async fn leave(&mut self, server_is_there: bool) {
        let core = &self.core;
        core.leaving.cancel();
        core.tasks.close();
        if server_is_there {
            // What runs may still answer: its outcome is worth waiting for.
            let _ = tokio::time::timeout(limits::LEAVE_WITHIN, core.tasks.wait()).await;
            core.link.close().await;
            // Answers to other requests may still be on their way to a client that only closed its own end.
            let _ = tokio::time::timeout(limits::LEAVE_WITHIN, &mut self.server).await;
        }
        core.link.gone();
        let _ = tokio::time::timeout(limits::LEAVE_WITHIN, core.tasks.wait()).await;
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.lister.abort();
        self.server.abort();
    }
}

impl Core {
    /// Passes on what the server says on its standard error, line by line.
    async fn tell(self: Arc<Self>, stderr: impl AsyncRead + Unpin) {
        let mut lines = Lines::new(stderr, limits::TOLD_BYTES);
        while let Ok(Some(frame)) = lines.next().await {
            match frame {
                Frame::Line(line) => self.note(&format!("[{}] {}", self.server, line.trim_end())),
                Frame::TooLong => self.note(&format!("[{}] (a line too long to be shown)", self.server)),
                Frame::NotText => self.note(&format!("[{}] (a line that is no text)", self.server)),
            }
        }
    }
}
