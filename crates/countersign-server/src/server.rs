//! Puts the parts together.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use countersign::config::NotifyConfig;
use countersign::redact::Redactor;
use countersign::signer::Signer;
use countersign::store::{Failure, StoreError};
use countersign::{Gate, Limits};
use countersign_agent::Agent;
use countersign_mcp::gateway::face::Face;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::app::{App, Shared};
use crate::auth::changes::{self, Changed};
use crate::auth::known::Known;
use crate::limits;
use crate::metrics::Metrics;
use crate::notify::{Notifier, NotifyError};
use crate::rate::Rates;
use crate::seen::Seen;
use crate::serve::{self, Door, ListenError, Tls};
use crate::sessions::{Sessions, Supervisor};
use crate::site::Site;
use crate::tail::Tail;
use crate::ui::Ui;

/// Collects the parts of a server. Unset means strict.
pub struct ServerBuilder {
    gate: Gate,
    listen: SocketAddr,
    hosts: Vec<String>,
    tls: Option<Tls>,
    signer: Option<Arc<Signer>>,
    redactor: Redactor,
    limits: Limits,
    ui: Ui,
    agents: Vec<Agent>,
    notify: Vec<NotifyConfig>,
    faces: Vec<Face>,
    scope: Scope,
    connections: usize,
    tools_as_server: Option<String>,
}

