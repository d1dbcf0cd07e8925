//! One node: transitions, batches, listings, records, deadlines.

use std::time::Duration;

use countersign::call::{CallState, Outcome};
use countersign::event::EventName;
use countersign::grant::Remember;
use countersign::hold::Answer;
use countersign::id::HoldId;
use countersign::refusal::RefusalKind;
use countersign::signer::Signer;
use countersign::store::{CallFilter, EventFilter, Expect, Failure, Op, Store};
use countersign::transition::{Asking, Rejection};
use countersign::{Json, Limits};

use super::{Bench, all_events, check_chains, claim, decide, in_one_batch, is_pending, note, proposal};

/// B84: a call goes its whole way, and every step reads back as it was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_its_whole_way() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = proposal("s1").submit(&store).await;
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
        most: 3,
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
    for hold in &done.holds {
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
    let mut other = proposal("s1").key("k");
    other.arguments = r#"{"to":"elsewhere"}"#;
    let ops = vec![proposal("s1").key("k").op(), proposal("s1").key("k").op(), other.op()];
    let answers = in_one_batch(&bench, &store, ops).await;
    let first = answers[0].as_ref().unwrap();
    let second = answers[1].as_ref().unwrap();
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.call, second.call);
    assert!(matches!(answers[2], Err(Failure::Rejected(Rejection::KeyReused))));
    let again = store.run(proposal("s1").key("k").op()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.call, first.call);
    assert_ne!(proposal("s2").key("k").submit(&store).await.id, first.call.as_ref().unwrap().id);
    assert_eq!(all_events(&store).await.iter().filter(|event| event.name == EventName::CallSubmitted).count(), 2);
}

/// I8: a key of one principal is nothing to another, with or without a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_belongs_to_its_principal() {
    let bench = Bench::new();
    let store = bench.node().await;
    for session in [None, Some("s")] {
        let of = |principal: &str| {
            let mut new = proposal("s").key("k");
            new.path.session = session.map(Into::into);
            new.path.principal = principal.into();
            new
        };
        let first = of("a").submit(&store).await;
        assert_ne!(of("b").submit(&store).await.id, first.id);
        assert_eq!(of("a").submit(&store).await.id, first.id);
    }
}

/// B56: a grant made in a batch covers a call later in the same batch, and its uses are counted there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_made_in_a_batch_is_used_and_spent_in_it() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = proposal("s1").submit(&store).await;
    let remember = Remember { uses: Some(1), ..Remember::session() };
    let yes = Answer::Approve { arguments: None, payload: None, remember: Some(remember) };
    let claimed = || proposal("s1").claimed().op();
    let ops = vec![decide(&call, "ann", yes), claimed(), claimed()];
    let answers = in_one_batch(&bench, &store, ops).await;
    let states: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().call.as_ref().unwrap().state).collect();
    assert_eq!(states, [CallState::Approved, CallState::Executing, CallState::Pending]);
    let grants = store.grants().await.unwrap();
    assert_eq!(grants.iter().map(|grant| grant.uses_left).collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(store.grant(grants[0].id).await.unwrap().as_ref(), Some(&grants[0]));
}

/// B58: what a person denied is denied again in the same run, without asking; another run asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_holds_for_the_run() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = proposal("s1").submit(&store).await;
    store.run(decide(&call, "ann", Answer::deny("not today"))).await.unwrap();
    let again = proposal("s1").submit(&store).await;
    assert_eq!(again.state, CallState::Denied);
    assert_eq!(again.refusal.as_ref().unwrap().kind, RefusalKind::DeniedByApprover);
    is_pending(&*proposal("s2").submit(&store).await);
}

/// B85: an identical call in doubt makes an allowed call an asked one, until the doubt is settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubt_makes_its_like_ask() {
    let bench = Bench::new();
    let store = bench.node().await;
    let lost = proposal("s1").allowed().claimed().submit(&store).await;
    assert_eq!(lost.state, CallState::Executing);
    bench.pass(Duration::from_secs(31));
    assert_eq!(store.due(10).await.unwrap(), [lost.id]);
    let doubt = store.run(Op::Tick { call: lost.id }).await.unwrap().call.unwrap();
    assert_eq!(doubt.state, CallState::InDoubt);
    assert!(store.due(10).await.unwrap().is_empty());
    is_pending(&*proposal("s1").allowed().submit(&store).await);
    assert_eq!(proposal("s2").allowed().submit(&store).await.state, CallState::Allowed);
}

