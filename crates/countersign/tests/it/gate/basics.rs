//! B1 to B13: what every gate does.

use std::sync::Arc;

use countersign::digest::argument_digest;
use countersign::refusal::Wording;
use countersign::tool::{Tool as _, tool};
use countersign::{
    Answer, CallState, Claimed, Definition, Gate, Json, Limits, Policy, Proposal, RefusalKind, ToolId, Who,
};

use super::desk::{Desk, Ran, json, kind, policy, recorder};

/// B1: an asked call that is approved runs once, with exactly its bytes, and its result is there.
#[tokio::test(start_paused = true)]
async fn an_approved_call_runs_once() {
    let desk = Desk::new();
    let call = desk.submit(r#"{ "to": "prod" }"#).await;
    assert_eq!(call.state, CallState::Pending);
    desk.approve(&call).await;
    let ended = desk.resume(&call).await;
    assert_eq!(ended.state, CallState::Succeeded);
    assert_eq!(desk.ran(), [r#"{"to":"prod"}"#]);
    assert_eq!(
        desk.events().await,
        ["call.submitted", "hold.opened", "hold.decided", "call.claimed", "call.succeeded"]
    );
}

/// B2: a denied call never runs, and the model reads why.
#[tokio::test(start_paused = true)]
async fn a_denied_call_never_runs_and_says_why() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.ann(&call, Answer::deny("not on a Friday")).await.unwrap();
    let ended = desk.resume(&call).await;
    let refusal = ended.refusal.clone().unwrap();
    assert_eq!((ended.state, refusal.kind), (CallState::Denied, RefusalKind::DeniedByApprover));
    assert_eq!((refusal.reason.as_deref(), refusal.by.as_deref()), (Some("not on a Friday"), Some("ann")));
    assert!(Wording::default().refusal(&refusal).contains("not on a Friday"));
    assert!(desk.ran().is_empty());
}

/// B3: an allowed call opens no hold, and neither does one of an unknown tool.
#[tokio::test(start_paused = true)]
async fn allowed_and_unknown_calls_ask_nobody() {
    let desk = Desk::under("otherwise: allow");
    let ended = desk.call("{}").await;
    assert_eq!((ended.state, ended.holds.len()), (CallState::Succeeded, 0));
    let unknown = desk.gate.refuse_unknown(Proposal::new("deplyo", "{}").session("s1")).await.unwrap();
    assert_eq!((unknown.state, kind(&unknown)), (CallState::Denied, Some(RefusalKind::UnknownTool)));
    assert_eq!(desk.count("hold.opened").await, 0);
}

/// CONTRACT 4: an allowed call is claimed in the transaction that submits it; nobody else's, and nothing that waits, is.
#[tokio::test(start_paused = true)]
async fn only_a_new_allowed_call_is_claimed_with_its_submission() {
    let desk = Desk::under("{ otherwise: allow, rules: [{ id: prod, ask: deploy, when: arguments.to == 'prod' }] }");
    let keyed = |arguments: &str| {
        let mut proposal = Desk::proposal(arguments);
        proposal.key = Some(arguments.into());
        proposal
    };
    let first = desk.gate.submit_and_claim(&*desk.tool, keyed(r#"{"to":"dev"}"#)).await.unwrap();
    let Claimed::Permit(permit) = first else { panic!("{first:?}") };
    assert_eq!(desk.events().await, ["call.submitted", "call.allowed", "call.claimed"]);
    let again = desk.gate.submit_and_claim(&*desk.tool, keyed(r#"{"to":"dev"}"#)).await.unwrap();
    let Claimed::Not(same) = again else { panic!("a second permit for one call") };
    assert_eq!((same.id, same.state), (permit.call().id, CallState::Executing));
    let asked = desk.gate.submit_and_claim(&*desk.tool, keyed(r#"{"to":"prod"}"#)).await.unwrap();
    assert!(matches!(&asked, Claimed::Not(call) if call.state == CallState::Pending), "{asked:?}");
    desk.gate.halt(None, "ann", None).await.unwrap();
    let halted = desk.gate.submit_and_claim(&*desk.tool, keyed(r#"{"to":"test"}"#)).await.unwrap();
    assert!(matches!(&halted, Claimed::Not(call) if call.state == CallState::Allowed), "{halted:?}");
    assert!(desk.ran().is_empty());
}

/// B4: a hold carries everything an approver needs.
#[tokio::test(start_paused = true)]
async fn a_hold_carries_what_an_approver_needs() {
    let mut holds = None;
    let desk = Desk::build(|builder| {
        let rules = "rules: [{ id: deploys, ask: deploy, reason: It goes live, expires_after: 1h }]";
        let (builder, receiver) = builder.policy(policy(rules)).channel();
        holds = Some(receiver);
        builder
    });
    let mut definition = Definition::new("deploy", "Goes live.");
    definition.tool = ToolId::on("ops", "deploy");
    let desk = desk.with_tool(tool(definition, |_| async { Ok(Json::empty()) }));
    let mut proposal = Desk::proposal(r#"{ "to": "prod" }"#);
    proposal.tool = ToolId::on("ops", "deploy");
    proposal.label = Some("toolu_1".into());
    proposal.path.thread = Some("t1".into());
    proposal.path.agents = ["root".into(), "helper".into()].into();
    proposal.payload = Some(json(r#"{"diff":"+1"}"#));
    let path = proposal.path.clone();
    let submitted = desk.propose(proposal).await;
    let hold = holds.unwrap().try_recv().unwrap();
    let call = &hold.call;
    assert_eq!((hold.id, call.id, hold.digest), (submitted.holds[0].id, submitted.id, submitted.digest));
    assert_eq!((call.label.as_deref(), &call.facts.tool), (Some("toolu_1"), &ToolId::on("ops", "deploy")));
    assert_eq!(call.facts.arguments, json(r#"{"to":"prod"}"#));
    let definition = desk.tool.definition().digest();
    let digest = argument_digest(&ToolId::on("ops", "deploy"), Some(&definition), &json(r#"{"to":"prod"}"#));
    assert_eq!(call.argument_digest, digest);
    assert_eq!((call.facts.path.session.as_deref(), &call.facts.path), (Some("s1"), &path));
    assert_eq!(hold.because[0].rule.as_ref(), "deploys");
    assert_eq!(hold.because[0].reason.as_deref(), Some("It goes live"));
    assert_eq!(hold.hint.as_deref(), Some("Run `ops/deploy`"));
    assert_eq!(hold.payload, Some(json(r#"{"diff":"+1"}"#)));
    assert_eq!(hold.opened_at.until(hold.expires_at.unwrap()).as_secs(), 3600);
    assert_eq!(call.description.as_deref(), Some("Goes live."));
    let body = desk.log().await[1].value();
    assert_eq!((&body["tool"], &body["server"]), (&"deploy".into(), &"ops".into()));
    assert_eq!((&body["rules"][0], &body["in_run"]), (&"deploys".into(), &false.into()));
    let named = [hold.id.to_string(), call.id.to_string(), hold.digest.to_string()];
    assert_eq!([&body["hold"], &body["call"], &body["digest"]], [&named[0], &named[1], &named[2]]);
}

/// B5: nothing unset ever means allow.
#[tokio::test(start_paused = true)]
async fn without_a_policy_everything_is_asked() {
    let desk = Desk::build(|builder| builder.decided_elsewhere());
    assert_eq!(desk.submit("{}").await.state, CallState::Pending);
    assert_eq!(Policy::from_yaml("rules: []").unwrap().unattended(), countersign::policy::Unattended::Deny);
}

/// B6: a gate that can ask and can reach nobody is not built, unless somebody said what then.
#[tokio::test(start_paused = true)]
async fn a_gate_that_could_ask_nobody_is_not_built() {
    let yes = |_| async { Ok(Answer::approve()) };
    assert!(Desk::try_build(|builder| builder).is_err());
    assert!(Desk::try_build(|builder| builder.policy(policy("rules: [{ id: a, ask: x }]\notherwise: allow"))).is_err());
    assert!(Desk::try_build(|builder| builder.approver(yes)).is_ok());
    assert!(Desk::try_build(|builder| builder.decided_elsewhere()).is_ok());
    assert!(Desk::try_build(|builder| builder.channel().0).is_ok());
    assert!(Desk::try_build(|builder| builder.policy(policy("unattended: deny"))).is_ok());
}

/// B7: a tool that cannot be judged stops the start, and is refused later.
#[tokio::test(start_paused = true)]
async fn a_tool_that_cannot_be_judged_is_never_offered() {
    let broken = || {
        let schema = serde_json::json!({ "type": "no such type" });
        let definition = Definition::new("bad", "").with_schema(&schema).unwrap();
        countersign::tool::tool(definition, |_| async { Ok(countersign::Json::empty()) })
    };
    let built = Gate::builder().decided_elsewhere().admits(std::sync::Arc::new(broken())).build();
    assert!(built.is_err());
    let desk = Desk::new();
    assert!(desk.gate.admit(&broken()).is_err());
    assert!(desk.gate.admit(desk.tool.as_ref()).is_ok());
    let refused = desk.gate.submit(&broken(), Proposal::new("bad", "{}")).await.unwrap();
    assert_eq!((refused.state, kind(&refused)), (CallState::Denied, Some(RefusalKind::Error)));
}

/// B11: the wording is configurable, the kind is not; and nothing makes a refused call a success.
#[tokio::test(start_paused = true)]
async fn a_refused_call_stays_refused() {
    let desk = Desk::under("otherwise: deny");
    let call = desk.submit("{}").await;
    assert_eq!((call.state, kind(&call)), (CallState::Denied, Some(RefusalKind::DeniedByRule)));
    let polite = Wording { closing: Some("Ask Ann.".into()) };
    assert!(polite.refusal(call.refusal.as_ref().unwrap()).ends_with("Ask Ann."));
    let success = countersign::call::Outcome::Succeeded { output: countersign::Json::empty() };
    assert!(desk.gate.finish(call.id, 0, success.clone()).await.is_err());
    assert!(desk.gate.finish(call.id, 1, success).await.is_err());
    assert_eq!(*desk.now(&call).await, *call);
}

/// B12: an identical call after a denial gets the same refusal without asking again; no denial outlives the run.
#[tokio::test(start_paused = true)]
async fn a_denial_counts_for_the_same_call_in_the_same_run_only() {
    let desk = Desk::new();
    let call = desk.submit(r#"{"n":1}"#).await;
    desk.ann(&call, Answer::deny("no")).await.unwrap();
    let again = desk.submit(r#"{ "n" : 1 }"#).await;
    assert_eq!((again.state, kind(&again)), (CallState::Denied, Some(RefusalKind::DeniedByApprover)));
    assert_eq!(again.refusal.as_ref().unwrap().reason.as_deref(), Some("no"));
    assert_eq!(desk.count("hold.opened").await, 1);
    assert_eq!(desk.submit(r#"{"n":2}"#).await.state, CallState::Pending, "other arguments");
    let elsewhere = Proposal::new("deploy", r#"{"n":1}"#).session("s2");
    assert_eq!(desk.propose(elsewhere).await.state, CallState::Pending, "another session");
    let mut next_run = Desk::proposal(r#"{"n":1}"#);
    next_run.path.run = Some("r2".into());
    assert_eq!(desk.propose(next_run).await.state, CallState::Pending, "another run of the session");
}

/// B13: submit never waits; the blocking face and the deciding one are the same hold.
#[tokio::test(start_paused = true)]
async fn submit_never_waits_and_the_styles_mix() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    let blocking = desk.gate.clone();
    let id = call.id;
    let waiter = tokio::spawn(async move { blocking.wait(id).await.unwrap().state });
    desk.approve(&call).await;
    assert_eq!(waiter.await.unwrap(), CallState::Approved);
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
}

/// Pending caps: over the limit is refused at once, and frees again.
#[tokio::test(start_paused = true)]
async fn too_many_waiting_calls_are_refused_at_once() {
    let limits = Limits { pending_per_session: 2, ..Limits::default() };
    let desk = Desk::build(|builder| builder.decided_elsewhere().limits(limits));
    let first = desk.submit(r#"{"n":1}"#).await;
    desk.submit(r#"{"n":2}"#).await;
    let over = desk.submit(r#"{"n":3}"#).await;
    assert_eq!((over.state, kind(&over)), (CallState::Denied, Some(RefusalKind::Limit)));
    assert_eq!(desk.propose(Proposal::new("deploy", "{}").session("s2")).await.state, CallState::Pending);
    desk.ann(&first, Answer::deny("no")).await.unwrap();
    assert_eq!(desk.submit(r#"{"n":4}"#).await.state, CallState::Pending);
}

/// B48: a tool is a server and a name; neither joined string nor bare name crosses over.
#[tokio::test(start_paused = true)]
async fn a_tool_is_a_pair_and_not_a_joined_name() {
    let desk = Desk::under("rules: [{ id: mine, allow: deploy }]");
    let mut foreign = Desk::proposal("{}");
    foreign.tool = ToolId::on("evil", "deploy");
    assert_eq!(desk.gate.submit_undefined(foreign).await.unwrap().state, CallState::Pending);
    assert_eq!(desk.submit("{}").await.state, CallState::Allowed);
}

/// Names that would blur who did what are refused before anything is written.
#[tokio::test(start_paused = true)]
async fn blank_and_endless_names_are_refused() {
    let desk = Desk::new();
    let long = "x".repeat(countersign::limits::NAME_BYTES + 1);
    for session in ["", "  ", long.as_str()] {
        let proposal = Proposal::new("deploy", "{}").session(session);
        assert!(desk.gate.submit(desk.tool.as_ref(), proposal).await.is_err(), "session `{session}`");
    }
    let call = desk.submit("{}").await;
    assert!(desk.decide(&call, Who::person(" "), Answer::approve()).await.is_err());
    assert!(desk.ann(&call, Answer::deny("x".repeat(5_000))).await.is_err());
    assert_eq!(desk.events().await.len(), 2, "only the good call is on record");
}

/// B9, I1: a permit runs the tool it is for and no other, by name and by definition; otherwise nothing runs.
#[tokio::test(start_paused = true)]
async fn a_permit_runs_no_other_tool() {
    let ran = Ran::default();
    let named = recorder("destroy", &ran);
    let noted = Arc::clone(&ran);
    let defined = tool(Definition::new("deploy", "Another tool of that name."), move |_| {
        noted.lock().unwrap().push("other".into());
        async { Ok(Json::empty()) }
    });
    for other in [&named, &defined] {
        let desk = Desk::under("otherwise: allow");
        let call = desk.submit("{}").await;
        let claimed = desk.gate.claim(call.id, Some(desk.tool.definition().digest())).await.unwrap();
        let Claimed::Permit(permit) = claimed else { panic!("{claimed:?}") };
        let ended = desk.gate.run(permit, other).await.unwrap();
        assert_eq!((ended.state, kind(&ended)), (CallState::Failed, Some(RefusalKind::Error)));
        assert!(ran.lock().unwrap().is_empty() && desk.ran().is_empty());
    }
}
