//! Builds a gate, and refuses to build one that would hang or let things pass unseen.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::approver::{Approver, FnApprover, Hold};
use crate::call::Call;
use crate::gate::bounded::Bounded;
use crate::gate::here::Here;
use crate::gate::hooks::{Authorized, HookAnswer, Hooks, Proposed};
use crate::gate::local::Local;
use crate::gate::scope::{Asks, Reach};
use crate::gate::{Gate, Owner, sweep};
use crate::hold::{Answer, Who};
use crate::limits::Limits;
use crate::memory::MemoryStore;
use crate::policy::Policy;
use crate::redact::Redactor;
use crate::signer::Signer;
use crate::store::Store;
use crate::tool::Tool;

/// Why a gate cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Something may ask and nobody could answer.
    #[error(
        "the policy can ask, and nobody can be asked: give the gate an approver or a channel, say \
         `.decided_elsewhere()`, or set `unattended` in the policy"
    )]
    NobodyToAsk,
    /// A tool cannot be judged.
    #[error(transparent)]
    Tool(#[from] crate::gate::GateError),
}

/// The name of an executor that was given none.
pub(super) fn this_process() -> Arc<str> {
    format!("process-{}", std::process::id()).into()
}

/// Collects the parts of a gate. Unset means strict: ask about everything, refuse where nobody can be asked.
pub struct GateBuilder {
    policy: Policy,
    store: Option<Arc<dyn Store>>,
    reach: Reach,
    limits: Limits,
    redactor: Redactor,
    signer: Option<Arc<Signer>>,
    hooks: Hooks,
    tools: Vec<Arc<dyn Tool>>,
    owner: Arc<str>,
    /// Where it differs from the one of `limits`.
    lease: Option<Duration>,
    sweeper: bool,
    /// Whether it was said that nobody can be asked.
    alone: bool,
}

impl Default for GateBuilder {
    fn default() -> Self {
        GateBuilder {
            policy: Policy::ask_all(),
            store: None,
            reach: Reach::Nobody,
            limits: Limits::default(),
            redactor: Redactor::standard(),
            signer: None,
            hooks: Hooks::default(),
            tools: Vec::new(),
            owner: this_process(),
            lease: None,
            sweeper: true,
            alone: false,
        }
    }
}

impl GateBuilder {
    /// The policy. Without one, everything is asked about.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The store. Without one, everything lives in memory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// A function that is asked about each hold. Its answers are recorded as a program's.
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
        self.reach = Reach::Approver(Arc::new(approver));
        self
    }

    /// A channel that every opened hold goes to; whoever reads it decides with [`Gate::decide`].
    pub fn channel(mut self) -> (Self, mpsc::UnboundedReceiver<Hold>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.reach = Reach::Channel(sender);
        (self, receiver)
    }

    /// Holds are decided by somebody else: another process on the same store, or whoever calls [`Gate::decide`].
    #[must_use]
    pub fn decided_elsewhere(mut self) -> Self {
        self.reach = Reach::Elsewhere;
        self
    }

    /// Nobody can be asked, and that is known: the policy's `unattended` decides, also where it is left at its default.
    #[must_use]
    pub fn unattended(mut self) -> Self {
        self.reach = Reach::Nobody;
        self.alone = true;
        self
    }

    /// Bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What to mask before anything is written.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// The key that signs checkpoints.
    #[must_use]
    pub fn signer(mut self, signer: Arc<Signer>) -> Self {
        self.signer = Some(signer);
        self
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

    /// A programmatic gate after the hooks: it may pass or deny. Of several, all must pass.
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

    /// A tool to try against the policy at once: one that cannot be judged stops the start.
    #[must_use]
    pub fn admits(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The executor's name in claims.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = owner.into();
        self
    }

    /// How long a claim holds without being renewed, in place of the time in the limits.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Leaves expiry of calls nobody waits for to [`Gate::sweep`], called by hand.
    #[must_use]
    pub fn without_sweeper(mut self) -> Self {
        self.sweeper = false;
        self
    }

    /// Builds the gate. Inside a runtime it also starts the sweeper, which ends with the gate.
    pub fn build(self) -> Result<Gate, BuildError> {
        let nobody = matches!(self.reach, Reach::Nobody);
        if nobody && !self.alone && self.policy.can_ask() && !self.policy.unattended_stated() {
            return Err(BuildError::NobodyToAsk);
        }
        let store = Arc::new(Bounded::new(self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()))));
        let lease = self.lease.unwrap_or(self.limits.lease());
        let local = Arc::new(Local {
            shared: Arc::<Bounded>::clone(&store),
            store,
            policy: ArcSwap::from_pointee(self.policy),
            limits: Arc::new(self.limits),
            redactor: self.redactor,
            signer: self.signer,
            known: Mutex::default(),
            noted: Mutex::default(),
            asked: Mutex::default(),
            runs_since_checkpoint: Default::default(),
        });
        for tool in &self.tools {
            local.admit(&tool.definition())?;
        }
        if let (true, Ok(runtime)) = (self.sweeper, tokio::runtime::Handle::try_current()) {
            runtime.spawn(sweep::sweep_while_alive(Arc::downgrade(&local)));
        }
        let asks = Arc::new(Asks { reach: self.reach, hold_life: None });
        let (limits, owner) = (Arc::clone(&local.limits), Owner::Executor(self.owner));
        let backend = Arc::new(Here(Arc::clone(&local)));
        Ok(Gate { backend, local: Some(local), limits, hooks: Arc::new(self.hooks), asks, owner, lease })
    }
}