/// I5: a hold past its time is expired, and the late yes is refused though it came first to the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_decision_finds_the_hold_expired() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = proposal("s1").submit(&store).await;
    bench.pass(Duration::from_secs(600));
    let late = store.run(decide(&call, "ann", Answer::approve())).await;
    assert!(matches!(late, Err(Failure::Rejected(Rejection::Closed(_)))), "{late:?}");
    assert_eq!(store.call(call.id).await.unwrap().unwrap().state, CallState::Expired, "the rejection still commits");
}

/// B101: the session's limit is exact, however many submit at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_session_is_exact() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let submit = |index: usize| {
        let mut new = proposal("s1");
        new.limits.pending_per_session = 5;
        nodes[index % 2].run(new.op())
    };
    let answers = futures::future::join_all((0..40).map(submit)).await;
    let states = answers.into_iter().map(|answer| answer.unwrap().call.unwrap().state);
    assert_eq!(states.filter(|state| *state == CallState::Pending).count(), 5);
    let mut capped = proposal("s2");
    capped.limits.pending_total = 5;
    assert_eq!(capped.submit(&nodes[0]).await.state, CallState::Denied, "five wait already, in all");
}

/// I16: pages of open holds come in order of submission, by session, principal, state and arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_page_and_filter() {
    let bench = Bench::new();
    let store = bench.node().await;
    let mut held = Vec::new();
    for index in 0..5 {
        held.push(proposal(if index % 2 == 0 { "even" } else { "odd" }).submit(&store).await);
        proposal("even").allowed().submit(&store).await;
    }
    let list = async |filter: CallFilter| store.calls(filter).await.unwrap();
    let holding = CallFilter { holding: true, limit: Some(3), ..CallFilter::default() };
    assert_eq!(list(holding.clone()).await, held[..3]);
    assert_eq!(list(CallFilter { after: Some(held[2].id), ..holding.clone() }).await, held[3..]);
    let odd = CallFilter { session: Some("odd".into()), ..holding };
    assert_eq!(list(odd.clone()).await, [held[1].clone(), held[3].clone()]);
    assert_eq!(list(CallFilter { holding: false, ..odd }).await.len(), 2);
    let count = async |filter| list(filter).await.len();
    assert_eq!(count(CallFilter { state: Some(CallState::Allowed), ..CallFilter::default() }).await, 5);
    assert_eq!(count(CallFilter { state: Some(CallState::Pending), ..CallFilter::default() }).await, 5);
    assert_eq!(count(CallFilter { principal: Some("local".into()), ..CallFilter::default() }).await, 10);
    assert_eq!(count(CallFilter { principal: Some("nobody".into()), ..CallFilter::default() }).await, 0);
    let digest = Some(held[0].argument_digest);
    assert_eq!(count(CallFilter { argument_digest: digest, ..CallFilter::default() }).await, 10);
    assert_eq!(count(CallFilter::default()).await, 10);
}

/// B105: records compare and set, end by the database's clock, and are found by prefix, byte by byte.
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
    let racers = futures::future::join_all((0..16).map(|_| put("a/1", Expect::Version(2), None))).await;
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

/// I13: a checkpoint signs every chain that moved, once, over the checkpoint before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_signs_what_moved() {
    let bench = Bench::new();
    let store = bench.node().await;
    let signer = std::sync::Arc::new(Signer::generate().unwrap());
    let checkpoint = || store.run(Op::Checkpoint { signer: signer.clone() });
    assert!(checkpoint().await.unwrap().replayed, "nothing moved yet");
    for chain in ["local/b", "local/a", "system"] {
        store.run(note(chain)).await.unwrap();
    }
    assert!(!checkpoint().await.unwrap().replayed);
    assert!(checkpoint().await.unwrap().replayed, "the checkpoint itself moves nothing");
    store.run(note("local/a")).await.unwrap();
    assert!(!checkpoint().await.unwrap().replayed);
    let events = all_events(&store).await;
    check_chains(&events);
    let signed: Vec<_> = events.iter().filter(|event| event.name == EventName::CheckpointSigned).collect();
    assert_eq!(signed.len(), 2);
    assert!(signed[0].body.contains("local/a") && signed[0].body.contains("local/b"));
    assert!(signed[1].body.contains("local/a") && !signed[1].body.contains("local/b"));
    assert!(signed[1].body.contains(&signed[0].hash.to_string()), "over the one before: {}", signed[1].body);
}
