//! One node: transitions, batches, listings, records, deadlines.

use std::time::Duration;

use countersign::call::{CallState, Outcome};
use countersign::event::EventName;
use countersign::grant::Remember;
use countersign::hold::Answer;
use countersign::id::HoldId;
use countersign::store::{EventFilter, Expect, Failure, Op, Store};
use countersign::testing::{claimant, decide, proposal, submit};
use countersign::transition::{Asking, Rejection};
use countersign::{Json, Limits};
use futures::future::join_all;
use serde_json::json;

use super::{Bench, all_events, check_chains, claim, deploy, in_one_batch, is_pending};

/// B84: a call goes its whole way, and every step reads back as it was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_its_whole_way() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = submit(&store, deploy("s1")).await;
    is_pending(&call);
    let approved = store.run(decide(&call, "ann", Answer::approve())).await.unwrap().call.unwrap();
    assert_eq!(approved.state, CallState::Approved);
    let running = store.run(claim(call.id)).await.unwrap().call.unwrap();
    let asking = Asking {
        hold: HoldId::new(),
        fence: running.lease.as_ref().unwrap().fence,
        hint: Some("sure?".into()),
        payload: Some(Json::string("x")),
        unattended: None,
        limits: std::sync::Arc::default(),
    };
    let asked = store.run(Op::Ask { call: call.id, asking: Box::new(asking) }).await.unwrap().call.unwrap();
    let payload = Some(Json::string("go on"));
    let yes = Answer::Approve { arguments: None, payload, remember: None };
    store.run(decide(&asked, "bob", yes)).await.unwrap();
    let output = Json::arguments(r#"{"n":123456789012345678901234567890}"#, &Limits::default()).unwrap();
    let outcome = Outcome::Succeeded { output };
    let finish = Op::Finish { call: call.id, fence: 1, outcome };
    let done = store.run(finish.clone()).await.unwrap().call.unwrap();
    assert_eq!(done.state, CallState::Succeeded);
    assert!(store.run(finish).await.unwrap().replayed);
    assert_eq!(store.call(call.id).await.unwrap().as_ref(), Some(&done));
    for hold in done.holds.iter() {
        assert_eq!(store.call_of_hold(hold.id).await.unwrap().as_ref(), Some(&done));
    }
    let events = all_events(&store).await;
    check_chains(&events);
    let of_call = EventFilter { call: Some(call.id), ..EventFilter::default() };
    assert_eq!(store.events(Default::default(), of_call).await.unwrap(), events);
    let names: Vec<_> = events.iter().map(|event| event.name).collect();
    use EventName::{CallClaimed, CallSubmitted, CallSucceeded, HoldDecided, HoldOpened};
    let expected = [CallSubmitted, HoldOpened, HoldDecided, CallClaimed, HoldOpened, HoldDecided, CallSucceeded];
    assert_eq!(names, expected);
}

/// B79: one key, one call, also when both submissions share a batch; other arguments under it are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_is_one_call_within_a_batch_and_after() {
    let bench = Bench::new();
    let store = bench.node().await;
    let other = proposal("deploy", json!({"to": "elsewhere"}), "s1").key("k");
    let ops = vec![deploy("s1").key("k").op(), deploy("s1").key("k").op(), other.op()];
    let answers = in_one_batch(&bench, &store, ops).await;
    let first = answers[0].as_ref().unwrap();
    let second = answers[1].as_ref().unwrap();
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.call, second.call);
    assert!(matches!(answers[2], Err(Failure::Rejected(Rejection::KeyReused))));
    let again = store.run(deploy("s1").key("k").op()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.call, first.call);
    assert_ne!(submit(&store, deploy("s2").key("k")).await.id, first.call.as_ref().unwrap().id);
    assert_eq!(all_events(&store).await.iter().filter(|event| event.name == EventName::CallSubmitted).count(), 2);
}

/// B61: a grant made in a batch covers a call later in the same batch, and its uses are counted there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_made_in_a_batch_is_used_and_spent_in_it() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = submit(&store, deploy("s1")).await;
    let remember = Remember { uses: Some(1), ..Remember::session() };
    let yes = Answer::Approve { arguments: None, payload: None, remember: Some(remember) };
    let claimed = || deploy("s1").claim(claimant("executor")).op();
    let ops = vec![decide(&call, "ann", yes), claimed(), claimed()];
    let answers = in_one_batch(&bench, &store, ops).await;
    let states: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().call.as_ref().unwrap().state).collect();
    assert_eq!(states, [CallState::Approved, CallState::Executing, CallState::Pending]);
    let grants = store.grants().await.unwrap();
    assert_eq!(grants.iter().map(|grant| grant.uses_left).collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(store.grant(grants[0].id).await.unwrap().as_ref(), Some(&grants[0]));
}

