//! B27 to B32, B103: questions from inside a running tool.

use std::sync::Arc;
use std::time::Duration;

use countersign::call::Outcome;
use countersign::grant::Remember;
use countersign::hold::HoldState;
use countersign::tool::{FnTool, tool};
use countersign::transition::Rejection;
use countersign::{Answer, Call, CallState, Definition, GateError, Json, Limits, RefusalKind, Who};
use tokio::task::JoinHandle;

use super::desk::{Desk, edit, json, kind, memory, policy, remember};

/// A tool that asks once while it runs, and passes a no on.
fn asking() -> FnTool {
    tool(Definition::new("deploy", ""), |running| async move {
        let decision = running.confirm("delete 9 rows?", &serde_json::json!({ "rows": 9 })).await?;
        Ok(Json::string(&format!("{} said yes", decision.by.id)))
    })
}

/// A tool that asks, and carries on whatever it is told.
fn deaf() -> FnTool {
    tool(Definition::new("deploy", ""), |running| async move {
        let _ = running.confirm("really?", &1).await;
        Ok(Json::string("went on"))
    })
}

fn desk(tool: FnTool) -> Desk {
    Desk::under("otherwise: allow").with_tool(tool)
}

/// Takes a call the whole way in the background.
fn start(desk: &Desk, call: &Call) -> JoinHandle<Arc<Call>> {
    let (gate, tool, id) = (desk.gate.clone(), Arc::clone(&desk.tool), call.id);
    tokio::spawn(async move { gate.resume(tool.as_ref(), id).await.unwrap() })
}

/// Waits until the running tool asks.
async fn asked(desk: &Desk, call: &Call) -> Arc<Call> {
    loop {
        let listener = desk.gate.store().bell().listen(call.id);
        let now = desk.now(call).await;
        if now.open_hold().is_some_and(|hold| hold.in_run()) {
            return now;
        }
        listener.await;
    }
}

/// Submits, runs, and waits for the question.
async fn begin(desk: &Desk) -> (JoinHandle<Arc<Call>>, Arc<Call>) {
    let call = desk.submit("{}").await;
    let running = start(desk, &call);
    let call = asked(desk, &call).await;
    (running, call)
}

