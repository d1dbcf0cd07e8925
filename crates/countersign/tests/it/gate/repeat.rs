//! B85 to B87: crashes while executing, and what may run again.

use std::sync::Arc;
use std::time::Duration;

use countersign::call::{Outcome, Repeat, Resolution, ResolvedAs};
use countersign::store::Op;
use countersign::tool::{FnTool, Tool, Verified, tool};
use countersign::{Call, CallState, Claimed, Definition, Json, Permit, Running, ToolError};

use super::desk::{Desk, Ran};

/// A tool of a class, writing down each attempt.
fn of_class(repeat: Repeat, ran: &Ran) -> FnTool {
    let mut definition = Definition::new("deploy", "");
    definition.repeat = repeat;
    let ran = Arc::clone(ran);
    tool(definition, move |running| {
        ran.lock().unwrap().push(format!("{} {}", running.attempt(), running.idempotency_key()));
        async { Ok(Json::string("done")) }
    })
}

fn desk(repeat: Repeat) -> Desk {
    let desk = Desk::under("otherwise: allow");
    let tool = of_class(repeat, &desk.ran);
    desk.with_tool(tool)
}

async fn claim(desk: &Desk, call: &Call) -> Claimed {
    desk.gate.claim(call.id, Some(desk.tool.definition().digest())).await.unwrap()
}

async fn permit(desk: &Desk, call: &Call) -> Permit {
    match claim(desk, call).await {
        Claimed::Permit(permit) => permit,
        Claimed::Not(call) => panic!("no permit: {}", call.state),
    }
}

/// Claims, and then the executor is gone until its lease is over.
async fn crash(desk: &Desk, call: &Call) {
    let permit = permit(desk, call).await;
    std::mem::forget(permit);
    tokio::time::advance(countersign::limits::LEASE).await;
}

/// B85: a crash after approval and before `executing` runs once after the restart.
#[tokio::test(start_paused = true)]
async fn a_crash_before_the_claim_loses_nothing() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.approve(&call).await;
    let restarted =
        countersign::Gate::builder().store(Arc::clone(desk.gate.store())).decided_elsewhere().build().unwrap();
    let ended = restarted.resume(desk.tool.as_ref(), call.id).await.unwrap();
    assert_eq!((ended.state, desk.ran().len()), (CallState::Succeeded, 1));
}

/// B85: a crash while executing is a doubt, never run again by itself; repeatable classes run again.
#[tokio::test(start_paused = true)]
async fn after_a_crash_only_repeatable_tools_run_again() {
    let classes = [
        (Repeat::AtMostOnce, CallState::InDoubt),
        (Repeat::Verifiable, CallState::InDoubt),
        (Repeat::ReadOnly, CallState::Succeeded),
        (Repeat::Idempotent, CallState::Succeeded),
        (Repeat::Keyed, CallState::Succeeded),
    ];
    for (repeat, state) in classes {
        let desk = desk(repeat);
        let call = desk.submit("{}").await;
        crash(&desk, &call).await;
        desk.gate.sweep().await.unwrap();
        let ended = desk.resume(&call).await;
        assert_eq!(ended.state, state, "{repeat:?}");
        let expected = if repeat.may_run_again() { vec![format!("2 {}", call.id)] } else { vec![] };
        assert_eq!(desk.ran(), expected, "{repeat:?}: the second attempt, under the same key");
    }
}

/// B87: further attempts are bounded; past the last, it is a doubt.
#[tokio::test(start_paused = true)]
async fn attempts_are_bounded() {
    let desk = desk(Repeat::Idempotent);
    let call = desk.submit("{}").await;
    for _ in 0..3 {
        crash(&desk, &call).await;
    }
    assert!(matches!(claim(&desk, &call).await, Claimed::Not(call) if call.state == CallState::Executing));
    tokio::time::advance(countersign::limits::CLAIM_WITHIN).await;
    desk.gate.sweep().await.unwrap();
    assert_eq!(desk.now(&call).await.state, CallState::InDoubt);
    assert_eq!(desk.count("call.claimed").await, 3);
}

/// B86: two executors, one winner; the other is told how the call stands.
#[tokio::test(start_paused = true)]
async fn one_claim_wins() {
    let desk = desk(Repeat::AtMostOnce);
    let call = desk.submit("{}").await;
    let winner = permit(&desk, &call).await;
    assert!(matches!(claim(&desk, &call).await, Claimed::Not(call) if call.state == CallState::Executing));
    desk.gate.run(winner, desk.tool.as_ref()).await.unwrap();
    assert!(matches!(claim(&desk, &call).await, Claimed::Not(call) if call.state == CallState::Succeeded));
}

