//! The event log: complete, chained, and read without gap.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use crate::audit::{VerifyOptions, verify_store};
use crate::call::Chain;
use crate::digest::EventHash;
use crate::event::{Cursor, Draft, Event, EventName, Head, hash};
use crate::hold::Answer;
use crate::json::Json;
use crate::signer::{Signer, statement, verify};
use crate::store::{EventFilter, Op, Store};
use crate::testing::{TestStore, approve, claim, decide, finish, proposal, submit, succeeded};

async fn all(store: &dyn Store, filter: EventFilter) -> Vec<Event> {
    store.events(Cursor::default(), EventFilter { limit: Some(1000), ..filter }).await.unwrap()
}

/// Checks every chain of a log from its first event, and returns the heads.
fn verified(events: &[Event]) -> HashMap<Chain, Head> {
    let mut heads: HashMap<Chain, Head> = HashMap::new();
    for event in events {
        let head = heads.entry(event.chain.clone()).or_default();
        assert_eq!(event.seq, head.seq + 1);
        assert_eq!(event.hash, hash(&head.hash, &event.body));
        let body = event.value();
        assert_eq!(body["chain"], &*event.chain.0);
        assert_eq!(body["seq"], event.seq);
        assert_eq!(body["at"], event.at.0);
        assert_eq!(body["event"], event.name.as_str());
        assert_eq!(body["call"].as_str().map(str::to_owned), event.call.map(|id| id.to_string()));
        assert_eq!(body["hold"].as_str().map(str::to_owned), event.hold.map(|id| id.to_string()));
        *head = Head { seq: event.seq, hash: event.hash };
    }
    heads
}

/// A little of everything, over three chains.
async fn some_history(store: &dyn Store) {
    for session in ["s", "t"] {
        let call = submit(store, proposal("rm", json!({"text": "ünï\u{0}\n\"quoted\""}), session)).await;
        approve(store, &call).await;
        claim(store, call.id, "w").await.unwrap();
        finish(store, call.id, 1, succeeded("x")).await.unwrap();
        let denied = submit(store, proposal("rm", json!({"n": 2}), session).principal("bob")).await;
        store.run(decide(&denied, "ann", Answer::deny("no"))).await.unwrap();
    }
    store.run(Op::Halt { agent: None, by: "olga".into(), reason: None }).await.unwrap();
    let draft = Draft::new(EventName::AccessRefused).text("by", "agent");
    store.run(Op::Note { chain: Chain::system(), draft }).await.unwrap();
}

/// B136: every chain is whole, and each event's columns say what its body says.
pub async fn every_chain_verifies(test: &dyn TestStore) {
    let store = test.store();
    some_history(&*store).await;
    let events = all(&*store, EventFilter::default()).await;
    let heads = verified(&events);
    let seqs = |chain: &str| heads[&Chain(chain.into())].seq;
    assert_eq!((seqs("local/s"), seqs("local/t"), seqs("bob/s"), seqs("bob/t"), seqs("system")), (5, 5, 4, 4, 2));
    assert_eq!(events.len(), 20);
}

