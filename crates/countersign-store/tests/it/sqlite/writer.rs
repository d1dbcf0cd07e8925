//! The writer: many operations with one sync, and faults that stay where they are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use countersign::call::CallState;
use countersign::event::{Cursor, Head, hash};
use countersign::hold::{Answer, Who};
use countersign::id::CallId;
use countersign::store::{Applied, EventFilter, Expect, Failure, Op, Store, StoreError};
use countersign::testing::{ManualClock, TestStore as _, decide, grant_for, proposal, submit};
use countersign::time::{Clock, Time};
use countersign::transition::{Asking, Rejection};
use countersign_store::SqliteStore;
use rusqlite::Connection;
use serde_json::json;

use super::TestSqlite;

type Running<'a> = Pin<Box<dyn Future<Output = Result<Applied, Failure>> + Send + 'a>>;

/// Asks the store, without waiting for its answer.
fn ask<'a>(store: &'a SqliteStore, op: Op) -> Running<'a> {
    let mut running: Running<'a> = Box::pin(store.run(op));
    assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    running
}

/// Keeps every writer waiting until it is let go.
fn lock(test: &TestSqlite) -> Connection {
    let connection = test.raw();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

fn unlock(connection: &Connection) {
    connection.execute_batch("ROLLBACK").unwrap();
}

/// DESIGN 6: what waits together is committed together, with one sync.
#[tokio::test]
async fn waiting_operations_share_one_commit() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let locked = lock(&test);
    let running: Vec<_> = (0..64).map(|n| ask(&store, proposal("rm", json!({ "n": n }), "s").op())).collect();
    unlock(&locked);
    for one in running {
        assert_eq!(one.await.unwrap().call.unwrap().state, CallState::Pending);
    }
    // The writer takes what waits when it begins: the first alone, if it was quick, and then all the rest.
    assert!(store.commits() <= 2, "{} commits", store.commits());
}

/// I6: a caller that goes away harms nobody; what it asked for happens.
#[tokio::test]
async fn a_dropped_caller_harms_nobody() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let locked = lock(&test);
    let asked: Vec<_> = (0..9).map(|n| proposal("rm", json!({ "n": n }), "s")).collect();
    let ids: Vec<CallId> = asked.iter().map(|proposal| proposal.id()).collect();
    let mut running: Vec<_> = asked.into_iter().map(|proposal| ask(&store, proposal.op())).collect();
    let last = running.pop().unwrap();
    drop(running);
    unlock(&locked);
    last.await.unwrap();
    for id in ids {
        assert!(store.call(id).await.unwrap().is_some());
    }
}

/// A store that is dropped first finishes what was asked for, then closes the file and leaves no journal.
#[tokio::test]
async fn dropping_the_store_finishes_what_was_asked() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let locked = lock(&test);
    let asked = proposal("rm", json!({}), "s");
    let id = asked.id();
    drop(ask(&store, asked.op()));
    unlock(&locked);
    drop(locked);
    drop(store);
    test.close();
    let journal = test.path().with_extension("db-wal");
    assert!(!journal.exists(), "the last one to leave folds the journal in");
    assert!(test.another().await.call(id).await.unwrap().is_some());
}

/// I6: a damaged row costs the operation that reads it, and no other in the same transaction.
#[tokio::test]
async fn a_damaged_call_harms_no_other() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let damaged = submit(&*store, proposal("rm", json!({"n": 1}), "s")).await;
    let sound = submit(&*store, proposal("rm", json!({"n": 2}), "s")).await;
    let spoil = "UPDATE calls SET standing = '{}' WHERE id = ?1";
    test.raw().execute(spoil, [damaged.id.as_bytes()]).unwrap();
    let locked = lock(&test);
    let before = ask(&store, proposal("rm", json!({"n": 3}), "s").op());
    let spoilt = ask(&store, decide(&damaged, "ann", Answer::approve()));
    let after = ask(&store, decide(&sound, "ann", Answer::approve()));
    unlock(&locked);
    assert_eq!(before.await.unwrap().call.unwrap().state, CallState::Pending);
    assert!(matches!(spoilt.await, Err(Failure::Store(StoreError::Damaged { what: "call", .. }))));
    assert_eq!(after.await.unwrap().call.unwrap().state, CallState::Approved);
    assert!(matches!(store.call(damaged.id).await, Err(StoreError::Damaged { what: "call", .. })));
    assert_eq!(store.call(sound.id).await.unwrap().unwrap().state, CallState::Approved);
}

