//! What one agent adds to a gate: checks of its own, whom its holds reach, and how long they may wait.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::approver::{Approver, FnApprover, Hold};
use crate::call::Call;
use crate::gate::hooks::{Authorized, HookAnswer, Hooks, Proposed};
use crate::hold::{Answer, Who};
use crate::verdict::{Life, Verdict};

/// Whom a hold reaches.
#[derive(Clone)]
pub(crate) enum Reach {
    /// Nobody: `unattended` decides.
    Nobody,
    /// Somebody outside: another process, a server's inbox, whoever calls `decide`.
    Elsewhere,
    /// A function of the embedder's.
    Approver(Arc<dyn Approver>),
    /// A channel of the embedder's; whoever reads it calls `decide`.
    Channel(mpsc::UnboundedSender<Hold>),
}

/// How holds are put to people: whom they reach, and how long they may wait at most.
#[derive(Clone)]
pub struct Asks {
    pub(crate) reach: Reach,
    pub(crate) hold_life: Option<Duration>,
}

impl Asks {
    /// The longest a hold may wait, where that is less than the rules say.
    pub fn hold_life(&self) -> Option<Duration> {
        self.hold_life
    }

    /// Whether this process has somebody of its own to ask: an approver function, or a channel.
    pub fn asks_here(&self) -> bool {
        match self.reach {
            Reach::Nobody | Reach::Elsewhere => false,
            Reach::Approver(_) | Reach::Channel(_) => true,
        }
    }

    /// Shortens the life a hold would have, never lengthens it.
    pub(crate) fn cap(&self, mut verdict: Verdict) -> Verdict {
        let Some(most) = self.hold_life.map(Life::For) else { return verdict };
        if verdict.terms.life > most {
            let mut terms = (*verdict.terms).clone();
            terms.life = most;
            verdict.terms = Arc::new(terms);
        }
        verdict
    }
}

/// What one agent adds to a gate that several share. It can only tighten: its checks come after the gate's own.
///
/// ```
/// use std::time::Duration;
/// use countersign::gate::{HookAnswer, Scope};
///
/// let scope = Scope::new()
///     .before_tool(|proposed| async move {
///         Ok(if proposed.tool.name.starts_with("drop_") { HookAnswer::Refuse("never".into()) } else { HookAnswer::Pass })
///     })
///     .hold_life(Duration::from_secs(60));
/// # let _ = scope;
/// ```
#[derive(Clone, Default)]
pub struct Scope {
    pub(crate) hooks: Hooks,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) hold_life: Option<Duration>,
}

impl Scope {
    /// Adds nothing.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// A check before judging, in the order added: it may pass, rewrite, refuse or raise to ask. An error refuses.
    #[must_use]
    pub fn before_tool<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HookAnswer, String>> + Send + 'static,
    {
        self.hooks.add_before(hook);
        self
    }

    /// A programmatic gate after the hooks: it may pass or deny.
    #[must_use]
    pub fn authorizer<F, Fut>(mut self, authorizer: F) -> Self
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Authorized, String>> + Send + 'static,
    {
        self.hooks.add_authorizer(authorizer);
        self
    }

    /// Is told how each call ended, once: by whichever step of the agent's side finds it ended first.
    #[must_use]
    pub fn after_tool<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Arc<Call>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.hooks.add_after(hook);
        self
    }

    /// A function that is asked about each hold, instead of whom the gate asks. Its answers are a program's.
    #[must_use]
    pub fn approver<F, Fut>(self, ask: F) -> Self
    where
        F: Fn(Hold) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, String>> + Send + 'static,
    {
        self.approver_as(FnApprover::new(Who::program("program:approver"), ask))
    }

    /// Somebody who is asked about each hold, answering under a name of their own.
    #[must_use]
    pub fn approver_as(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// The longest a hold may wait: the smaller of this and what the rules say counts.
    #[must_use]
    pub fn hold_life(mut self, life: Duration) -> Self {
        self.hold_life = Some(life);
        self
    }

    /// Whether it has somebody of its own to ask.
    pub fn has_approver(&self) -> bool {
        self.approver.is_some()
    }
}
