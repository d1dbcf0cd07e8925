//! The permit: proof that one exact call may run, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::call::Call;
use crate::gate::{Gate, GateError};
use crate::hold::{Answer, Decision, HoldState};
use crate::id::{CallId, HoldId};
use crate::json::{Bounds, Json};
use crate::place::Place;
use crate::refusal::{Refusal, RefusalKind};
use crate::tool::Definition;
use crate::transition::Rejection;

/// Proof that one exact call may run, once. Only the gate makes one; running consumes it.
///
/// It is consumed by running:
///
/// ```no_run
/// fn once(permit: countersign::Permit) -> countersign::Running {
///     permit.start()
/// }
/// ```
///
/// It cannot be made outside the gate:
///
/// ```compile_fail,E0451
/// fn forge(call: std::sync::Arc<countersign::Call>, gate: countersign::Gate) -> countersign::Permit {
///     countersign::Permit { call, gate, fence: 1, since: todo!() }
/// }
/// ```
///
/// nor copied:
///
/// ```compile_fail,E0599
/// fn twice(permit: countersign::Permit) -> (countersign::Permit, countersign::Permit) {
///     (permit.clone(), permit)
/// }
/// ```
///
/// nor used twice:
///
/// ```compile_fail,E0382
/// fn again(permit: countersign::Permit) {
///     let first = permit.start();
///     let second = permit.start();
/// }
/// ```
///
/// and without one there is no [`Running`], so no tool runs:
///
/// ```compile_fail,E0451
/// fn forge(call: std::sync::Arc<countersign::Call>, gate: countersign::Gate) -> countersign::Running {
///     countersign::Running { call, gate, fence: 1, unasked: Default::default() }
/// }
/// ```
// B9: the examples above that must not compile are its tests.
#[must_use = "a permit that is dropped is a call that never ran, and will be in doubt when its lease ends"]
pub struct Permit {
    call: Arc<Call>,
    gate: Gate,
    fence: u64,
    since: Since,
}

/// Since when a claim counts, by the clock of whoever runs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// Since it was asked for: it began no earlier.
    Asked(Instant),
    /// Since some time ago: it was made before, and is only handed over again.
    Before,
}

impl Since {
    /// A claim that is asked for now.
    pub(crate) fn now() -> Since {
        Since::Asked(Instant::now())
    }
}

impl Permit {
    /// Re-checks the digest and makes the permit.
    ///
    /// SECURITY: the bytes in hand are hashed again here, after the claim and right before the run. A store, a wrapper
    /// or a wire that hands over other bytes than were approved gets no permit.
    pub(crate) fn checked(call: Arc<Call>, gate: Gate, since: Since) -> Result<Permit, Refusal> {
        let arguments =
            crate::digest::argument_digest(&call.facts.tool, call.definition.as_ref(), &call.facts.arguments);
        if arguments != call.argument_digest || call.compute_digest() != call.digest {
            return Err(tampered());
        }
        let fence = call.lease.as_ref().map(|lease| lease.fence).ok_or_else(tampered)?;
        Ok(Permit { call, gate, fence, since })
    }

    /// The call it is for.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// How long the claim holds without being renewed, by the clock of whoever gave it.
    pub(crate) fn lease(&self) -> Duration {
        self.call.lease.as_ref().map_or(Duration::ZERO, |lease| self.call.updated_at.until(lease.until))
    }

    /// Since when it counts.
    pub(crate) fn since(&self) -> Since {
        self.since
    }

    /// Whether this is the tool that was judged: the same name, and the same definition where one was given.
    pub(crate) fn is_for(&self, definition: &Definition) -> bool {
        let same = self.call.definition.is_none_or(|digest| digest == definition.digest());
        same && self.call.facts.tool == definition.tool
    }

    /// Turns the permit into a run. Whoever does this by hand must begin while the lease lasts, and report the outcome
    /// with [`Gate::finish`].
    pub fn start(self) -> Running {
        Running { call: self.call, gate: self.gate, fence: self.fence, unasked: Arc::default() }
    }
}

