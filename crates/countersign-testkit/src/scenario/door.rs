//! The way a story's steps come to a gate: by its own methods, or by whatever stands before it.

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use countersign::call::{Outcome, Resolution, ResolvedAs};
use countersign::digest::{CallDigest, DefinitionDigest};
use countersign::store::Op;
use countersign::tool::FnTool;
use countersign::transition::Asking;
use countersign::{
    Answer, Call, CallId, Claimed, Decision, Gate, GateError, GrantId, HoldId, Json, Proposal, Time, Who,
};

/// A refusal, in the word that stories use for it. A door that has no [`GateError`] to give gives this one.
#[derive(Debug)]
pub struct Rejected(pub String);

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rejected: {}", self.0)
    }
}

impl std::error::Error for Rejected {}

/// A way in. A refused step fails with a [`GateError`] or with [`Rejected`]; any other error fails the story.
#[async_trait]
pub trait Door: Send {
    /// Leads to this gate from now on: at the beginning, and after every restart.
    async fn open(&mut self, gate: &Gate) -> Result<()>;
    /// Submits a call of a tool.
    async fn submit(&mut self, tool: &FnTool, proposal: Proposal) -> Result<CallId>;
    /// Decides a hold; true where that had been decided before in the same way.
    async fn decide(&mut self, hold: HoldId, by: Who, digest: CallDigest, answer: Answer) -> Result<bool>;
    /// Takes a call; false where there is nothing to run.
    async fn claim(&mut self, call: &Call, definition: DefinitionDigest) -> Result<bool>;
    /// Asks from inside a run.
    async fn ask(&mut self, call: &Call, fence: u64, payload: Json) -> Result<()>;
    /// Reports how a run ended.
    async fn finish(&mut self, call: &Call, fence: u64, outcome: Outcome) -> Result<()>;
    /// Withdraws a call.
    async fn cancel(&mut self, call: &Call) -> Result<()>;
    /// Settles a doubt.
    async fn resolve(&mut self, call: CallId, word: ResolvedAs, reason: String) -> Result<()>;
    /// Stops everything, or one agent.
    async fn halt(&mut self, agent: Option<&str>) -> Result<()>;
    /// Lets it go on.
    async fn resume(&mut self, agent: Option<&str>) -> Result<()>;
    /// Ends a grant.
    async fn revoke(&mut self, grant: GrantId) -> Result<()>;
}

/// The gate's own methods.
#[derive(Default)]
pub struct Direct(Option<Gate>);

impl Direct {
    fn gate(&self) -> Result<&Gate> {
        self.0.as_ref().context("the door is not open")
    }
}

#[async_trait]
impl Door for Direct {
    async fn open(&mut self, gate: &Gate) -> Result<()> {
        self.0 = Some(gate.clone());
        Ok(())
    }

    async fn submit(&mut self, tool: &FnTool, proposal: Proposal) -> Result<CallId> {
        Ok(self.gate()?.submit(tool, proposal).await?.id)
    }

    async fn decide(&mut self, hold: HoldId, by: Who, digest: CallDigest, answer: Answer) -> Result<bool> {
        Ok(self.gate()?.decide(hold, Decision::new(by, "scenario", digest, answer)).await?.replayed)
    }

    async fn claim(&mut self, call: &Call, definition: DefinitionDigest) -> Result<bool> {
        match self.gate()?.claim(call.id, Some(definition)).await? {
            Claimed::Permit(permit) => {
                // The story says how the run ends; until then nobody runs anything.
                drop(permit.start());
                Ok(true)
            }
            Claimed::Not(_) => Ok(false),
        }
    }

    async fn ask(&mut self, call: &Call, fence: u64, payload: Json) -> Result<()> {
        let (hint, hold) = (Some("go on?".into()), HoldId::new());
        let asking =
            Asking { hold, fence, hint, payload: Some(payload), unattended: None, limits: std::sync::Arc::default() };
        let op = Op::Ask { call: call.id, asking: Box::new(asking) };
        self.gate()?.store().run(op).await.map_err(GateError::from)?;
        Ok(())
    }

    async fn finish(&mut self, call: &Call, fence: u64, outcome: Outcome) -> Result<()> {
        self.gate()?.finish(call.id, fence, outcome).await?;
        Ok(())
    }

    async fn cancel(&mut self, call: &Call) -> Result<()> {
        self.gate()?.cancel(call.id).await?;
        Ok(())
    }

    async fn resolve(&mut self, call: CallId, word: ResolvedAs, reason: String) -> Result<()> {
        let resolution = Resolution { r#as: word, reason, by: "ann".into(), at: Time::default() };
        self.gate()?.resolve(call, resolution).await?;
        Ok(())
    }

    async fn halt(&mut self, agent: Option<&str>) -> Result<()> {
        Ok(self.gate()?.halt(agent, "op", None).await?)
    }

    async fn resume(&mut self, agent: Option<&str>) -> Result<()> {
        Ok(self.gate()?.lift(agent, "op").await?)
    }

    async fn revoke(&mut self, grant: GrantId) -> Result<()> {
        self.gate()?.revoke(grant, Who::person("op")).await?;
        Ok(())
    }
}
