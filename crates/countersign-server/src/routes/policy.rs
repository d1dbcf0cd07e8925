//! The policy in force, and why it says what it says.

use std::sync::Arc;

use axum::extract::State;
use axum::routing;
use countersign::call::Declared;
use countersign::digest::argument_digest;
use countersign::grant::Grant;
use countersign::place::Places;
use countersign::verdict::{Effect, Memory, Verdict};
use countersign::{Facts, Json as Exact, Path, ToolId};
use countersign_api::wire::{self, Code};

use crate::app::App;
use crate::auth::Granter;
use crate::extract::Body;
use crate::json::Json;
use crate::problem::{Answer, Refused};
use crate::table::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/policy", Granter::ROLES, routing::get(read), "Shows the policy in force.")
            .answers::<wire::Policy>("200"),
        post(
            "/v1/policy/explain",
            Granter::ROLES,
            routing::post(explain),
            "Says what the rules make of a call, and why.",
        )
        .takes::<wire::Explain>()
        .answers::<wire::Explained>("200"),
    ]
}

async fn read(State(app): State<App>, _caller: Granter) -> Json<wire::Policy> {
    Json(wire::Policy::from(&*app.gate.policy()))
}

async fn explain(
    State(app): State<App>,
    _caller: Granter,
    Body(body): Body<wire::Explain>,
) -> Answer<Json<wire::Explained>> {
    let facts = facts(&app, body).await?;
    let policy = app.gate.policy();
    policy.admits(&facts).map_err(|why| Refused::because(Code::BadRequest, why))?;
    let verdict = policy.judge(&facts);
    let grant = covering(&app, &facts, &verdict).await?;
    let quorums = verdict.terms.quorums.iter().filter(|_| verdict.effect == Effect::Ask);
    let approvals = quorums.map(|quorum| wire::Quorum {
        approvals: quorum.approvals,
        from: quorum.from.iter().map(ToString::to_string).collect(),
        have: 0,
    });
    Ok(Json(wire::Explained {
        effect: verdict.effect,
        because: verdict.because().iter().map(wire::Reason::from).collect(),
        matched: verdict.matched.iter().map(wire::Reason::from).collect(),
        approvals: approvals.collect(),
        would_change: would_change(&verdict, grant.as_ref()),
        grant: grant.map(|grant| wire::Grant::of(&grant, facts.at)),
        policy: verdict.policy.to_string(),
    }))
}

async fn facts(app: &App, body: wire::Explain) -> Answer<Facts> {
    let arguments = Exact::arguments(body.arguments.as_str(), &app.limits);
    let arguments = arguments.map_err(|error| Refused::because(Code::InvalidArguments, error.to_string()))?;
    let principal = body.principal.map_or(Path::default().principal, Arc::from);
    let agents = body.agent.into_iter().map(Arc::from).collect();
    Ok(Facts {
        tool: ToolId { server: body.server.map(Arc::from), name: body.tool.into() },
        toolset: None,
        arguments,
        path: Path { principal, session: body.session.map(Arc::from), agents, ..Path::default() },
        declared: Declared::Nothing,
        annotations: None,
        places: Places::default(),
        at: app.store().now().await?,
    })
}

/// A grant that lifts the ask. Tools are compared without their definition, which nobody gives here.
async fn covering(app: &App, facts: &Facts, verdict: &Verdict) -> Answer<Option<Grant>> {
    if verdict.effect != Effect::Ask {
        return Ok(None);
    }
    let covers = |grant: &Grant| {
        let digest = argument_digest(&facts.tool, grant.definition.as_ref(), &facts.arguments);
        grant.covers(facts, grant.definition.as_ref(), &digest, verdict, facts.at)
    };
    Ok(app.store().grants().await?.into_iter().find(covers))
}

fn would_change(verdict: &Verdict, grant: Option<&Grant>) -> Vec<String> {
    let rules = verdict.rules().join(", ");
    match (verdict.effect, grant) {
        (Effect::Allow, _) => vec!["a matching ask or deny rule would be stricter, and the strictest wins".to_owned()],
        (Effect::Deny, _) => vec![format!("only a change of the rules that deny it: {rules}")],
        (Effect::Ask, Some(grant)) => vec![format!("nobody is asked while {} covers it", grant.id)],
        (Effect::Ask, None) if verdict.terms.human_required => vec!["nothing but people lifts it".to_owned()],
        (Effect::Ask, None) if verdict.terms.remember == Memory::None => {
            vec![format!("only a change of the rules that ask: {rules}; they allow no memory")]
        }
        (Effect::Ask, None) => vec![
            "a grant that covers the call would lift the ask".to_owned(),
            format!("or a change of the rules that ask: {rules}"),
        ],
    }
}
