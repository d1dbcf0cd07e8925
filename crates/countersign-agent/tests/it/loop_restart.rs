//! Leaving a run and going on with it, in another process on the same store.

use std::sync::Arc;

use countersign::call::Repeat;
use countersign::testing::TestStore;
use countersign::{Answer, CallState, Definition, Gate, Json, Policy, Store, Who};
use countersign_agent::{Agent, RunError};
use countersign_testkit::stores::Kind;

use crate::bed::{ALLOW, Bed, Script, calls, recorder, says};

pub(crate) const DURABLE: [Kind; 2] = [Kind::Sqlite, Kind::Postgres];
const ASK: &str = "otherwise: ask\nrules: [{ allow: [read, 'agent:*'] }]";

/// Parks a run at its holds and comes back in a new process with another script.
pub(crate) async fn restart(kind: Kind) -> (Box<dyn TestStore>, Bed) {
    restart_under(kind, ASK).await
}

pub(crate) async fn restart_under(kind: Kind, policy: &str) -> (Box<dyn TestStore>, Bed) {
    let stores = kind.fresh().await.unwrap();
    let bed = Bed::on(stores.store(), policy);
    (stores, bed)
}

pub(crate) async fn reborn(stores: &dyn TestStore, bed: &Bed) -> Bed {
    reborn_under(stores, bed, ASK).await
}

pub(crate) async fn reborn_under(stores: &dyn TestStore, bed: &Bed, policy: &str) -> Bed {
    let again = Bed::on(stores.reopen().await, policy);
    Bed { ran: Arc::clone(&bed.ran), ..again }
}

/// B108, B84: pending holds survive, are decidable by anybody, and the run goes on where it paused; nothing runs twice.
#[tokio::test]
async fn a_run_goes_on_where_it_paused() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let script = Script::new([calls([("read", "{}"), ("send", "{}")])]);
        let run = bed.agent(&script).session("s").spawn("go");
        let hold = bed.hold().await;
        while bed.ran().is_empty() {
            tokio::task::yield_now().await;
        }
        run.park();

        let bed = reborn(&*stores, &bed).await;
        assert_eq!(bed.hold().await.id, hold.id);
        bed.approve(&hold).await;
        let script = Script::new([says("done")]);
        let reply = bed.agent(&script).resume("s").await.unwrap();
        assert_eq!((&*reply.text, reply.turns, reply.usage.input), ("done", 2, 20), "{kind:?}");
        let mut ran = bed.ran();
        ran.sort();
        assert_eq!(ran, ["read {}", "send {}"], "{kind:?}");
        let texts: Vec<_> = script.results().iter().map(|given| given.text.to_string()).collect();
        assert_eq!(texts, ["read done", "send done"], "{kind:?}");
        let again = bed.agent(&Script::default()).resume("s").await.unwrap();
        assert_eq!(again, reply, "what is done is done");
    }
}

/// B85: approved while nobody was there: runs once after the restart.
#[tokio::test]
async fn what_was_approved_meanwhile_runs_once() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let run = bed.agent(&Script::new([calls([("send", "{}")])])).session("s").spawn("go");
        let hold = bed.hold().await;
        run.park();
        bed.approve(&hold).await;
        let bed = reborn(&*stores, &bed).await;
        bed.agent(&Script::new([says("done")])).resume("s").await.unwrap();
        assert_eq!(bed.ran(), ["send {}"], "{kind:?}");
    }
}

/// B110: what is said while a hold is pending waits for the turn's calls; it neither decides nor cancels.
#[tokio::test]
async fn what_is_said_meanwhile_waits_for_the_open_calls() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let run = bed.agent(&Script::new([calls([("send", "{}")])])).session("s").spawn("go");
        let hold = bed.hold().await;
        run.park();
        let bed = reborn(&*stores, &bed).await;
        let script = Script::new([says("both done")]);
        let talk = bed.agent(&script).session("s").spawn("yes, approve it!");
        assert_eq!((bed.hold().await.id, script.asked()), (hold.id, 0), "{kind:?}");
        bed.approve(&hold).await;
        let reply = talk.await.unwrap();
        assert_eq!((&*reply.text, &*reply.run), ("both done", "r2"), "{kind:?}");
        assert_eq!(script.prompts()[0].messages.len(), 4, "user, model, results, user");
    }
}

/// B110: the same while the first run is still driven in this process.
#[tokio::test]
async fn what_is_said_to_a_running_session_waits_its_turn() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", "{}")]), says("first"), says("second")]);
    let agent = bed.agent(&script);
    let first = agent.session("s").spawn("go");
    let hold = bed.hold().await;
    let second = agent.session("s").spawn("hello?");
    tokio::task::yield_now().await;
    assert_eq!(script.asked(), 1);
    bed.approve(&hold).await;
    assert_eq!((&*first.await.unwrap().text, &*second.await.unwrap().text), ("first", "second"));
}

