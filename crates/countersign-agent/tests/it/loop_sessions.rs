//! Sessions as a server drives them: read without their agent, said to once, put away and cancelled while nobody drives.

use std::sync::Arc;

use countersign::{Definition, Json};
use countersign_agent::{Created, Entry, RunError, RunLimits, SessionReader, Standing, Stopped, every_session};
use tokio::sync::Notify;

use crate::bed::{ALLOW, ASK, Bed, Script, calls, says};

async fn reader(bed: &Bed) -> SessionReader {
    SessionReader::open(Arc::clone(bed.gate.store()), "local".into(), "s").await.unwrap().unwrap()
}

/// B111: what is said again under its name, as after a crash, is said once, and its run goes on instead.
#[tokio::test]
async fn a_named_message_is_said_once() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([says("hello"), says("what else?")]);
    let session = bed.agent(&script).session("s");
    let first = session.clone().message("m1").run("hi").await.unwrap();
    let again = session.clone().message("m1").run("hi").await.unwrap();
    assert_eq!((first, script.asked()), (again, 1));
    session.message("m2").run("hi").await.unwrap();
    let entries = reader(&bed).await.entries("main", 0, 100).await.unwrap();
    assert_eq!(entries.iter().filter(|entry| matches!(entry, Entry::User { .. })).count(), 2);
}

/// A run that waits for people can be put away; it goes on elsewhere as if it had waited.
#[tokio::test]
async fn a_run_that_waits_is_put_away() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", "{}")]), says("done")]);
    let agent = bed.agent(&script);
    let run = agent.session("s").spawn("go");
    let hold = bed.hold().await;
    while !run.park_if_waiting() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(run.await, Err(RunError::Lost(_))));
    bed.approve(&hold).await;
    tokio::task::yield_now().await;
    assert!(bed.ran().is_empty(), "nobody drives it");
    assert_eq!(&*agent.resume("s").await.unwrap().text, "done");
    assert_eq!(bed.ran(), ["send {}"]);
}

/// A run whose tool runs is not put away; leaving it waits for the tool, and nothing is in doubt.
#[tokio::test]
async fn a_run_whose_tool_runs_is_left_only_after_it() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([calls([("slow", "{}")]), says("done")]);
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tells, waits) = (Arc::clone(&begun), Arc::clone(&may_end));
    let slow = countersign::tool::tool(Definition::new("slow", "Takes its time."), move |_| {
        let (tells, waits) = (Arc::clone(&tells), Arc::clone(&waits));
        async move {
            tells.notify_one();
            waits.notified().await;
            Ok(Json::string("slowly"))
        }
    });
    let agent = bed.agent_with(&script, |builder| builder.tool(slow));
    let run = agent.session("s").spawn("go");
    begun.notified().await;
    assert!(!run.park_if_waiting());
    let leaving = tokio::spawn(run.park_when_still(std::time::Duration::from_secs(60)));
    tokio::task::yield_now().await;
    assert!(!leaving.is_finished());
    may_end.notify_one();
    leaving.await.unwrap();
    assert!(bed.log().await.contains(&"call.succeeded") && !bed.log().await.contains(&"call.in_doubt"));
    assert_eq!((&*agent.resume("s").await.unwrap().text, &*script.result().text), ("done", "slowly"));
}

/// A session is there before anything is said in it, once, and anybody with the store can read how it stands.
#[tokio::test]
async fn a_session_is_created_once_and_outlined_by_anybody() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", "{}")]), says("never")]);
    let agent = bed.agent(&script);
    let session = agent.session("s").requester("ann");
    assert_eq!(session.create().await.unwrap(), Created::Now);
    assert_eq!(session.create().await.unwrap(), Created::Before);
    let reader = reader(&bed).await;
    assert_eq!(reader.listed().requester.as_deref(), Some("ann"));
    assert_eq!(reader.outline().await.unwrap().standing, Standing::New);
    let run = session.spawn("go");
    let hold = bed.hold().await;
    let outline = reader.outline().await.unwrap();
    assert_eq!((outline.standing, &*outline.run, outline.spent.turns), (Standing::Open, "r1", 1));
    while !run.park_if_waiting() {
        tokio::task::yield_now().await;
    }

    // Nobody drives it: cancelling withdraws its hold all the same.
    session.cancel().await.unwrap();
    assert_eq!(reader.outline().await.unwrap().standing, Standing::Stopped(Stopped::Cancelled));
    assert!(bed.holds().await.is_empty(), "{} is withdrawn", hold.id);
    let all = every_session(&**bed.gate.store(), None, 10).await.unwrap();
    assert_eq!(all.iter().map(|(owner, listed)| (&**owner, &*listed.session)).collect::<Vec<_>>(), [("local", "s")]);
    let threads = reader.threads(10).await.unwrap();
    assert_eq!(threads.iter().map(|thread| &*thread.thread).collect::<Vec<_>>(), ["main"]);
}

/// Results are written with the answer after them; a reader finds each entry by its number all the same.
#[tokio::test]
async fn a_page_may_begin_and_end_between_entries_that_were_written_at_once() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([calls([("send", "{}")]), calls([("send", "{}")]), says("done")]);
    bed.agent(&script).session("s").run("go").await.unwrap();
    let reader = reader(&bed).await;
    let all = reader.entries("main", 0, 100).await.unwrap();
    let expected = ["user", "model", "results", "model", "results", "model"];
    assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), expected);
    for from in 0..=all.len() {
        for limit in 0..=all.len() {
            let page = reader.entries("main", u32::try_from(from).unwrap(), limit).await.unwrap();
            let expected: Vec<Entry> = all.iter().skip(from).take(limit).cloned().collect();
            assert_eq!(page, expected, "{limit} from {from}");
        }
    }
}

fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::User { .. } => "user",
        Entry::Model { .. } => "model",
        Entry::Results { .. } => "results",
        _ => "another",
    }
}

/// B108: whoever began a session may be lost when what was said first is written down and the session is not listed yet.
#[tokio::test]
async fn a_session_that_was_never_listed_goes_on() {
    let bed = Bed::new(ALLOW);
    let said = br#"{"user":{"text":"go","run":"r1"}}"#;
    let absent = countersign::store::Expect::Absent;
    bed.gate.store().put_record("transcript", "local/s/main/00000000", said, absent, None).await.unwrap();
    let agent = bed.agent(&Script::new([says("done")]));
    assert!(agent.session("t").resume().await.is_err(), "nothing was said there");
    assert_eq!(&*agent.resume("s").await.unwrap().text, "done");
    assert_eq!(reader(&bed).await.listed().agent, *agent.name());
}

/// A model that does not answer leaves a session in which all that was done can be read.
#[tokio::test]
async fn a_run_that_fails_leaves_its_results_on_record() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([calls([("send", "{}")])]);
    let agent = bed.agent_with(&script, |builder| builder.limits(RunLimits { turns: 1, ..RunLimits::default() }));
    assert!(matches!(agent.session("s").run("go").await, Err(RunError::Limit { .. })));
    let entries = reader(&bed).await.entries("main", 0, 100).await.unwrap();
    assert_eq!(entries.iter().map(kind).collect::<Vec<_>>(), ["user", "model", "results", "another"]);
}
