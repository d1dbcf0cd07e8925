//! The tail: whole transactions in order, and never one skipped.

use std::time::Duration;

use countersign::call::Chain;
use countersign::event::{Cursor, EventName};
use countersign::store::{EventFilter, Store};
use countersign::testing::submit;
use countersign_store::{PostgresOptions, PostgresStore};
use futures::future::join_all;
use sqlx::Connection;

use super::{Bench, all_events, check_chains, deploy, note};

/// A transaction that took its numbers early and commits late is waited for, not skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_not_skipped() {
    let bench = Bench::new();
    let patient = bench.node().await;
    let options = PostgresOptions { settle_within: Duration::from_millis(50), ..bench.options() };
    let store = PostgresStore::connect(bench.database.url(), options).await.unwrap();
    store.run(note("local/before")).await.unwrap();
    let after = all_events(&patient).await[0].cursor;
    let mut admin = bench.admin().await;
    let mut late = admin.begin().await.unwrap();
    let insert = "INSERT INTO events (chain, seq, name, at, hash, body)
                  SELECT 'local/late', 1, name, at, hash, body FROM events LIMIT 1";
    sqlx::query(insert).execute(&mut *late).await.unwrap();
    for _ in 0..3 {
        store.run(note("local/after")).await.unwrap();
    }
    let early = store.events(after, EventFilter::default()).await.unwrap();
    assert_eq!(early, [], "nothing after an open transaction is shown");
    let of_chain = EventFilter { chain: Some(Chain("local/after".into())), ..EventFilter::default() };
    assert_eq!(store.events(after, of_chain).await.unwrap().len(), 3, "one chain waits for nobody");
    late.commit().await.unwrap();
    let rest = patient.events(after, EventFilter::default()).await.unwrap();
    let chains: Vec<_> = rest.iter().map(|event| &*event.chain.0).collect();
    assert_eq!(chains, ["local/late", "local/after", "local/after", "local/after"], "the late one is not skipped");
}

/// I13: however batches on several nodes interleave, the tail shows each chain in its own order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_keeps_the_order_of_every_chain() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let write = async |index: usize| {
        for step in 0..20 {
            let chain = format!("local/{}", (index * 7 + step * 3) % 5);
            nodes[(index + step) % 2].run(note(&chain)).await.unwrap();
        }
    };
    join_all((0..16).map(write)).await;
    let events = all_events(&nodes[0]).await;
    assert_eq!(events.len(), 320);
    check_chains(&events);
    assert!(events.is_sorted_by_key(|event| event.cursor));
}

/// I8: a session's tail has its own chains' events, whoever's they are, and no other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_tail_has_only_its_own() {
    let bench = Bench::new();
    let store = bench.node().await;
    let (one, two) = (submit(&store, deploy("s1")).await, submit(&store, deploy("s1").principal("other")).await);
    submit(&store, deploy("s2")).await;
    let session = EventFilter { session: Some("s1".into()), ..EventFilter::default() };
    let events = store.events(Cursor::default(), session.clone()).await.unwrap();
    let calls: Vec<_> = events.iter().map(|event| event.call.unwrap()).collect();
    assert_eq!(calls, [one.id, one.id, two.id, two.id]);
    let rest = store.events(events[0].cursor, EventFilter { limit: Some(2), ..session.clone() }).await.unwrap();
    assert_eq!(rest, events[1..3]);
    let three = submit(&store, deploy("s1")).await;
    let both = EventFilter { call: Some(three.id), limit: Some(2), ..session.clone() };
    assert_eq!(store.events(Cursor::default(), both).await.unwrap().len(), 2, "behind more than a page of others");
    let mixed = EventFilter { chain: Some(Chain("local/s2".into())), ..session };
    assert!(store.events(Cursor::default(), mixed).await.unwrap().is_empty());
    assert!(events.iter().any(|event| event.name == EventName::HoldOpened));
}