/// Two drivers of one session cannot both append: nothing runs twice, and one of them is told.
#[tokio::test]
async fn two_drivers_never_run_a_call_twice() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let first = bed.agent(&Script::new([calls([("send", "{}")]), says("a")])).session("s").spawn("go");
        let hold = bed.hold().await;
        let other = reborn(&*stores, &bed).await;
        let second = other.agent(&Script::new([says("b")])).session("s").resume_spawn();
        bed.approve(&hold).await;
        let (first, second) = (first.await, second.await);
        assert_eq!(bed.ran(), ["send {}"], "{kind:?}");
        let busy = [&first, &second].into_iter().filter(|ended| matches!(ended, Err(RunError::Busy))).count();
        assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        assert!(busy <= 1, "{first:?} {second:?}");
    }
}

/// B85: lost while a tool ran: in doubt, the model is told so, and the tool does not run again.
#[tokio::test]
async fn a_tool_that_was_running_is_in_doubt_afterwards() {
    for kind in DURABLE {
        let stores = kind.fresh().await.unwrap();
        let gate = |store: Arc<dyn Store>| {
            Gate::builder().store(store).policy(Policy::allow_all()).without_sweeper().build().unwrap()
        };
        let began = Arc::new(tokio::sync::Notify::new());
        let signal = Arc::clone(&began);
        let build = |gate: Gate, script: Script| {
            let began = Arc::clone(&signal);
            let stuck = countersign::tool::tool(Definition::new("stuck", "Never ends."), move |_| {
                let began = Arc::clone(&began);
                async move {
                    began.notify_one();
                    std::future::pending::<()>().await;
                    Ok(Json::empty())
                }
            });
            Agent::builder("boss", script).gate(gate).tool(stuck).build().unwrap()
        };
        let run = build(gate(stores.store()), Script::new([calls([("stuck", "{}")])])).session("s").spawn("go");
        began.notified().await;
        run.park();
        let store = stores.reopen().await;
        stores.advance(std::time::Duration::from_secs(60)).await;
        let script = Script::new([says("hm")]);
        build(gate(store), script.clone()).resume("s").await.unwrap();
        assert!(script.result().text.contains("Outcome unknown"), "{kind:?} {:?}", script.result());
    }
}

/// B85, B97, B102: a call whose tool is gone after the restart is withdrawn: nobody is asked about what nobody can run.
#[tokio::test]
async fn a_call_whose_tool_is_gone_is_withdrawn() {
    for kind in DURABLE {
        for approved in [false, true] {
            let (stores, bed) = restart(kind).await;
            let script = Script::new([calls([("gone", "{}")])]);
            let agent = bed.agent_with(&script, |builder| builder.tool(recorder("gone", &bed.ran)));
            let run = agent.session("s").spawn("go");
            let hold = bed.hold().await;
            run.park();
            if approved {
                bed.approve(&hold).await;
            }
            let bed = reborn(&*stores, &bed).await;
            let script = Script::new([says("ok")]);
            bed.agent(&script).resume("s").await.unwrap();
            assert!(bed.holds().await.is_empty(), "{kind:?}: its question is gone, too");
            let call = bed.gate.get(hold.call.id).await.unwrap();
            assert_eq!((call.state, bed.ran().len()), (CallState::Cancelled, 0), "{kind:?}");
            assert!(script.result().text.contains("This call was cancelled"), "{kind:?} {:?}", script.result());
        }
    }
}

/// B85: a call that may be repeated, and whose tool is gone after the restart, ends once its lease is over.
#[tokio::test]
async fn a_running_call_whose_tool_is_gone_comes_to_an_end() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, ALLOW).await;
        let began = Arc::new(tokio::sync::Notify::new());
        let runs = Arc::clone(&began);
        let mut definition = Definition::new("gone", "Never ends.");
        definition.repeat = Repeat::Idempotent;
        let gone = countersign::tool::tool(definition, move |_| {
            runs.notify_one();
            std::future::pending()
        });
        let agent = bed.agent_with(&Script::new([calls([("gone", "{}")])]), |builder| builder.tool(gone));
        let run = agent.session("s").spawn("go");
        began.notified().await;
        run.park();
        let bed = reborn_under(&*stores, &bed, ALLOW).await;
        stores.advance(std::time::Duration::from_secs(60)).await;
        let script = Script::new([says("hm")]);
        bed.agent(&script).resume("s").await.unwrap();
        assert!(script.result().text.contains("its tool is gone"), "{kind:?} {:?}", script.result());
        let calls = bed.gate.store().calls(Default::default()).await.unwrap();
        assert_eq!(calls[0].state, CallState::Failed, "{kind:?}");
    }
}

