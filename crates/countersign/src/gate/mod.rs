//! The gate: the one path of a call.
//!
//! `submit → judge → (hold → decide) → claim → run → event`. [`Gate::submit`] never waits for a person and
//! [`Gate::wait`] is the only step that does; "ask and block" is the two in sequence, "pause now, resume after a
//! restart" the same two in different processes.

mod announce;
mod backend;
mod bounded;
mod builder;
mod here;
mod hooks;
mod local;
mod novelty;
mod operate;
mod preview;
mod proposal;
mod scope;
mod sweep;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;

pub use backend::{Backend, Defined, Submitted};
pub(crate) use bounded::within;
pub use builder::{BuildError, GateBuilder};
pub use hooks::{Authorized, Checked, HookAnswer, Proposed};
pub use local::Decided;
pub use preview::{Counted, Example, GrantPreview};
pub use proposal::Proposal;
pub use scope::{Asks, Scope};

use crate::call::{Call, CallState, Outcome};
use crate::digest::DefinitionDigest;
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::limits::{self, Limits};
use crate::permit::{Permit, Since, tampered};
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{Claimant, Failure, Op, Store, StoreError};
use crate::tool::{Tool, ToolError, Verified};
use crate::transition::Rejection;
use hooks::Hooks;
use local::Local;
use scope::Reach;

/// Why the gate could not do its job. A refusal is no error: it is a state of the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The rules of holds and claims say no; nothing changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store failed; what was asked for may or may not be written. Nothing was run because of it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name or text is too long or empty.
    #[error("{0}")]
    BadInput(String),
    /// Edited arguments do not fit the tool.
    #[error("the edited arguments are not valid: {0}")]
    BadEdit(String),
    /// The policy cannot judge a tool.
    #[error("the policy cannot judge `{tool}`: {why}")]
    NotAdmitted {
        /// The tool.
        tool: String,
        /// Why.
        why: String,
    },
    /// A new policy is broken; the last good one stays in force.
    #[error("the policy is broken and the last good one stays in force:\n{0}")]
    BrokenPolicy(String),
    /// Only a gate that has policy and store itself does this; on a remote one it is done at the server.
    #[error("a remote gate cannot {0}: that is done where its policy and its people are")]
    Remote(&'static str),
    /// The server behind a remote gate does not answer; what was asked for may or may not be done. Nothing was run.
    #[error("the server behind the gate cannot be reached: {0}")]
    Unreachable(String),
    /// The server behind a remote gate will not serve this one.
    #[error("the server behind the gate refuses: {0}")]
    Refused(String),
}

impl From<Failure> for GateError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(rejection) => GateError::Rejected(rejection),
            Failure::Store(error) => GateError::Store(error),
        }
    }
}

/// What came of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// The call may run, once.
    Permit(Permit),
    /// It may not, or it ran before: the call says which, with its refusal or its stored outcome.
    Not(Arc<Call>),
}

/// In whose name a gate claims.
#[derive(Clone)]
enum Owner {
    /// An executor that makes many claims.
    Executor(Arc<str>),
    /// One claim alone: made again under its name, it is the same claim.
    Claim(Arc<str>),
}

/// Judges, holds, permits and records calls. Cheap to clone; all clones are the same gate.
///
/// Behind it stands a [`Backend`]: policy and store of this process, or a server that has them.
#[derive(Clone)]
pub struct Gate {
    backend: Arc<dyn Backend>,
    /// The same, where it is in this process.
    local: Option<Arc<Local>>,
    limits: Arc<Limits>,
    hooks: Arc<Hooks>,
    asks: Arc<Asks>,
    owner: Owner,
    lease: Duration,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.local {
            Some(local) => write!(f, "Gate({}, policy {})", self.owner.name(), local.policy.load().version()),
            None => write!(f, "Gate({}, remote)", self.owner.name()),
        }
    }
}

impl Gate {
    /// Begins a gate.
    pub fn builder() -> GateBuilder {
        GateBuilder::default()
    }

