//! What all handlers share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use countersign::hold::Who;
use countersign::redact::Redactor;
use countersign::signer::Signer;
use countersign::{Gate, Limits, Store};
use countersign_mcp::gateway::face::Face;
use tokio::sync::watch;

use crate::auth::Principal;
use crate::auth::known::Known;
use crate::auth::secret::Hash;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::rate::Rates;
use crate::seen::Seen;
use crate::sessions::Sessions;
use crate::tail::Tail;
use crate::ui::Ui;

/// What all handlers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

/// The parts.
pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) signer: Option<Arc<Signer>>,
    pub(crate) redactor: Redactor,
    pub(crate) limits: Limits,
    /// The Host headers this server answers to, with port.
    pub(crate) hosts: Vec<String>,
    /// Whether it is reached by TLS.
    pub(crate) tls: bool,
    pub(crate) ui: Ui,
    pub(crate) rates: Rates,
    pub(crate) metrics: Metrics,
    pub(crate) tail: Tail,
    /// Whose credentials were seen a moment ago, by the hash of the secret.
    pub(crate) known: Known<Hash, Arc<Principal>>,
    /// The groups that accounts were seen to name a moment ago.
    pub(crate) groups: Known<Who, Arc<[Arc<str>]>>,
    pub(crate) seen: Seen,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) notifier: Notifier,
    /// The MCP servers that clients reach through here, by name.
    pub(crate) faces: HashMap<Arc<str>, Face>,
    /// Whether callers without a token are taken for whoever started this.
    pub(crate) open: bool,
    /// Whether tools of its agents run as this process's own user.
    pub(crate) tools_as_server: bool,
    /// Turns true when the server ends.
    pub(crate) ending: watch::Receiver<bool>,
}

impl App {
    /// Shares the parts.
    pub(crate) fn new(shared: Shared) -> App {
        App(Arc::new(shared))
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Shared {
    /// The store behind the gate.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.gate.store()
    }

    /// The origins of our own pages.
    pub(crate) fn origins(&self) -> impl Iterator<Item = String> {
        let scheme = if self.tls { "https" } else { "http" };
        self.hosts.iter().map(move |host| format!("{scheme}://{host}"))
    }

    /// The name of the session cookie. Browsers refuse the prefix without TLS.
    pub(crate) fn cookie_name(&self) -> &'static str {
        if self.tls { "__Host-countersign" } else { "countersign-session" }
    }

    /// Resolves when the server ends.
    pub(crate) async fn ended(&self) {
        let mut ending = self.ending.clone();
        // A sender that is gone is a server that ended.
        let _ = ending.wait_for(|ending| *ending).await;
    }
}
