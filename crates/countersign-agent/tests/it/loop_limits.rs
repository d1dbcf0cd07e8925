//! How much a run may take.

use countersign::{Answer, Json};
use countersign_agent::{RunError, RunLimits};

use crate::bed::{ALLOW, Bed, EVERY, Script, calls, says};
use crate::loop_restart::restart_under;

fn read_three_times() -> Script {
    let read = || calls([("read", "{}")]);
    Script::new([read(), read(), read(), says("done")])
}

fn limits(turns: u64, extensions: u32) -> RunLimits {
    RunLimits { turns, extensions, ..RunLimits::default() }
}

/// B121: a limit that nobody may extend ends the run, and the conversation can go on.
#[tokio::test]
async fn a_limit_ends_the_run() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
        let script = read_three_times();
        let agent = bed.agent_with(&script, |builder| builder.limits(limits(2, 0)));
        let ended = agent.session("s").run("go").await;
        assert!(matches!(&ended, Err(RunError::Limit { limit, allowed: 2 }) if &**limit == "turns"), "{ended:?}");
        assert!(matches!(agent.resume("s").await, Err(RunError::Limit { .. })));
        assert_eq!(&*agent.session("s").run("go on").await.unwrap().text, "done", "a new run counts anew");
    }
}

/// B121: reaching a limit opens a hold of the same kind; a yes extends it by as much again, as often as allowed.
#[tokio::test]
async fn people_may_extend_a_limit_so_many_times() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
        let agent = bed.agent_with(&read_three_times(), |builder| builder.limits(limits(1, 2)));
        let run = agent.spawn("go");
        for allowed in 1..=2 {
            let hold = bed.hold().await;
            assert_eq!(&*hold.call.facts.tool.name, "continue_run");
            let asked = hold.call.facts.arguments.value();
            assert_eq!(asked, serde_json::json!({"limit": "turns", "allowed": allowed, "more": 1}));
            assert_eq!(hold.payload, Some(Json::of(&serde_json::json!({"used": allowed})).unwrap()));
            bed.approve(&hold).await;
        }
        assert!(matches!(run.await, Err(RunError::Limit { allowed: 3, .. })), "{kind:?}");
    }
}

/// B97, B121: cancelling withdraws the question for more, too.
#[tokio::test]
async fn cancelling_withdraws_the_question_for_more() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
        let run = bed.agent_with(&read_three_times(), |builder| builder.limits(limits(1, 1))).spawn("go");
        bed.hold().await;
        run.cancel();
        assert!(matches!(run.await, Err(RunError::Cancelled)), "{kind:?}");
        assert!(bed.holds().await.is_empty(), "{kind:?}");
    }
}

/// B121: an extension that was granted before a restart is not asked for again.
#[tokio::test]
async fn an_extension_is_asked_for_once() {
    let bed = Bed::new("otherwise: ask\nrules: [{ allow: read }]");
    let agent = |script: &Script| bed.agent_with(script, |builder| builder.limits(limits(1, 1)));
    let run = agent(&Script::new([calls([("read", "{}")]), calls([("send", "{}")])])).session("s").spawn("go");
    bed.approve(&bed.hold().await).await;
    let send = loop {
        let hold = bed.hold().await;
        if &*hold.call.facts.tool.name == "send" {
            break hold;
        }
    };
    run.park();
    bed.approve(&send).await;
    let ended = agent(&Script::default()).resume("s").await;
    assert!(matches!(ended, Err(RunError::Limit { allowed: 2, .. })), "{ended:?}");
    assert_eq!(bed.log().await.iter().filter(|name| **name == "hold.opened").count(), 2);
}

/// B121: tokens and cost are limits as turns are; a no ends the run, and no policy answers for people.
#[tokio::test]
async fn a_no_ends_the_run() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ALLOW).await;
        for (tokens, micro_dollars) in [(Some(15), None), (None, Some(100))] {
            let limits = RunLimits { tokens, micro_dollars, ..limits(100, 1) };
            let run = bed.agent_with(&read_three_times(), |builder| builder.limits(limits)).spawn("go");
            bed.answer(&bed.hold().await, Answer::deny("enough")).await;
            assert!(matches!(run.await, Err(RunError::Limit { .. })));
        }
        assert_eq!(bed.ran().len(), 2, "{kind:?}");
    }
}
