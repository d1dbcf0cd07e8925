//! The operator beside the worker: settles doubts, halts and lifts, makes and revokes grants, notes, signs, sets policies.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::call::{Resolution, ResolvedAs};
use countersign::event::{Draft, EventName};
use countersign::grant::{Covers, Grant, Scope};
use countersign::store::{CallFilter, Failure, Op};
use countersign::tool::FnTool;
use countersign::{CallState, GateError, GrantId, Policy, Proposal, Time, Who};

use super::child::{LENT, POLICIES, Worker};

/// How long the operator rests between two acts.
const REST: Duration = Duration::from_millis(3);
/// How long its grants last.
const LENT_FOR: Duration = Duration::from_secs(60);

impl Worker {
    /// One act after the other, until killed. Each goes to the journal when the store has acknowledged it.
    pub(super) async fn operate(&self) -> Result<()> {
        // The life before may have been killed while everything was halted.
        self.lift("0").await?;
        for round in 1_u64.. {
            self.settle_doubts().await?;
            let name = format!("{}-{round}", self.name);
            match round % 5 {
                0 => self.halt(&name).await?,
                1 => self.lend().await?,
                2 => self.note(&name).await?,
                3 => self.gate.checkpoint().await?,
                _ => self.change_policy(&name).await?,
            }
            tokio::time::sleep(REST).await;
        }
        Ok(())
    }

    /// Settles every doubt but some, which stay.
    async fn settle_doubts(&self) -> Result<()> {
        let filter = CallFilter { state: Some(CallState::InDoubt), limit: Some(100), ..CallFilter::default() };
        for call in self.gate.store().calls(filter).await? {
            let (r#as, word) = match call.id.as_bytes().last().map_or(0, |byte| byte % 4) {
                0 => (ResolvedAs::Applied, "applied"),
                1 => (ResolvedAs::NotApplied, "not_applied"),
                2 => (ResolvedAs::Abandoned, "abandoned"),
                _ => continue,
            };
            let resolution = Resolution { r#as, reason: "looked".into(), by: "olga".into(), at: Time::default() };
            match self.gate.resolve(call.id, resolution).await {
                Ok(_) => self.acknowledge(&format!("resolve {} {word}", call.id))?,
                // Its answer came after all.
                Err(GateError::Rejected(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn halt(&self, name: &str) -> Result<()> {
        self.gate.halt(None, name, Some("a moment")).await?;
        self.acknowledge(&format!("halt {name}"))?;
        tokio::time::sleep(REST).await;
        self.lift(name).await?;
        self.acknowledge(&format!("lift {name}"))
    }

    async fn lift(&self, name: &str) -> Result<()> {
        Ok(self.gate.lift(None, name).await?)
    }

    /// Makes a grant, and takes back the one made last.
    async fn lend(&self) -> Result<()> {
        let store = self.gate.store();
        let last = store.grants().await?.into_iter().rev().find(|grant| grant.hold.is_none());
        let lent = |tool: &&Arc<FnTool>| *countersign::Tool::definition(tool.as_ref()).tool.name == *LENT;
        let definition = countersign::Tool::definition(self.tools.iter().find(lent).context(LENT)?.as_ref());
        let made_at = store.now().await?;
        let grant = Grant {
            id: GrantId::new(),
            scope: Scope::Global,
            principal: Proposal::new(LENT, "{}").path.principal,
            agent: None,
            tool: definition.tool.clone(),
            definition: Some(definition.digest()),
            covers: Covers::Tool,
            made_by: Who::person("olga"),
            hold: None,
            made_at,
            expires_at: made_at.after(LENT_FOR),
            uses_left: Some(3),
            revoked: None,
            version: 0,
        };
        let id = grant.id;
        store.run(Op::Grant(Box::new(grant))).await?;
        self.acknowledge(&format!("grant {id}"))?;
        if let Some(last) = last.filter(|last| last.revoked.is_none()) {
            self.gate.revoke(last.id, Who::person("olga")).await?;
            self.acknowledge(&format!("revoke {}", last.id))?;
        }
        Ok(())
    }

    async fn note(&self, name: &str) -> Result<()> {
        self.gate.note(Draft::new(EventName::AccessRefused).text("by", name)).await?;
        self.acknowledge(&format!("note {name}"))
    }

    /// Sets the policy that is not in force.
    async fn change_policy(&self, name: &str) -> Result<()> {
        let store = self.gate.store();
        let current = store.policy().await?.map(|(version, _)| version);
        for source in POLICIES {
            let version = Arc::clone(Policy::from_yaml(source).context("a policy of the operator")?.version());
            if current.as_ref() == Some(&version) {
                continue;
            }
            let set = Op::SetPolicy { version, source: source.into(), by: name.into() };
            return match store.run(set).await {
                Ok(_) => self.acknowledge(&format!("policy {name}")),
                Err(Failure::Rejected(rejection)) => Err(rejection.into()),
                Err(Failure::Store(error)) => Err(error.into()),
            };
        }
        Ok(())
    }
}
