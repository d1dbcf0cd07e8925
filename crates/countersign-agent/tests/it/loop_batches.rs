//! Several calls in one turn.

use std::sync::Arc;
use std::time::Duration;

use countersign::store::CallFilter;
use countersign::tool::FnTool;
use countersign::{Answer, CallState, Definition, Json, ToolError, Who};
use countersign_agent::{Batch, RunError};
use futures::FutureExt as _;
use tokio::sync::Notify;

use crate::bed::{ALLOW, ASK, Bed, EVERY, MIXED, Ran, Script, Turn, calls, says};
use crate::loop_restart::{DURABLE, reborn_under, restart_under};

/// A free call and two that are asked about, where nothing may run before both are decided.
const BARRED: [(&str, &str); 3] = [("read", "{}"), ("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)];
const IN_ORDER: [(&str, &str); 2] = [("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)];

fn texts(script: &Script) -> Vec<String> {
    script.results().iter().map(|given| given.text.to_string()).collect()
}

/// Waits until so many tools ran.
async fn ran(bed: &Bed, count: usize) {
    loop {
        let moved = bed.gate.store().bell().listen_any();
        if bed.ran().len() >= count {
            return;
        }
        moved.await;
    }
}

/// Waits until all but so many calls have ended. Parked while it runs, a call would be in doubt.
pub(crate) async fn all_ended_but(bed: &Bed, open: usize) {
    loop {
        let moved = bed.gate.store().bell().listen_any();
        let all = bed.gate.store().calls(CallFilter::default()).await.unwrap();
        if all.iter().filter(|call| !call.state.is_final()).count() == open {
            return;
        }
        moved.await;
    }
}

async fn opened(bed: &Bed) -> usize {
    bed.log().await.iter().filter(|name| **name == "hold.opened").count()
}

fn failing(ran: &Ran) -> FnTool {
    let ran = Arc::clone(ran);
    countersign::tool::tool(Definition::new("fail", "Fails."), move |_| {
        ran.lock().unwrap().push("fail".to_owned());
        async { Err(ToolError::Failed("out of paper".to_owned())) }
    })
}

/// B71, B75: free siblings run while one waits and are not asked about; a refusal touches none of them; results come in
/// the order of calls.
#[tokio::test]
async fn free_siblings_do_not_wait_for_an_asked_one() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, MIXED).await;
        let script = Script::new([calls([("send", "{}"), ("drop", "{}"), ("read", "{}")]), says("ok")]);
        let run = bed.agent(&script).spawn("go");
        let hold = bed.hold().await;
        ran(&bed, 1).await;
        assert_eq!((bed.ran(), script.asked()), (vec!["read {}".to_owned()], 1), "{kind:?}");
        bed.approve(&hold).await;
        run.await.unwrap();
        let texts = texts(&script);
        assert_eq!((&*texts[0], &*texts[2]), ("send done", "read done"), "{kind:?}");
        assert!(texts[1].contains("it is forever"), "{kind:?} {texts:?}");
        assert_eq!(opened(&bed).await, 1, "{kind:?}: a free call is not asked about");
    }
}

/// B71, B75: what ran beside a call that waits is not run again after a restart, and results keep the order of calls.
#[tokio::test]
async fn siblings_keep_their_ends_and_their_order_through_a_restart() {
    for kind in DURABLE {
        let policy = format!("{MIXED}  - {{ id: fails, allow: fail }}\n");
        let (stores, bed) = restart_under(kind, &policy).await;
        let wanted = [("send", "{}"), ("drop", "{}"), ("fail", "{}"), ("read", "{}")];
        let agent = |bed: &Bed, script: &Script| bed.agent_with(script, |builder| builder.tool(failing(&bed.ran)));
        let run = agent(&bed, &Script::new([calls(wanted)])).session("s").spawn("go");
        let hold = bed.hold().await;
        all_ended_but(&bed, 1).await;
        run.park();
        let bed = reborn_under(&*stores, &bed, &policy).await;
        bed.approve(&hold).await;
        let script = Script::new([says("ok")]);
        agent(&bed, &script).resume("s").await.unwrap();
        let texts = texts(&script);
        assert!(texts[1].contains("it is forever") && texts[2].contains("out of paper"), "{kind:?} {texts:?}");
        assert_eq!((&*texts[0], &*texts[3]), ("send done", "read done"), "{kind:?}");
        let mut ran = bed.ran();
        ran.sort();
        assert_eq!(ran, ["fail", "read {}", "send {}"], "{kind:?}");
    }
}

/// A tool that says when it runs, and ends when it is told to.
fn slow(began: &Arc<Notify>, end: &Arc<Notify>) -> FnTool {
    let (began, end) = (Arc::clone(began), Arc::clone(end));
    countersign::tool::tool(Definition::new("slow", "Takes its time."), move |_| {
        let (began, end) = (Arc::clone(&began), Arc::clone(&end));
        async move {
            began.notify_one();
            end.notified().await;
            Ok(Json::string("slow done"))
        }
    })
}

async fn states(bed: &Bed) -> Vec<(String, CallState)> {
    let calls = bed.gate.store().calls(CallFilter::default()).await.unwrap();
    calls.iter().map(|call| (call.facts.tool.to_string(), call.state)).collect()
}

const FREE_BUT_SEND: &str = "otherwise: ask\nrules: [{ allow: [slow, until, 'agent:*'] }]";

/// B75: an error beside a running tool waits for its end and not for people; whoever goes on finds all three.
#[tokio::test]
async fn an_error_leaves_no_running_sibling_in_doubt() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, FREE_BUT_SEND).await;
        let (began, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let agent = |boss: &Script, kid: &Script| {
            let kid = bed.named("kid", kid, |builder| builder);
            bed.agent_with(boss, |builder| builder.tool(slow(&began, &end)).sub_agent(kid)).session("s")
        };
        let wanted = [("slow", "{}"), ("send", "{}"), ("ask_kid", r#"{"task":"t"}"#)];
        let fails = Script::default();
        let mut run = agent(&Script::new([calls(wanted)]), &fails).spawn("go");
        began.notified().await;
        bed.hold().await;
        while fails.asked() == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!((&mut run).now_or_never().is_none(), "{kind:?}: a tool still runs");
        }
        end.notify_one();
        assert!(matches!(run.await, Err(RunError::Model(_))), "{kind:?}");
        let ends = [("slow", CallState::Succeeded), ("send", CallState::Pending), ("agent:kid", CallState::Succeeded)];
        assert_eq!(states(&bed).await, ends.map(|(tool, state)| (tool.to_owned(), state)), "{kind:?}");
        let boss = Script::new([says("ok")]);
        let run = agent(&boss, &Script::new([says("kid done")])).resume_spawn();
        bed.approve(&bed.hold().await).await;
        run.await.unwrap();
        assert_eq!(texts(&boss), ["slow done", "send done", "kid done"], "{kind:?}");
    }
}