/// B27, B31: an in-run hold shows hint and payload and says that the tool runs; a yes lets it go on.
#[tokio::test(start_paused = true)]
async fn a_yes_lets_the_running_tool_go_on() {
    let desk = desk(asking());
    let (running, call) = begin(&desk).await;
    let hold = call.open_hold().unwrap();
    assert_eq!(hold.hint.as_deref(), Some("delete 9 rows?"));
    assert_eq!(hold.payload.as_ref().unwrap().as_str(), r#"{"rows":9}"#);
    assert_eq!(call.state, CallState::Executing);
    desk.approve(&call).await;
    let ended = running.await.unwrap();
    assert_eq!(ended.outcome, Some(Outcome::Succeeded { output: Json::string("ann said yes") }));
    let opened = desk.log().await.into_iter().find(|event| event.name.as_str() == "hold.opened").unwrap();
    assert_eq!(opened.value()["in_run"], true);
}

/// B27, B29: a no is a typed refusal; propagated, it ends the call as failed with that refusal.
#[tokio::test(start_paused = true)]
async fn a_no_that_is_passed_on_fails_the_call() {
    let desk = desk(asking());
    let (running, call) = begin(&desk).await;
    desk.ann(&call, Answer::deny("keep them")).await.unwrap();
    let ended = running.await.unwrap();
    assert_eq!((ended.state, kind(&ended)), (CallState::Failed, Some(RefusalKind::DeniedByApprover)));
    assert_eq!(ended.refusal.as_ref().unwrap().reason.as_deref(), Some("keep them"));
}

/// B29: a tool that goes on after a no, or without waiting, is in doubt, with a warning on record.
#[tokio::test(start_paused = true)]
async fn a_no_that_is_swallowed_is_a_doubt() {
    let impatient = tool(Definition::new("deploy", ""), |running| async move {
        let _ = tokio::time::timeout(Duration::from_secs(1), running.confirm("well?", &1)).await;
        Ok(Json::string("went on"))
    });
    for (tool, answer) in [(deaf(), Some(Answer::deny("no"))), (impatient, None)] {
        let desk = desk(tool);
        let (running, call) = begin(&desk).await;
        if let Some(answer) = answer {
            desk.ann(&call, answer).await.unwrap();
        }
        let ended = running.await.unwrap();
        assert_eq!(ended.state, CallState::InDoubt);
        assert!(ended.open_hold().is_none(), "no question is left open");
        let last = desk.log().await.pop().unwrap();
        assert_eq!(last.name.as_str(), "call.in_doubt");
        assert!(last.value()["why"].as_str().unwrap().contains("went on"), "{}", last.body);
    }
}

/// B28: no allow rule, grant or earlier decision on the call answers an in-run hold.
#[tokio::test(start_paused = true)]
async fn an_in_run_hold_is_always_asked() {
    let desk = Desk::new().with_tool(asking());
    for n in 0..2 {
        let call = desk.submit("{}").await;
        if n == 0 {
            desk.ann(&call, remember(Remember::session())).await.unwrap();
        } else {
            assert_eq!(call.state, CallState::Allowed, "the grant answers for the call");
        }
        let running = start(&desk, &call);
        let call = asked(&desk, &call).await;
        desk.approve(&call).await;
        assert_eq!(running.await.unwrap().state, CallState::Succeeded);
    }
    let desk = Desk::under("rules: [{ id: yes, allow: deploy }]").with_tool(asking());
    let (running, call) = begin(&desk).await;
    assert_eq!((call.verdict.because()[0].rule.as_ref(), call.holds.len()), ("yes", 1), "the rule let it run");
    desk.approve(&call).await;
    assert_eq!(running.await.unwrap().state, CallState::Succeeded);
}

/// B28, B101: with nobody reachable, `unattended` answers: deny refuses, allow passes, but never a must-ask.
#[tokio::test(start_paused = true)]
async fn unattended_answers_where_nobody_can() {
    let cases = [
        ("otherwise: allow\nunattended: deny", CallState::Failed, Some(RefusalKind::NoApprover)),
        ("otherwise: allow\nunattended: allow", CallState::Succeeded, None),
    ];
    for (yaml, state, refusal) in cases {
        let desk = Desk::build(|builder| builder.policy(policy(yaml))).with_tool(asking());
        let ended = desk.call("{}").await;
        assert_eq!((ended.state, kind(&ended)), (state, refusal), "{yaml}");
    }
    // A person lets it run where one can be asked; it then asks where nobody can.
    let store = memory();
    let people = "unattended: allow\nrules: [{ id: people, ask: deploy, human: required }]";
    let attended = Desk::build(|builder| builder.store(store.clone()).policy(policy(people)).decided_elsewhere());
    let attended = attended.with_tool(asking());
    let call = attended.submit("{}").await;
    attended.approve(&call).await;
    let alone = Desk::build(|builder| builder.store(store).policy(policy(people))).with_tool(asking());
    let ended = alone.resume(&call).await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Failed, Some(RefusalKind::NoApprover)));
    assert_eq!((ended.holds[0].state, ended.holds[1].state), (HoldState::Approved, HoldState::Cancelled));
}

/// B30: asked both ways there are two holds with two ids, and one never decides the other.
#[tokio::test(start_paused = true)]
async fn two_holds_of_one_call_are_decided_apart() {
    let desk = Desk::new().with_tool(asking());
    let call = desk.submit("{}").await;
    let before = call.open_hold().unwrap().clone();
    desk.approve(&call).await;
    let running = start(&desk, &call);
    let call = asked(&desk, &call).await;
    assert_eq!(call.holds.len(), 2);
    let inside = call.open_hold().unwrap().clone();
    assert_ne!((before.id, before.digest), (inside.id, inside.digest));
    let crossed = countersign::Decision::new(Who::person("bo"), "test", before.digest, Answer::approve());
    let crossed = desk.gate.decide(inside.id, crossed).await;
    assert!(matches!(crossed, Err(GateError::Rejected(Rejection::DigestMismatch))), "{crossed:?}");
    desk.ann(&call, Answer::deny("no")).await.unwrap();
    let ended = running.await.unwrap();
    assert_eq!((ended.holds[0].state, ended.holds[1].state), (HoldState::Approved, HoldState::Denied));
}

/// B31, B85: a crash while the question waits is a crash while executing: in doubt, and the question is withdrawn.
#[tokio::test(start_paused = true)]
async fn a_crash_while_asking_is_a_doubt() {
    let desk = desk(asking());
    let (running, call) = begin(&desk).await;
    running.abort();
    tokio::time::advance(countersign::limits::LEASE).await;
    desk.gate.sweep().await.unwrap();
    let now = desk.now(&call).await;
    assert_eq!((now.state, now.holds[0].state), (CallState::InDoubt, HoldState::Cancelled));
    assert!(desk.ann(&call, Answer::approve()).await.is_err(), "B102: a later decision runs nothing");
}

