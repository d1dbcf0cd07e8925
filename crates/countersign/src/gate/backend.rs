//! What stands behind a gate: the policy and store of this process, or a server that has them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::call::Call;
use crate::callers::WhoWaits;
use crate::gate::hooks::Checked;
use crate::gate::scope::Asks;
use crate::gate::{GateError, Owner};
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::store::{Claimant, Op, Store};
use crate::tool::{Definition, NoPreview, Tool, preview};

/// A tool and what it was when its call was checked.
#[derive(Clone, Copy)]
pub struct Defined<'a> {
    /// The tool.
    pub tool: &'a dyn Tool,
    /// Its definition.
    pub definition: &'a Arc<Definition>,
}

impl Defined<'_> {
    /// What to show whoever is asked: the tool's own preview, or what the agent gave along where the tool has none.
    pub async fn payload(&self, arguments: &Json, given: Option<Json>) -> Option<Json> {
        match preview(self.tool, arguments).await {
            Ok(None) => given,
            Ok(shown) => shown,
            // Stops no call; but what the agent gave along must not pass for what the tool would have shown.
            Err(NoPreview) => None,
        }
    }
}

/// A call as its submission left it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The call.
    pub call: Arc<Call>,
    /// Whether it had been submitted before; then somebody else may have claimed it.
    pub replayed: bool,
}

/// The steps of a call that need a policy, a store or people. [`Gate`](crate::Gate) does the rest: it checks what is
/// proposed before, and it alone makes a permit after, once it has computed the digest of what came back.
///
/// A backend gives plain data and is not believed beyond it. Whatever it cannot do it must answer with an error: no
/// answer of its own making ever lets a call run.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Judges a call and writes it down; where a claimant is given and the call is allowed, claims it in the same step.
    ///
    /// Never waits for a person. A lost answer must be asked for again under the same key, or not at all.
    async fn submit(
        &self,
        asks: &Arc<Asks>,
        defined: Option<Defined<'_>>,
        checked: &Checked,
        claim: Option<Claimant>,
    ) -> Result<Submitted, GateError>;

    /// Waits until a call no longer waits for people.
    async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError>;

    /// Takes a call to run it. Durable before it returns; at most one claim of an attempt ever gets it.
    async fn claim(&self, id: CallId, claimant: Claimant) -> Result<Arc<Call>, GateError>;

    /// Waits until a claim that a halt stopped is worth trying again: it was lifted, or the call's own time came.
    async fn lifted(&self, call: &Call) -> Result<(), GateError>;

    /// Opens a hold from inside a run and waits until it closes.
    async fn ask(
        &self,
        asks: &Arc<Asks>,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError>;

    /// Says that a run goes on. A rejection means that the claim is lost.
    async fn renew(&self, id: CallId, fence: u64, lease: Duration) -> Result<(), GateError>;

    /// Ends a run, withdraws a call, or lets time pass for it: finish, cancel, tick. Others may be answered with an error.
    async fn run(&self, op: Op) -> Result<Arc<Call>, GateError>;

    /// Reads a call.
    async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError>;

    /// Which of a server's tools, or of local ones, a rule hides, where the rules are not in this process.
    async fn hidden(&self, _server: Option<&str>, _names: &[Arc<str>]) -> Result<Vec<Arc<str>>, GateError> {
        Err(GateError::Remote("say which tools are hidden"))
    }

    /// Says who waits for a call, where its people are not in this process.
    async fn tell_who_waits(&self, _call: CallId, _who: &WhoWaits) -> Result<(), GateError> {
        Err(GateError::Remote("say who waits for a call"))
    }

    /// What can be read and kept here: calls, and the records of whoever runs on this gate.
    fn store(&self) -> &Arc<dyn Store>;
}

impl Owner {
    /// Whether a call that is claimed already was claimed by this very claim.
    pub(super) fn has(&self, call: &Call) -> bool {
        match self {
            Owner::Executor(_) => false,
            Owner::Claim(name) => call.lease.as_ref().is_some_and(|lease| lease.owner == *name),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Owner::Executor(name) | Owner::Claim(name) => name,
        }
    }
}
