//! The backend in this process: each step as [`Local`] takes it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::call::{Call, CallState};
use crate::gate::GateError;
use crate::gate::backend::{Backend, Defined, Submitted};
use crate::gate::hooks::Checked;
use crate::gate::local::Local;
use crate::gate::scope::Asks;
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::store::{Claimant, Op, Store};

/// Policy and store of this process, behind a gate. Shared with the tasks that ask approvers and decide for them.
pub(crate) struct Here(pub(crate) Arc<Local>);

#[async_trait]
impl Backend for Here {
    async fn submit(
        &self,
        asks: &Arc<Asks>,
        defined: Option<Defined<'_>>,
        checked: &Checked,
        claim: Option<Claimant>,
    ) -> Result<Submitted, GateError> {
        if let Some(defined) = defined {
            self.0.write_down(defined.definition).await?;
        }
        self.0.freeze(asks, defined, checked, claim).await
    }

    async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.0.wait(id, |call| call.state != CallState::Pending).await
    }

    async fn claim(&self, id: CallId, claimant: Claimant) -> Result<Arc<Call>, GateError> {
        self.0.claim(id, claimant).await
    }

    async fn lifted(&self, call: &Call) -> Result<(), GateError> {
        let listener = self.0.store.bell().listen(call.id);
        match self.0.store.halted(&call.facts.path).await? {
            true => self.0.until(listener, call).await,
            false => Ok(()),
        }
    }

    async fn ask(
        &self,
        asks: &Arc<Asks>,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        self.0.ask(asks, call, fence, hint, payload).await
    }

    async fn renew(&self, id: CallId, fence: u64, lease: Duration) -> Result<(), GateError> {
        self.0.run(Op::Renew { call: id, fence, lease }).await.map(drop)
    }

    async fn run(&self, op: Op) -> Result<Arc<Call>, GateError> {
        match op {
            // What a tool says may hold secrets, and is written down.
            Op::Finish { call, fence, outcome } => {
                let outcome = self.0.redact_outcome(outcome);
                self.0.run(Op::Finish { call, fence, outcome }).await
            }
            op => self.0.run(op).await,
        }
    }

    async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.0.get(id).await
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.0.shared
    }
}
