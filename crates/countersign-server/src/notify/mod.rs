//! Tells people and programs what happens: signed webhooks, chat messages and letters.
//!
//! The event log is the outbox. Every receiver has its place in it, kept in the store: an event is passed only after its
//! delivery is written, and a delivery is tried until it arrived, was refused for good, or is old news. So nothing is
//! lost when a process dies, and what is told twice has the same id both times. No message decides anything: it leads to
//! the page where a person can.

mod email;
mod http;
mod log;
mod notice;
mod postman;
mod sign;
mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign::config::NotifyConfig;
use countersign::reach::Forbidden;
use countersign::store::{Failure, Store, StoreError};
use countersign_api::wire::{self, Tested, timestamp};
use futures::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::auth::secret;
use crate::limits;
use postman::Postman;
use target::Target;

pub use log::list;
pub use sign::{KeyError, signing_secret};
pub(crate) use target::Undelivered;

/// Why nobody can be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// An address of `notify:` cannot be read.
    #[error("an address under `notify:` is not a URL")]
    BadUrl,
    /// A mailbox of `notify:` cannot be read.
    #[error("`{0}` under `notify:` is not a mailbox")]
    BadMailbox(String),
    /// A key of `notify:` cannot be read.
    #[error("a `secret` under `notify:` is not `whsec_` and base64")]
    BadSecret,
    /// An address that is not public, and nobody said that it may be used.
    #[error("{0}; `allow_private: true` lets it be")]
    Forbidden(#[from] Forbidden),
    /// A way that this version does not know.
    #[error("an entry under `notify:` has a way that this server does not know")]
    Unknown,
    /// The process has no cryptography to speak TLS with.
    #[error("no provider of cryptography is installed; install one before the server starts")]
    NoProvider,
    /// There is no key to sign with.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<StoreError> for NotifyError {
    fn from(error: StoreError) -> NotifyError {
        NotifyError::Key(error.into())
    }
}

/// Everybody who is told. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Notifier {
    targets: Arc<[Arc<Target>]>,
    base: Arc<str>,
    woken: watch::Sender<u64>,
}

impl Notifier {
    /// Reads who is told. Nobody is connected to yet; `base` is where people look.
    pub(crate) async fn new(configs: &[NotifyConfig], store: &dyn Store, base: &str) -> Result<Notifier, NotifyError> {
        let own = if configs.is_empty() { String::new() } else { signing_secret(store).await? };
        let targets = target::targets(configs, &own)?.into_iter().map(Arc::new).collect();
        Ok(Notifier { targets, base: base.into(), woken: watch::Sender::new(0) })
    }

    /// Begins to tend every receiver, until told to end. When this returns, each has its place in the log.
    pub(crate) async fn begin(
        &self,
        store: &Arc<dyn Store>,
        ending: &watch::Receiver<bool>,
    ) -> Result<JoinSet<()>, NotifyError> {
        let owner: Arc<str> = secret::new_secret("node_").map_err(KeyError::from)?.into();
        let mut working = JoinSet::new();
        for target in self.targets.iter() {
            postman::place(&**store, target).await?;
            let postman = Postman {
                store: Arc::clone(store),
                target: Arc::clone(target),
                base: Arc::clone(&self.base),
                owner: Arc::clone(&owner),
                most: limits::DELIVERIES_PENDING,
                woken: self.woken.subscribe(),
                ending: ending.clone(),
            };
            working.spawn(postman.work());
        }
        Ok(working)
    }

    /// How many deliveries wait, over all receivers that this node tends.
    pub(crate) fn pending(&self) -> usize {
        self.targets.iter().map(|target| target.pending.load(Ordering::Relaxed)).sum()
    }

    /// How many tries of this node to deliver failed.
    pub(crate) fn failures(&self) -> u64 {
        self.targets.iter().map(|target| target.failures.load(Ordering::Relaxed)).sum()
    }

    /// Makes a delivery due now. None, if there is none.
    pub(crate) async fn again(&self, store: &dyn Store, id: &str) -> Result<Option<wire::Delivery>, Failure> {
        let known = |id: &str| self.targets.iter().any(|target| target.id == id);
        let delivery = log::again(store, id, known).await?;
        self.woken.send_modify(|count| *count = count.wrapping_add(1));
        Ok(delivery)
    }

    /// Sends everybody a message that tells only that it arrives. Tried once, and not kept.
    pub(crate) async fn test(&self, store: &dyn Store) -> Result<Vec<Tested>, NotifyError> {
        let now = store.now().await?;
        let notice = notice::Notice::test(timestamp(now), &self.base);
        let id = secret::new_secret("test_").map_err(KeyError::from)?;
        let test = async |target: &Arc<Target>| match target.tell(&id, now, &notice).await {
            Ok(status) => Tested { to: target.label(), delivered: true, status: Some(status), problem: None },
            Err(Undelivered { problem, status, .. }) => {
                Tested { to: target.label(), delivered: false, status, problem: Some(problem) }
            }
        };
        Ok(join_all(self.targets.iter().map(test)).await)
    }
}

/// Sends everybody a message that tells only that it arrives; `base` is where people look.
pub async fn test(configs: &[NotifyConfig], store: &dyn Store, base: &str) -> Result<Vec<Tested>, NotifyError> {
    Notifier::new(configs, store, base).await?.test(store).await
}
