//! Expiry, cancelling, and the end of a run's time.

use std::sync::Arc;
use std::time::Duration;

use countersign::testing::TestStore;
use countersign::{Answer, CallState, Definition, Gate, Json, RefusalKind};
use countersign_agent::{Agent, RunError, RunEvent};
use tokio::sync::Notify;

use crate::bed::{ALLOW, ASK, Bed, EVERY, MIXED, Script, calls, recorder, says};
use crate::loop_batches::all_ended_but;
use crate::loop_restart::{reborn_under, restart_under};

const STOP: &str = "otherwise: ask\nrules: [{ ask: send, expires_after: 1m, on_expired: stop_run }]";

/// B93: nobody decided in time: not run, the model reads so, and the loop goes on; a late decision is refused.
#[tokio::test(start_paused = true)]
async fn an_expired_hold_is_a_refusal_and_the_loop_goes_on() {
    let bed = Bed::new("otherwise: ask\nexpires_after: 1m");
    let script = Script::new([calls([("send", "{}")]), says("too late")]);
    let run = bed.agent(&script).spawn("go");
    let hold = bed.hold().await;
    assert_eq!(&*run.await.unwrap().text, "too late");
    assert!(script.result().text.contains("Nobody decided"), "{}", script.result().text);
    let late = hold.decision(countersign::Who::person("ann"), "test", Answer::approve());
    assert!(bed.gate.decide(hold.id, late).await.is_err());
    assert!(bed.ran().is_empty());
}

/// Approves the second of two calls, lets it end, and lets the time of the first pass.
async fn let_the_first_expire(stores: &dyn TestStore, bed: &Bed) {
    bed.approve(&bed.holds_open(2).await[1]).await;
    all_ended_but(bed, 1).await;
    stores.advance(Duration::from_secs(61)).await;
    bed.gate.sweep().await.unwrap();
}

/// B94: with `stop_run` the run ends with an error: from run, on the stream and on the handle alike.
#[tokio::test]
async fn an_expired_hold_may_end_the_run_on_every_face() {
    for kind in EVERY {
        let (stores, bed) = restart_under(kind, STOP).await;
        let script = || Script::new([calls([("send", "{}"), ("read", "{}")]), says("not reached")]);
        let agent = bed.agent(&script());
        let session = agent.session("a");
        let ran = tokio::join!(session.run("go"), let_the_first_expire(&*stores, &bed)).0;
        assert!(matches!(&ran, Err(RunError::Expired { tool, .. }) if &**tool == "send"), "{kind:?} {ran:?}");
        assert_eq!(bed.ran(), ["read {}"], "{kind:?}: a sibling comes to its own end");
        assert!(matches!(agent.resume("a").await, Err(RunError::Expired { .. })), "{kind:?}: it stays ended");

        let handle = bed.agent(&script()).spawn("go");
        let_the_first_expire(&*stores, &bed).await;
        assert!(matches!(handle.await, Err(RunError::Expired { .. })), "{kind:?}");

        let mut stream = bed.agent(&script()).stream("go");
        let_the_first_expire(&*stores, &bed).await;
        let mut last = None;
        while let Some(event) = stream.next().await {
            last = Some(event);
        }
        assert!(matches!(last, Some(RunEvent::Failed { error }) if error.contains("in time")), "{kind:?}");
    }
}

/// B94, B111: after such an end the conversation goes on with a whole history.
#[tokio::test(start_paused = true)]
async fn a_conversation_goes_on_after_its_run_was_ended() {
    let bed = Bed::new(STOP);
    let script = Script::new([calls([("send", "{}")]), says("fine")]);
    let agent = bed.agent(&script);
    assert!(matches!(agent.session("s").run("go").await, Err(RunError::Expired { .. })));
    assert_eq!(&*agent.session("s").run("never mind").await.unwrap().text, "fine");
    assert_eq!(script.prompts()[1].messages.len(), 4);
}

/// B95: without a word of the rules a hold ends thirty seconds before its run, and rules cannot outlast that.
#[tokio::test]
async fn a_hold_never_outlives_its_run() {
    for kind in EVERY {
        for (policy, run, lives) in [
            ("otherwise: ask", 3_600, 600),
            ("otherwise: ask", 120, 90),
            ("otherwise: ask\nexpires_after: never", 120, 90),
            ("otherwise: ask\nexpires_after: 5s", 120, 5),
        ] {
            let (stores, bed) = restart_under(kind, policy).await;
            let script = Script::new([calls([("send", "{}")]), says("ok")]);
            let agent =
                |bed: &Bed| bed.agent_with(&script, |builder| builder.timeout(Duration::from_secs(run))).session("s");
            let handle = agent(&bed).spawn("go");
            let hold = bed.hold().await;
            let expires_at = hold.expires_at.unwrap();
            assert_eq!(hold.opened_at.until(expires_at), Duration::from_secs(lives), "{kind:?} {policy} {run}");
            handle.park();
            let bed = reborn_under(&*stores, &bed, policy).await;
            assert_eq!(bed.hold().await.expires_at, Some(expires_at), "{kind:?}: a restart extends nothing");
            stores.advance(Duration::from_secs(lives)).await;
            assert_eq!(&*agent(&bed).resume().await.unwrap().text, "ok", "{kind:?}: the run outlives its hold");
            assert!(script.result().text.contains("Nobody decided"), "{kind:?} {:?}", script.result());
        }
    }
}