/// I6: an operation that fails half-way takes back its own writes, and no other's in the same transaction.
#[tokio::test]
async fn a_fault_half_way_takes_back_its_own_writes_only() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let taken = submit(&*store, proposal("rm", json!({"n": 1}), "s")).await;
    let allowed = proposal("ls", json!({}), "s").effect(countersign::Effect::Allow);
    let running = submit(&*store, allowed.claim(countersign::testing::claimant("w"))).await;
    let (hint, payload, unattended) = (None, None, None);
    let asking = Asking { hold: taken.holds[0].id, fence: 1, hint, payload, unattended, limits: Arc::default() };
    let locked = lock(&test);
    let before = ask(&store, proposal("rm", json!({"n": 2}), "s").op());
    let faulty = ask(&store, Op::Ask { call: running.id, asking: Box::new(asking) });
    let after = ask(&store, decide(&taken, "ann", Answer::approve()));
    unlock(&locked);
    before.await.unwrap();
    assert!(matches!(faulty.await, Err(Failure::Store(StoreError::Failed(_)))));
    after.await.unwrap();
    let events = store.events(Cursor::default(), EventFilter::default()).await.unwrap();
    let mut head = Head::default();
    for event in &events {
        assert_eq!((event.seq, event.hash), (head.seq + 1, hash(&head.hash, &event.body)));
        head = Head { seq: event.seq, hash: event.hash };
    }
    assert_eq!(events.len(), 8);
    assert_eq!(store.call(running.id).await.unwrap(), Some(running));
}

/// I3: a row that is not the one that was read is never written over.
#[tokio::test]
async fn a_row_that_changed_is_not_written_over() {
    let test = TestSqlite::new().await;
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    test.raw().execute("UPDATE calls SET version = version + 1", []).unwrap();
    let decided = store.run(decide(&call, "ann", Answer::approve())).await;
    assert!(matches!(decided, Err(Failure::Store(StoreError::Failed(_)))));
    assert_eq!(store.call(call.id).await.unwrap(), Some(call));
}

/// B136: events are added and never taken away.
#[tokio::test]
async fn events_are_never_deleted() {
    let test = TestSqlite::new().await;
    submit(&*test.store(), proposal("rm", json!({}), "s")).await;
    assert!(test.raw().execute("DELETE FROM events", []).is_err());
}

/// B68: a malformed grant grants nothing, says so to whoever asks for it, and keeps nobody from the others.
#[tokio::test]
async fn a_malformed_grant_grants_nothing() {
    let test = TestSqlite::new().await;
    let store = test.store();
    let first = submit(&*store, proposal("rm", json!({}), "s")).await;
    let grant = grant_for(&first, store.now().await.unwrap());
    store.run(Op::Grant(Box::new(grant.clone()))).await.unwrap();
    let other = submit(&*store, proposal("ls", json!({}), "s")).await;
    let sound = grant_for(&other, store.now().await.unwrap());
    store.run(Op::Grant(Box::new(sound.clone()))).await.unwrap();
    let allowed = submit(&*store, proposal("rm", json!({}), "s")).await;
    assert_eq!(allowed.state, CallState::Allowed);
    test.raw().execute("UPDATE grants SET body = '{\"id\":1}' WHERE id = ?1", [grant.id.as_bytes()]).unwrap();
    assert_eq!(submit(&*store, proposal("rm", json!({}), "s")).await.state, CallState::Pending);
    let claimed = countersign::testing::claim(&*store, allowed.id, "w").await;
    assert_eq!(claimed.unwrap().call.unwrap().state, CallState::Lapsed);
    assert_eq!(store.grants().await.unwrap(), [sound]);
    assert!(matches!(store.grant(grant.id).await, Err(StoreError::Damaged { .. })));
    let revoked = store.run(Op::Revoke { grant: grant.id, by: Who::person("olga") }).await;
    assert!(matches!(revoked, Err(Failure::Rejected(Rejection::NotFound("grant")))));
}

