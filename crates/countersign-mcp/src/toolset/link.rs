//! Keeps a server connected: lists its tools, lists them anew when they change, and connects again when it is gone.

use std::sync::Arc;
use std::time::Duration;

use countersign::Gate;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, Implementation, ListToolsRequest, PaginatedRequestParams,
    ProtocolVersion, ServerResult, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer, RunningService,
    Subscription,
};
use rmcp::{ClientHandler, RoleClient, ServiceError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::catalogue::Catalogue;
use super::error::{ConnectError, Trouble};
use super::line::Other;
use super::server::Way;
use super::wire::Seat;
use crate::limits;

/// Keeps the connection for as long as it lives.
pub(super) struct Link {
    seat: Seat,
    listings: watch::Receiver<u64>,
    _keeper: AbortOnDropHandle<()>,
}

impl Link {
    /// Ends when the tools were listed once more than when this was called.
    pub(super) fn listed_anew(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut listings = self.listings.clone();
        listings.mark_unchanged();
        async move {
            // With nobody left to list, there is nothing to wait for.
            let _ = listings.changed().await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The task that is aborted may take a moment to let go; the program ends now.
        self.seat.clear();
    }
}

/// Keeps one server connected.
pub(super) struct Keeper {
    pub(super) server: Arc<str>,
    pub(super) way: Way,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) gate: Gate,
    pub(super) other: watch::Sender<Other>,
    /// The rounds that callers found broken.
    pub(super) broken: watch::Receiver<u64>,
    pub(super) seat: Seat,
    pub(super) listings: watch::Sender<u64>,
}

impl Keeper {
    /// Connects for the first time, so that what goes wrong can be told, and then stays in the background.
    pub(super) async fn start(self) -> Result<Link, ConnectError> {
        let connection = self.connect(1).await?;
        let (seat, listings) = (self.seat.clone(), self.listings.subscribe());
        let keeper = AbortOnDropHandle::new(tokio::spawn(self.keep(connection)));
        Ok(Link { seat, listings, _keeper: keeper })
    }

    async fn keep(self, mut connection: Connection) {
        let mut wait = limits::BACK_OFF_FIRST;
        let mut round = 1;
        loop {
            let since = Instant::now();
            let why = self.stay(connection, round).await;
            self.other.send_replace(Other::Nobody(why));
            self.seat.clear();
            if since.elapsed() > limits::STAYED {
                wait = limits::BACK_OFF_FIRST;
            }
            round += 1;
            connection = loop {
                tokio::time::sleep(wait).await;
                wait = next_wait(wait);
                match self.connect(round).await {
                    Ok(connection) => break connection,
                    Err(error) => {
                        tracing::warn!("{error}");
                        self.other.send_replace(Other::Nobody(error.to_string().into()));
                    }
                };
            };
        }
    }

    /// Connects, lists, and only then lets calls through: what a server offers may have changed while it was gone.
    async fn connect(&self, round: u64) -> Result<Connection, ConnectError> {
        let begun = tokio::time::timeout(limits::CONNECT_WITHIN, self.begin()).await;
        let trouble = match begun {
            Ok(Ok(connection)) => {
                self.other.send_replace(Other::There { peer: connection.service.peer().clone(), round });
                return Ok(connection);
            }
            Ok(Err(Stopped::Start(error))) => return Err(error),
            Ok(Err(Stopped::Trouble(trouble))) => trouble,
            Ok(Err(Stopped::Older)) => Trouble::Spoke("it speaks no revision of MCP that we do".to_owned()),
            Err(_) => Trouble::Silent,
        };
        Err(trouble.told(Arc::clone(&self.server), self.seat.end().await))
    }

    async fn begin(&self) -> Result<Connection, Stopped> {
        let changed = Arc::new(Notify::new());
        let newest =
            ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
        let service = match self.greet(&changed, newest).await {
            // It answers the question for its versions, and all of them want the handshake.
            Err(Stopped::Older) => self.greet(&changed, ClientLifecycleMode::Initialize).await?,
            greeted => greeted?,
        };
        let subscription = subscribe(service.peer()).await;
        let connection = Connection { service, changed, subscription };
        self.list(connection.service.peer()).await.map_err(Trouble::from)?;
        Ok(connection)
    }

    async fn greet(&self, changed: &Arc<Notify>, lifecycle: ClientLifecycleMode) -> Result<Service, Stopped> {
        let ears = Ears { changed: Arc::clone(changed) };
        let greeted = match &self.way {
            Way::Program(program) => {
                let pipes = program.start(&self.server, &self.seat).map_err(Stopped::Start)?;
                ears.serve_with_lifecycle(pipes, lifecycle).await
            }
            Way::Address(address) => {
                let transport = address.transport(&self.server).map_err(Stopped::Start)?;
                ears.serve_with_lifecycle(transport, lifecycle).await
            }
        };
        greeted.map_err(|error| match error {
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => Stopped::Older,
            error => Stopped::Trouble(error.into()),
        })
    }

    /// Stays with a connection until it is gone, and says why it is.
    async fn stay(&self, connection: Connection, round: u64) -> Arc<str> {
        let Connection { service, changed, mut subscription } = connection;
        let peer = service.peer().clone();
        let mut broken = self.broken.clone();
        let gone = service.waiting();
        tokio::pin!(gone);
        loop {
            tokio::select! {
                _ = &mut gone => return "the server went away".into(),
                // Callers say only that a round is broken; the last word on which one is theirs.
                _ = broken.wait_for(|broken| *broken >= round) => return "the server could not be reached".into(),
                told = next(&mut subscription) => if !told {
                    return "the server stopped telling about its tools".into();
                },
                () = changed.notified() => {}
                // Somebody may have accepted what was left out.
                () = tokio::time::sleep(limits::LOOK_AGAIN), if self.catalogue.waits() => {}
            }
            if let Err(error) = self.list(&peer).await {
                return format!("the server could not list its tools: {error}").into();
            }
        }
    }

    async fn list(&self, peer: &Peer<RoleClient>) -> Result<(), ServiceError> {
        let tools = list(peer).await?;
        self.catalogue.take_over(tools, &self.gate).await;
        self.listings.send_modify(|listings| *listings += 1);
        Ok(())
    }
}

fn next_wait(wait: Duration) -> Duration {
    (wait * 2).min(limits::BACK_OFF_MOST)
}

/// Why a connection did not come about.
enum Stopped {
    Start(ConnectError),
    Trouble(Trouble),
    /// It speaks only revisions with a handshake.
    Older,
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        Stopped::Trouble(trouble)
    }
}

