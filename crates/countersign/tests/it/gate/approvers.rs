//! B8, B13, B47, B92, B96: functions, scripts and channels that answer.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use countersign::approver::FnApprover;
use countersign::gate::GateBuilder;
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

/// A gate on a store that another process may have used before.
fn on(store: &Arc<countersign::memory::MemoryStore>, change: impl FnOnce(GateBuilder) -> GateBuilder) -> Desk {
    Desk::build(|builder| change(builder.store(store.clone())))
}

/// B96, B109: whoever goes on with a call after a restart has its own approver asked, once.
#[tokio::test]
async fn an_approver_is_asked_anew_by_whoever_goes_on_with_the_call() {
    let store = super::desk::memory();
    let never = |_| std::future::pending::<Result<Answer, String>>();
    let keyed = |key: &str| Desk::proposal("{}").key(key);
    for again in ["resume", "replay"] {
        let lost = on(&store, |builder| builder.approver(never));
        let call = lost.propose(keyed(again)).await;
        drop(lost);
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let desk = on(&store, |builder| {
            builder.approver(move |_| {
                *count.lock().unwrap() += 1;
                async { Ok(Answer::approve()) }
            })
        });
        let ended = match again {
            "resume" => desk.resume(&call).await,
            _ => desk.gate.call(desk.tool.as_ref(), keyed(again)).await.unwrap(),
        };
        assert_eq!((ended.id, ended.state, desk.ran().len()), (call.id, CallState::Succeeded, 1), "{again}");
        desk.resume(&call).await;
        assert_eq!(*asked.lock().unwrap(), 1, "{again}");
    }
}

/// B13, B109: a channel of the new process gets the hold as well, and only once however often it is waited for.
#[tokio::test(start_paused = true)]
async fn a_channel_gets_a_hold_of_the_process_before_once() {
    let store = super::desk::memory();
    let call = on(&store, GateBuilder::decided_elsewhere).propose(Desk::proposal("{}").key("k")).await;
    let mut holds = None;
    let desk = on(&store, |builder| {
        let (builder, receiver) = builder.channel();
        holds = Some(receiver);
        builder
    });
    let mut holds = holds.unwrap();
    for _ in 0..2 {
        assert_eq!(desk.propose(Desk::proposal("{}").key("k")).await.id, call.id);
        let waited = tokio::time::timeout(Duration::from_secs(1), desk.gate.wait(call.id)).await;
        assert!(waited.is_err(), "nobody has decided");
    }
    assert_eq!(holds.try_recv().unwrap().call.id, call.id);
    assert!(holds.try_recv().is_err(), "once");
}

/// B80: an approver that approved before the restart is not asked for a second opinion while others are waited for.
#[tokio::test]
async fn an_approver_that_decided_is_not_asked_again() {
    let store = super::desk::memory();
    let two = |builder: GateBuilder| builder.policy(policy("rules: [{ id: two, ask: deploy, approvals: 2 }]"));
    let yes = FnApprover::new(Who::person("ann"), |_| async { Ok(Answer::approve()) });
    let lost = on(&store, |builder| two(builder).approver_as(yes));
    let call = lost.submit("{}").await;
    while desk_decisions(&lost, &call).await == 0 {
        tokio::task::yield_now().await;
    }
    drop(lost);
    let no = FnApprover::new(Who::person("ann"), |_| async { Ok(Answer::deny("changed my mind")) });
    let desk = on(&store, |builder| two(builder).approver_as(no));
    let going_on = tokio::spawn({
        let (gate, tool, id) = (desk.gate.clone(), Arc::clone(&desk.tool), call.id);
        async move { gate.resume(tool.as_ref(), id).await }
    });
    tokio::task::yield_now().await;
    desk.decide(&call, Who::person("bo"), Answer::approve()).await.unwrap();
    assert_eq!(going_on.await.unwrap().unwrap().state, CallState::Succeeded);
}

async fn desk_decisions(desk: &Desk, call: &countersign::Call) -> usize {
    desk.now(call).await.holds[0].decisions.len()
}
