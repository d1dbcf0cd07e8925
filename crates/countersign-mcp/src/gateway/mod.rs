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
//! open hold. An outcome that nobody got goes to the next identical call, once. Meanwhile the person at the client is
//! shown where to decide, or is asked there and then, if client and policy have a way for it.
//!
//! Either side may be pipes or streamable HTTP. [`Gateway::serve`] has one client on pipes; a [`face::Face`] has many over
//! HTTP, each conversation with a connection of its own to the server.

mod able;
mod call;
mod caller;
mod catalog;
mod conversation;
pub mod face;
mod follow;
mod forward;
mod frame;
#[cfg(test)]
mod hostile;
mod inbound;
mod link;
mod listing;
mod message;
mod outbound;
pub(crate) mod pins;
mod post;
mod prompt;
mod prompts;
mod question;
mod request;
mod retry;
mod state;
pub mod stdio;
mod streams;
mod task;
mod tongue;
mod upstream;
mod words;

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign::{Gate, GateError, HoldId, Limits, Path};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use pins::{AcceptError, Identity, PinState, Pinned, accept, changes, pinned_after, pinned_tools};
pub use post::{Address, BadAddress};
pub use upstream::Upstream;

use crate::limits;
use able::Able;
use caller::{Caller, Client, Lane};
use catalog::Catalog;
use conversation::Conversation;
use link::{Link, Pipe};
use listing::Listing;
use message::Id;
use post::Budget;
use prompts::Prompts;
use retry::Retries;

/// Something worth telling whoever started the gateway. Never protocol.
pub type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// Where a hold is looked at and decided; none where there is no app to show it.
pub type Links = Arc<dyn Fn(HoldId) -> Option<String> + Send + Sync>;

/// A gateway in front of one server.
pub struct Gateway {
    gate: Gate,
    server: Arc<str>,
    identity: Identity,
    limits: Limits,
    wait: Duration,
    run_within: Duration,
    operator: Arc<str>,
    links: Links,
    notes: Notes,
    pass_unknown: bool,
}

/// Why a gateway ended.
#[derive(Debug)]
pub enum Ended {
    /// The client closed its end, or it was told to stop.
    ClientLeft,
    /// The server ended first; a program tells how.
    ServerLeft(Option<ExitStatus>),
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
            operator: Arc::clone(&Path::default().principal),
            links: Arc::new(|_| None),
            notes: Arc::new(|_| {}),
            pass_unknown: false,
        }
    }

    /// Passes requests by methods that no revision of the protocol has. What the server does by them is not judged.
    #[must_use]
    pub fn pass_unknown(mut self) -> Gateway {
        self.pass_unknown = true;
        self
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

    /// How long the server may take to answer a call. Then nobody knows whether it ran. One at an address may take no
    /// longer for other requests, either.
    #[must_use]
    pub fn run_within(mut self, run_within: Duration) -> Gateway {
        self.run_within = run_within;
        self
    }

    /// Who runs this gateway: the name under which a decision is recorded that a client on pipes makes itself, where
    /// the policy accepts such decisions.
    #[must_use]
    pub fn operator(mut self, operator: impl Into<Arc<str>>) -> Gateway {
        self.operator = operator.into();
        self
    }

    /// Where people look at holds and decide: clients that can offer a link are given it.
    #[must_use]
    pub fn links(mut self, links: impl Fn(HoldId) -> Option<String> + Send + Sync + 'static) -> Gateway {
        self.links = Arc::new(links);
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
        let shared = Shared::open(self).await.map_err(io::Error::other)?;
        let pipe = Arc::new(Pipe::new(Box::new(output)));
        let caller = Caller::Pipe(Arc::clone(&pipe));
        let mut conversation = Conversation::begin(shared, Path::default(), Client::Pipe(pipe), upstream);
        let left = {
            let core = Arc::clone(&conversation.core);
            tokio::select! {
                // What the client said before it left is still read from the pipe.
                () = core.read_client(input, &caller) => None,
                () = stop => None,
                left = conversation.server_left() => Some(left),
            }
        };
        conversation.end(left).await
    }
}

/// A request in hand.
enum InHand {
    /// A call; cancelling it detaches it.
    Call(CancellationToken),
    /// A request that the server knows under this id of ours.
    Asked(Id),
}

/// What all conversations of a gateway share.
struct Shared {
    gate: Gate,
    server: Arc<str>,
    identity: Identity,
    limits: Limits,
    wait: Duration,
    run_within: Duration,
    operator: Arc<str>,
    links: Links,
    notes: Notes,
    pass_unknown: bool,
    /// Held while a listing is compared with its pins.
    seeing: AsyncMutex<()>,
    retries: Retries,
    /// What this gateway is known by to others on the same store.
    name: Arc<str>,
    /// What the answers of servers at an address may take of our memory.
    budget: Arc<Budget>,
    /// How every state that we give to clients begins.
    states: String,
}

impl Shared {
    /// Reads from the store what gateways before this one left there.
    async fn open(gateway: Gateway) -> Result<Arc<Shared>, GateError> {
        let Gateway { gate, server, identity, limits: bounds, wait, run_within, operator, links, notes, pass_unknown } =
            gateway;
        let states = state::prefix(&**gate.store(), &server).await?;
        let (retries, budget) = (Retries::default(), Budget::new(limits::ANSWERS_BYTES));
        let shared = Shared {
            gate,
            server,
            identity,
            limits: bounds,
            wait,
            run_within,
            operator,
            links,
            notes,
            pass_unknown,
            seeing: AsyncMutex::default(),
            retries,
            name: uuid::Uuid::new_v4().simple().to_string().into(),
            budget,
            states,
        };
        shared.retries.inherit(&shared).await?;
        let shared = Arc::new(shared);
        if shared.withdraw_unattended().await? {
            shared.withdraw_later();
        }
        tokio::spawn(Shared::stay_present(Arc::downgrade(&shared)));
        Ok(shared)
    }

    fn note(&self, text: &str) {
        (self.notes)(text);
    }
}

/// What the two directions of one conversation share.
struct Core {
    shared: Arc<Shared>,
    /// Whose calls these are. A session lives as long as the conversation, so nothing remembered for it lives longer.
    path: Path,
    client: Client,
    link: Link,
    catalog: Catalog,
    listing: Listing,
    /// What the client said when it shook hands.
    able: Mutex<Able>,
    prompts: Prompts,
    in_hand: Mutex<HashMap<(Lane, Id), InHand>>,
    tasks: TaskTracker,
    leaving: CancellationToken,
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// How the session of every gateway begins.
pub(crate) const SESSIONS: &str = "gateway:";

/// How the session of every gateway in front of a server begins.
pub(crate) fn session_prefix(server: &str) -> String {
    format!("{SESSIONS}{server}:")
}

impl Core {
    fn new(shared: Arc<Shared>, path: Path, client: Client, link: Link) -> Core {
        let session = format!("{}{}", session_prefix(&shared.server), uuid::Uuid::now_v7().simple());
        Core {
            path: Path { session: Some(session.into()), ..path },
            client,
            link,
            catalog: Catalog::default(),
            listing: Listing::default(),
            able: Mutex::default(),
            prompts: Prompts::default(),
            in_hand: Mutex::default(),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            shared,
        }
    }

    fn able(&self) -> Able {
        *self.able.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn greeted_by(&self, able: Able) {
        *self.able.lock().unwrap_or_else(PoisonError::into_inner) = able;
    }

    fn in_hand(&self) -> MutexGuard<'_, HashMap<(Lane, Id), InHand>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
