//! Tools that the session's client runs: it takes a call with its permit and gives one result.

use std::sync::Arc;

use countersign::call::{Outcome, ToolId};
use countersign::gate::Claimed;
use countersign::limits::PAGE_ROWS;
use countersign::store::{CallFilter, Op};
use countersign::{Call, CallId, CallState, GateError, Json};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::session::Session;

/// Why a client got no call, or its result was not taken. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No such call, or not one of this session's that a client runs. The two look the same.
    #[error("there is no such call for the client to run")]
    NotFound,
    /// It is not the client's turn: the call still waits, ended, or is in other hands.
    #[error("the call is {0}")]
    WrongState(CallState),
    /// The gate refused, or could not do its job.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// A call in a client's hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCall {
    /// The call.
    pub id: CallId,
    /// Its tool.
    pub tool: ToolId,
    /// The arguments: exactly the bytes that were approved.
    pub arguments: Json,
    /// Proves with the result that this attempt is the current one.
    pub fence: u64,
}

impl Session {
    /// The calls that wait for the client to run them: allowed or approved, and taken by nobody.
    pub async fn client_calls(&self) -> Result<Vec<Arc<Call>>, ClientError> {
        let mut found = Vec::new();
        for state in [CallState::Allowed, CallState::Approved] {
            let filter = CallFilter {
                state: Some(state),
                session: self.path().session.clone(),
                principal: Some(Arc::clone(&self.path().principal)),
                limit: Some(PAGE_ROWS),
                ..CallFilter::default()
            };
            let calls = self.agent().gate().store().calls(filter).await.map_err(GateError::from)?;
            found.extend(calls.into_iter().filter(|call| is_clients(self.agent(), call)));
        }
        found.sort_by_key(|call| call.id);
        Ok(found)
    }

    /// Takes a call to run it, once. The lease must be kept with [`Session::keep`] while it runs.
    pub async fn take(&self, id: CallId) -> Result<ClientCall, ClientError> {
        let call = self.clients(id).await?;
        match self.agent().gate().claim(id, call.definition).await? {
            Claimed::Permit(permit) => {
                let running = permit.start();
                let tool = running.call().facts.tool.clone();
                Ok(ClientCall { id, tool, arguments: running.arguments().clone(), fence: running.fence() })
            }
            Claimed::Not(call) => Err(ClientError::WrongState(call.state)),
        }
    }

    /// Says that the client is still at it. Without this the call is in doubt when its lease ends.
    pub async fn keep(&self, id: CallId, fence: u64) -> Result<(), ClientError> {
        self.clients(id).await?;
        let lease = countersign::limits::LEASE;
        let kept = self.agent().gate().store().run(Op::Renew { call: id, fence, lease }).await;
        kept.map_err(GateError::from)?;
        Ok(())
    }

    /// Gives the result of a call the client took, or the error its tool ended with. A second one is refused.
    pub async fn give(&self, id: CallId, fence: u64, result: Result<Json, String>) -> Result<Arc<Call>, ClientError> {
        let call = self.clients(id).await?;
        if !matches!(call.state, CallState::Executing | CallState::InDoubt) {
            return Err(ClientError::WrongState(call.state));
        }
        let outcome = match result {
            Ok(output) if output.as_str().len() <= countersign::limits::OUTPUT_BYTES => Outcome::Succeeded { output },
            Ok(output) => {
                let (bytes, most) = (output.as_str().len(), countersign::limits::OUTPUT_BYTES);
                let note = format!("[output of {bytes} bytes is over the limit of {most} and was not kept]");
                Outcome::Succeeded { output: Json::string(&note) }
            }
            Err(mut error) => {
                error.truncate(error.floor_char_boundary(countersign::limits::NOTE_BYTES));
                Outcome::Failed { error, refusal: None }
            }
        };
        Ok(self.agent().gate().finish(id, fence, outcome).await?)
    }

    /// Whether a call of this session is left to its client.
    pub fn runs_at_client(&self, call: &Call) -> bool {
        is_clients(self.agent(), call)
    }

    /// The call, if it is this session's and the client's to run.
    async fn clients(&self, id: CallId) -> Result<Arc<Call>, ClientError> {
        let call = self.agent().gate().store().call(id).await.map_err(GateError::from)?;
        let path = self.path();
        let ours = |call: &Arc<Call>| {
            let found = &call.facts.path;
            found.principal == path.principal && found.session == path.session && is_clients(self.agent(), call)
        };
        call.filter(ours).ok_or(ClientError::NotFound)
    }
}

/// Whether the agent, or one that works for it, leaves this call's tool to the client.
fn is_clients(agent: &Agent, call: &Call) -> bool {
    let Some(definition) = &call.definition else { return false };
    agent
        .teammates()
        .iter()
        .map(|mate| &mate.inner.tools)
        .any(|tools| tools.is_clients(definition) || tools.agents().any(|inner| is_clients(inner, call)))
}
