//! Calls of several sessions and principals that come by turns through a long record, read one filter at a time.

use std::sync::Arc;

use countersign::call::{Call, CallState};
use countersign::event::{Cursor, Event};
use countersign::id::CallId;
use countersign::limits::Limits;
use countersign::refusal::{Refusal, RefusalKind};
use countersign::store::{CallFilter, EventFilter, Op, Order, Store};
use countersign::testing::{TestStore as _, proposal, submit};
use countersign::verdict::Effect;
use futures::future::join_all;
use rusqlite::Connection;
use serde_json::json;

use super::TestSqlite;

/// More than two stretches of 1,024.
const CALLS: usize = 2_500;

/// A call of one of three sessions, which two principals share. Every tenth waits for people.
fn of(index: usize) -> Op {
    let session = ["one", "two", "three"][index % 3];
    let principal = if index.is_multiple_of(5) { "bob" } else { "local" };
    let effect = if index.is_multiple_of(10) { Effect::Ask } else { Effect::Deny };
    proposal("rm", json!({ "n": index % 7 }), session).principal(principal).effect(effect).op()
}

async fn filled() -> (TestSqlite, Vec<Arc<Call>>) {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let submitted = join_all((0..CALLS).map(|index| store.run(of(index)))).await;
    let calls = submitted.into_iter().map(|applied| applied.unwrap().call.unwrap()).collect();
    (test, calls)
}

fn ids(calls: &[Arc<Call>]) -> Vec<CallId> {
    calls.iter().map(|call| call.id).collect()
}

async fn listed(store: &dyn Store, filter: &CallFilter, size: usize) -> Vec<CallId> {
    let mut found: Vec<CallId> = Vec::new();
    loop {
        let filter = CallFilter { after: found.last().copied(), limit: Some(size), ..filter.clone() };
        let page = store.calls(filter).await.unwrap();
        if page.is_empty() {
            return found;
        }
        found.extend(ids(&page));
    }
}

/// The filters that are answered stretch by stretch, each with what it leaves.
fn filters(calls: &[Arc<Call>]) -> Vec<(CallFilter, Vec<CallId>)> {
    let filter = CallFilter::default;
    let digest = calls[3].argument_digest;
    let filters = [
        CallFilter { session: Some("one".into()), ..filter() },
        CallFilter { principal: Some("bob".into()), ..filter() },
        CallFilter { session: Some("two".into()), principal: Some("bob".into()), ..filter() },
        CallFilter { session: Some("three".into()), state: Some(CallState::Denied), ..filter() },
        CallFilter { argument_digest: Some(digest), ..filter() },
        CallFilter { argument_digest: Some(digest), session: Some("one".into()), ..filter() },
        CallFilter { session: Some("none".into()), ..filter() },
    ];
    let is_wanted = |filter: &CallFilter, call: &Call| {
        let path = &call.facts.path;
        filter.session.as_ref().is_none_or(|session| path.session.as_ref() == Some(session))
            && filter.principal.as_ref().is_none_or(|principal| path.principal == *principal)
            && filter.state.is_none_or(|state| call.state == state)
            && filter.argument_digest.is_none_or(|digest| call.argument_digest == digest)
    };
    let wanted =
        |filter: &CallFilter| calls.iter().filter(|call| is_wanted(filter, call)).map(|call| call.id).collect();
    filters.map(|filter| (filter.clone(), wanted(&filter))).into()
}

/// I16: no page is short, double or out of order where one stretch ends, in either order, whatever is asked for.
#[tokio::test]
async fn calls_are_listed_whole_across_a_long_record() {
    let (test, calls) = filled().await;
    let store = test.sqlite();
    for (filter, mut wanted) in filters(&calls) {
        for size in [1_000, 97] {
            assert_eq!(listed(&*store, &filter, size).await, wanted, "{filter:?} by {size}");
        }
        let newest = CallFilter { order: Order::Newest, ..filter };
        wanted.reverse();
        assert_eq!(listed(&*store, &newest, 97).await, wanted, "{newest:?}");
    }
    // A place that no call has, as one of another store: before the first, and after the last.
    let of_bob = |after, order| CallFilter { after, order, principal: Some("bob".into()), ..CallFilter::default() };
    let all = listed(&*store, &of_bob(None, Order::Oldest), 1_000).await;
    let zero = Some(CallId::from_bytes([0; 16]));
    let ahead = Some(CallId::from_bytes([0xff; 16]));
    let first = |after, order| store.calls(of_bob(after, order));
    assert_eq!(ids(&first(zero, Order::Oldest).await.unwrap())[..5], all[..5]);
    assert_eq!(ids(&first(zero, Order::Newest).await.unwrap()), []);
    assert_eq!(ids(&first(ahead, Order::Oldest).await.unwrap()), []);
    assert_eq!(ids(&first(ahead, Order::Newest).await.unwrap())[0], *all.last().unwrap());
}

async fn whole_log(store: &dyn Store) -> Vec<Event> {
    let (mut found, mut after) = (Vec::<Event>::new(), Cursor::default());
    loop {
        let page = store.events(after, EventFilter { limit: Some(1_000), ..EventFilter::default() }).await.unwrap();
        let Some(last) = page.last() else { return found };
        after = last.cursor;
        found.extend(page);
    }
}

