//! Several calls in one turn.

use std::sync::Arc;
use std::time::Duration;

use countersign::{Answer, Definition, Json};
use countersign_agent::Batch;
use tokio::sync::Notify;

use crate::bed::{ALLOW, ASK, Bed, MIXED, Script, Turn, calls, says};

fn texts(script: &Script) -> Vec<String> {
    script.results().iter().map(|given| given.text.to_string()).collect()
}

/// B71, B75: free siblings run while one waits; a refusal touches none of them; results come in the order of calls.
#[tokio::test]
async fn free_siblings_do_not_wait_for_an_asked_one() {
    let bed = Bed::new(MIXED);
    let script = Script::new([calls([("send", "{}"), ("drop", "{}"), ("read", "{}")]), says("ok")]);
    let run = bed.agent(&script).spawn("go");
    let hold = bed.hold().await;
    while bed.ran().is_empty() {
        let moved = bed.gate.store().bell().listen_any();
        if bed.ran().is_empty() {
            moved.await;
        }
    }
    assert_eq!((bed.ran(), script.asked()), (vec!["read {}".to_owned()], 1));
    bed.approve(&hold).await;
    run.await.unwrap();
    let texts = texts(&script);
    assert_eq!((&*texts[0], &*texts[2]), ("send done", "read done"));
    assert!(texts[1].contains("it is forever"), "{texts:?}");
}

/// B71: independent calls really run at the same time.
#[tokio::test]
async fn independent_calls_run_at_once() {
    let bed = Bed::new(ALLOW);
    let (one, two) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let meets = |name: &'static str, mine: &Arc<Notify>, other: &Arc<Notify>| {
        let (mine, other) = (Arc::clone(mine), Arc::clone(other));
        countersign::tool::tool(Definition::new(name, "Waits for the other."), move |_| {
            let (mine, other) = (Arc::clone(&mine), Arc::clone(&other));
            async move {
                mine.notify_one();
                other.notified().await;
                Ok(Json::string("met"))
            }
        })
    };
    let script = Script::new([calls([("left", "{}"), ("right", "{}")]), says("ok")]);
    let agent =
        bed.agent_with(&script, |builder| builder.tool(meets("left", &one, &two)).tool(meets("right", &two, &one)));
    agent.run("go").await.unwrap();
    assert_eq!(texts(&script), ["met", "met"]);
}

/// B72, B76: all holds of a turn are open at once, in order, and decided in any order.
#[tokio::test]
async fn all_holds_of_a_turn_are_open_at_once() {
    let bed = Bed::new(ASK);
    let wants = [("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#), ("send", r#"{"n":3}"#)];
    let script = Script::new([calls(wants), says("ok")]);
    let run = bed.agent(&script).spawn("go");
    let holds = bed.holds_open(3).await;
    let shown: Vec<&str> = holds.iter().map(|hold| hold.call.facts.arguments.as_str()).collect();
    assert_eq!(shown, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    bed.approve(&holds[2]).await;
    bed.answer(&holds[0], Answer::deny("no")).await;
    assert_eq!(bed.holds_open(1).await[0].id, holds[1].id);
    assert_eq!(script.asked(), 1, "partial decisions ask no model");
    bed.approve(&holds[1]).await;
    run.await.unwrap();
    let texts = texts(&script);
    assert!(texts[0].contains("Not run."), "{texts:?}");
    assert_eq!(texts[1..], ["send done", "send done"]);
}

/// B73: with a barrier nothing of the turn runs until all its holds are closed.
#[tokio::test]
async fn a_barrier_runs_nothing_before_all_holds_are_closed() {
    let bed = Bed::new(MIXED);
    let script = Script::new([calls([("read", "{}"), ("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)]), says("ok")]);
    let run = bed.agent_with(&script, |builder| builder.batch(Batch::Barrier)).spawn("go");
    let holds = bed.holds_open(2).await;
    bed.approve(&holds[0]).await;
    assert!(bed.ran().is_empty());
    bed.answer(&holds[1], Answer::deny("no")).await;
    run.await.unwrap();
    let mut ran = bed.ran();
    ran.sort();
    assert_eq!(ran, ["read {}", r#"send {"n":1}"#]);
}

/// B73, B104: a free call that waited at the barrier longer than a permission lasts is proposed anew, not refused.
#[tokio::test(start_paused = true)]
async fn a_free_call_does_not_lapse_at_the_barrier() {
    let bed = Bed::new(MIXED);
    let script = Script::new([calls([("read", "{}"), ("send", "{}")]), says("ok")]);
    let run = bed.agent_with(&script, |builder| builder.batch(Batch::Barrier)).spawn("go");
    let hold = bed.hold().await;
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    bed.approve(&hold).await;
    run.await.unwrap();
    assert_eq!(texts(&script), ["read done", "send done"]);
}

/// B74: a call that waits for a person takes no slot: with more waiting than the machine has threads, a free call still
/// runs, and the time of a tool begins when it does, not when it was asked about.
#[tokio::test]
async fn waiting_takes_no_slot_and_no_time_of_the_tool() {
    let bed = Bed::new(MIXED);
    let mut wanted = vec![("send", "{}"); 100];
    wanted.push(("read", "{}"));
    let script = Script::new([Turn::Call(wanted), says("ok")]);
    let run = bed.agent(&script).spawn("go");
    let holds = bed.holds_open(100).await;
    while bed.ran().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.ran(), ["read {}"]);
    let waiting = bed.gate.get(holds[0].call.id).await.unwrap();
    assert!(waiting.lease.is_none(), "nothing is claimed while people think");
    for hold in &holds {
        bed.answer(hold, Answer::deny("no")).await;
    }
    run.await.unwrap();
}

/// B73: one call, one hold at a time.
#[tokio::test]
async fn sequential_calls_are_asked_about_one_by_one() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)]), says("ok")]);
    let run = bed.agent_with(&script, |builder| builder.batch(Batch::Sequential)).spawn("go");
    for n in 1..=2 {
        let hold = bed.hold().await;
        assert_eq!(hold.call.facts.arguments.as_str(), format!(r#"{{"n":{n}}}"#));
        assert_eq!(bed.ran().len(), n - 1);
        bed.approve(&hold).await;
    }
    run.await.unwrap();
    assert_eq!(bed.ran().len(), 2);
}
