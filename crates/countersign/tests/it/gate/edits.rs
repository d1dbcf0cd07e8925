//! B33 to B35, and answering instead: what an approver may change.

use std::sync::{Arc, Mutex};

use countersign::grant::Remember;
use countersign::store::Op;
use countersign::tool::{Tool as _, tool};
use countersign::transition::Rejection;
use countersign::{Answer, CallState, Definition, GateError, Json, Policy, Who};

use super::desk::{Desk, edit, json, kind};

const BIG: &str = "
otherwise: ask
rules:
  - { id: never, deny: deploy, when: arguments.n > 1000 }
  - { id: big, ask: deploy, when: arguments.n > 100, approvals: 2 }
";

/// B33: edited bytes that ask for no more are what is approved, and exactly they run.
#[tokio::test(start_paused = true)]
async fn an_edit_that_needs_no_more_runs_as_edited() {
    let desk = Desk::under(BIG);
    let call = desk.submit(r#"{"n":1}"#).await;
    let decided = desk.ann(&call, edit(r#"{ "n" : 7 }"#)).await.unwrap().call;
    assert_eq!(decided.state, CallState::Approved);
    assert_ne!(decided.digest, call.digest, "other bytes, another digest");
    assert_eq!(decided.holds[0].digest, call.holds[0].digest, "one hold, one digest");
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
    assert_eq!(desk.ran(), [r#"{"n":7}"#]);
}

/// B33: an edit that the policy denies, or that does not fit the schema, is not accepted; the hold stays open.
#[tokio::test(start_paused = true)]
async fn a_denied_or_invalid_edit_leaves_the_hold_open() {
    let schema = serde_json::json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let desk = Desk::under(BIG);
    let ran = desk.ran.clone();
    let desk = desk.with_tool(tool(Definition::new("deploy", "").with_schema(&schema).unwrap(), move |running| {
        ran.lock().unwrap().push(running.arguments().to_string());
        async { Ok(Json::empty()) }
    }));
    let call = desk.submit(r#"{"n":1}"#).await;
    let denied = desk.ann(&call, edit(r#"{"n":5000}"#)).await;
    assert!(matches!(denied, Err(GateError::Rejected(Rejection::EditDenied(_)))), "{denied:?}");
    let invalid = desk.ann(&call, edit(r#"{"n":"x"}"#)).await;
    assert!(matches!(invalid, Err(GateError::BadEdit(_))), "{invalid:?}");
    assert_eq!(desk.now(&call).await.state, CallState::Pending);
    desk.approve(&call).await;
    desk.resume(&call).await;
    assert_eq!(desk.ran(), [r#"{"n":1}"#], "the original bytes can still be approved");
}

/// B33: stricter terms than the edit meets open a new hold, without any approvals, for the edited bytes.
#[tokio::test(start_paused = true)]
async fn a_stricter_edit_is_asked_anew() {
    let desk = Desk::under(BIG);
    let call = desk.submit(r#"{"n":1}"#).await;
    let first = call.open_hold().unwrap().clone();
    let again = desk.ann(&call, edit(r#"{"n":500}"#)).await.unwrap().call;
    let second = again.open_hold().unwrap().clone();
    assert_eq!(again.state, CallState::Pending);
    assert_ne!((first.id, first.digest), (second.id, second.digest));
    assert!(second.decisions.is_empty(), "the editor has not approved the new hold");
    assert_eq!(desk.ann(&call, Answer::approve()).await.unwrap().call.state, CallState::Pending);
    let bo = desk.decide(&call, Who::person("bo"), Answer::approve()).await.unwrap().call;
    assert_eq!(bo.state, CallState::Approved);
    desk.resume(&call).await;
    assert_eq!(desk.ran(), [r#"{"n":500}"#]);
    let decision = countersign::Decision::new(Who::person("cy"), "test", first.digest, Answer::approve());
    assert!(desk.gate.decide(first.id, decision).await.is_err(), "the first hold is closed for ever");
    let names = desk.events().await;
    assert_eq!(names[..5], ["call.submitted", "hold.opened", "hold.decided", "hold.superseded", "hold.opened"]);
}

/// B34: an edit is on record before and after; tool, server and agent stay.
#[tokio::test(start_paused = true)]
async fn an_edit_is_on_record_before_and_after() {
    let desk = Desk::new();
    let call = desk.submit(r#"{"n":1}"#).await;
    let decided = desk.ann(&call, edit(r#"{"n":2}"#)).await.unwrap().call;
    let body = desk.log().await[2].value();
    assert_eq!((&body["before"]["n"], &body["after"]["n"]), (&1.into(), &2.into()));
    assert_eq!(body["runs"], decided.digest.to_string());
    assert_eq!((&decided.facts.tool, &decided.facts.path), (&call.facts.tool, &call.facts.path));
}

/// B79: the key still names the call after an edit, for the agent knows nothing of the edit.
#[tokio::test(start_paused = true)]
async fn an_edited_call_is_still_known_by_its_key() {
    let desk = Desk::new();
    let call = desk.propose(Desk::proposal(r#"{"n":1}"#).key("k1")).await;
    desk.ann(&call, edit(r#"{"n":2}"#)).await.unwrap();
    let again = desk.propose(Desk::proposal(r#"{"n":1}"#).key("k1")).await;
    assert_eq!((again.id, again.state), (call.id, CallState::Approved));
    let other = desk.gate.submit(desk.tool.as_ref(), Desk::proposal(r#"{"n":2}"#).key("k1")).await;
    assert!(matches!(other, Err(GateError::Rejected(Rejection::KeyReused))), "the edit is not what the agent asked");
}

/// B35: a payload is handed to the tool with the permit and never merged into the arguments.
#[tokio::test(start_paused = true)]
async fn a_payload_reaches_the_tool_beside_the_arguments() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let desk = Desk::new().with_tool(tool(Definition::new("deploy", ""), move |running| {
        let payload = running.payload().map(ToString::to_string).unwrap_or_default();
        log.lock().unwrap().push(format!("{} {payload}", running.arguments()));
        async { Ok(Json::empty()) }
    }));
    let call = desk.submit(r#"{"n":1}"#).await;
    let payload = Some(json(r#"{"n":9,"ticket":"T-1"}"#));
    desk.ann(&call, Answer::Approve { arguments: None, payload, remember: None }).await.unwrap();
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
    assert_eq!(*seen.lock().unwrap(), [r#"{"n":1} {"n":9,"ticket":"T-1"}"#]);
    assert_eq!(desk.log().await[2].value()["payload"]["ticket"], "T-1");
}

/// A person answers instead: the tool never runs and the answer is there.
#[tokio::test(start_paused = true)]
async fn an_answer_instead_runs_nothing() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.ann(&call, Answer::Respond { response: Json::string("I did it by hand") }).await.unwrap();
    let ended = desk.resume(&call).await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Answered, None));
    assert_eq!(ended.response, Some(Json::string("I did it by hand")));
    assert!(desk.ran().is_empty());
    assert_eq!(desk.events().await, ["call.submitted", "hold.opened", "hold.decided", "call.answered"]);
}

/// B33, B51: an edit is judged by the policy all nodes follow, also where this node has not heard of it yet.
#[tokio::test(start_paused = true)]
async fn an_edit_is_judged_by_the_policy_in_force() {
    let desk = Desk::under("otherwise: ask");
    let call = desk.submit(r#"{"n":1}"#).await;
    let version = Arc::clone(Policy::from_yaml(BIG).unwrap().version());
    desk.gate.store().run(Op::SetPolicy { version, source: BIG.into(), by: "olga".into() }).await.unwrap();
    let denied = desk.ann(&call, edit(r#"{"n":5000}"#)).await;
    assert!(matches!(denied, Err(GateError::Rejected(Rejection::EditDenied(_)))), "{denied:?}");
    let again = desk.ann(&call, edit(r#"{"n":500}"#)).await.unwrap().call;
    assert_eq!(again.state, CallState::Pending, "the new policy wants two");
    assert_eq!(again.open_hold().unwrap().terms.quorums[0].approvals, 2);
}

/// safety 4.2, B33: edited into something that may already have happened, a call is asked about anew, and says so.
#[tokio::test(start_paused = true)]
async fn an_edit_into_a_doubt_is_asked_anew() {
    let desk = Desk::new();
    let lost = desk.submit(r#"{"n":2}"#).await;
    desk.approve(&lost).await;
    let claimed = desk.gate.claim(lost.id, Some(desk.tool.definition().digest())).await.unwrap();
    drop(claimed);
    tokio::time::advance(countersign::limits::LEASE).await;
    desk.gate.sweep().await.unwrap();
    assert_eq!(desk.now(&lost).await.state, CallState::InDoubt);
    let call = desk.submit(r#"{"n":1}"#).await;
    let again = desk.ann(&call, edit(r#"{"n":2}"#)).await.unwrap().call;
    assert_eq!(again.state, CallState::Pending, "ann did not know");
    let open = again.open_hold().unwrap();
    let told = open
        .because
        .iter()
        .any(|because| because.reason.as_deref().is_some_and(|reason| reason.contains("may already have happened")));
    assert!(told, "{:?}", open.because);
    assert_eq!(desk.approve(&call).await.state, CallState::Approved, "now she does");
}

/// A decision is taken whole or not at all: what cannot be remembered yet is said, and not left out.
#[tokio::test(start_paused = true)]
async fn an_edit_that_is_asked_anew_is_not_remembered_silently() {
    for policy in [BIG, "rules: [{ id: bo, ask: deploy, when: arguments.n > 100, from: [bo] }]"] {
        let desk = Desk::under(policy);
        let call = desk.submit(r#"{"n":1}"#).await;
        let arguments = Some(json(r#"{"n":500}"#));
        let wish = Answer::Approve { arguments, payload: None, remember: Some(Remember::session()) };
        let refused = desk.ann(&call, wish).await;
        assert!(matches!(refused, Err(GateError::Rejected(Rejection::Grant(_)))), "{refused:?}");
        assert_eq!(*desk.now(&call).await, *call, "nothing changed");
    }
}

/// B92: what was said instead of running is on record.
#[tokio::test(start_paused = true)]
async fn an_answer_instead_is_on_record() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.ann(&call, Answer::Respond { response: Json::string("by hand") }).await.unwrap();
    assert_eq!(desk.log().await[3].value()["response"], "by hand");
}

/// B92: a decision names the rules it was asked by.
#[tokio::test(start_paused = true)]
async fn a_decision_names_its_rules() {
    for answer in [Answer::approve(), Answer::deny("no"), edit(r#"{"n":7}"#)] {
        let desk = Desk::under("rules: [{ id: deploys, ask: deploy }]");
        let call = desk.submit("{}").await;
        desk.ann(&call, answer).await.unwrap();
        assert_eq!(desk.log().await[2].value()["rules"], serde_json::json!(["deploys"]));
    }
}
