//! A call as databases keep it: what was asked for, written once, and how it stands, written with every step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Call, CallState, Facts, Lease, Outcome, Repeat, Resolution};
use crate::digest::{ArgumentDigest, CallDigest, DefinitionDigest, Nonce};
use crate::hold::HoldRow;
use crate::id::{CallId, GrantId};
use crate::json::Json;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::verdict::Verdict;

/// What was asked for. Only an approver's edit changes it.
#[derive(Serialize, Deserialize)]
struct Request {
    id: CallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<Arc<str>>,
    facts: Arc<Facts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<DefinitionDigest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redacted: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<Arc<str>>,
    #[serde(default)]
    repeat: Repeat,
    argument_digest: ArgumentDigest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed_digest: Option<ArgumentDigest>,
    nonce: Nonce,
    verdict: Arc<Verdict>,
    created_at: Time,
}

/// How it stands.
#[derive(Serialize, Deserialize)]
struct Standing {
    /// Names the call and, through its nonce, the request this is the standing of.
    digest: CallDigest,
    state: CallState,
    #[serde(default, skip_serializing_if = "super::no_holds")]
    holds: Arc<Vec<HoldRow>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<GrantId>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unattended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim_by: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::present")]
    response: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<Resolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
    updated_at: Time,
    version: u64,
}

impl Call {
    /// The part that is written once, as JSON.
    pub fn request_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Request {
            id: self.id,
            key: self.key.clone(),
            label: self.label.clone(),
            facts: Arc::clone(&self.facts),
            description: self.description.clone(),
            definition: self.definition,
            redacted: self.redacted.clone(),
            raw: self.raw.clone(),
            repeat: self.repeat,
            argument_digest: self.argument_digest,
            proposed_digest: self.proposed_digest,
            nonce: self.nonce,
            verdict: Arc::clone(&self.verdict),
            created_at: self.created_at,
        })
    }

    /// The part that is written with every step, as JSON.
    pub fn standing_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Standing {
            digest: self.digest,
            state: self.state,
            holds: Arc::clone(&self.holds),
            grant: self.grant,
            unattended: self.unattended,
            claim_by: self.claim_by,
            lease: self.lease.clone(),
            outcome: self.outcome.clone(),
            response: self.response.clone(),
            resolution: self.resolution.clone(),
            refusal: self.refusal.clone(),
            updated_at: self.updated_at,
            version: self.version,
        })
    }

    /// Puts the two parts together again.
    pub fn from_json(request: &str, standing: &str) -> serde_json::Result<Call> {
        let request: Request = serde_json::from_str(request)?;
        let standing: Standing = serde_json::from_str(standing)?;
        Ok(Call {
            id: request.id,
            key: request.key,
            label: request.label,
            facts: request.facts,
            description: request.description,
            definition: request.definition,
            redacted: request.redacted,
            raw: request.raw,
            repeat: request.repeat,
            argument_digest: request.argument_digest,
            proposed_digest: request.proposed_digest,
            digest: standing.digest,
            nonce: request.nonce,
            verdict: request.verdict,
            state: standing.state,
            holds: standing.holds,
            grant: standing.grant,
            unattended: standing.unattended,
            claim_by: standing.claim_by,
            lease: standing.lease,
            outcome: standing.outcome,
            response: standing.response,
            resolution: standing.resolution,
            refusal: standing.refusal,
            created_at: request.created_at,
            updated_at: standing.updated_at,
            version: standing.version,
        })
    }

    /// Whether the part that is written once is the same as before. Rather says no than compares texts: a step that
    /// leaves it alone shares it.
    pub fn asks_the_same_as(&self, before: &Call) -> bool {
        Arc::ptr_eq(&self.facts, &before.facts)
            && Arc::ptr_eq(&self.verdict, &before.verdict)
            && self.nonce == before.nonce
            && self.argument_digest == before.argument_digest
            && self.proposed_digest == before.proposed_digest
            && self.definition == before.definition
            && self.repeat == before.repeat
    }
}
