//! Several handles and processes on one file.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use countersign::call::{Call, CallState};
use countersign::event::{Cursor, hash};
use countersign::event::{EventName, Head};
use countersign::grant::Remember;
use countersign::hold::{Answer, Decision};
use countersign::store::{EventFilter, Op, Store};
use countersign::testing::{TestStore as _, claim, decide, proposal, rejection, submit};
use countersign::transition::Rejection;
use countersign::{Claimed, Gate, GateError, Policy, Proposal, Who};
use countersign_store::SqliteStore;
use serde_json::json;

use super::TestSqlite;

/// A ring that never comes fails the test instead of hanging it.
const RING: Duration = Duration::from_secs(20);

/// DESIGN 6: what one process commits wakes whoever waits in another.
#[tokio::test]
async fn a_decision_elsewhere_wakes_the_waiter_here() {
    let test = TestSqlite::new().await;
    let (here, there) = (test.store(), test.another().await);
    let call = submit(&*here, proposal("rm", json!({}), "s")).await;
    let other = submit(&*here, proposal("rm", json!({"n": 2}), "s")).await;
    for round in 0..3 {
        let (mine, any) = (here.bell().listen(call.id), here.bell().listen_any());
        let op = match round {
            0 => decide(&call, "ann", Answer::approve()),
            1 => Op::Claim {
                call: call.id,
                claimant: countersign::testing::claimant("w"),
                policy: countersign::Policy::ask_all(),
            },
            _ => Op::Finish { call: call.id, fence: 1, outcome: countersign::testing::succeeded("x") },
        };
        there.run(op).await.unwrap();
        tokio::time::timeout(RING, mine).await.expect("rung for the call");
        tokio::time::timeout(RING, any).await.expect("rung for any");
    }
    assert_eq!(here.call(call.id).await.unwrap().unwrap().state, CallState::Succeeded);
    // The bell of another call stays silent until its own time comes.
    let waiting = here.bell().listen(other.id);
    there.run(Op::Halt { agent: None, by: "olga".into(), reason: None }).await.unwrap();
    tokio::time::timeout(RING, waiting).await.expect("a halt rings for everybody");
    let any = here.bell().listen_any();
    let draft = countersign::event::Draft::new(EventName::AccessRefused);
    there.run(Op::Note { chain: countersign::call::Chain::system(), draft }).await.unwrap();
    tokio::time::timeout(RING, any).await.expect("an event without a call rings for any");
}

/// DESIGN 6: no chain head, counter or halt outlives its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_on_one_chain_keep_it_whole() {
    let test = TestSqlite::new().await;
    let (here, there): (Arc<dyn Store>, Arc<dyn Store>) = (test.store(), Arc::new(test.another().await));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..60 {
        let store = Arc::clone(if n % 2 == 0 { &here } else { &there });
        writers.spawn(async move { submit(&*store, proposal("rm", json!({ "n": n }), "s")).await });
    }
    let calls = writers.join_all().await;
    assert!(calls.iter().all(|call| call.state == CallState::Pending));
    let filter = EventFilter { limit: Some(1000), ..EventFilter::default() };
    let events = here.events(Cursor::default(), filter).await.unwrap();
    assert_eq!(events.len(), 120);
    let mut head = Head::default();
    for event in events {
        assert_eq!((event.seq, event.hash), (head.seq + 1, hash(&head.hash, &event.body)));
        head = Head { seq: event.seq, hash: event.hash };
    }
    // Each sees what the other counted: forty more fill the session, and no more.
    for n in 60..100 {
        submit(&*here, proposal("rm", json!({ "n": n }), "s")).await;
    }
    let over = submit(&*there, proposal("rm", json!({"n": 100}), "s")).await;
    assert_eq!(over.state, CallState::Denied);
    here.run(Op::Halt { agent: None, by: "olga".into(), reason: None }).await.unwrap();
    let call = submit(&*there, proposal("ls", json!({}), "t").effect(countersign::Effect::Allow)).await;
    assert_eq!(rejection(claim(&*there, call.id, "w").await), Rejection::Halted);
}

const CHILD: &str = "COUNTERSIGN_TEST_STORE";

/// The other process of `another_process_approves`: approves whatever waits in the file it is given.
#[tokio::test]
async fn the_other_process() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = SqliteStore::open(path).await.unwrap();
    let holding = countersign::store::CallFilter { holding: true, ..Default::default() };
    for call in store.calls(holding).await.unwrap() {
        store.run(decide(&call, "ann", Answer::approve())).await.unwrap();
    }
}

/// `run` here, `approve` there: a real second process decides, and the first one hears it.
#[tokio::test]
async fn another_process_approves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countersign.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let call = submit(&store, proposal("rm", json!({}), "s")).await;
    let rung = store.bell().listen(call.id);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "sqlite::sharing::the_other_process"]).env(CHILD, &path);
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    tokio::time::timeout(RING, rung).await.expect("rung");
    assert_eq!(store.call(call.id).await.unwrap().unwrap().state, CallState::Approved);
}

/// B12, B81, B103: what the writer remembers of its last step never outlives what another process wrote meanwhile.
#[tokio::test]
async fn what_another_process_wrote_counts_at_the_very_next_step() {
    let test = TestSqlite::new().await;
    let gate = |store: Arc<dyn Store>| {
        Gate::builder().policy(Policy::ask_all()).store(store).without_sweeper().decided_elsewhere().build().unwrap()
    };
    let (here, there) = (gate(test.sqlite()), gate(Arc::new(test.another().await)));
    let ann = || Who::person("ann");
    let submit = async |text: &str| here.submit_undefined(Proposal::new("send", text).session("s1")).await.unwrap();
    let decide = async |gate: &Gate, call: &Call, answer: Answer| {
        let hold = call.open_hold().unwrap();
        gate.decide(hold.id, Decision::new(ann(), "test", hold.digest, answer)).await
    };

    let call = submit("{\"n\":1}").await;
    decide(&here, &call, Answer::approve()).await.unwrap();
    there.halt(None, "ann", None).await.unwrap();
    let claimed = here.claim(call.id, None).await;
    assert!(matches!(claimed, Err(GateError::Rejected(Rejection::Halted))), "{claimed:?}");
    there.lift(None, "ann").await.unwrap();
    assert!(matches!(here.claim(call.id, None).await.unwrap(), Claimed::Permit(_)));

    let call = submit("{\"n\":2}").await;
    there.cancel(call.id).await.unwrap();
    let late = decide(&here, &call, Answer::approve()).await;
    assert!(matches!(late, Err(GateError::Rejected(Rejection::Closed(_)))), "{late:?}");

    let call = submit("{\"n\":3}").await;
    decide(&there, &call, Answer::deny("no")).await.unwrap();
    assert_eq!(submit("{\"n\":3}").await.state, CallState::Denied, "the denial is remembered");

    let call = submit("{\"n\":4}").await;
    let remembered = Answer::Approve { arguments: None, payload: None, remember: Some(Remember::session()) };
    decide(&there, &call, remembered).await.unwrap();
    assert_eq!(submit("{\"n\":4}").await.state, CallState::Allowed, "the grant is found");
}
