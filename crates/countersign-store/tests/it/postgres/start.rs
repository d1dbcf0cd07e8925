//! Opening: what is refused, and how the schema comes to be.

use std::sync::Arc;

use countersign::hold::Answer;
use countersign::signer::Signer;
use countersign::store::{Op, Store};
use countersign::testing::{decide, submit};
use countersign_store::postgres::ConnectError;
use countersign_store::{PostgresOptions, PostgresStore};
use countersign_testkit::TestPostgres;
use futures::future::join_all;

use super::{Bench, deploy, number};

/// I3: a server that may lose what it acknowledged is refused, and the error says how to mend it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_forget_is_refused() {
    let bench = Bench::new();
    let refused = PostgresStore::connect(bench.database.url(), PostgresOptions::default()).await.err().unwrap();
    assert!(matches!(refused, ConnectError::Unsafe { setting: "fsync", .. }), "{refused}");
    assert!(refused.to_string().contains("ALTER SYSTEM SET fsync = on"), "{refused}");

    let database = TestPostgres::shared_durable().unwrap().create_database().unwrap();
    let careless = format!("{}?options[synchronous_commit]=off", database.url());
    let refused = PostgresStore::connect(&careless, PostgresOptions::default()).await.err().unwrap();
    assert!(matches!(refused, ConnectError::Unsafe { setting: "synchronous_commit", .. }), "{refused}");
    assert!(refused.to_string().contains("SET synchronous_commit = on"), "{refused}");

    let store = PostgresStore::connect(database.url(), PostgresOptions::default()).await.unwrap();
    assert!(store.is_shared());
    super::is_pending(&submit(&store, deploy("s1")).await);
}

/// A server that cannot be reached, or that turns us away, is named as such at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_reach_is_an_error_that_says_why() {
    let refused = countersign_store::connect("postgres://nobody@127.0.0.1:1/none").await.err().unwrap();
    assert!(refused.to_string().contains("refused"), "{refused}");
    let bench = Bench::new();
    let elsewhere = bench.database.url().replace("/test_", "/no_such_");
    let refused = PostgresStore::connect(&elsewhere, bench.options()).await.err().unwrap();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(PostgresStore::connect("postgres://[", bench.options()).await.is_err());
}

/// I19: nodes that start together on an empty database all start, and the schema is made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_the_schema_once() {
    let bench = Bench::new();
    let nodes = join_all((0..6).map(|_| bench.node())).await;
    let newest = countersign_store::schema(bench.database.url()).unwrap() as i64;
    assert_eq!(number(&mut bench.admin().await, "SELECT count(*) FROM countersign_schema").await, newest);
    for node in &nodes {
        submit(node, deploy("s1")).await;
    }
}

/// I19: a step of the schema that fails half-way leaves nothing, and is made whole later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_half_way_leaves_nothing() {
    let bench = Bench::new();
    let mut admin = bench.admin().await;
    sqlx::raw_sql("CREATE TABLE halts ()").execute(&mut admin).await.unwrap();
    let failed = PostgresStore::connect(bench.database.url(), bench.options()).await.err().unwrap();
    assert!(matches!(failed, ConnectError::Migration { step: 1, .. }), "{failed}");
    let ours = "SELECT count(*) FROM pg_tables WHERE tablename IN ('calls', 'events', 'countersign_schema')";
    assert_eq!(number(&mut admin, ours).await, 0);
    sqlx::raw_sql("DROP TABLE halts").execute(&mut admin).await.unwrap();
    submit(&bench.node().await, deploy("s1")).await;
}

/// I19: an older version keeps off a newer schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_refused() {
    let bench = Bench::new();
    drop(bench.node().await);
    let mut admin = bench.admin().await;
    sqlx::raw_sql("INSERT INTO countersign_schema (version) VALUES (999)").execute(&mut admin).await.unwrap();
    let refused = PostgresStore::connect(bench.database.url(), bench.options()).await.err().unwrap();
    assert!(matches!(refused, ConnectError::NewerSchema { found: 999, .. }), "{refused}");
}

/// A role that may not change the schema runs a node on one that is up to date.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_needs_no_right_to_change_the_schema() {
    let bench = Bench::new();
    drop(bench.node().await);
    let mut admin = bench.admin().await;
    let grant = "DO $$ BEGIN CREATE ROLE countersign_plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
                 REVOKE CREATE ON SCHEMA public FROM public;
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO countersign_plain;
                 GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO countersign_plain;";
    sqlx::raw_sql(grant).execute(&mut admin).await.unwrap();
    let url = bench.database.url().replace("//postgres@", "//countersign_plain@");
    let store = PostgresStore::connect(&url, bench.options()).await.unwrap();
    super::is_pending(&submit(&store, deploy("s1")).await);
    let drop_rights = "DROP OWNED BY countersign_plain";
    sqlx::raw_sql(drop_rights).execute(&mut admin).await.unwrap();
}

/// I19: a filled database that an older version wrote is brought up, also after a node that was killed half-way: calls
/// go on, and what moved before is signed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filled_database_of_the_first_schema_is_brought_up() {
    const BACK: &str = "
        DROP INDEX chains_moved;
        ALTER TABLE chains DROP COLUMN moved;
        ALTER TABLE chains RESET (fillfactor);
        CREATE INDEX chains_moved ON chains (name) WHERE signed < seq;
        DELETE FROM countersign_schema WHERE version > 1";
    let bench = Bench::new();
    let node = bench.node().await;
    let call = submit(&node, deploy("s1")).await;
    submit(&node, deploy("s2")).await;
    drop(node);
    let mut admin = bench.admin().await;
    sqlx::raw_sql(BACK).execute(&mut admin).await.unwrap();
    // What a killed node leaves: nothing of a step that it did not commit.
    let killed = sqlx::raw_sql("BEGIN; DROP INDEX chains_moved; ALTER TABLE chains ADD COLUMN moved boolean");
    killed.execute(&mut bench.admin().await).await.unwrap();

    let node = bench.node().await;
    assert_eq!(node.call(call.id).await.unwrap().as_deref(), Some(&*call));
    node.run(decide(&call, "ann", Answer::approve())).await.unwrap();
    let signer = Arc::new(Signer::generate().unwrap());
    node.run(Op::Checkpoint { signer: Arc::clone(&signer) }).await.unwrap();
    let signed = "SELECT count(*) FROM chains WHERE session IS NOT NULL AND signed = seq AND NOT moved";
    assert_eq!(number(&mut admin, signed).await, 2);
    assert!(node.run(Op::Checkpoint { signer }).await.unwrap().replayed, "nothing moved since");
}
