//! Faults: cut connections, lost answers, damaged rows, operations that cannot be stored.

use countersign::call::CallState;
use countersign::hold::Answer;
use countersign::store::{Failure, Store, StoreError};
use countersign::testing::{decide, submit};
use countersign::transition::Rejection;
use countersign_store::PostgresStore;
use countersign_testkit::{Durability, TestPostgres};
use sqlx::{Connection, PgConnection, Row};

use super::{Bench, PATIENCE, all_events, check_chains, claim, deploy, in_one_batch, number, until};

/// Cuts off whoever waits for something, as often as the store tries again; then the operation has failed.
const CUT_WAITING: &str = "
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'countersign'";

/// I6: a connection cut in the middle of a batch, again and again, is an error and leaves nothing half-written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cut_in_the_middle_leaves_nothing() {
    let bench = Bench::new();
    let store = bench.node().await;
    let (mut admin, mut cutter) = (bench.admin().await, bench.admin().await);
    let mut lock = admin.begin().await.unwrap();
    // By the time a batch writes events it has written calls and holds.
    sqlx::raw_sql("LOCK TABLE events IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let cut = async {
        loop {
            sqlx::query(CUT_WAITING).execute(&mut cutter).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::select! {
        answer = store.run(deploy("s1").op()) => answer,
        () = cut => unreachable!(),
    };
    assert!(matches!(answer, Err(Failure::Store(StoreError::Failed(_)))), "{answer:?}");
    lock.rollback().await.unwrap();
    let rows = "SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM holds) + (SELECT count(*) FROM chains)
                     + (SELECT count(*) FROM events)";
    assert_eq!(number(&mut admin, rows).await, 0);
    super::is_pending(&submit(&store, deploy("s1")).await);
}

/// I6: a connection cut once costs nothing: nothing was committed, so the batch runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_cut_once_runs_again() {
    let bench = Bench::new();
    let store = bench.node().await;
    let (mut admin, mut cutter) = (bench.admin().await, bench.admin().await);
    let mut lock = admin.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE events IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let cut = async {
        until(
            &mut cutter,
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock' AND application_name = 'countersign'",
        )
        .await;
        sqlx::query(CUT_WAITING).execute(&mut cutter).await.unwrap();
        lock.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(store.run(deploy("s1").op()), cut);
    assert_eq!(answer.unwrap().call.unwrap().state, CallState::Pending);
    assert_eq!(number(&mut admin, "SELECT count(*) FROM calls").await, 1);
}

/// I3: when the answer to a commit is lost, the caller is told so and nothing is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_answer_is_an_error_and_not_a_second_try() {
    let server = TestPostgres::start(Durability::Fast).unwrap();
    let bench = Bench { database: server.create_database().unwrap(), offset: Default::default() };
    // Dropped before the database: from a server like this one nothing can be removed, and nothing needs to be.
    let _server = server;
    let store = bench.node().await;
    let mut admin = bench.admin().await;
    // Every commit now waits for a standby that never comes, after it is durable here.
    for sql in ["SET synchronous_commit = local", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"] {
        sqlx::query(sql).execute(&mut admin).await.unwrap();
    }
    sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
    let new = deploy("s1");
    let id = new.id();
    let cut = async {
        let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until(&mut admin, waiting).await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        sqlx::query(cut).execute(&mut admin).await.unwrap();
    };
    let (answer, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(store.run(new.op()), cut) }).await.unwrap();
    let Err(Failure::Store(StoreError::Failed(text))) = answer else { panic!("{answer:?}") };
    assert!(text.contains("not confirmed"), "{text}");
    assert_eq!(store.call(id).await.unwrap().unwrap().version, 1, "it happened, once");
    assert_eq!(number(&mut admin, "SELECT count(*) FROM calls").await, 1);
}

/// I6: an operation that cannot be stored fails alone; its batch goes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_poisoned_operation_spoils_no_other() {
    let bench = Bench::new();
    let store = bench.node().await;
    let ops = vec![deploy("a").op(), deploy("nul\0byte").op(), deploy("b").op()];
    let answers = in_one_batch(&bench, &store, ops).await;
    assert!(matches!(answers[1], Err(Failure::Store(StoreError::Failed(_)))), "{:?}", answers[1]);
    for answer in [&answers[0], &answers[2]] {
        super::is_pending(answer.as_ref().unwrap().call.as_ref().unwrap());
    }
    check_chains(&all_events(&store).await);
}

/// I6: a damaged row stops what names it, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_call_stops_only_its_own() {
    let bench = Bench::new();
    let store = bench.node().await;
    let (damaged, sound) = (submit(&store, deploy("s1")).await, submit(&store, deploy("s1")).await);
    let mut admin = bench.admin().await;
    let damage = sqlx::query("UPDATE requests SET body = replace(body, 'production', 'x\"') WHERE call::text = $1");
    let text = damaged.id.to_string().replace("call_", "");
    let dashed = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-");
    assert_eq!(damage.bind(dashed).execute(&mut admin).await.unwrap().rows_affected(), 1);
    let ops = vec![
        decide(&damaged, "ann", Answer::approve()),
        decide(&sound, "ann", Answer::approve()),
        claim(countersign::id::CallId::new()),
    ];
    // Whoever wrote it has it in memory still; another node must read it.
    let store = bench.node().await;
    let answers = in_one_batch(&bench, &store, ops).await;
    assert!(matches!(answers[0], Err(Failure::Store(StoreError::Damaged { what: "call", .. }))), "{:?}", answers[0]);
    assert_eq!(answers[1].as_ref().unwrap().call.as_ref().unwrap().state, CallState::Approved);
    assert!(matches!(answers[2], Err(Failure::Rejected(Rejection::NotFound("call")))));
    assert!(store.call(damaged.id).await.is_err());
}

/// B68: a grant that cannot be read grants nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_grant_grants_nothing() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = submit(&store, deploy("s1")).await;
    let remember = Some(countersign::grant::Remember::session());
    let yes = Answer::Approve { arguments: None, payload: None, remember };
    store.run(decide(&call, "ann", yes)).await.unwrap();
    let covered = submit(&store, deploy("s1")).await;
    assert_eq!(covered.state, CallState::Allowed);
    sqlx::query("UPDATE grants SET body = '{}'").execute(&mut bench.admin().await).await.unwrap();
    super::is_pending(&submit(&store, deploy("s1")).await);
    assert_eq!(store.run(claim(covered.id)).await.unwrap().call.unwrap().state, CallState::Lapsed);
    assert!(store.grants().await.unwrap().is_empty(), "nobody is kept from the grants that can be read");
}

/// A node that stalls inside a transaction loses its locks, so that the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_gives_up_rather_than_hang() {
    let bench = Bench::new();
    let store: PostgresStore = bench.node().await;
    submit(&store, deploy("s1")).await;
    let mut admin: PgConnection = bench.admin().await;
    // The settings of another connection cannot be read; a trigger inside the batch can.
    let spy = "CREATE TABLE seen (name text, setting text);
               CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   INSERT INTO seen SELECT name, setting FROM pg_settings WHERE name LIKE '%_timeout';
                   RETURN NULL;
               END $$;
               CREATE TRIGGER spy AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION spy();";
    sqlx::raw_sql(spy).execute(&mut admin).await.unwrap();
    submit(&store, deploy("s1")).await;
    let wanted = ["idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"];
    for name in wanted {
        let row = sqlx::query("SELECT setting FROM seen WHERE name = $1").bind(name).fetch_one(&mut admin).await;
        let setting: String = row.unwrap().try_get(0).unwrap();
        assert_ne!(setting, "0", "{name}");
    }
}