/// B75, B118: an error of the parent waits for the tool that its child in the background runs.
#[tokio::test]
async fn an_error_leaves_no_child_in_the_background_in_doubt() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, FREE_BUT_SEND).await;
        let (began, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let late = Script::new([calls([("slow", "{}")])]);
        let late = bed.named("late", &late, |builder| builder.tool(slow(&began, &end)));
        let runs = Arc::clone(&began);
        let until = countersign::tool::tool(Definition::new("until", "Waits for the child."), move |_| {
            let runs = Arc::clone(&runs);
            async move {
                runs.notified().await;
                Ok(Json::empty())
            }
        });
        let boss = Script::new([calls([("ask_late", r#"{"task":"t"}"#)]), calls([("until", "{}")])]);
        let mut run = bed.agent_with(&boss, |builder| builder.tool(until).background_agent(late)).spawn("go");
        while boss.asked() < 3 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!((&mut run).now_or_never().is_none(), "{kind:?}: a tool still runs");
        }
        end.notify_one();
        assert!(matches!(run.await, Err(RunError::Model(_))), "{kind:?}");
        let ended = states(&bed).await;
        assert!(ended.iter().all(|(_, state)| *state == CallState::Succeeded), "{kind:?} {ended:?}");
    }
}

/// B71: independent calls really run at the same time.
#[tokio::test]
async fn independent_calls_run_at_once() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
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
        assert_eq!(texts(&script), ["met", "met"], "{kind:?}");
    }
}

/// B72, B76: all holds of a turn are open at once, in order, and decided in any order; a bad decision spoils no other.
#[tokio::test]
async fn all_holds_of_a_turn_are_open_at_once() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK).await;
        let wants = [("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#), ("send", r#"{"n":3}"#)];
        let script = Script::new([calls(wants), says("ok")]);
        let run = bed.agent(&script).spawn("go");
        let holds = bed.holds_open(3).await;
        let shown: Vec<&str> = holds.iter().map(|hold| hold.call.facts.arguments.as_str()).collect();
        assert_eq!(shown, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#], "{kind:?}");
        bed.approve(&holds[2]).await;
        // A decision that is about something else counts for nothing, and takes nothing from the others.
        let mut wrong = holds[1].decision(Who::person("ann"), "test", Answer::approve());
        wrong.digest = holds[0].digest;
        assert!(bed.gate.decide(holds[1].id, wrong).await.is_err(), "{kind:?}");
        bed.answer(&holds[0], Answer::deny("no")).await;
        assert_eq!(bed.holds_open(1).await[0].id, holds[1].id, "{kind:?}");
        assert_eq!(script.asked(), 1, "{kind:?}: partial decisions ask no model");
        bed.approve(&holds[1]).await;
        run.await.unwrap();
        let texts = texts(&script);
        assert!(texts[0].contains("Not run."), "{kind:?} {texts:?}");
        assert_eq!(texts[1..], ["send done", "send done"], "{kind:?}");
    }
}

/// B77: identical calls of a queue are alike by their argument digest, so that a surface can show them as one item with a
/// count; each has a hold, a decision and an event of its own all the same.
#[tokio::test]
async fn identical_calls_are_alike_and_each_gets_its_own_decision() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK).await;
        let script = Script::new([calls([("send", "{}"), ("send", r#"{"n":1}"#), ("send", "{}")]), says("ok")]);
        let run = bed.agent(&script).spawn("go");
        let holds = bed.holds_open(3).await;
        let (one, other, two) = (&holds[0], &holds[1], &holds[2]);
        assert_eq!(one.call.argument_digest, two.call.argument_digest, "{kind:?}");
        assert_ne!(one.call.argument_digest, other.call.argument_digest, "{kind:?}");
        assert!(one.id != two.id && one.digest != two.digest, "{kind:?}: a decision about one is not about the other");
        bed.approve(one).await;
        assert_eq!(bed.holds().await.len(), 2, "{kind:?}");
        bed.answer(two, Answer::deny("once is enough")).await;
        bed.approve(other).await;
        run.await.unwrap();
        let texts = texts(&script);
        assert_eq!(texts[..2], ["send done", "send done"], "{kind:?}");
        assert!(texts[2].contains("once is enough"), "{kind:?} {texts:?}");
        let log = bed.log().await;
        assert_eq!(log.iter().filter(|name| **name == "hold.decided").count(), 3, "{kind:?} {log:?}");
    }
}

/// B73: with a barrier nothing of the turn runs until all its holds are closed.
#[tokio::test]
async fn a_barrier_runs_nothing_before_all_holds_are_closed() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, MIXED).await;
        let script = Script::new([calls(BARRED), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.batch(Batch::Barrier)).spawn("go");
        let holds = bed.holds_open(2).await;
        bed.approve(&holds[0]).await;
        assert!(bed.ran().is_empty(), "{kind:?}");
        bed.answer(&holds[1], Answer::deny("no")).await;
        run.await.unwrap();
        let mut ran = bed.ran();
        ran.sort();
        assert_eq!(ran, ["read {}", r#"send {"n":1}"#], "{kind:?}");
    }
}

/// B73: a barrier stands through a restart: what was approved before it waits for what is decided after it.
#[tokio::test]
async fn a_barrier_stands_through_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, MIXED).await;
        let agent =
            |bed: &Bed, script: &Script| bed.agent_with(script, |builder| builder.batch(Batch::Barrier)).session("s");
        let run = agent(&bed, &Script::new([calls(BARRED)])).spawn("go");
        let holds = bed.holds_open(2).await;
        bed.approve(&holds[0]).await;
        run.park();
        let bed = reborn_under(&*stores, &bed, MIXED).await;
        let script = Script::new([says("ok")]);
        let run = agent(&bed, &script).resume_spawn();
        let left = bed.hold().await;
        assert_eq!((left.id, bed.ran().len()), (holds[1].id, 0), "{kind:?}");
        bed.approve(&left).await;
        run.await.unwrap();
        assert_eq!(texts(&script), ["read done", "send done", "send done"], "{kind:?}");
        assert_eq!(bed.ran().len(), 3, "{kind:?}");
    }
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
    for kind in EVERY {
        let policy = format!("{MIXED}expires_after: never\n");
        let (stores, bed) = restart_under(kind, &policy).await;
        let mut wanted = vec![("send", "{}"); 50];
        wanted.push(("read", "{}"));
        let script = Script::new([Turn::Call(wanted), says("ok")]);
        let run = bed.agent(&script).spawn("go");
        let holds = bed.holds_open(50).await;
        while bed.ran().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(bed.ran(), ["read {}"]);
        let waiting = bed.gate.get(holds[0].call.id).await.unwrap();
        assert!(waiting.lease.is_none(), "{kind:?}: nothing is claimed while people think");
        // Far longer than a claim lasts, and than any tool of ours may run.
        stores.advance(Duration::from_secs(60 * 60)).await;
        bed.approve(&holds[0]).await;
        for hold in &holds[1..] {
            bed.answer(hold, Answer::deny("no")).await;
        }
        run.await.unwrap();
        assert_eq!(&*texts(&script)[0], "send done", "{kind:?}: waiting took nothing of its time");
    }
}