/// B116, B117: a child's hold survives a restart, is decided by its id alone, and parent and child go on.
#[tokio::test]
async fn a_nested_hold_survives_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let team = |bed: &Bed, boss: Script, kid: Script, late: Script| {
            let kid = bed.named("kid", &kid, |builder| builder);
            let late = bed.named("late", &late, |builder| builder);
            bed.agent_with(&boss, |builder| builder.sub_agent(kid).background_agent(late))
        };
        let send = |n: &'static str| Script::new([calls([("send", n)])]);
        let boss = Script::new([calls([("ask_late", r#"{"task":"l"}"#), ("ask_kid", r#"{"task":"k"}"#)])]);
        let run = team(&bed, boss, send(r#"{"n":1}"#), Script::default()).session("s").spawn("go");
        bed.hold().await;
        run.park();

        let bed = reborn(&*stores, &bed).await;
        let boss = Script::new([says("wait"), says("all")]);
        let agent = team(&bed, boss.clone(), Script::new([says("kid")]), send(r#"{"n":2}"#));
        let run = agent.session("s").resume_spawn();
        bed.approve(&bed.hold().await).await;
        let late = loop {
            let hold = bed.hold().await;
            if hold.call.facts.arguments.as_str() == r#"{"n":2}"# {
                break hold;
            }
        };
        while boss.asked() < 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(&*boss.results()[1].text, "kid", "{kind:?}");
        run.park();

        let bed = reborn(&*stores, &bed).await;
        bed.approve(&late).await;
        let boss = Script::new([says("all")]);
        let agent = team(&bed, boss.clone(), Script::default(), Script::new([says("late")]));
        assert_eq!(&*agent.resume("s").await.unwrap().text, "all", "{kind:?}");
        let told = format!("{:?}", boss.prompts()[0].messages.last());
        assert!(told.contains("[agent late finished: late]"), "{kind:?} {told}");
        assert_eq!(bed.ran(), [r#"send {"n":1}"#, r#"send {"n":2}"#], "{kind:?}");
    }
}

/// B113, B108: a hand-over is remembered: after a restart the target goes on, and the rules of both bind.
#[tokio::test]
async fn a_handover_survives_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let team = |bed: &Bed, boss: Script, audit: Script| {
            let audit = bed.named("audit", &audit, |builder| builder);
            bed.agent_with(&boss, |builder| builder.handoff(audit))
        };
        let boss = Script::new([calls([("transfer_to_audit", "{}")])]);
        let run = team(&bed, boss, Script::new([calls([("send", "{}")])])).session("s").spawn("go");
        bed.hold().await;
        run.park();
        let bed = reborn(&*stores, &bed).await;
        let hold = bed.hold().await;
        let path: Vec<&str> = hold.call.facts.path.agents.iter().map(|agent| &**agent).collect();
        assert_eq!(path, ["boss", "audit"], "{kind:?}");
        let decision = hold.decision(Who::person("bo"), "test", Answer::approve());
        bed.gate.decide(hold.id, decision).await.unwrap();
        let reply = team(&bed, Script::default(), Script::new([says("audited")])).resume("s").await.unwrap();
        assert_eq!((&*reply.text, &*reply.agent), ("audited", "audit"), "{kind:?}");
    }
}

/// B12, B79: the same place in the next run is another call, and a denial ends with its run.
#[tokio::test]
async fn the_next_run_asks_anew() {
    let bed = Bed::new(ASK);
    let script = Script::new([
        calls([("send", "{}")]),
        calls([("send", "{}")]),
        says("twice no"),
        calls([("send", "{}")]),
        says("yes"),
    ]);
    let agent = bed.agent(&script);
    let run = agent.session("s").spawn("go");
    bed.answer(&bed.hold().await, Answer::deny("no")).await;
    run.await.unwrap();
    assert_eq!(bed.log().await.iter().filter(|name| **name == "hold.opened").count(), 1, "no second question");
    let run = agent.session("s").spawn("try again");
    bed.approve(&bed.hold().await).await;
    assert_eq!(&*run.await.unwrap().text, "yes");
}

/// B109: a run's time passes while nobody drives it; resuming does not extend it.
#[tokio::test]
async fn downtime_counts_as_time_of_the_run() {
    for kind in DURABLE {
        let (stores, bed) = restart(kind).await;
        let agent = |bed: &Bed, script: &Script| {
            bed.agent_with(script, |builder| builder.timeout(std::time::Duration::from_secs(60)))
        };
        let run = agent(&bed, &Script::new([calls([("send", "{}")])])).session("s").spawn("go");
        bed.hold().await;
        run.park();
        stores.advance(std::time::Duration::from_secs(61)).await;
        let bed = reborn(&*stores, &bed).await;
        let script = Script::new([says("not in time")]);
        let ended = agent(&bed, &script).resume("s").await;
        assert!(matches!(ended, Err(RunError::TimedOut(_))), "{kind:?} {ended:?}");
        assert!(bed.ran().is_empty() && bed.holds().await.is_empty());
    }
}