/// Why a claim whose bytes are not the ones that were approved comes to nothing.
pub(crate) fn tampered() -> Refusal {
    Refusal::new(RefusalKind::Error).because("the claimed call does not match its digest")
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({})", self.call.id)
    }
}

/// A call in the hands of its tool: the arguments that were approved, and a way to ask once more.
pub struct Running {
    call: Arc<Call>,
    gate: Gate,
    fence: u64,
    /// Whether there was a question that could not be put to anybody.
    unasked: Arc<AtomicBool>,
}

impl Running {
    /// The arguments: exactly the bytes that were approved.
    pub fn arguments(&self) -> &Json {
        &self.call.facts.arguments
    }

    /// The arguments as a type.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.arguments().read()
    }

    /// Where an argument points, as it was resolved and shown before anybody approved; see [`Tool::places`].
    ///
    /// [`Tool::places`]: crate::tool::Tool::places
    pub fn place(&self, field: &str) -> Option<&Place> {
        self.call.facts.places.get(field)
    }

    /// The call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The fence of this attempt.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// A key for targets that drop repeats: the same for every attempt of this call.
    pub fn idempotency_key(&self) -> String {
        self.call.id.to_string()
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.call.lease.as_ref().map_or(1, |lease| lease.attempt)
    }

    /// Who approved the call, if a person or program did.
    pub fn decision(&self) -> Option<&Decision> {
        self.call.approval()
    }

    /// What the approver handed to the tool.
    pub fn payload(&self) -> Option<&Json> {
        match &self.decision()?.answer {
            Answer::Approve { payload, .. } => payload.as_ref(),
            Answer::Deny { .. } | Answer::Respond { .. } => None,
        }
    }

    /// Asks whether to go on, with a hint and something to look at. Always asked, whatever was decided before.
    ///
    /// A no comes back as a refusal made to be propagated with `?`, and so does a question that could not be asked. A tool
    /// that says it succeeded all the same leaves a doubt. Waits for people.
    pub async fn confirm<T: Serialize + Sync>(&self, hint: &str, payload: &T) -> Result<Decision, Refusal> {
        let asked = self.ask(hint, payload).await.inspect_err(|_| self.unasked.store(true, Ordering::SeqCst));
        let (call, hold) = asked?;
        let hold = call.holds.iter().find(|found| found.id == hold);
        let hold = hold.ok_or_else(|| Refusal::new(RefusalKind::Error).because("the hold is gone"))?;
        match (hold.state, hold.decisions.last()) {
            (HoldState::Approved, Some(decision)) if matches!(decision.answer, Answer::Approve { .. }) => {
                Ok(decision.clone())
            }
            (HoldState::Released, _) => {
                Ok(Decision::new(crate::hold::Who::program("unattended"), "unattended", hold.digest, Answer::approve()))
            }
            _ => Err(hold.refusal.clone().unwrap_or_else(|| Refusal::new(RefusalKind::Error))),
        }
    }

    async fn ask<T: Serialize + Sync>(&self, hint: &str, payload: &T) -> Result<(Arc<Call>, HoldId), Refusal> {
        let payload = Json::of(payload).and_then(|json| Json::ingest(json.as_str(), Bounds::PAYLOAD));
        let payload = payload.map_err(|error| Refusal::new(RefusalKind::Error).because(error.to_string()))?;
        self.gate.ask(&self.call, self.fence, hint, payload).await.map_err(|error| refusal_of(&error))
    }

    /// Is set once there was a question that could not be put to anybody.
    pub(crate) fn unasked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unasked)
    }

    /// The call's id.
    pub fn id(&self) -> CallId {
        self.call.id
    }
}

fn refusal_of(error: &GateError) -> Refusal {
    match error {
        GateError::Rejected(Rejection::Limit { .. }) => Refusal::new(RefusalKind::Limit).because(error.to_string()),
        _ => Refusal::new(RefusalKind::Error).because(error.to_string()),
    }
}
