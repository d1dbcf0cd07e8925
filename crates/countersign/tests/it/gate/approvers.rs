//! B8, B13, B47, B92, B96: functions, scripts and channels that answer.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use countersign::approver::FnApprover;
use countersign::{Answer, CallState, RefusalKind, ScriptedApprover, Who};

use super::desk::{Desk, kind, policy};

/// B1, B92: an approver function decides, and is recorded as a program.
#[tokio::test]
async fn an_approver_function_decides_as_a_program() {
    let desk = Desk::build(|builder| builder.approver(|_| async { Ok(Answer::approve()) }));
    let ended = desk.call("{}").await;
    assert_eq!(ended.state, CallState::Succeeded);
    let decided = desk.log().await[2].value();
    assert_eq!((&decided["by"], &decided["by_kind"]), (&"program:approver".into(), &"program".into()));
    assert_eq!(decided["channel"], "approver");
}

/// B8: an approver that errs, panics or runs out of script lets nothing run, and is no person's denial.
#[tokio::test]
async fn a_failing_approver_never_lets_a_call_run() {
    let errs = |_| async { Err::<Answer, _>("the pager is down".to_owned()) };
    let panics = |_| async { panic!("boom") };
    let early = |_: countersign::Hold| -> std::future::Ready<Result<Answer, String>> { panic!("before the future") };
    let script = || ScriptedApprover::new(Who::person("ann"), []);
    let desks = [
        ("errs", Desk::build(|builder| builder.approver(errs))),
        ("panics", Desk::build(|builder| builder.approver(panics))),
        ("panics early", Desk::build(|builder| builder.approver(early))),
        ("has no more answers", Desk::build(|builder| builder.approver_as(script()))),
    ];
    for (what, desk) in desks {
        let ended = desk.call("{}").await;
        assert_eq!((ended.state, kind(&ended)), (CallState::Cancelled, Some(RefusalKind::Error)), "{what}");
        assert!(desk.ran().is_empty(), "{what}");
        assert_eq!(desk.count("hold.decided").await, 0, "{what}: nobody decided");
    }
}

/// B47: a program lifts no must-ask, as function or by hand.
#[tokio::test]
async fn a_program_lifts_no_must_ask() {
    let must_ask = || policy("rules: [{ id: people, ask: deploy, human: required }]");
    let desk = Desk::build(|builder| builder.policy(must_ask()).approver(|_| async { Ok(Answer::approve()) }));
    let ended = desk.call("{}").await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Cancelled, Some(RefusalKind::Error)));
    let desk = Desk::build(|builder| builder.policy(must_ask()).decided_elsewhere());
    let call = desk.submit("{}").await;
    assert!(desk.decide(&call, Who::program("bot"), Answer::approve()).await.is_err());
    assert_eq!(desk.approve(&call).await.state, CallState::Approved, "a person lifts it");
    assert!(desk.ran().is_empty());
}

/// B92: a script answers in order, as the person it was given.
#[tokio::test]
async fn a_scripted_approver_answers_in_order() {
    let script = ScriptedApprover::new(Who::person("ann"), [Answer::deny("first"), Answer::approve()]);
    let desk = Desk::build(|builder| builder.approver_as(script));
    assert_eq!(desk.call(r#"{"n":1}"#).await.state, CallState::Denied);
    let ended = desk.call(r#"{"n":2}"#).await;
    assert_eq!(ended.state, CallState::Succeeded);
    assert_eq!(ended.approval().unwrap().by, Who::person("ann"));
}

/// B13: every hold goes to the channel, and whoever reads it decides.
#[tokio::test(start_paused = true)]
async fn a_channel_gets_every_hold() {
    let mut holds = None;
    let desk = Desk::build(|builder| {
        let (builder, receiver) = builder.channel();
        holds = Some(receiver);
        builder
    });
    let mut holds = holds.unwrap();
    let call = desk.submit(r#"{"n":1}"#).await;
    let open = holds.recv().await.unwrap();
    assert_eq!((open.call.id, open.digest), (call.id, call.digest));
    desk.gate.decide(open.id, open.decision(Who::person("ann"), "inbox", Answer::approve())).await.unwrap();
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
    drop(holds);
    let unread = desk.call(r#"{"n":2}"#).await;
    assert_eq!((unread.state, kind(&unread)), (CallState::Expired, Some(RefusalKind::Expired)), "nobody reads");
}

/// B80, B13: the function and somebody else race; the first decision stands.
#[tokio::test]
async fn the_first_of_function_and_person_wins() {
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let gone = Arc::new(Mutex::new(Some(gone)));
    let ask = move |_| {
        let gone = gone.lock().unwrap().take().unwrap();
        async move {
            gone.await.unwrap();
            Ok(Answer::approve())
        }
    };
    let desk = Desk::build(|builder| builder.approver(ask));
    let call = desk.submit("{}").await;
    desk.ann(&call, Answer::deny("me first")).await.unwrap();
    let _ = go.send(());
    let ended = desk.resume(&call).await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Denied, Some(RefusalKind::DeniedByApprover)));
}

/// B96: an approver that blocks its thread defeats neither expiry nor cancellation.
#[tokio::test(start_paused = true)]
async fn a_blocking_approver_stops_neither_expiry_nor_cancel() {
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let ask = move |_| {
        let blocked = Arc::clone(&blocked);
        async move {
            // Blocks the thread, not only the task, until the test ends.
            let _ = blocked.lock().unwrap().recv();
            Ok(Answer::approve())
        }
    };
    let who = FnApprover::new(Who::person("slow"), ask);
    let desk = Desk::build(|builder| builder.approver_as(who));
    let expiring = desk.submit(r#"{"n":1}"#).await;
    let cancelled = desk.submit(r#"{"n":2}"#).await;
    desk.gate.cancel(cancelled.id).await.unwrap();
    assert_eq!(desk.gate.wait(cancelled.id).await.unwrap().state, CallState::Cancelled);
    tokio::time::advance(countersign::limits::HOLD_LIFE + Duration::from_secs(1)).await;
    assert_eq!(desk.gate.wait(expiring.id).await.unwrap().state, CallState::Expired);
    drop(release);
    assert!(desk.ran().is_empty());
}