/// What of a server there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All of it.
    Whole,
    /// Only the door to an MCP server; without a token, too, if it is open.
    Gateway { open: bool },
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen there.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An agent's calls would be judged by other rules than the server's.
    #[error("the agent `{0}` stands behind another gate than the server's")]
    OtherGate(Arc<str>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What must be on the record could not be written.
    #[error(transparent)]
    Record(#[from] Failure),
    /// Somebody who is to be told cannot be.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

impl ServerBuilder {
    /// Where to listen. Without it: 127.0.0.1, port 7117.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// A further name, with port, by which the server is reached: `approvals.example.com:443`.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Serves by TLS. Addresses beyond this machine need it.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The key that signs receipts; its public half is at `/v1/keys`.
    #[must_use]
    pub fn signer(mut self, signer: Arc<Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// What to mask in what executors report, beside what the gate masks.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// The bounds the gate was built with.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The web app.
    #[must_use]
    pub fn ui(mut self, ui: Ui) -> Self {
        self.ui = ui;
        self
    }

    /// The agents that clients may begin sessions with. Their tools run in this process, as its user.
    #[must_use]
    pub fn agents(mut self, agents: impl IntoIterator<Item = Agent>) -> Self {
        self.agents.extend(agents);
        self
    }

    /// Who is told what happens. The process must have installed a provider of cryptography.
    #[must_use]
    pub fn notify(mut self, notify: Vec<NotifyConfig>) -> Self {
        self.notify = notify;
        self
    }

    /// The MCP servers that clients reach through here, each at `/mcp/` and its name.
    #[must_use]
    pub fn mcp(mut self, faces: impl IntoIterator<Item = Face>) -> Self {
        self.faces.extend(faces);
        self
    }

    /// Takes callers without a token for whoever started this: all who can reach a loopback address may call.
    #[must_use]
    pub fn open_to_this_machine(mut self) -> Self {
        if let Scope::Gateway { open } = &mut self.scope {
            *open = true;
        }
        self
    }

    /// Says that tools of its agents run as this process's own user, who has the store and the keys, and who wanted that.
    /// It is put on the record and shown to whoever oversees.
    #[must_use]
    pub fn tools_as_server(mut self, by: impl Into<String>) -> Self {
        self.tools_as_server = Some(by.into());
        self
    }

    /// How many connections may be open at once. Without it: [`limits::CONNECTIONS`].
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Takes the address, and begins to follow the store, to drive sessions and to tell what happens.
    pub async fn bind(self) -> Result<Server, StartError> {
        serve::check_address(self.listen, self.tls.is_some())?;
        let open = self.scope == Scope::Gateway { open: true };
        if open && !self.listen.ip().is_loopback() {
            return Err(ListenError::NoToken(self.listen).into());
        }
        let bind = |error| ListenError::Bind(self.listen, error);
        let listener = TcpListener::bind(self.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let mut hosts = self.hosts;
        hosts.extend(serve::hosts_of(address));
        let Some(host) = hosts.first().cloned() else { return Err(ListenError::NoHost(address).into()) };
        if let Some(agent) = self.agents.iter().find(|agent| !agent.gate().is_same(&self.gate)) {
            return Err(StartError::OtherGate(Arc::clone(agent.name())));
        }
        if let Some(by) = &self.tools_as_server {
            changes::tell(&**self.gate.store(), Changed::ToolsAsServer { by }).await?;
        }
        let (ending, ended) = watch::channel(false);
        let metrics = Metrics::default();
        let tail = Tail::begin(self.gate.clone(), Arc::clone(&metrics.log)).await?;
        let (sessions, woken) = Sessions::new(self.gate.clone(), self.agents);
        let driving = match self.scope {
            Scope::Whole => {
                let supervisor = Supervisor::new(Arc::clone(&sessions), tail.clone(), woken, ended.clone());
                tokio::spawn(supervisor.run())
            }
            Scope::Gateway { .. } => tokio::spawn(async {}),
        };
        let driving = AbortOnDropHandle::new(driving);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{host}");
        let notifier = Notifier::new(&self.notify, &**self.gate.store(), &url).await?;
        let telling = notifier.begin(self.gate.store(), &ended).await?;
        let app = App::new(Shared {
            known: Known::new(self.gate.store(), &tail),
            groups: Known::new(self.gate.store(), &tail),
            tail,
            sessions,
            gate: self.gate,
            signer: self.signer,
            redactor: self.redactor,
            rates: Rates::new(self.limits.submits_per_second),
            limits: self.limits,
            hosts,
            tls: self.tls.is_some(),
            ui: self.ui,
            metrics,
            seen: Seen::default(),
            notifier,
            faces: self.faces.into_iter().map(|face| (Arc::clone(face.server()), face)).collect(),
            open,
            tools_as_server: self.tools_as_server.is_some(),
            ending: ended,
        });
        let door = Door::new(listener, self.tls, self.connections);
        let site = match self.scope {
            Scope::Whole => Site::whole(app.clone()),
            Scope::Gateway { .. } => Site::gateway(app.clone()),
        };
        Ok(Server { door, site, app, url, address, ending, driving, telling })
    }
}

/// A server that has its address.
pub struct Server {
    door: Door,
    site: Site,
    app: App,
    url: String,
    address: SocketAddr,
    ending: watch::Sender<bool>,
    /// Drives sessions until it is dropped.
    driving: AbortOnDropHandle<()>,
    telling: JoinSet<()>,
}

impl Server {
    /// Begins a server over a gate. The gate should be built with `decided_elsewhere()`: people decide here.
    pub fn builder(gate: Gate) -> ServerBuilder {
        ServerBuilder {
            gate,
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            hosts: Vec::new(),
            tls: None,
            signer: None,
            redactor: Redactor::standard(),
            limits: Limits::default(),
            ui: Ui::placeholder(),
            agents: Vec::new(),
            notify: Vec::new(),
            faces: Vec::new(),
            scope: Scope::Whole,
            connections: limits::CONNECTIONS,
            tools_as_server: None,
        }
    }

    /// Begins the door to one MCP server, at `/mcp`, and nothing else: no inbox, no API. People decide elsewhere.
    pub fn gateway(face: Face, gate: Gate) -> ServerBuilder {
        ServerBuilder { faces: vec![face], scope: Scope::Gateway { open: false }, ..Server::builder(gate) }
    }

    /// Where it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end` resolves; then no more requests are taken, streams end, open requests finish, and sessions are
    /// left where another server, or the next start, goes on with them.
    pub async fn run(self, end: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        tracing::info!(url = self.url, "the server listens");
        let ending = self.ending;
        let end = async move {
            end.await;
            tracing::info!("the server ends: open requests finish, nothing new is taken");
            let _ = ending.send(true);
        };
        let (mut telling, app) = (self.telling, self.app);
        // Conversations end with the server: whoever waits in one would keep it from ending.
        let hang_up = tokio::spawn(async move {
            app.ended().await;
            futures::future::join_all(app.faces.values().map(Face::close)).await;
        });
        serve::serve(self.door, self.site, end).await;
        // What is being told is told to its end, and seats are given back; a run that does not come to a halt in time is
        // left where it is, as in a crash. Nobody waits for ever.
        let told = async { while telling.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limits::DRAIN_WITHIN, async { tokio::join!(told, self.driving, hang_up) }).await;
        Ok(())
    }
}