/// B73: one call, one hold at a time.
#[tokio::test]
async fn sequential_calls_are_asked_about_one_by_one() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK).await;
        let script = Script::new([calls(IN_ORDER), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.batch(Batch::Sequential)).spawn("go");
        for n in 1..=2 {
            let hold = bed.hold().await;
            assert_eq!(hold.call.facts.arguments.as_str(), format!(r#"{{"n":{n}}}"#), "{kind:?}");
            assert_eq!(bed.ran().len(), n - 1, "{kind:?}");
            bed.approve(&hold).await;
        }
        run.await.unwrap();
        assert_eq!(bed.ran().len(), 2, "{kind:?}");
    }
}

/// B73: the second of two calls in order is not asked about before the first has ended, also when a restart lies between.
#[tokio::test]
async fn calls_in_order_stay_in_order_through_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, ASK).await;
        let agent = |bed: &Bed, script: &Script| {
            bed.agent_with(script, |builder| builder.batch(Batch::Sequential)).session("s")
        };
        let run = agent(&bed, &Script::new([calls(IN_ORDER)])).spawn("go");
        let first = bed.hold().await;
        run.park();
        let bed = reborn_under(&*stores, &bed, ASK).await;
        let script = Script::new([says("ok")]);
        let run = agent(&bed, &script).resume_spawn();
        assert_eq!(bed.hold().await.id, first.id, "{kind:?}");
        bed.answer(&first, Answer::deny("not one")).await;
        let second = bed.hold().await;
        assert_eq!((second.call.facts.arguments.as_str(), bed.ran().len()), (r#"{"n":2}"#, 0), "{kind:?}");
        bed.approve(&second).await;
        run.await.unwrap();
        assert!(texts(&script)[0].contains("not one"), "{kind:?}");
        assert_eq!(bed.ran(), [r#"send {"n":2}"#], "{kind:?}");
    }
}