/// safety 4.6: a panic and "no answer" are doubts; an answered error is a failure.
#[tokio::test(start_paused = true)]
async fn no_answer_is_a_doubt_and_an_error_a_failure() {
    type Body = fn(Running) -> Result<Json, ToolError>;
    let cases: [(Body, Repeat, CallState); 4] = [
        (|_| panic!("boom"), Repeat::AtMostOnce, CallState::InDoubt),
        (|_| Err(ToolError::NoAnswer("cut".into())), Repeat::AtMostOnce, CallState::InDoubt),
        (|_| Err(ToolError::NoAnswer("cut".into())), Repeat::ReadOnly, CallState::Failed),
        (|_| Err(ToolError::Failed("no".into())), Repeat::AtMostOnce, CallState::Failed),
    ];
    for (body, repeat, state) in cases {
        let mut definition = Definition::new("deploy", "");
        definition.repeat = repeat;
        let desk =
            Desk::under("otherwise: allow").with_tool(tool(definition, move |running| async move { body(running) }));
        assert_eq!(desk.call("{}").await.state, state, "{repeat:?}");
    }
}

/// safety 4.8: a lease is renewed while the tool works, so a long run is no doubt.
#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_its_lease() {
    let slow = tool(Definition::new("deploy", ""), |_| async {
        tokio::time::sleep(countersign::limits::LEASE * 10).await;
        Ok(Json::string("done"))
    });
    let desk = Desk::under("otherwise: allow").with_tool(slow);
    let ended = desk.call("{}").await;
    assert_eq!(ended.state, CallState::Succeeded);
    assert_eq!(desk.events().await.len(), 4, "a longer lease is no news");
}

/// safety 4.4: a late result of the current attempt settles the doubt; one with an old fence does not.
#[tokio::test(start_paused = true)]
async fn a_late_result_settles_only_its_own_doubt() {
    let desk = desk(Repeat::AtMostOnce);
    let call = desk.submit("{}").await;
    crash(&desk, &call).await;
    desk.gate.sweep().await.unwrap();
    let done = || Outcome::Succeeded { output: Json::string("late") };
    assert!(desk.gate.finish(call.id, 7, done()).await.is_err());
    let settled = desk.gate.finish(call.id, 1, done()).await.unwrap();
    assert_eq!((settled.state, settled.resolution.as_ref().unwrap().r#as), (CallState::Resolved, ResolvedAs::Applied));
}

/// safety 4.2, 4.3: an identical call is asked about while the doubt stands; resolving needs a person and a reason.
#[tokio::test(start_paused = true)]
async fn a_doubt_is_shown_until_a_person_settles_it() {
    let desk = desk(Repeat::AtMostOnce);
    let call = desk.submit("{}").await;
    crash(&desk, &call).await;
    desk.gate.sweep().await.unwrap();
    let again = desk.submit("{}").await;
    assert_eq!(again.state, CallState::Pending, "allowed otherwise, but it may already have happened");
    assert!(again.open_hold().unwrap().because[0].reason.as_ref().unwrap().contains("may already have happened"));
    assert_eq!(desk.submit(r#"{"n":1}"#).await.state, CallState::Allowed, "other work goes on");
    let resolution = Resolution {
        r#as: ResolvedAs::NotApplied,
        reason: "looked".into(),
        by: "ann".into(),
        at: countersign::Time(0),
    };
    desk.gate.store().run(Op::Resolve { call: call.id, resolution: resolution.clone() }).await.unwrap();
    assert!(desk.gate.store().run(Op::Resolve { call: call.id, resolution }).await.is_err(), "once");
    assert_eq!(desk.submit("{}").await.state, CallState::Allowed);
}

struct Verifiable(FnTool, Verified);

#[async_trait::async_trait]
impl Tool for Verifiable {
    fn definition(&self) -> Arc<Definition> {
        self.0.definition()
    }
    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        self.0.run(running).await
    }
    async fn verify(&self, _call: &Call) -> Verified {
        self.1.clone()
    }
}

/// safety 4: a verifiable tool is asked, and its word settles the doubt.
#[tokio::test(start_paused = true)]
async fn a_verifiable_tool_settles_its_doubt() {
    let cases = [
        (Verified::Applied(Json::string("yes")), CallState::Resolved),
        (Verified::Failed("exit code 3".into()), CallState::Resolved),
        (Verified::NotApplied, CallState::Resolved),
        (Verified::Unknown, CallState::InDoubt),
    ];
    for (word, state) in cases {
        let desk = desk(Repeat::Verifiable);
        let call = desk.submit("{}").await;
        crash(&desk, &call).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        let tool = Verifiable(of_class(Repeat::Verifiable, &desk.ran), word.clone());
        assert_eq!(desk.gate.verify(&tool, call.id).await.unwrap().state, state, "{word:?}");
    }
}
