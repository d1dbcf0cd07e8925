//! The gate: the one path of a call.
//!
//! `submit → judge → (hold → decide) → claim → run → event`. [`Gate::submit`] never waits for a person and
//! [`Gate::wait`] is the only step that does; "ask and block" is the two in sequence, "pause now, resume after a
//! restart" the same two in different processes.

mod bounded;
mod builder;
mod hooks;
mod local;
mod novelty;
mod preview;
mod proposal;
mod scope;
mod sweep;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

pub(crate) use bounded::within;
pub use builder::{BuildError, GateBuilder};
pub use hooks::{Authorized, HookAnswer, Proposed};
pub use local::Decided;
pub use preview::{Counted, Example, GrantPreview};
pub use proposal::Proposal;
pub use scope::Scope;

use crate::approver::Hold;
use crate::call::{Call, CallState, Outcome};
use crate::digest::DefinitionDigest;
use crate::event::{Cursor, Draft, Event, EventName};
use crate::grant::{Grant, Remember};
use crate::hold::{Decision, Who};
use crate::id::{CallId, GrantId, HoldId};
use crate::json::Json;
use crate::limits;
use crate::permit::Permit;
use crate::policy::Policy;
use crate::refusal::{Refusal, RefusalKind};
use crate::show::View;
use crate::store::{CallFilter, Claimant, EventFilter, Failure, Op, Store, StoreError};
use crate::time::Time;
use crate::tool::{Tool, ToolError, Verified};
use crate::transition::Rejection;
use hooks::Hooks;
use local::{Local, Submitted};
use scope::{Asks, Reach};

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

/// Judges, holds, permits and records calls. Cheap to clone; all clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    local: Arc<Local>,
    hooks: Arc<Hooks>,
    asks: Arc<Asks>,
    owner: Arc<str>,
    lease: Duration,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({}, policy {})", self.owner, self.policy().version())
    }
}

impl Gate {
    /// Begins a gate.
    pub fn builder() -> GateBuilder {
        GateBuilder::default()
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

    /// Whether two gates share policy and store, whatever their scopes.
    pub fn is_same(&self, other: &Gate) -> bool {
        Arc::ptr_eq(&self.local, &other.local)
    }

    /// Takes a call the whole way, waiting for people where they are asked: the blocking style.
    ///
    /// The state of the returned call says how it ended. An error means that we could not do our job.
    pub async fn call(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        match self.submit_and_claim(tool, proposal).await? {
            Claimed::Permit(permit) => self.run_to_the_end(Claimed::Permit(permit), tool).await,
            Claimed::Not(call) => self.resume(tool, call.id).await,
        }
    }

    /// Goes on with a submitted call, from wherever it stands: waits, claims, runs. After a restart, too.
    pub async fn resume(&self, tool: &dyn Tool, id: CallId) -> Result<Arc<Call>, GateError> {
        let call = self.wait(id).await?;
        let claimed = self.claim_when_not_halted(tool, call).await?;
        self.run_to_the_end(claimed, tool).await
    }

    async fn run_to_the_end(&self, claimed: Claimed, tool: &dyn Tool) -> Result<Arc<Call>, GateError> {
        let ended = match claimed {
            Claimed::Permit(permit) => self.run(permit, tool).await?,
            Claimed::Not(call) => call,
        };
        // Another executor may have it: then nothing has ended yet, and whoever runs it tells the hooks.
        if ended.state != CallState::Executing {
            self.hooks.after(&ended).await;
        }
        Ok(ended)
    }

    /// Proposes a call: checks it, freezes its bytes, judges it. Never waits for a person.
    pub async fn submit(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        let definition = tool.definition();
        let checked = self.hooks.check(tool, &definition, proposal, &self.local.limits).await?;
        Ok(self.local.submit(&self.asks, tool, &definition, checked, None).await?.call)
    }

    /// Proposes a call and, where it is allowed, claims it in the same transaction: one write instead of two.
    ///
    /// A call that waits for people, was submitted before, or cannot be claimed just now is not claimed.
    pub async fn submit_and_claim(&self, tool: &dyn Tool, proposal: Proposal) -> Result<Claimed, GateError> {
        let definition = tool.definition();
        let checked = self.hooks.check(tool, &definition, proposal, &self.local.limits).await?;
        let claimant = self.claimant(Some(definition.digest()));
        let submitted = self.local.submit(&self.asks, tool, &definition, checked, Some(claimant)).await?;
        self.permit_first(submitted).await
    }

    /// Records a call that the agent's runtime does not let through: refused before any rule is asked, and nobody is.
    pub async fn refuse(&self, tool: &dyn Tool, proposal: Proposal, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        proposal.check_names()?;
        let arguments = hooks::parse(&proposal, &self.local.limits).unwrap_or_else(|_| Json::empty());
        let refused = hooks::Checked::refused(proposal, arguments, refusal);
        Ok(self.local.submit(&self.asks, tool, &tool.definition(), refused, None).await?.call)
    }

    /// Records a call to a tool that does not exist: refused, nobody is asked.
    pub async fn refuse_unknown(&self, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        self.local.submit_unknown(&self.asks, proposal).await
    }

    /// Proposes a call of a tool that runs elsewhere and whose definition nobody gave. Judged by the policy alone.
    pub async fn submit_undefined(&self, proposal: Proposal) -> Result<Arc<Call>, GateError> {
        Ok(self.local.submit_undefined(&self.asks, proposal, None).await?.call)
    }

    /// Proposes such a call and, where it is allowed, claims it as [`Gate::submit_and_claim`] does.
    pub async fn submit_undefined_and_claim(&self, proposal: Proposal) -> Result<Claimed, GateError> {
        let submitted = self.local.submit_undefined(&self.asks, proposal, Some(self.claimant(None))).await?;
        self.permit_first(submitted).await
    }

    /// Waits until a call no longer waits for people.
    pub async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.local.wait(id, |call| call.state != CallState::Pending).await
    }