/// B96: an approver function that blocks its thread defeats neither expiry nor the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_approver_does_not_stop_the_clock() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let gate = Gate::builder().policy(countersign::Policy::from_yaml("otherwise: ask\nexpires_after: 1s").unwrap());
    let gate = gate
        .approver(move |_| {
            let _ = blocked.lock().unwrap().recv();
            async { Ok(Answer::approve()) }
        })
        .build()
        .unwrap();
    let script = Script::new([calls([("send", "{}")]), says("went on")]);
    let ran = crate::bed::Ran::default();
    let agent = Agent::builder("boss", script.clone()).gate(gate).tool(recorder("send", &ran)).build().unwrap();
    assert_eq!(&*agent.run("go").await.unwrap().text, "went on");
    drop(release);
    assert!(ran.lock().unwrap().is_empty());
}

/// B97, B98, B111: cancelling a run withdraws its holds and nothing of another run; the conversation can go on.
#[tokio::test]
async fn cancelling_a_run_withdraws_its_holds_and_touches_no_other() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, MIXED).await;
        let script = Script::new([calls([("send", "{}"), ("read", "{}")]), says("after all")]);
        let other = Script::new([calls([("send", "{}")]), says("done")]);
        let agent = bed.agent(&script);
        let untouched = bed.agent(&other).spawn("go");
        let theirs = bed.hold().await;
        let run = agent.session("s").spawn("go");
        let holds = bed.holds_open(2).await;
        run.cancel();
        assert!(matches!(run.await, Err(RunError::Cancelled)), "{kind:?}");
        let mine = holds.iter().find(|hold| hold.id != theirs.id).unwrap();
        let ended = bed.gate.get(mine.call.id).await.unwrap();
        assert_eq!(
            (ended.state, ended.refusal.as_ref().unwrap().kind),
            (CallState::Cancelled, RefusalKind::Cancelled),
            "{kind:?}"
        );
        assert!(matches!(agent.resume("s").await, Err(RunError::Cancelled)), "{kind:?}");

        assert_eq!(&*agent.session("s").run("and now?").await.unwrap().text, "after all");
        let prompts = script.prompts();
        let countersign_agent::model::Message::Results { results } = &prompts[1].messages[2] else { panic!() };
        assert!(results[0].text.contains("This call was cancelled"), "{results:?}");
        assert_eq!(bed.holds().await[0].id, theirs.id, "{kind:?}");
        bed.approve(&theirs).await;
        untouched.await.unwrap();
    }
}

/// B97: a tool that runs when its run is cancelled is in doubt: nobody knows how far it came.
#[tokio::test]
async fn cancelling_leaves_a_running_tool_in_doubt() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
        let began = Arc::new(Notify::new());
        let script = Script::new([calls([("slow", "{}"), ("read", "{}")]), says("hm")]);
        let signal = Arc::clone(&began);
        let slow = countersign::tool::tool(Definition::new("slow", "Never ends."), move |_| {
            let began = Arc::clone(&signal);
            async move {
                began.notify_one();
                std::future::pending::<()>().await;
                Ok(Json::empty())
            }
        });
        let agent = bed.agent_with(&script, |builder| builder.tool(slow));
        let run = agent.session("s").spawn("go");
        began.notified().await;
        all_ended_but(&bed, 1).await;
        run.cancel();
        assert!(matches!(run.await, Err(RunError::Cancelled)), "{kind:?}");
        assert!(bed.log().await.contains(&"call.in_doubt"));
        agent.session("s").run("and now?").await.unwrap();
        let prompts = script.prompts();
        let countersign_agent::model::Message::Results { results } = &prompts[1].messages[2] else { panic!() };
        assert!(results[0].text.contains("Outcome unknown"), "{results:?}");
        assert_eq!(&*results[1].text, "read done", "what ended keeps its result");
    }
}

/// B109: a run's time is wall-clock time: when it is up the run is cancelled, and its holds are gone.
#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_time_is_up() {
    let bed = Bed::new(ASK);
    let send = |n| calls([("send", n)]);
    let script = Script::new([send(r#"{"n":1}"#), send(r#"{"n":2}"#), send(r#"{"n":3}"#), says("not reached")]);
    let agent = bed.agent_with(&script, |builder| builder.timeout(Duration::from_secs(60)));
    let run = agent.session("s").spawn("go");
    let hold = bed.hold().await;
    tokio::time::advance(Duration::from_secs(29)).await;
    bed.approve(&hold).await;
    let timed_out = run.await;
    assert!(matches!(timed_out, Err(RunError::TimedOut(_))), "{timed_out:?}");
    assert_eq!((bed.holds().await.len(), script.asked()), (0, 3));
    assert!(matches!(agent.resume("s").await, Err(RunError::TimedOut(_))));
}