type Service = RunningService<RoleClient, Ears>;

struct Connection {
    service: Service,
    changed: Arc<Notify>,
    subscription: Option<Subscription>,
}

/// Hears that tools changed, in the handshake era. Everything else a server asks of a client is declined.
struct Ears {
    changed: Arc<Notify>,
}

impl ClientHandler for Ears {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("countersign", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

/// Asks to be told when tools change, where a server of the era without a handshake says that it does.
async fn subscribe(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if !tells || info.protocol_version < ProtocolVersion::NO_INITIALIZE {
        return None;
    }
    peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await.ok()
}

/// Waits for a word that tools changed; false when there will be none.
async fn next(subscription: &mut Option<Subscription>) -> bool {
    match subscription {
        Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
        None => std::future::pending().await,
    }
}

/// Every page of the listing, past any cache.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, ServiceError> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..limits::LIST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let request = ListToolsRequest { params: Some(params), ..ListToolsRequest::default() };
        let asked = peer.send_request(ClientRequest::ListToolsRequest(request));
        let answer = tokio::time::timeout(limits::LIST_WITHIN, asked).await;
        let answer = answer.unwrap_or(Err(ServiceError::Timeout { timeout: limits::LIST_WITHIN }))?;
        let ServerResult::ListToolsResult(page) = answer else { return Err(ServiceError::UnexpectedResponse) };
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() > limits::TOOLS_PER_SERVER {
            break;
        }
    }
    Ok(tools)
}
