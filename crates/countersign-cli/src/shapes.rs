//! Calls, holds and grants as JSON for scripts. Arguments are printed as the exact text they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign::call::{CallState, ResolvedAs};
use countersign::digest::{ArgumentDigest, CallDigest};
use countersign::grant::{self, Covers, Scope};
use countersign::hold::HoldState;
use countersign::verdict::{Because, Effect, Memory, Quorum, Risk};
use countersign::{CallId, GrantId, HoldId, Json, Refusal, Time};
use serde::Serialize;

/// A hold with its call: everything an approver needs, secrets masked.
#[derive(Serialize)]
pub(crate) struct Hold<'a> {
    id: HoldId,
    call: CallId,
    state: HoldState,
    tool: &'a str,
    server: Option<&'a str>,
    arguments: &'a Json,
    masked: bool,
    digest: CallDigest,
    principal: &'a str,
    requester: Option<&'a str>,
    session: Option<&'a str>,
    run: Option<&'a str>,
    thread: Option<&'a str>,
    agent: &'a [Arc<str>],
    because: &'a [Because],
    risk: Risk,
    approvals: &'a [Quorum],
    human_required: bool,
    remember: Memory,
    in_run: bool,
    hint: Option<&'a str>,
    payload: Option<&'a Json>,
    decisions: usize,
    opened_at: String,
    expires_at: Option<String>,
}

impl<'a> Hold<'a> {
    /// The hold as it is printed.
    pub(crate) fn of(open: &'a countersign::Hold) -> Hold<'a> {
        let call = &open.call;
        let path = &call.facts.path;
        Hold {
            id: open.id,
            call: call.id,
            state: open.state,
            tool: &call.facts.tool.name,
            server: call.facts.tool.server.as_deref(),
            arguments: call.shown_arguments(),
            masked: call.redacted.is_some(),
            digest: open.digest,
            principal: &path.principal,
            requester: path.requester.as_deref(),
            session: path.session.as_deref(),
            run: path.run.as_deref(),
            thread: path.thread.as_deref(),
            agent: &path.agents,
            because: &open.because,
            risk: open.terms.risk,
            approvals: &open.terms.quorums,
            human_required: open.terms.human_required,
            remember: open.terms.remember,
            in_run: open.in_run(),
            hint: open.hint.as_deref(),
            payload: open.payload.as_ref(),
            decisions: open.decisions.len(),
            opened_at: open.opened_at.to_string(),
            expires_at: open.expires_at.map(|at| at.to_string()),
        }
    }
}

/// A call and how it stands.
#[derive(Serialize)]
pub(crate) struct Call<'a> {
    id: CallId,
    state: CallState,
    tool: &'a str,
    server: Option<&'a str>,
    arguments: &'a Json,
    masked: bool,
    digest: CallDigest,
    session: Option<&'a str>,
    agent: &'a [Arc<str>],
    effect: Effect,
    because: &'a [Because],
    grant: Option<GrantId>,
    decided_by: Option<&'a str>,
    outcome: Option<&'a countersign::call::Outcome>,
    response: Option<&'a Json>,
    resolution: Option<Resolution<'a>>,
    refusal: Option<&'a Refusal>,
    created_at: String,
    updated_at: String,
}

/// How a doubt was settled.
#[derive(Serialize)]
struct Resolution<'a> {
    r#as: ResolvedAs,
    reason: &'a str,
    by: &'a str,
    at: String,
}

impl<'a> Call<'a> {
    /// The call as it is printed.
    pub(crate) fn of(call: &'a countersign::Call) -> Call<'a> {
        let resolution = call.resolution.as_ref().map(|resolution| Resolution {
            r#as: resolution.r#as,
            reason: &resolution.reason,
            by: &resolution.by,
            at: resolution.at.to_string(),
        });
        Call {
            id: call.id,
            state: call.state,
            tool: &call.facts.tool.name,
            server: call.facts.tool.server.as_deref(),
            arguments: call.shown_arguments(),
            masked: call.redacted.is_some(),
            digest: call.digest,
            session: call.facts.path.session.as_deref(),
            agent: &call.facts.path.agents,
            effect: call.verdict.effect,
            because: &call.verdict.because,
            grant: call.grant,
            decided_by: call.holds.iter().flat_map(|hold| hold.decisions.last()).last().map(|last| &*last.by.id),
            outcome: call.outcome.as_ref(),
            response: call.response.as_ref(),
            resolution,
            refusal: call.refusal.as_ref(),
            created_at: call.created_at.to_string(),
            updated_at: call.updated_at.to_string(),
        }
    }
}

/// A grant.
#[derive(Serialize)]
pub(crate) struct Grant<'a> {
    id: GrantId,
    rule: String,
    live: bool,
    scope: &'static str,
    session: Option<&'a str>,
    principal: &'a str,
    agent: Option<&'a str>,
    tool: &'a str,
    server: Option<&'a str>,
    covers: Coverage<'a>,
    made_by: &'a str,
    hold: Option<HoldId>,
    made_at: String,
    expires_at: String,
    uses_left: Option<u32>,
    revoked_by: Option<&'a str>,
}

/// What a grant covers.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Coverage<'a> {
    Exact(&'a ArgumentDigest),
    Fields(&'a BTreeMap<String, Json>),
    Folder { field: &'a str, folder: String },
    Tool,
}

impl<'a> Grant<'a> {
    /// The grant as it is printed.
    pub(crate) fn of(grant: &'a grant::Grant, now: Time) -> Grant<'a> {
        let (scope, session) = match &grant.scope {
            Scope::Session { session } => ("session", Some(&**session)),
            Scope::Global => ("global", None),
        };
        Grant {
            id: grant.id,
            rule: grant.as_rule(),
            live: grant.is_live(now),
            scope,
            session,
            principal: &grant.principal,
            agent: grant.agent.as_deref(),
            tool: &grant.tool.name,
            server: grant.tool.server.as_deref(),
            covers: match &grant.covers {
                Covers::Exact(digest) => Coverage::Exact(digest),
                Covers::Fields(fields) => Coverage::Fields(fields),
                Covers::Folder { field, made_for } => {
                    let folder = made_for.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
                    Coverage::Folder { field, folder }
                }
                Covers::Tool => Coverage::Tool,
            },
            made_by: &grant.made_by.id,
            hold: grant.hold,
            made_at: grant.made_at.to_string(),
            expires_at: grant.expires_at.to_string(),
            uses_left: grant.uses_left,
            revoked_by: grant.revoked.as_ref().map(|(_, by)| &**by),
        }
    }
}

/// What came of a decision.
#[derive(Serialize)]
pub(crate) struct Decided<'a> {
    pub(crate) hold: HoldId,
    pub(crate) state: &'a str,
    pub(crate) replayed: bool,
    pub(crate) grant: Option<Grant<'a>>,
    pub(crate) released: usize,
    pub(crate) call: Call<'a>,
}