    /// A gate over another backend than a policy and store of this process. People decide where that one is.
    pub fn over(backend: Arc<dyn Backend>) -> Gate {
        let limits = Limits::default();
        Gate {
            backend,
            local: None,
            lease: limits.lease(),
            limits: Arc::new(limits),
            hooks: Arc::default(),
            asks: Arc::new(Asks { reach: Reach::Elsewhere, hold_life: None }),
            owner: Owner::Executor(builder::this_process()),
        }
    }

    /// The same gate as one agent sees it: with checks of its own after the gate's, and perhaps an approver of its own.
    pub fn scoped(&self, scope: &Scope) -> Gate {
        let reach = match &scope.approver {
            Some(approver) => Reach::Approver(Arc::clone(approver)),
            None => self.asks.reach.clone(),
        };
        let hold_life = self.asks.hold_life.into_iter().chain(scope.hold_life).min();
        let hooks = Arc::new(self.hooks.then(&scope.hooks));
        Gate { hooks, asks: Arc::new(Asks { reach, hold_life }), ..self.clone() }
    }

    /// The same gate, asking whom another one asks.
    pub fn asking_like(&self, other: &Gate) -> Gate {
        Gate { asks: Arc::clone(&other.asks), ..self.clone() }
    }

    /// The same gate for one claim of an executor elsewhere, under a name that no other claim has.
    ///
    /// An executor whose answer was lost asks again under that name and is given its permit again, for the same fence.
    /// SECURITY: whoever hands out permits by this must pass on names that executors draw at random, claim by claim:
    /// two executors with one name would both run.
    pub fn claiming_as(&self, name: impl Into<Arc<str>>) -> Gate {
        Gate { owner: Owner::Claim(name.into()), ..self.clone() }
    }

    /// Whether two gates share policy and store, whatever their scopes.
    pub fn is_same(&self, other: &Gate) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    /// Whether a server stands behind this gate, and not a policy and store of this process.
    pub fn is_remote(&self) -> bool {
        self.local.is_none()
    }

    /// Policy and store, where they are here.
    fn local(&self, what: &'static str) -> Result<&Arc<Local>, GateError> {
        self.local.as_ref().ok_or(GateError::Remote(what))
    }

    /// Takes a call the whole way, waiting for people where they are asked: the blocking style.
    ///
    /// The state of the returned call says how it ended. An error means that we could not do our job.
    pub async fn call(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        match self.submit_and_claim(tool, proposal).await? {
            Claimed::Permit(permit) => self.run(permit, tool).await,
            Claimed::Not(call) => self.resume(tool, call.id).await,
        }
    }

    /// Goes on with a submitted call, from wherever it stands: waits, claims, runs. After a restart, too.
    pub async fn resume(&self, tool: &dyn Tool, id: CallId) -> Result<Arc<Call>, GateError> {
        let call = self.wait(id).await?;
        self.take_up(tool, call).await
    }

    /// Goes on with a call as it was just read, without waiting for people: claims and runs it, where it may run.
    pub async fn take_up(&self, tool: &dyn Tool, call: Arc<Call>) -> Result<Arc<Call>, GateError> {
        match self.claim_when_not_halted(tool, call).await? {
            Claimed::Permit(permit) => self.run(permit, tool).await,
            Claimed::Not(call) => Ok(call),
        }
    }

    /// Every step of the agent's side that may find a call ended comes by here. Another executor may have it: then
    /// nothing has ended yet, and whoever runs it tells the hooks.
    async fn told(&self, call: Arc<Call>) -> Arc<Call> {
        self.hooks.after(&call, &**self.store()).await;
        call
    }

    /// Proposes a call: checks it, freezes its bytes, judges it. Never waits for a person.
    pub async fn submit(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        let definition = &tool.definition();
        let checked = self.hooks.check(tool, definition, proposal, &self.limits).await?;
        self.propose(Some(Defined { tool, definition }), &checked).await
    }

    async fn propose(&self, defined: Option<Defined<'_>>, checked: &Checked) -> Result<Arc<Call>, GateError> {
        let submitted = self.backend.submit(&self.asks, defined, checked, None).await?;
        Ok(self.told(submitted.call).await)
    }