/// I6: when the file itself fails, nothing of the transaction is acknowledged, and the store goes on afterwards.
#[tokio::test]
async fn a_failing_file_acknowledges_nothing() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let raw = test.raw();
    raw.execute_batch("ALTER TABLE holds RENAME TO lost").unwrap();
    let locked = lock(&test);
    // The writer may take the first one alone; whatever it takes next then holds the other two.
    let running = [
        ask(&store, proposal("rm", json!({}), "s").op()),
        ask(&store, proposal("ls", json!({}), "s").effect(countersign::Effect::Allow).op()),
        ask(&store, proposal("rm", json!({}), "s").op()),
    ];
    unlock(&locked);
    for one in running {
        assert!(matches!(one.await, Err(Failure::Store(StoreError::Failed(_)))));
    }
    assert!(store.calls(Default::default()).await.unwrap().is_empty());
    raw.execute_batch("ALTER TABLE lost RENAME TO holds").unwrap();
    submit(&*store, proposal("rm", json!({}), "s")).await;
}

/// A clock that breaks when told to.
struct BrokenClock(AtomicBool, ManualClock);

impl Clock for BrokenClock {
    fn now(&self) -> Time {
        assert!(!self.0.load(Ordering::SeqCst), "the clock is broken, as this test wants");
        self.1.now()
    }
}

/// I6: a panic inside an operation is that operation's failure; the writer goes on.
#[tokio::test]
async fn a_panic_does_not_stop_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(BrokenClock(AtomicBool::new(false), ManualClock::new()));
    let path = folder.path().join("countersign.db");
    let store = SqliteStore::open_with_clock(path, Arc::clone(&clock) as Arc<dyn Clock>).await.unwrap();
    let first = submit(&store, proposal("rm", json!({"n": 1}), "s")).await;
    clock.0.store(true, Ordering::SeqCst);
    let asked = proposal("rm", json!({"n": 2}), "s");
    let id = asked.id();
    assert!(matches!(store.run(asked.op()).await, Err(Failure::Store(StoreError::Failed(_)))));
    clock.0.store(false, Ordering::SeqCst);
    assert!(store.call(id).await.unwrap().is_none());
    let decided = store.run(decide(&first, "ann", Answer::approve())).await.unwrap();
    assert_eq!(decided.call.unwrap().state, CallState::Approved);
}

/// I17: expired records are cleared away by the writes that follow.
#[tokio::test]
async fn expired_records_do_not_pile_up() {
    let test = TestSqlite::new().await;
    let store = test.store();
    let second = std::time::Duration::from_secs(1);
    for n in 0..20 {
        store.put_record("tokens", &n.to_string(), b"x", Expect::Absent, Some(second)).await.unwrap();
    }
    test.advance(second).await;
    for n in 0..3 {
        store.put_record("users", &n.to_string(), b"x", Expect::Absent, None).await.unwrap();
    }
    let left: i64 = test.raw().query_row("SELECT count(*) FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 3);
}

/// B96: approvers that block every thread the runtime lends keep nobody from the store: a call is cancelled, the others
/// expire, and nothing runs.
#[test]
fn approvers_that_block_every_thread_defeat_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build().unwrap();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let test = TestSqlite::new().await;
        let blocked = Arc::new(std::sync::Mutex::new(blocked));
        let ask = move |_| {
            let blocked = Arc::clone(&blocked);
            async move {
                // Blocks the thread, not only the task, until the test ends.
                let _ = blocked.lock().unwrap().recv();
                Ok(Answer::approve())
            }
        };
        let builder = countersign::Gate::builder().policy(countersign::Policy::ask_all()).store(test.store());
        let gate = builder.approver(ask).without_sweeper().build().unwrap();
        let mut calls = Vec::new();
        for n in 0..4 {
            let proposal = countersign::Proposal::new("write", format!(r#"{{"n":{n}}}"#));
            calls.push(gate.submit_undefined(proposal).await.unwrap());
        }
        gate.cancel(calls[0].id).await.unwrap();
        assert_eq!(gate.wait(calls[0].id).await.unwrap().state, CallState::Cancelled);
        test.advance(countersign::limits::HOLD_LIFE + std::time::Duration::from_secs(1)).await;
        for call in &calls[1..] {
            assert_eq!(gate.wait(call.id).await.unwrap().state, CallState::Expired);
        }
        drop(release);
    });
}

/// Callers who come one at a time find the log moved to the file now and then: it does not grow with what they write.
#[tokio::test]
async fn a_lone_callers_log_stays_short() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let mut expect = Expect::Absent;
    for _ in 0..700 {
        let written = store.put_record("test", "key", &[b'x'; 3_000], expect, None).await.unwrap();
        expect = Expect::Version(written);
    }
    // Its file never shrinks, and each commit takes a page of it at least.
    let bytes = std::fs::metadata(test.path().with_extension("db-wal")).unwrap().len();
    assert!(bytes < 700 * 4096, "{bytes} bytes");
}
