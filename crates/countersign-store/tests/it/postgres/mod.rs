//! PostgreSQL: a fresh database for each test, and as many nodes on it as the test wants.

mod contract;
mod faults;
mod nodes;
mod one;
mod start;
mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use countersign::Policy;
use countersign::call::{Call, CallState, Chain};
use countersign::event::{Cursor, Draft, Event, EventName, Head, hash};
use countersign::id::CallId;
use countersign::store::{Applied, EventFilter, Failure, Op, Store};
use countersign::testing::{Proposal, claimant, proposal};
use countersign_store::{PostgresOptions, PostgresStore};
use countersign_testkit::{TestDatabase, TestPostgres};
use futures::future::{BoxFuture, join_all};
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database of the test's own.
struct Bench {
    database: TestDatabase,
    offset: Arc<AtomicI64>,
}

impl Bench {
    fn new() -> Bench {
        let server = TestPostgres::shared().unwrap();
        Bench { database: server.create_database().unwrap(), offset: Arc::default() }
    }

    fn options(&self) -> PostgresOptions {
        PostgresOptions {
            readers: 4,
            // Other tests make and drop databases on the same server, and those are long transactions.
            settle_within: PATIENCE,
            allow_unsafe_durability: true,
            clock_offset: Arc::clone(&self.offset),
            ..PostgresOptions::default()
        }
    }

    async fn node(&self) -> PostgresStore {
        PostgresStore::connect(self.database.url(), self.options()).await.unwrap()
    }

    /// A connection beside the store, to meddle with.
    async fn admin(&self) -> PgConnection {
        PgConnection::connect(self.database.url()).await.unwrap()
    }

    fn pass(&self, time: Duration) {
        self.offset.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

/// Waits until a query over the database's own views says yes.
async fn until(admin: &mut PgConnection, sql: &'static str) {
    let wait = async {
        while !sqlx::query(sql).fetch_one(&mut *admin).await.unwrap().try_get::<bool, _>(0).unwrap() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never true: {sql}"));
}

async fn number(admin: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query(sql).fetch_one(admin).await.unwrap().try_get(0).unwrap()
}

/// Proposes to deploy, which asks.
fn deploy(session: &str) -> Proposal {
    proposal("deploy", json!({"to": "production"}), session)
}

fn claim(call: CallId) -> Op {
    Op::Claim { call, claimant: claimant("executor"), policy: Policy::ask_all() }
}

fn note(chain: &str) -> Op {
    Op::Note { chain: Chain(chain.into()), draft: Draft::new(EventName::AccessRefused) }
}

/// Every event there is, page by page.
async fn all_events(store: &PostgresStore) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(Cursor::default(), |event| event.cursor);
        let page = store.events(after, EventFilter { limit: Some(50), ..EventFilter::default() }).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}

/// Checks that each chain is whole: every number once, in order, every hash over the one before.
#[track_caller]
fn check_chains(events: &[Event]) {
    let mut heads: HashMap<&Chain, Head> = HashMap::new();
    for event in events {
        let head = heads.entry(&event.chain).or_default();
        assert_eq!(event.seq, head.seq + 1, "in the order of the chain {:?}", event.chain);
        assert_eq!(event.hash, hash(&head.hash, &event.body));
        *head = Head { seq: event.seq, hash: event.hash };
    }
}

/// Keeps all nodes' batches from beginning, until it is dropped or released.
struct Stall {
    admin: PgConnection,
}

impl Stall {
    async fn begin(bench: &Bench) -> Stall {
        let mut admin = bench.admin().await;
        sqlx::query("SELECT pg_advisory_lock(x'63730001'::int, 0)").execute(&mut admin).await.unwrap();
        Stall { admin }
    }

    /// Waits until this many batches stand before the gate.
    async fn waiting(&mut self, batches: i64) {
        let wait = async {
            while number(
                &mut self.admin,
                "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
                 WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()",
            )
            .await
                < batches
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    async fn end(mut self) {
        sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut self.admin).await.unwrap();
    }
}

type Answer = Result<Applied, Failure>;

/// Runs the operations in one batch, in this order.
async fn in_one_batch(bench: &Bench, store: &PostgresStore, ops: Vec<Op>) -> Vec<Answer> {
    let mut stall = Stall::begin(bench).await;
    let mut fillers: Vec<BoxFuture<'_, Answer>> = Vec::new();
    // One filler for each batch that may be on its way; whatever comes after them waits together. Both are of one chain,
    // so that they end one after the other: of two at once each would leave the other its share.
    for filler in 1..=2 {
        let mut answer: BoxFuture<'_, Answer> = store.run(note("filler/s"));
        assert!(futures::poll!(&mut answer).is_pending());
        fillers.push(answer);
        stall.waiting(filler).await;
    }
    let mut answers: Vec<BoxFuture<'_, Answer>> = ops.into_iter().map(|op| store.run(op)).collect();
    for answer in &mut answers {
        assert!(futures::poll!(answer).is_pending());
    }
    stall.end().await;
    join_all(fillers).await.into_iter().for_each(|answer| drop(answer.unwrap()));
    join_all(answers).await
}

#[track_caller]
fn is_pending(call: &Arc<Call>) {
    assert_eq!(call.state, CallState::Pending);
}
