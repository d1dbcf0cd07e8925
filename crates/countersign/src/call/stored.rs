//! A call as databases keep it: what was asked for, written once, and how it stands, written with every step.
//!
//! A hold is in both: how it opened, which never changes, and how people answered.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::{Call, CallState, Facts, Lease, Outcome, Repeat, Resolution};
use crate::digest::{ArgumentDigest, CallDigest, DefinitionDigest, Nonce};
use crate::hold::{Decision, HoldKind, HoldRow, HoldState};
use crate::id::{CallId, GrantId, HoldId};
use crate::json::Json;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::verdict::{Because, Terms, Verdict};

/// What was asked for. Only an approver's edit changes it, or another hold.
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<Opening>,
    created_at: Time,
}

/// A hold as it opened.
#[derive(Serialize, Deserialize)]
struct Opening {
    id: HoldId,
    kind: HoldKind,
    digest: CallDigest,
    nonce: Nonce,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::present")]
    payload: Option<Json>,
    /// Its terms and rules, where they are not those of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terms: Option<Arc<Terms>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    because: Option<Arc<[Because]>>,
    opened_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
}

/// How it stands.
#[derive(Serialize, Deserialize)]
struct Standing<'a> {
    /// Names the call and, through its nonce, the request this is the standing of.
    digest: CallDigest,
    state: CallState,
    /// How each hold of the request stands, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<Course<'a>>,
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

/// How a hold stands.
#[derive(Serialize, Deserialize)]
struct Course<'a> {
    state: HoldState,
    #[serde(default, skip_serializing_if = "<[Decision]>::is_empty")]
    decisions: Cow<'a, [Decision]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<Cow<'a, Refusal>>,
}

/// As JSON, in room enough for nearly all, so that the text does not move while it grows.
fn spelled(part: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::with_capacity(2 * 1024);
    serde_json::to_writer(&mut text, part)?;
    String::from_utf8(text).map_err(serde_json::Error::custom)
}

impl Opening {
    fn of(hold: &HoldRow, verdict: &Verdict) -> Opening {
        let own_terms = !Arc::ptr_eq(&hold.terms, &verdict.terms) && hold.terms != verdict.terms;
        Opening {
            id: hold.id,
            kind: hold.kind,
            digest: hold.digest,
            nonce: hold.nonce,
            hint: hold.hint.clone(),
            payload: hold.payload.clone(),
            terms: own_terms.then(|| Arc::clone(&hold.terms)),
            because: (*hold.because != *verdict.because()).then(|| Arc::clone(&hold.because)),
            opened_at: hold.opened_at,
            expires_at: hold.expires_at,
        }
    }

    fn standing_as(self, course: Course<'_>, verdict: &Verdict) -> HoldRow {
        HoldRow {
            id: self.id,
            kind: self.kind,
            state: course.state,
            digest: self.digest,
            nonce: self.nonce,
            hint: self.hint,
            payload: self.payload,
            terms: self.terms.unwrap_or_else(|| Arc::clone(&verdict.terms)),
            because: self.because.unwrap_or_else(|| verdict.shared_because()),
            opened_at: self.opened_at,
            expires_at: self.expires_at,
            decisions: course.decisions.into_owned(),
            refusal: course.refusal.map(Cow::into_owned),
        }
    }
}

impl<'a> Course<'a> {
    fn of(hold: &'a HoldRow) -> Course<'a> {
        let refusal = hold.refusal.as_ref().map(Cow::Borrowed);
        Course { state: hold.state, decisions: Cow::Borrowed(&hold.decisions), refusal }
    }
}

/// Puts each hold together again. A hold without its other half is nobody's: nothing of the call is believed.
fn holds(openings: Vec<Opening>, courses: Vec<Course<'_>>, verdict: &Verdict) -> serde_json::Result<Vec<HoldRow>> {
    if openings.len() != courses.len() {
        let why = format!("{} holds opened and {} stand", openings.len(), courses.len());
        return Err(serde_json::Error::custom(why));
    }
    let both = openings.into_iter().zip(courses);
    Ok(both.map(|(opening, course)| opening.standing_as(course, verdict)).collect())
}

impl Call {
    /// The part that is written once, as JSON.
    pub fn request_json(&self) -> serde_json::Result<String> {
        spelled(&Request {
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
            holds: self.holds.iter().map(|hold| Opening::of(hold, &self.verdict)).collect(),
            created_at: self.created_at,
        })
    }

    /// The part that is written with every step, as JSON.
    pub fn standing_json(&self) -> serde_json::Result<String> {
        spelled(&Standing {
            digest: self.digest,
            state: self.state,
            holds: self.holds.iter().map(Course::of).collect(),
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
        let standing: Standing<'_> = serde_json::from_str(standing)?;
        let holds = Arc::new(holds(request.holds, standing.holds, &request.verdict)?);
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
            holds,
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
            && self.holds.len() == before.holds.len()
            && self.argument_digest == before.argument_digest
            && self.proposed_digest == before.proposed_digest
            && self.definition == before.definition
            && self.repeat == before.repeat
    }
}