async fn check_calls_events(store: &dyn Store, calls: impl Iterator<Item = &Arc<Call>>) {
    let log = whole_log(store).await;
    for call in calls {
        let of_call: Vec<_> = log.iter().filter(|event| event.call == Some(call.id)).cloned().collect();
        assert!(of_call.len() >= 2);
        for after in [Cursor::default(), of_call[0].cursor, of_call[of_call.len() - 1].cursor] {
            let filter = EventFilter { call: Some(call.id), ..EventFilter::default() };
            let rest: Vec<_> = of_call.iter().filter(|event| event.cursor > after).cloned().collect();
            assert_eq!(store.events(after, filter).await.unwrap(), rest);
        }
    }
}

fn cancelled(call: &Call) -> Op {
    Op::Cancel { call: call.id, refusal: Refusal::new(RefusalKind::Cancelled) }
}

/// I16: a call's events are found where its row says, though the first lies in another stretch than the last.
#[tokio::test]
async fn a_calls_events_are_read_whole_across_a_long_log() {
    let (test, calls) = filled().await;
    let store = test.sqlite();
    // The oldest that waits, long after it was submitted.
    store.run(cancelled(&calls[0])).await.unwrap();
    check_calls_events(&*store, [&calls[0], &calls[1], &calls[1_200], &calls[CALLS - 1]].into_iter()).await;
    let unknown = EventFilter { call: Some(CallId::new()), ..EventFilter::default() };
    assert_eq!(store.events(Cursor::default(), unknown).await.unwrap(), []);
    let openings: Vec<_> = calls.iter().filter_map(|call| Some((call.id, call.holds.first()?.id))).collect();
    assert_eq!(openings.len(), CALLS / 10);
    let opened = store.openings(&openings).await.unwrap();
    let holds = |event: &Event| (event.call.unwrap(), event.hold.unwrap());
    assert_eq!(opened.iter().map(holds).collect::<Vec<_>>(), openings);
}

/// Takes a file back to the schema it began with.
fn put_back(raw: &Connection) {
    raw.execute_batch(
        "DROP INDEX events_chain;
         CREATE UNIQUE INDEX events_chain ON events (id >> 10, chain, seq);
         CREATE INDEX events_call ON events (call) WHERE call IS NOT NULL;
         DROP INDEX calls_chain;
         DROP INDEX calls_principal;
         DROP INDEX calls_arguments;
         CREATE INDEX calls_principal ON calls (principal, id);
         CREATE INDEX calls_session ON calls (session, id) WHERE session IS NOT NULL;
         CREATE INDEX calls_arguments ON calls (argument_digest, id);
         ALTER TABLE calls DROP COLUMN first_event;
         ALTER TABLE calls DROP COLUMN last_event;
         ALTER TABLE meta ADD COLUMN pending INTEGER NOT NULL DEFAULT 250 CHECK (pending >= 0);
         PRAGMA user_version = 1;",
    )
    .unwrap();
}

/// A file that an older version wrote is read as before, and counted as before.
#[tokio::test]
async fn a_file_of_the_first_schema_is_brought_up() {
    let (test, calls) = filled().await;
    test.close();
    put_back(&test.raw());
    let store = test.reopen().await;
    for (filter, wanted) in filters(&calls) {
        assert_eq!(listed(&*store, &filter, 1_000).await, wanted, "{filter:?}");
    }
    store.run(cancelled(&calls[0])).await.unwrap();
    check_calls_events(&*store, calls.iter().step_by(211)).await;
    // Of 250 that waited one ended; with two more the bound is reached.
    for (number, state) in [(1, CallState::Pending), (2, CallState::Pending), (3, CallState::Denied)] {
        let limits = Limits { pending_total: 251, ..Limits::default() };
        let call = submit(&*store, proposal("rm", json!({ "last": number }), "last").limits(limits)).await;
        assert_eq!(call.state, state, "{number}");
    }
}

/// A process that is killed while it brings a filled file up leaves it as it was, wherever it was killed, and the next
/// one brings it up.
#[tokio::test]
async fn a_filled_file_is_brought_up_after_a_kill_anywhere() {
    let (test, calls) = filled().await;
    test.close();
    put_back(&test.raw());
    let step = include_str!("../../../src/sqlite/schema/0002_stretches.sql");
    let statements: Vec<&str> = step.split_inclusive(";\n").collect();
    assert!(statements.len() > 10);
    for count in 1..=statements.len() {
        // What a killed process leaves: a transaction that was not committed.
        let killed = test.raw();
        killed.execute_batch(&format!("BEGIN IMMEDIATE;\n{}", statements[..count].concat())).unwrap();
        drop(killed);
        let version: i64 = test.raw().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 1, "after {count} statements");
    }
    let store = test.reopen().await;
    for (filter, wanted) in filters(&calls) {
        assert_eq!(listed(&*store, &filter, 1_000).await, wanted, "{filter:?}");
    }
    check_calls_events(&*store, calls.iter().step_by(499)).await;
}
