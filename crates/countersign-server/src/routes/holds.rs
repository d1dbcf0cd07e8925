//! Holds: listed, looked at, decided.

use std::sync::Arc;

use axum::extract::State;
use axum::routing;
use countersign::store::CallFilter;
use countersign::{Decision, Definition, Hold, HoldId, callers};
use countersign_api::wire::{self, Code, Page, Warning, timestamp};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Approver, Principal, groups};
use crate::extract::{Body, Id};
use crate::json::Json;
use crate::limits;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::table::{Route, get, post};
use crate::trace::{self, SPANS};

/// Why a decision may not be taken.
pub(crate) const REFUSES: [Code; 14] = [
    Code::InvalidDecision,
    Code::NotEligible,
    Code::HumanRequired,
    Code::Requester,
    Code::HoldClosed,
    Code::DigestMismatch,
    Code::AlreadyDecided,
    Code::EditDenied,
    Code::InRunOnly,
    Code::GrantRefused,
    Code::WrongState,
    Code::Conflict,
    Code::InvalidEdit,
    Code::BrokenPolicy,
];

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/holds", Approver::ROLES, routing::get(list), "Lists holds, newest last.")
            .lists::<wire::Hold>()
            .query(&["state", "session"]),
        get("/v1/holds/{id}", Approver::ROLES, routing::get(read), "Shows a hold with all that is needed to decide.")
            .answers::<wire::HoldDetail>("200"),
        post("/v1/holds/{id}/decisions", Approver::ROLES, routing::post(decide), "Decides a hold.")
            .takes::<wire::NewDecision>()
            .answers::<wire::Decided>("200")
            .refuses(&REFUSES),
        post(
            "/v1/holds/{id}/preview-grant",
            Approver::ROLES,
            routing::post(preview),
            "Shows what a grant would cover.",
        )
        .takes::<wire::PreviewGrant>()
        .answers::<wire::GrantPreview>("200")
        .refuses(&REFUSES),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    #[serde(default)]
    state: Which,
    session: Option<Arc<str>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Which {
    /// Those that wait.
    #[default]
    Pending,
    /// Closed ones too.
    Any,
}

async fn list(State(app): State<App>, _caller: Approver, list: List<Filter>) -> Answer<Json<Page<wire::Hold>>> {
    let Filter { state, session } = &list.filter;
    let filter = CallFilter {
        holding: *state == Which::Pending,
        session: session.clone(),
        after: list.after()?,
        limit: Some(list.read()),
        ..CallFilter::default()
    };
    let calls = app.store().calls(filter).await?;
    let alone = callers::without(&**app.store(), &calls).await?;
    let holds = |call: &Arc<countersign::Call>| -> Answer<Vec<wire::Hold>> {
        let holds = call.holds.iter().filter(|hold| *state == Which::Any || hold.is_pending());
        let no_caller = alone.contains(&call.id);
        let shown = |hold: Hold| wire::Hold { no_caller, ..wire::Hold::from(&hold) };
        Ok(holds.filter_map(|hold| Hold::of(call, hold.id)).map(shown).collect())
    };
    let Page { items, next } = list.page(calls, |call| call.id.to_string(), holds)?;
    Ok(Json(Page { items: items.into_iter().flatten().collect(), next }))
}

async fn read(State(app): State<App>, _caller: Approver, Id(id): Id<HoldId>) -> Answer<Json<wire::HoldDetail>> {
    let hold = find(&app, id).await?;
    let now = app.store().now().await?;
    let policy = app.gate.policy();
    let view = app.gate.view(&hold, now).await?;
    let mut detail = wire::HoldDetail::of(&hold, view, now);
    detail.definition = definition(&app, &hold).await?;
    detail.siblings = siblings(&app, &hold).await?;
    detail.halted = app.store().halted(&hold.call.facts.path).await?;
    detail.warnings.extend(more_warnings(&hold, policy.version(), detail.halted));
    Ok(Json(detail))
}

/// A hold, by its id.
pub(crate) async fn find(app: &App, id: HoldId) -> Answer<Hold> {
    let call = app.store().call_of_hold(id).await?;
    call.as_ref().and_then(|call| Hold::of(call, id)).ok_or_else(Refused::not_found)
}

/// What the tool was said to be when the call was submitted.
async fn definition(app: &App, hold: &Hold) -> Answer<Option<wire::Definition>> {
    let Some(digest) = hold.call.definition else { return Ok(None) };
    let record = app.store().record("definitions", &digest.to_string()).await?;
    let read = record.and_then(|record| serde_json::from_slice::<Definition>(&record.value).ok());
    Ok(read.filter(|found| found.digest() == digest).map(|found| wire::Definition::from(&found)))
}

async fn siblings(app: &App, hold: &Hold) -> Answer<Vec<wire::Sibling>> {
    let filter = CallFilter {
        holding: true,
        argument_digest: Some(hold.call.argument_digest),
        limit: Some(limits::SIBLINGS),
        ..CallFilter::default()
    };
    let calls = app.store().calls(filter).await?;
    let sibling = |call: &Arc<countersign::Call>| {
        let open = call.open_hold().filter(|open| open.id != hold.id && !open.in_run())?;
        let session = call.facts.path.session.as_deref().map(str::to_owned);
        Some(wire::Sibling { id: open.id, digest: open.digest, session, opened_at: timestamp(open.opened_at) })
    };
    Ok(calls.iter().filter_map(sibling).collect())
}

/// What the renderer cannot know: the policy of now, and a halt.
fn more_warnings(hold: &Hold, policy: &str, halted: bool) -> Vec<Warning> {
    let changed = *hold.call.verdict.policy != *policy;
    let found = [
        changed.then(|| Warning::new("policy_changed", "the policy changed since this was asked")),
        halted.then(|| Warning::new("halted", "halted: an approved call waits until the operator lets calls go on")),
    ];
    found.into_iter().flatten().collect()
}

async fn decide(
    State(app): State<App>,
    caller: Approver,
    Id(id): Id<HoldId>,
    Body(body): Body<wire::NewDecision>,
) -> Answer<Json<wire::Decided>> {
    decide_as(&app, &caller.0, id, body).await.map(Json)
}

/// The one way a decision comes in, by whatever surface.
#[tracing::instrument(level = "debug", target = SPANS, name = "decide", skip_all, fields(call, hold, state))]
pub(crate) async fn decide_as(
    app: &App,
    caller: &Principal,
    id: HoldId,
    body: wire::NewDecision,
) -> Answer<wire::Decided> {
    let digest = body.digest;
    let answer = body.answer().map_err(|why| Refused::because(Code::InvalidDecision, why))?;
    let (who, channel) = caller.decider();
    let groups = groups(app, &who).await?;
    let decided = app.gate.decide_among(id, Decision::new(who, channel, digest, answer), &groups).await?;
    trace::tell(&decided.call);
    trace::tell_hold(id);
    wire::Decided::of(&decided, id).ok_or_else(Refused::not_found)
}

async fn preview(
    State(app): State<App>,
    _caller: Approver,
    Id(id): Id<HoldId>,
    Body(body): Body<wire::PreviewGrant>,
) -> Answer<Json<wire::GrantPreview>> {
    let remember = body.remember.into();
    let preview = match &body.arguments {
        Some(arguments) => app.gate.preview_edited_grant(id, arguments, &remember).await?,
        None => app.gate.preview_grant(id, &remember).await?,
    };
    Ok(Json(preview.into()))
}
