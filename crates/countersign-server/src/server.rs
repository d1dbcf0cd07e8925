//! Puts the parts together.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use countersign::config::NotifyConfig;
use countersign::redact::Redactor;
use countersign::signer::Signer;
use countersign::store::StoreError;
use countersign::{Gate, Limits};
use countersign_agent::Agent;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::app::{App, Shared};
use crate::auth::guard;
use crate::limits;
use crate::metrics::{self, Metrics};
use crate::notify::{Notifier, NotifyError};
use crate::rate::Rates;
use crate::routes;
use crate::serve::{self, Door, ListenError, Tls};
use crate::sessions::{Sessions, Supervisor};
use crate::tail::Tail;
use crate::ui::{self, Ui};
use crate::{headers, problem};

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

    /// Takes the address, and begins to follow the store, to drive sessions and to tell what happens.
    pub async fn bind(self) -> Result<Server, StartError> {
        serve::check_address(self.listen, self.tls.is_some())?;
        let bind = |error| ListenError::Bind(self.listen, error);
        let listener = TcpListener::bind(self.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let mut hosts = self.hosts;
        hosts.extend(serve::hosts_of(address));
        let Some(host) = hosts.first().cloned() else { return Err(ListenError::NoHost(address).into()) };
        if let Some(agent) = self.agents.iter().find(|agent| !agent.gate().is_same(&self.gate)) {
            return Err(StartError::OtherGate(Arc::clone(agent.name())));
        }
        let (ending, ended) = watch::channel(false);
        let tail = Tail::begin(self.gate.clone()).await?;
        let (sessions, woken) = Sessions::new(self.gate.clone(), self.agents);
        let supervisor = Supervisor::new(Arc::clone(&sessions), tail.clone(), woken, ended.clone());
        let driving = AbortOnDropHandle::new(tokio::spawn(supervisor.run()));
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{host}");
        let notifier = Notifier::new(&self.notify, &**self.gate.store(), &url).await?;
        let telling = notifier.begin(self.gate.store(), &ended).map_err(NotifyError::from)?;
        let app = App::new(Shared {
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
            metrics: Metrics::default(),
            notifier,
            ending: ended,
        });
        let door = Door::open(listener, self.tls).map_err(bind)?;
        Ok(Server { door, router: router(app), url, address, ending, driving, telling })
    }
}

/// A server that has its address.
pub struct Server {
    door: Door,
    router: Router,
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
        }
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
        let mut telling = self.telling;
        let served = serve::serve(self.door, self.router, end).await;
        // What is being told is told to its end, and seats are given back; a run that does not come to a halt in time is
        // left where it is, as in a crash. Nobody waits for ever.
        let told = async { while telling.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limits::DRAIN_WITHIN, async { tokio::join!(told, self.driving) }).await;
        served
    }
}

/// Every route of the table, behind the checks that bind all of them.
fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in routes::table() {
        router = router.route(route.path, route.handler);
    }
    router
        .fallback(axum::routing::get(ui::serve))
        .method_not_allowed_fallback(async || problem::Refused::new(countersign_api::wire::Code::MethodNotAllowed))
        .layer(DefaultBodyLimit::max(limits::BODY_BYTES))
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .layer(from_fn_with_state(app.clone(), metrics::count))
        .layer(from_fn(headers::headers))
        .with_state(app)
}