/// B32: the payload is frozen into what the decision binds to.
#[tokio::test(start_paused = true)]
async fn another_payload_is_another_digest() {
    let twice = tool(Definition::new("deploy", ""), |running| async move {
        running.confirm("go on?", &1).await?;
        running.confirm("go on?", &2).await?;
        Ok(Json::empty())
    });
    let desk = desk(twice);
    let (running, call) = begin(&desk).await;
    let first = desk.approve(&call).await.holds[0].clone();
    let call = asked(&desk, &call).await;
    let second = call.open_hold().unwrap().clone();
    assert_ne!(first.digest, second.digest);
    let stale = countersign::Decision::new(Who::person("ann"), "test", first.digest, Answer::approve());
    assert!(desk.gate.decide(second.id, stale).await.is_err());
    desk.approve(&call).await;
    assert_eq!(running.await.unwrap().state, CallState::Succeeded);
}

/// An in-run hold takes yes, no and a payload; nothing to edit, remember or answer instead.
#[tokio::test(start_paused = true)]
async fn an_in_run_hold_takes_yes_or_no_only() {
    let desk = desk(asking());
    let (running, call) = begin(&desk).await;
    let respond = Answer::Respond { response: Json::string("x") };
    for answer in [edit("{}"), remember(Remember::session()), respond] {
        let refused = desk.ann(&call, answer.clone()).await;
        assert!(matches!(refused, Err(GateError::Rejected(Rejection::InRunOnly))), "{answer:?}: {refused:?}");
    }
    let payload = Answer::Approve { arguments: None, payload: Some(json(r#"{"only":3}"#)), remember: None };
    desk.ann(&call, payload).await.unwrap();
    assert_eq!(running.await.unwrap().state, CallState::Succeeded);
}

/// A question nobody answers expires, and the tool reads that.
#[tokio::test(start_paused = true)]
async fn an_in_run_hold_expires() {
    let desk = desk(asking());
    let ended = desk.call("{}").await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Failed, Some(RefusalKind::Expired)));
}

/// A tool cannot flood people with questions.
#[tokio::test(start_paused = true)]
async fn a_tool_may_ask_only_so_often() {
    let nosy = tool(Definition::new("deploy", ""), |running| async move {
        for n in 0..3 {
            running.confirm("again?", &n).await?;
        }
        Ok(Json::empty())
    });
    let limits = Limits { holds_per_call: 2, ..Limits::default() };
    let allow = policy("otherwise: allow\nunattended: allow");
    let desk = Desk::build(|builder| builder.policy(allow).limits(limits)).with_tool(nosy);
    let ended = desk.call("{}").await;
    assert_eq!((ended.state, kind(&ended), ended.holds.len()), (CallState::Failed, Some(RefusalKind::Limit), 2));
}

/// B29: a tool that goes on after a question that could not be asked at all is in doubt, as after a no.
#[tokio::test(start_paused = true)]
async fn a_question_that_could_not_be_asked_is_no_yes() {
    let huge = tool(Definition::new("deploy", ""), |running| async move {
        let _ = running.confirm("well?", &"x".repeat(10 << 20)).await;
        Ok(Json::string("went on"))
    });
    let none = Limits { holds_per_call: 0, ..Limits::default() };
    for (tool, limits) in [(deaf(), none), (huge, Limits::default())] {
        let allow = policy("otherwise: allow\nunattended: allow");
        let desk = Desk::build(|builder| builder.policy(allow).limits(limits)).with_tool(tool);
        let ended = desk.call("{}").await;
        assert_eq!((ended.state, ended.holds.len()), (CallState::InDoubt, 0));
        let Some(Outcome::MayHaveApplied { why }) = &ended.outcome else { panic!("{:?}", ended.outcome) };
        assert!(why.contains("could not be asked"), "{why}");
    }
}

/// B103: a halt keeps an in-run yes from being delivered until it is lifted; a no arrives.
#[tokio::test(start_paused = true)]
async fn a_halt_keeps_a_yes_back_and_lets_a_no_through() {
    let desk = desk(asking());
    let (running, call) = begin(&desk).await;
    desk.gate.halt(None, "op", None).await.unwrap();
    desk.approve(&call).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(desk.now(&call).await.state, CallState::Executing, "the yes is on record and waits");
    desk.gate.lift(None, "op").await.unwrap();
    assert_eq!(running.await.unwrap().state, CallState::Succeeded);

    let (running, call) = begin(&desk).await;
    desk.gate.halt(None, "op", None).await.unwrap();
    desk.ann(&call, Answer::deny("no")).await.unwrap();
    assert_eq!(running.await.unwrap().state, CallState::Failed, "a no needs no lifting");
}