/// The session's limit is exact, however many submit at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_session_is_exact() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let limits = Limits { pending_per_session: 5, ..Limits::default() };
    let submit = |index: usize| nodes[index % 2].run(deploy("s1").limits(limits.clone()).op());
    let answers = join_all((0..40).map(submit)).await;
    let states = answers.into_iter().map(|answer| answer.unwrap().call.unwrap().state);
    assert_eq!(states.filter(|state| *state == CallState::Pending).count(), 5);
}

/// All sessions together have a limit too; a node's own calls count at once, other nodes' after a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_sessions_together_have_a_limit() {
    let bench = Bench::new();
    let store = bench.node().await;
    let limits = Limits { pending_total: 3, ..Limits::default() };
    let capped = |index: usize| deploy(&format!("s{index}")).limits(limits.clone());
    let mut states = Vec::new();
    let mut calls = Vec::new();
    for index in 0..5 {
        calls.push(submit(&store, capped(index)).await);
        states.push(calls[index].state);
    }
    use CallState::{Denied, Pending};
    assert_eq!(states, [Pending, Pending, Pending, Denied, Denied]);
    store.run(decide(&calls[0], "ann", Answer::approve())).await.unwrap();
    is_pending(&submit(&store, capped(5)).await);
    let fresh = bench.node().await;
    assert_eq!(submit(&fresh, capped(6)).await.state, Denied, "a new node counts before it judges");
}

/// Records compare and set, end by the database's clock, and are found by prefix, byte by byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_compare_and_set_expire_and_scan() {
    let bench = Bench::new();
    let store = bench.node().await;
    let put = |key: &'static str, expect, life| store.put_record("ns", key, b"v", expect, life);
    let conflict = |answer: Result<u64, Failure>| matches!(answer, Err(Failure::Rejected(Rejection::Conflict)));
    assert!(conflict(put("a/1", Expect::Version(1), None).await));
    assert_eq!(put("a/1", Expect::Absent, None).await.unwrap(), 1);
    assert!(conflict(put("a/1", Expect::Absent, None).await));
    assert_eq!(put("a/1", Expect::Version(1), None).await.unwrap(), 2);
    assert!(conflict(put("a/1", Expect::Version(1), None).await));
    let racers = join_all((0..16).map(|_| put("a/1", Expect::Version(2), None))).await;
    assert_eq!(racers.iter().filter(|answer| answer.is_ok()).count(), 1);
    for key in ["a/2", "a/\u{10ffff}", "a0", "a%", "b"] {
        put(key, Expect::Any, None).await.unwrap();
    }
    let keys = async |prefix: &str, after: Option<&str>, limit| {
        let records = store.records("ns", prefix, after, limit).await.unwrap();
        records.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("a/", None, 9).await, ["a/1", "a/2", "a/\u{10ffff}"]);
    assert_eq!(keys("a/", Some("a/1"), 1).await, ["a/2"]);
    assert_eq!(keys("a%", None, 9).await, ["a%"]);
    assert_eq!(keys("", Some("a0"), 9).await, ["b"]);
    assert_eq!(put("mayfly", Expect::Any, Some(Duration::from_secs(5))).await.unwrap(), 1);
    assert_eq!(put("mayfly", Expect::Any, Some(Duration::from_secs(5))).await.unwrap(), 2);
    bench.pass(Duration::from_secs(6));
    assert_eq!(store.record("ns", "mayfly").await.unwrap(), None);
    assert!(conflict(put("mayfly", Expect::Version(2), None).await));
    assert_eq!(put("mayfly", Expect::Absent, None).await.unwrap(), 1);
    assert!(store.delete_record("ns", "mayfly", Expect::Version(7)).await.is_err());
    assert!(store.delete_record("ns", "mayfly", Expect::Absent).await.is_err());
    store.delete_record("ns", "mayfly", Expect::Version(1)).await.unwrap();
    store.delete_record("ns", "mayfly", Expect::Any).await.unwrap();
    store.delete_record("ns", "mayfly", Expect::Absent).await.unwrap();
}
