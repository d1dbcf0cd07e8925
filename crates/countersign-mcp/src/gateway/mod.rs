//! The gateway: a drop-in for an MCP server's command that puts the gate in front of `tools/call`.
//!
//! ```text
//! client ──► gateway ──► server        every message passes byte for byte, but for
//!              │                       tools/call   judged, held, claimed; the approved bytes go on
//!              └─► gate, store         tools/list   read, to know and pin definitions; hidden tools left out
//!                                      cancelled    of a call in hand: it detaches
//! ```
//!
//! A held call keeps its client waiting for a while; then it is told to call again, and the identical call joins the
//! open hold. An outcome that nobody got goes to the next identical call, once.

mod call;
mod catalog;
mod frame;
#[cfg(test)]
mod hostile;
mod inbound;
mod link;
mod listing;
mod message;
mod outbound;
mod pins;
mod question;
mod request;
mod retry;
mod upstream;
mod words;

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign::{Gate, Limits, Path};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use pins::{Change, Identity, Pinned, accept, changes, pinned_tools};
pub use upstream::Upstream;

use crate::limits;
use catalog::Catalog;
use frame::{Frame, Lines};
use link::{Link, Pipe};
use listing::Listing;
use message::Id;
use retry::Retries;

/// Something worth telling whoever started the gateway. Never protocol.
pub type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// A gateway in front of one server.
pub struct Gateway {
    gate: Gate,
    server: Arc<str>,
    identity: Identity,
    limits: Limits,
    wait: Duration,
    run_within: Duration,
    notes: Notes,
}

/// Why a gateway ended.
#[derive(Debug)]
pub enum Ended {
    /// The client closed its end, or it was told to stop.
    ClientLeft,
    /// The server ended first.
    ServerLeft(ExitStatus),
    /// The server was stopped because of what it sent.
    ServerStopped(String),
}

impl Gateway {
    /// A gateway that judges calls of `server` with this gate. Holds are decided elsewhere.
    pub fn new(gate: Gate, server: impl Into<Arc<str>>, identity: Identity) -> Gateway {
        Gateway {
            gate,
            server: server.into(),
            identity,
            limits: Limits::default(),
            wait: limits::WAIT,
            run_within: limits::RUN_WITHIN,
            notes: Arc::new(|_| {}),
        }
    }

    /// The bounds of arguments; the same as the gate's.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Gateway {
        self.limits = limits;
        self
    }

    /// How long a held call keeps its client waiting before it is told to call again.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Gateway {
        self.wait = wait;
        self
    }

    /// How long the server may take to answer a call. Then nobody knows whether it ran.
    #[must_use]
    pub fn run_within(mut self, run_within: Duration) -> Gateway {
        self.run_within = run_within;
        self
    }

    /// Where notes go.
    #[must_use]
    pub fn notes(mut self, notes: impl Fn(&str) + Send + Sync + 'static) -> Gateway {
        self.notes = Arc::new(notes);
        self
    }

    /// Serves one client until it or the server leaves, or `stop` resolves.
    ///
    /// An error means that the store could not be read before anything began.
    pub async fn serve<R, W>(
        self,
        (input, output): (R, W),
        upstream: Upstream,
        stop: impl Future<Output = ()>,
    ) -> io::Result<Ended>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let Upstream { stdin, stdout, stderr, mut process } = upstream;
        let core = Arc::new(Core::new(self, Box::new(output), Link::new(stdin)));
        core.retries.inherit(&core).await.map_err(io::Error::other)?;
        tokio::spawn(Arc::clone(&core).tell(stderr));
        let lister = tokio::spawn(Arc::clone(&core).keep_listing());
        let mut server = tokio::spawn(Arc::clone(&core).read_server(stdout));
        let ended = tokio::select! {
            // What the client said before it left is still read from the pipe.
            _ = core.read_client(input) => None,
            () = stop => None,
            left = &mut server => Some(left.unwrap_or_else(|error| outbound::Left::Stopped(error.to_string()))),
        };
        core.leave(ended.is_none(), &mut server).await;
        lister.abort();
        Ok(match ended {
            None => {
                process.end(limits::LEAVE_WITHIN).await?;
                Ended::ClientLeft
            }
            Some(outbound::Left::Ended) => Ended::ServerLeft(process.end(limits::LEAVE_WITHIN).await?),
            Some(outbound::Left::Stopped(why)) => {
                process.end(Duration::ZERO).await?;
                Ended::ServerStopped(why)
            }
        })
    }
}

/// A request in hand, by the client's id.
enum InHand {
    /// A call; cancelling it detaches it.
    Call(CancellationToken),
    /// A listing, under our id.
    List(Id),
}

/// What the two directions share.
struct Core {
    gate: Gate,
    server: Arc<str>,
    identity: Identity,
    limits: Limits,
    wait: Duration,
    run_within: Duration,
    notes: Notes,
    /// Whose calls these are. A session lives as long as the process, so nothing remembered for it lives longer.
    path: Path,
    client: Pipe,
    link: Link,
    catalog: Catalog,
    listing: Listing,
    retries: Retries,
    in_hand: Mutex<HashMap<Id, InHand>>,
    tasks: TaskTracker,
    leaving: CancellationToken,
}

/// How the session of every gateway begins.
pub(crate) const SESSIONS: &str = "gateway:";

/// How the session of every gateway in front of a server begins.
pub(crate) fn session_prefix(server: &str) -> String {
    format!("{SESSIONS}{server}:")
}

impl Core {
    fn new(gateway: Gateway, output: Box<dyn AsyncWrite + Send + Unpin>, link: Link) -> Core {
        let Gateway { gate, server, identity, limits, wait, run_within, notes } = gateway;
        let session = format!("{}{}", session_prefix(&server), uuid::Uuid::now_v7().simple());
        Core {
            path: Path::session(session),
            client: Pipe::new(output),
            link,
            catalog: Catalog::default(),
            listing: Listing::default(),
            retries: Retries::default(),
            in_hand: Mutex::default(),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            gate,
            server,
            identity,
            limits,
            wait,
            run_within,
            notes,
        }
    }

    fn note(&self, text: &str) {
        (self.notes)(text);
    }

    fn in_hand(&self) -> MutexGuard<'_, HashMap<Id, InHand>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Lets running calls end, and everything else go.
    async fn leave(&self, server_is_there: bool, server: &mut tokio::task::JoinHandle<outbound::Left>) {
        self.leaving.cancel();
        self.tasks.close();
        if server_is_there {
            // What runs may still answer: its outcome is worth waiting for.
            let _ = tokio::time::timeout(limits::LEAVE_WITHIN, self.tasks.wait()).await;
            self.link.close().await;
            // Answers to other requests may still be on their way to a client that only closed its own end.
            let _ = tokio::time::timeout(limits::LEAVE_WITHIN, server).await;
        }
        self.link.gone();
        let _ = tokio::time::timeout(limits::LEAVE_WITHIN, self.tasks.wait()).await;
    }
}