    /// Proposes a call and, where it is allowed, claims it in the same transaction: one write instead of two.
    ///
    /// A call that waits for people, was submitted before, or cannot be claimed just now is not claimed.
    pub async fn submit_and_claim(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Claimed, GateError> {
        let definition = &tool.definition();
        let checked = self.hooks.check(tool, definition, proposal, &self.limits).await?;
        let claimant = self.claimant(Some(definition.digest()));
        let (defined, since) = (Some(Defined { tool, definition }), Since::now());
        self.permit_first(self.backend.submit(&self.asks, defined, &checked, Some(claimant)).await?, since).await
    }

    /// Records a call that the agent's runtime does not let through: refused before any rule is asked, and nobody is.
    pub async fn refuse(&self, tool: &dyn Tool, proposal: Proposal, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        let definition = &tool.definition();
        let refused = self.refused(proposal, refusal)?;
        self.propose(Some(Defined { tool, definition }), &refused).await
    }

    /// Records such a call of a tool whose definition nobody gave.
    pub async fn refuse_undefined(&self, proposal: Proposal, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        let refused = self.refused(proposal, refusal)?;
        self.propose(None, &refused).await
    }

    /// Records a call to a tool that does not exist: refused, nobody is asked.
    pub async fn refuse_unknown(&self, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        proposal.check_names()?;
        let refusal = Refusal::new(RefusalKind::UnknownTool).because(format!("there is no tool `{}`", proposal.tool));
        let refused = Checked::refused(proposal, Json::empty(), refusal);
        self.propose(None, &refused).await
    }

    fn refused(&self, proposal: Proposal, refusal: Refusal) -> Result<Checked, GateError> {
        proposal.check_names()?;
        let arguments = hooks::parse(&proposal, &self.limits).unwrap_or_else(|_| Json::empty());
        Ok(Checked::refused(proposal, arguments, refusal))
    }

    /// Proposes a call of a tool that runs elsewhere and whose definition nobody gave. Judged by the policy alone.
    pub async fn submit_undefined(&self, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        let checked = self.undefined(proposal)?;
        self.propose(None, &checked).await
    }

    /// Proposes such a call and, where it is allowed, claims it as [`Gate::submit_and_claim`] does.
    pub async fn submit_undefined_and_claim(&self, proposal: Proposal) -> Result<Claimed, GateError> {
        let checked = self.undefined(proposal)?;
        let since = Since::now();
        let submitted = self.backend.submit(&self.asks, None, &checked, Some(self.claimant(None))).await?;
        self.permit_first(submitted, since).await
    }

    fn undefined(&self, proposal: Proposal) -> Result<Checked, GateError> {
        proposal.check_names()?;
        Ok(match hooks::parse(&proposal, &self.limits) {
            Ok(arguments) => Checked::passed(proposal, arguments),
            Err(refusal) => Checked::refused(proposal, Json::empty(), refusal),
        })
    }

    /// Waits until a call no longer waits for people. Asks those whom this gate can ask, if it has not yet.
    pub async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        let call = match self.local.as_ref().filter(|_| self.asks.asks_here()) {
            Some(local) => local.wait_asking(&self.asks, id).await?,
            None => self.backend.wait(id).await?,
        };
        Ok(self.told(call).await)
    }

