//! I9: what tools, hooks, approvers and files say is masked before it is written to the log.

use std::sync::Arc;

use countersign::call::{Resolution, ResolvedAs};
use countersign::gate::{Authorized, GateBuilder, HookAnswer};
use countersign::redact::Redactor;
use countersign::tool::tool;
use countersign::{Answer, Call, CallState, Definition, Json, ToolError};

use super::desk::{Desk, json};

/// Nobody must be able to read this in the log.
const CANARY: &str = "AKIAIOSFODNN7EXAMPLE";

fn says() -> String {
    format!("the key is {CANARY}")
}

fn guarded(change: impl FnOnce(GateBuilder) -> GateBuilder) -> Desk {
    Desk::build(|builder| change(builder.redactor(Redactor::standard())))
}

/// Looks through the whole log, and through what the call's row says was refused.
async fn nowhere(desk: &Desk, what: &str) {
    for event in desk.log().await {
        assert!(!event.body.contains(CANARY), "{what}: {}", event.body);
    }
}

/// A tool that says so itself.
fn telling(error: fn(String) -> ToolError) -> countersign::tool::FnTool {
    tool(Definition::new("deploy", ""), move |_| async move { Err(error(says())) })
}

/// What a tool says of its end.
#[tokio::test(start_paused = true)]
async fn a_tools_last_words_are_masked() {
    for (what, error) in [("failed", ToolError::Failed as fn(String) -> ToolError), ("no answer", ToolError::NoAnswer)]
    {
        let desk = guarded(|builder| builder.policy(super::desk::policy("otherwise: allow"))).with_tool(telling(error));
        desk.call("{}").await;
        assert!(desk.log().await.len() >= 4, "{what}");
        nowhere(&desk, what).await;
    }
}

/// What a broken policy's text shows.
#[tokio::test(start_paused = true)]
async fn a_broken_policys_line_is_masked() {
    let desk = guarded(GateBuilder::decided_elsewhere);
    let broken = format!("otherwise: {CANARY}");
    let error = desk.gate.load_policy(&broken).await.unwrap_err().to_string();
    assert!(error.contains(CANARY), "whoever wrote it is shown the line: {error}");
    assert_eq!(desk.count("policy.rejected").await, 1);
    nowhere(&desk, "policy.rejected").await;
}

/// What hooks and authorizers give for a reason, or fail with.
#[tokio::test(start_paused = true)]
async fn the_words_of_checks_are_masked() {
    let hook = |answer: fn() -> Result<HookAnswer, String>| {
        guarded(move |builder| builder.decided_elsewhere().before_tool(move |_| async move { answer() }))
    };
    let authorizer = |answer: fn() -> Result<Authorized, String>| {
        guarded(move |builder| builder.decided_elsewhere().authorizer(move |_| async move { answer() }))
    };
    let desks = [
        ("a hook refuses", hook(|| Ok(HookAnswer::Refuse(says())))),
        ("a hook asks", hook(|| Ok(HookAnswer::Ask(says())))),
        ("a hook fails", hook(|| Err(says()))),
        ("an authorizer refuses", authorizer(|| Ok(Authorized::No(says())))),
        ("an authorizer fails", authorizer(|| Err(says()))),
    ];
    for (what, desk) in desks {
        desk.submit("{}").await;
        assert_eq!(desk.log().await.len(), 2, "{what}");
        nowhere(&desk, what).await;
    }
}

/// What an approver function fails with.
#[tokio::test]
async fn an_approvers_failure_is_masked() {
    let desk = guarded(|builder| builder.approver(|_| async { Err::<Answer, _>(says()) }));
    assert_eq!(desk.call("{}").await.state, CallState::Cancelled);
    nowhere(&desk, "the approver fails").await;
}

/// What somebody writes who settles a doubt.
#[tokio::test(start_paused = true)]
async fn the_reason_a_doubt_is_settled_by_is_masked() {
    let desk = guarded(|builder| builder.policy(super::desk::policy("otherwise: allow")))
        .with_tool(tool(Definition::new("deploy", ""), |_| async { Err(ToolError::NoAnswer("cut".into())) }));
    let call = desk.call("{}").await;
    assert_eq!(call.state, CallState::InDoubt);
    let (r#as, at) = (ResolvedAs::Applied, countersign::Time(0));
    let resolution = Resolution { r#as, reason: says(), by: "ann".into(), at };
    let settled = desk.gate.resolve(call.id, resolution).await.unwrap();
    assert_eq!(settled.state, CallState::Resolved);
    assert!(!settled.resolution.as_ref().unwrap().reason.contains(CANARY), "nor in the call's row");
    assert_eq!(desk.count("call.resolved").await, 1);
    nowhere(&desk, "resolve").await;
}

async fn decided(answer: Answer) -> (Desk, Arc<Call>) {
    let desk = guarded(GateBuilder::decided_elsewhere);
    let call = desk.submit("{}").await;
    let decided = desk.ann(&call, answer).await.unwrap().call;
    (desk, decided)
}

/// What people write with a decision. What is meant for the tool or the model reaches it as it was written.
#[tokio::test(start_paused = true)]
async fn the_words_of_a_decision_are_masked_in_the_log_alone() {
    let (desk, _) = decided(Answer::deny(says())).await;
    nowhere(&desk, "deny").await;
    let payload = json(&format!(r#"{{"api_key":"{CANARY}"}}"#));
    let (desk, call) =
        decided(Answer::Approve { arguments: None, payload: Some(payload.clone()), remember: None }).await;
    nowhere(&desk, "payload").await;
    let kept = &call.approval().unwrap().answer;
    assert!(matches!(kept, Answer::Approve { payload: Some(kept), .. } if *kept == payload), "the tool gets it whole");
    let response = Json::string(&says());
    let (desk, call) = decided(Answer::Respond { response: response.clone() }).await;
    nowhere(&desk, "response").await;
    assert_eq!(call.response, Some(response), "the model gets it whole");
}