    /// Reads a call.
    pub async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.local.get(id).await
    }

    /// Takes a call to run it. Durable before it returns; a call is claimed once.
    pub async fn claim(&self, id: CallId, definition: Option<DefinitionDigest>) -> Result<Claimed, GateError> {
        let call = match self.local.claim(id, self.claimant(definition)).await {
            Ok(call) => call,
            Err(GateError::Rejected(Rejection::AlreadyClaimed(_) | Rejection::WrongState(_))) => {
                return Ok(Claimed::Not(self.get(id).await?));
            }
            Err(error) => return Err(error),
        };
        self.permit(call).await
    }

    fn claimant(&self, definition: Option<DefinitionDigest>) -> Claimant {
        let attempts = self.local.limits.attempts;
        Claimant { owner: Arc::clone(&self.owner), definition, lease: self.lease, attempts }
    }

    /// SECURITY: a call that was submitted before may be in other hands; only the submission that is new has its claim.
    async fn permit_first(&self, submitted: Submitted) -> Result<Claimed, GateError> {
        match submitted.replayed {
            true => Ok(Claimed::Not(submitted.call)),
            false => self.permit(submitted.call).await,
        }
    }

    /// The permit of a call that was just claimed; none where the claim did not come about.
    async fn permit(&self, call: Arc<Call>) -> Result<Claimed, GateError> {
        if call.state != CallState::Executing {
            return Ok(Claimed::Not(call));
        }
        match Permit::checked(Arc::clone(&call), self.clone()) {
            Ok(permit) => Ok(Claimed::Permit(permit)),
            Err(refusal) => {
                let error = refusal.reason.clone().unwrap_or_default();
                let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
                let outcome = Outcome::Failed { error, refusal: Some(refusal) };
                Ok(Claimed::Not(self.finish(call.id, fence, outcome).await?))
            }
        }
    }

    /// Runs a tool with its permit and records the outcome. The permit is gone afterwards, whatever happens.
    ///
    /// A tool that panics, or whose lease is lost, leaves a doubt rather than a failure: nobody knows what it did.
    pub async fn run(&self, permit: Permit, tool: &dyn Tool) -> Result<Arc<Call>, GateError> {
        let id = permit.call().id;
        let running = permit.start();
        let fence = running.fence();
        let body = AssertUnwindSafe(tool.run(running)).catch_unwind();
        let outcome = tokio::select! {
            ended = body => outcome_of(ended),
            why = self.keep_lease(id, fence) => Outcome::MayHaveApplied { why },
        };
        match self.finish(id, fence, self.local.redact_outcome(outcome)).await {
            // The lease ran out meanwhile: the call is in doubt, or another attempt has it. Say what stands.
            Err(GateError::Rejected(_)) => self.get(id).await,
            finished => finished,
        }
    }

    /// Records how a run ended.
    pub async fn finish(&self, id: CallId, fence: u64, outcome: Outcome) -> Result<Arc<Call>, GateError> {
        self.local.run(Op::Finish { call: id, fence, outcome }).await
    }

    /// Asks a verifiable tool about a call in doubt, and settles the doubt by its word.
    pub async fn verify(&self, tool: &dyn Tool, id: CallId) -> Result<Arc<Call>, GateError> {
        let call = self.local.run(Op::Tick { call: id }).await?;
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

    /// Decides a hold, from anywhere.
    pub async fn decide(&self, hold: HoldId, decision: Decision) -> Result<Decided, GateError> {
        self.decide_among(hold, decision, &[]).await
    }

    /// Decides a hold as somebody whose account names these groups, beside those that the policy names.
    pub async fn decide_among(
        &self,
        hold: HoldId,
        decision: Decision,
        groups: &[Arc<str>],
    ) -> Result<Decided, GateError> {
        self.local.decide(&self.asks, hold, decision, groups).await
    }

    /// Renders a hold for whoever is asked, under the policy in force, and says if its tool is seen for the first time.
    pub async fn view(&self, hold: &Hold, now: Time) -> Result<View, GateError> {
        let view = View::of(&hold.call, hold, now).under(&hold.call, &self.policy());
        let first = self.local.is_first(&hold.call).await?;
        Ok(if first { view.first_seen() } else { view })
    }

    /// Shows a grant before a decision makes it: as a rule, with calls it covers and how many it would have covered.
    ///
    /// Rejects what the decision itself would be rejected for. Reads [`limits::PREVIEW_CALLS`] past calls at most.
    pub async fn preview_grant(&self, hold: HoldId, remember: &Remember) -> Result<GrantPreview, GateError> {
        self.local.preview_grant(&self.asks, hold, None, remember).await
    }

    /// Shows a grant as [`Gate::preview_grant`] does, for a decision that also edits the arguments.
    pub async fn preview_edited_grant(
        &self,
        hold: HoldId,
        arguments: &Json,
        remember: &Remember,
    ) -> Result<GrantPreview, GateError> {
        self.local.preview_grant(&self.asks, hold, Some(arguments), remember).await
    }

    /// Withdraws a call that does not run yet. Withdrawing it again is no error.
    pub async fn cancel(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.local.run(Op::Cancel { call: id, refusal: Refusal::new(RefusalKind::Cancelled) }).await
    }

    /// Withdraws every waiting call the filter names. Returns how many.
    pub async fn cancel_all(&self, filter: CallFilter) -> Result<usize, GateError> {
        self.local.cancel_all(filter, &Refusal::new(RefusalKind::Cancelled)).await
    }

    /// Stops every claim at once, for one agent or for all. Ends nothing.
    pub async fn halt(&self, agent: Option<&str>, by: &str, reason: Option<&str>) -> Result<(), GateError> {
        let op = Op::Halt { agent: agent.map(Arc::from), by: by.into(), reason: reason.map(str::to_owned) };
        self.store().run(op).await?;
        Ok(())
    }

    /// Lets claims go on.
    pub async fn lift(&self, agent: Option<&str>, by: &str) -> Result<(), GateError> {
        self.store().run(Op::Lift { agent: agent.map(Arc::from), by: by.into() }).await?;
        Ok(())
    }

    /// Revokes a grant. It acts at the next claim.
    pub async fn revoke(&self, grant: GrantId, by: Who) -> Result<Grant, GateError> {
        let applied = self.store().run(Op::Revoke { grant, by }).await?;
        applied.grant.map(|grant| *grant).ok_or(GateError::Rejected(Rejection::NotFound("grant")))
    }

    /// Tries a tool against the policy, before it is ever called. One that cannot be judged is not to be offered.
    pub fn admit(&self, tool: &dyn Tool) -> Result<(), GateError> {
        self.local.admit(&tool.definition())
    }

    /// A tool's definition changed: calls that wait for the old one are withdrawn, and its grants are revoked.
    ///
    /// Returns how many calls were withdrawn.
    pub async fn supersede(&self, old: &DefinitionDigest) -> Result<usize, GateError> {
        self.local.supersede(old).await
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.local.policy.load_full()
    }

    /// Puts another policy in force, for the next judging and for every claim.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), GateError> {
        self.local.set_policy(policy).await
    }

    /// Reads a policy and puts it in force. A broken one is recorded and changes nothing.
    pub async fn load_policy(&self, yaml: &str) -> Result<(), GateError> {
        match Policy::from_yaml(yaml) {
            Ok(policy) => self.set_policy(policy).await,
            Err(errors) => {
                self.reject_policy(&errors.to_string()).await?;
                Err(GateError::BrokenPolicy(errors.to_string()))
            }
        }
    }

    /// Records that a policy was broken and the last good one stays.
    pub async fn reject_policy(&self, problem: &str) -> Result<(), GateError> {
        let mut problem = problem.to_owned();
        problem.truncate(problem.floor_char_boundary(limits::NOTE_BYTES));
        let draft = Draft::new(EventName::PolicyRejected).text("problem", &problem);
        self.store().run(Op::Note { chain: crate::call::Chain::system(), draft }).await?;
        Ok(())
    }

    /// Does what time brings to calls nobody waits for: expiry, lapse, doubt. Returns how many moved.
    pub async fn sweep(&self) -> Result<usize, GateError> {
        self.local.sweep().await
    }

    /// Signs the heads of all chains that moved, if the gate has a key.
    pub async fn checkpoint(&self) -> Result<(), GateError> {
        self.local.checkpoint().await
    }

    /// Reads events after a cursor and, where there are none yet, waits for some.
    pub async fn next_events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, GateError> {
        loop {
            let listener = self.store().bell().listen_any();
            let events = self.store().events(after, filter.clone()).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            listener.await;
        }
    }

    /// The store behind the gate.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.local.shared
    }

    /// Opens a hold from inside a run and waits until it closes.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        self.local.ask(&self.asks, call, fence, hint, payload).await
    }

    /// A halted claim ends nothing: it is tried again when the halt is lifted, until the call itself lapses.
    async fn claim_when_not_halted(&self, tool: &dyn Tool, call: Arc<Call>) -> Result<Claimed, GateError> {
        if !matches!(call.state, CallState::Allowed | CallState::Approved | CallState::Executing) {
            return Ok(Claimed::Not(call));
        }
        loop {
            let listener = self.store().bell().listen(call.id);
            match self.claim(call.id, Some(tool.definition().digest())).await {
                Err(GateError::Rejected(Rejection::Halted)) => self.local.until(listener, &call).await?,
                claimed => return claimed,
            }
        }
    }

    /// Renews the lease at a third of its length; returns, with the reason, when it is lost.
    async fn keep_lease(&self, id: CallId, fence: u64) -> String {
        let mut lost_at = tokio::time::Instant::now() + self.lease;
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let asked_at = tokio::time::Instant::now();
            let renew = self.store().run(Op::Renew { call: id, fence, lease: self.lease });
            // A store that does not answer is a store that failed: the run ends before somebody else may think it did.
            let problem = match tokio::time::timeout_at(lost_at - self.lease / 3, renew).await {
                Ok(Ok(_)) => {
                    lost_at = asked_at + self.lease;
                    continue;
                }
                Ok(Err(Failure::Rejected(rejection))) => return format!("the lease was lost: {rejection}"),
                Ok(Err(Failure::Store(error))) => error.to_string(),
                Err(_) => "the store did not answer".to_owned(),
            };
            if tokio::time::Instant::now() + self.lease / 3 >= lost_at {
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