/// B107: a reader that comes back with its cursor sees each event once, in order, in pages of any size.
pub async fn a_tail_resumes_without_gap_or_double(test: &dyn TestStore) {
    let store = test.store();
    some_history(&*store).await;
    let whole = all(&*store, EventFilter::default()).await;
    assert!(whole.is_sorted_by_key(|event| event.cursor));
    let filters = [
        EventFilter::default(),
        EventFilter { chain: Some(Chain("local/t".into())), ..EventFilter::default() },
        EventFilter { session: Some("s".into()), ..EventFilter::default() },
        EventFilter { call: whole[0].call, ..EventFilter::default() },
    ];
    for filter in filters {
        let expected = all(&*store, filter.clone()).await;
        for size in [1, 2, 3] {
            let mut found: Vec<Event> = Vec::new();
            loop {
                let after = found.last().map(|event| event.cursor).unwrap_or_default();
                let page = store.events(after, EventFilter { limit: Some(size), ..filter.clone() }).await.unwrap();
                if page.is_empty() {
                    break;
                }
                assert!(page.len() <= size);
                found.extend(page);
                assert!(found.len() <= expected.len(), "a page came twice");
            }
            assert_eq!(found, expected);
        }
        // A cursor from the whole log is good under any filter.
        for event in &whole {
            let rest = store.events(event.cursor, filter.clone()).await.unwrap();
            let later: Vec<Event> = expected.iter().filter(|found| found.cursor > event.cursor).cloned().collect();
            assert_eq!(rest, later);
        }
    }
    let last = whole.last().unwrap().cursor;
    assert!(store.events(last, EventFilter::default()).await.unwrap().is_empty());
    store.run(Op::Lift { agent: None, by: "olga".into() }).await.unwrap();
    let news = store.events(last, EventFilter::default()).await.unwrap();
    assert_eq!(news.iter().map(|event| event.name).collect::<Vec<_>>(), [EventName::HaltLifted]);
}

/// B125: a chain is one principal's; a session is everybody's of that name; a call is its own.
pub async fn events_are_found_by_chain_session_and_call(test: &dyn TestStore) {
    let store = test.store();
    some_history(&*store).await;
    let whole = all(&*store, EventFilter::default()).await;
    let check = async |filter: EventFilter, wanted: &dyn Fn(&Event) -> bool| {
        let expected: Vec<Event> = whole.iter().filter(|event| wanted(event)).cloned().collect();
        assert_eq!(all(&*store, filter).await, expected);
        expected.len()
    };
    let of = |chain: &str| Some(Chain(chain.into()));
    let chain = EventFilter { chain: of("local/s"), ..EventFilter::default() };
    assert_eq!(check(chain.clone(), &|event| &*event.chain.0 == "local/s").await, 5);
    let session = EventFilter { session: Some("s".into()), ..EventFilter::default() };
    assert_eq!(check(session.clone(), &|event| event.chain.0.ends_with("/s")).await, 9);
    let call = whole[0].call;
    let by_call = EventFilter { call, ..EventFilter::default() };
    assert_eq!(check(by_call.clone(), &|event| event.call == call).await, 5);
    assert_eq!(check(EventFilter { chain: of("local/t"), ..by_call.clone() }, &|_| false).await, 0);
    assert_eq!(check(EventFilter { session: Some("t".into()), ..by_call }, &|_| false).await, 0);
    assert_eq!(check(EventFilter { session: Some("t".into()), ..chain }, &|_| false).await, 0);
    assert_eq!(check(EventFilter { chain: of("nobody/s"), ..EventFilter::default() }, &|_| false).await, 0);
    let system = EventFilter { chain: of("system"), ..EventFilter::default() };
    assert_eq!(check(system, &|event| &*event.chain.0 == "system").await, 2);
}

/// I13: a checkpoint signs the heads of exactly the chains that moved, over the checkpoint before it.
pub async fn a_checkpoint_signs_what_moved(test: &dyn TestStore) {
    let store = test.store();
    let signer = Arc::new(Signer::generate().unwrap());
    let checkpoint = || Op::Checkpoint { signer: Arc::clone(&signer) };
    assert!(store.run(checkpoint()).await.unwrap().replayed, "nothing moved");
    some_history(&*store).await;
    let before = verified(&all(&*store, EventFilter::default()).await);
    assert!(!store.run(checkpoint()).await.unwrap().replayed);
    assert!(store.run(checkpoint()).await.unwrap().replayed, "its own event does not count");
    let first = last_checkpoint(&*store).await;
    check_statement(&first, &signer, None, &before);
    // One chain moves; the next checkpoint names it alone, and the one before.
    let call = submit(&*store, proposal("rm", json!({"n": 9}), "s")).await;
    let after = verified(&all(&*store, EventFilter::default()).await);
    let moved = after.into_iter().filter(|(chain, _)| *chain == call.facts.path.chain()).collect();
    store.run(checkpoint()).await.unwrap();
    let second = last_checkpoint(&*store).await;
    check_statement(&second, &signer, Some(first.hash), &moved);
    verified(&all(&*store, EventFilter::default()).await);
}