    /// Reads a call.
    pub async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.backend.get(id).await
    }

    /// Takes a call to run it. Durable before it returns; a call is claimed once.
    pub async fn claim(&self, id: CallId, definition: Option<DefinitionDigest>) -> Result<Claimed, GateError> {
        let since = Since::now();
        match self.backend.claim(id, self.claimant(definition)).await {
            Ok(call) => self.permit(call, since).await,
            Err(GateError::Rejected(Rejection::AlreadyClaimed(_) | Rejection::WrongState(_))) => {
                let call = self.get(id).await?;
                if self.owner.has(&call) { self.permit(call, Since::Before).await } else { self.not(call).await }
            }
            Err(error) => Err(error),
        }
    }

    fn claimant(&self, definition: Option<DefinitionDigest>) -> Claimant {
        let (owner, attempts) = (Arc::clone(self.owner.name()), self.limits.attempts);
        Claimant { owner, definition, lease: self.lease, attempts }
    }

    /// SECURITY: a call that was submitted before may be in other hands; only the submission that is new has its claim.
    async fn permit_first(&self, submitted: Submitted, since: Since) -> Result<Claimed, GateError> {
        match submitted.replayed {
            false => self.permit(submitted.call, since).await,
            true if self.owner.has(&submitted.call) => self.permit(submitted.call, Since::Before).await,
            true => self.not(submitted.call).await,
        }
    }

    /// The permit of a call that was just claimed; none where the claim did not come about.
    async fn permit(&self, call: Arc<Call>, since: Since) -> Result<Claimed, GateError> {
        if call.state != CallState::Executing {
            return self.not(call).await;
        }
        match Permit::checked(Arc::clone(&call), self.clone(), since) {
            Ok(permit) => Ok(Claimed::Permit(permit)),
            Err(refusal) => self.give_up(&call, refusal).await.map(Claimed::Not),
        }
    }

    async fn not(&self, call: Arc<Call>) -> Result<Claimed, GateError> {
        Ok(Claimed::Not(self.told(call).await))
    }

    /// Ends a claimed call that gets no permit. Nothing of it ran.
    async fn give_up(&self, call: &Call, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        let error = refusal.reason.clone().unwrap_or_default();
        let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
        self.finish(call.id, fence, Outcome::Failed { error, refusal: Some(refusal) }).await
    }

    /// Runs a tool with its permit and records the outcome. The permit is gone afterwards, whatever happens.
    ///
    /// A tool that panics, or whose lease is lost, leaves a doubt rather than a failure: nobody knows what it did.
    /// Nothing runs where the tool is not the permit's, or where the lease is over before the run begins.
    pub async fn run(&self, permit: Permit, tool: &dyn Tool) -> Result<Arc<Call>, GateError> {
        let (id, lease) = (permit.call().id, permit.lease().min(self.lease).max(limits::LEAST_LEASE));
        let begun = match permit.is_for(&tool.definition()) {
            true => self.in_time(&permit, lease).await,
            false => Err(Refusal::new(RefusalKind::Error).because("the permit is for another tool")),
        };
        let since = match begun {
            Ok(since) => since,
            Err(refusal) => return self.standing(id, self.give_up(permit.call(), refusal).await).await,
        };
        let running = permit.start();
        let (fence, unasked) = (running.fence(), running.unasked());
        let body = AssertUnwindSafe(tool.run(running)).catch_unwind();
        let mut outcome = tokio::select! {
            // A tool that answers at once needs no timer for its lease.
            biased;
            ended = body => outcome_of(ended),
            why = self.keep_lease(id, fence, lease, since) => Outcome::MayHaveApplied { why },
        };
        if matches!(outcome, Outcome::Succeeded { .. }) && unasked.load(Ordering::SeqCst) {
            let why = "the tool went on after a question of its own that could not be asked".to_owned();
            outcome = Outcome::MayHaveApplied { why };
        }
        self.standing(id, self.finish(id, fence, outcome).await).await
    }

    /// What stands after a run was reported. A lease may have run out meanwhile: then the call is in doubt, or another
    /// attempt has it.
    async fn standing(&self, id: CallId, reported: Result<Arc<Call>, GateError>) -> Result<Arc<Call>, GateError> {
        match reported {
            Err(GateError::Rejected(_)) => Ok(self.told(self.get(id).await?).await),
            reported => reported,
        }
    }

    /// Since when the lease of a run that is about to begin counts.
    ///
    /// SECURITY: a permit may have waited, or its claim was answered late. Where a third of the lease may be over it is
    /// renewed first: nothing begins that others may think is over.
    async fn in_time(&self, permit: &Permit, lease: Duration) -> Result<Instant, Refusal> {
        match permit.since() {
            Since::Asked(since) if since.elapsed() < lease / 3 => return Ok(since),
            Since::Asked(_) | Since::Before => {}
        }
        let (call, since) = (permit.call(), Instant::now());
        let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
        let problem = match tokio::time::timeout(lease / 3, self.backend.renew(call.id, fence, lease)).await {
            Ok(Ok(())) => return Ok(since),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store did not answer".to_owned(),
        };
        Err(Refusal::new(RefusalKind::Lapsed).because(format!("the lease was over before the run began: {problem}")))
    }

    /// Records how a run ended.
    pub async fn finish(&self, id: CallId, fence: u64, outcome: Outcome) -> Result<Arc<Call>, GateError> {
        Ok(self.told(self.backend.run(Op::Finish { call: id, fence, outcome }).await?).await)
    }

    /// Asks a verifiable tool about a call in doubt, and settles the doubt by its word.
    pub async fn verify(&self, tool: &dyn Tool, id: CallId) -> Result<Arc<Call>, GateError> {
        let call = self.backend.run(Op::Tick { call: id }).await?;
        let Some(lease) = call.lease.as_ref().filter(|_| call.state == CallState::InDoubt) else { return Ok(call) };
        if call.repeat != crate::call::Repeat::Verifiable {
            return Ok(call);
        }
        let outcome = match tool.verify(&call).await {
            Verified::Applied(output) => Outcome::Succeeded { output },
            Verified::Failed(error) => Outcome::Failed { error, refusal: None },
            Verified::NotApplied => Outcome::Failed { error: "it was not applied".into(), refusal: None },
            Verified::Unknown => return Ok(call),
        };
        self.finish(id, lease.fence, outcome).await
    }

    /// The store behind the gate.
    ///
    /// A remote gate has a view of one: it reads the calls of its credential at the server, and keeps records here.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.backend.store()
    }

    /// Opens a hold from inside a run and waits until it closes.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        self.backend.ask(&self.asks, call, fence, hint, payload).await
    }

    /// A halted claim ends nothing: it is tried again when the halt is lifted, until the call itself lapses.
    async fn claim_when_not_halted(&self, tool: &dyn Tool, call: Arc<Call>) -> Result<Claimed, GateError> {
        if !matches!(call.state, CallState::Allowed | CallState::Approved | CallState::Executing) {
            return Ok(Claimed::Not(call));
        }
        loop {
            match self.claim(call.id, Some(tool.definition().digest())).await {
                Err(GateError::Rejected(Rejection::Halted)) => self.backend.lifted(&call).await?,
                // SECURITY: what was approved is what was claimed, or nothing runs.
                Ok(Claimed::Permit(permit)) if permit.call().digest != call.digest => {
                    return self.give_up(permit.call(), tampered()).await.map(Claimed::Not);
                }
                claimed => return claimed,
            }
        }
    }

    /// Renews the lease at a third of its length; returns, with the reason, when it is lost.
    async fn keep_lease(&self, id: CallId, fence: u64, lease: Duration, since: Instant) -> String {
        let mut lost_at = since + lease;
        let mut next = since + lease / 3;
        loop {
            tokio::time::sleep_until(next).await;
            let asked_at = Instant::now();
            next = asked_at + lease / 3;
            let renew = self.backend.renew(id, fence, lease);
            // A store that does not answer is a store that failed: the run ends before somebody else may think it did.
            let problem = match tokio::time::timeout_at(lost_at - lease / 3, renew).await {
                Ok(Ok(_)) => {
                    lost_at = asked_at + lease;
                    continue;
                }
                Ok(Err(error @ (GateError::Rejected(_) | GateError::Refused(_)))) => {
                    return format!("the lease was lost: {error}");
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the store did not answer".to_owned(),
            };
            if Instant::now() + lease / 3 >= lost_at {
                return format!("the lease could not be renewed: {problem}");
            }
        }
    }
}

type Caught = Result<Result<Json, ToolError>, Box<dyn std::any::Any + Send>>;

fn outcome_of(ended: Caught) -> Outcome {
    match ended {
        Ok(Ok(output)) if output.as_str().len() > limits::OUTPUT_BYTES => Outcome::Succeeded {
            output: Json::string(&format!(
                "[output of {} bytes is over the limit of {} and was not kept]",
                output.as_str().len(),
                limits::OUTPUT_BYTES
            )),
        },
        Ok(Ok(output)) => Outcome::Succeeded { output },
        Ok(Err(ToolError::Failed(error))) => Outcome::Failed { error, refusal: None },
        Ok(Err(ToolError::Refused(refusal))) => {
            Outcome::Failed { error: format!("refused: {}", refusal.kind.as_str()), refusal: Some(refusal) }
        }
        Ok(Err(ToolError::NoAnswer(why))) => Outcome::MayHaveApplied { why },
        Err(_) => Outcome::MayHaveApplied { why: "the tool panicked".into() },
    }
}