/// I13: more heads than fit one checkpoint are signed by several, each over the one before; the log verifies, and
/// nothing of it is left unsigned.
pub async fn many_heads_are_signed_by_several_checkpoints(test: &dyn TestStore) {
    let store = test.store();
    let signer = Arc::new(Signer::generate().unwrap().heads_per_checkpoint(2));
    some_history(&*store).await;
    for session in ["a", "b", "c", "x", "y"] {
        submit(&*store, proposal("rm", json!({}), session)).await;
    }
    let moved = verified(&all(&*store, EventFilter::default()).await).len();
    store.run(Op::Checkpoint { signer: Arc::clone(&signer) }).await.unwrap();
    let log = all(&*store, EventFilter::default()).await;
    verified(&log);
    let signed: Vec<usize> = log
        .iter()
        .filter(|event| event.name == EventName::CheckpointSigned)
        .map(|event| event.value()["statement"]["heads"].as_array().unwrap().len())
        .collect();
    assert_eq!((signed.iter().sum::<usize>(), signed.len()), (moved, moved.div_ceil(2)));
    let options = VerifyOptions { pinned: vec![signer.public_key()] };
    let report = verify_store(&*store, &options).await.unwrap();
    assert_eq!((report.checkpoints, report.unproven), (signed.len() as u64, 0));
    assert!(store.run(Op::Checkpoint { signer }).await.unwrap().replayed, "nothing moved since");
}

async fn last_checkpoint(store: &dyn Store) -> Event {
    let system = EventFilter { chain: Some(Chain::system()), ..EventFilter::default() };
    let event = all(store, system).await.pop().unwrap();
    assert_eq!(event.name, EventName::CheckpointSigned);
    event
}

fn check_statement(event: &Event, signer: &Signer, previous: Option<EventHash>, moved: &HashMap<Chain, Head>) {
    let mut heads: Vec<(Chain, Head)> = moved.iter().map(|(chain, head)| (chain.clone(), *head)).collect();
    heads.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = statement(previous.as_ref(), &heads).unwrap();
    let body = event.value();
    assert_eq!(Json::of(&body["statement"]).unwrap(), expected);
    assert!(verify(&signer.public_key(), expected.as_str(), body["signature"].as_str().unwrap()));
}

/// B51: the policy all nodes follow is kept whole, and setting it again is no news.
pub async fn the_policy_is_kept_and_announced(test: &dyn TestStore) {
    let store = test.store();
    let set = |version: &str, source: &str| Op::SetPolicy {
        version: version.into(),
        source: source.into(),
        by: "olga".into(),
    };
    let offer =
        |version: &str| Op::OfferPolicy { version: version.into(), source: "ask all".into(), by: "olga".into() };
    assert!(!store.run(offer("p:1")).await.unwrap().replayed, "the first one counts");
    assert!(store.run(offer("p:9")).await.unwrap().replayed, "a later one changes nothing");
    assert!(store.run(set("p:1", "ask all")).await.unwrap().replayed);
    assert_eq!(store.policy().await.unwrap(), Some(("p:1".into(), "ask all".into())));
    store.run(set("p:2", "deny all")).await.unwrap();
    store.run(set("p:1", "ask all")).await.unwrap();
    assert_eq!(store.policy().await.unwrap(), Some(("p:1".into(), "ask all".into())));
    let names: Vec<_> = all(&*store, EventFilter::default()).await.iter().map(|event| event.name).collect();
    assert_eq!(names, [EventName::PolicyLoaded; 3]);
}
