//! PostgreSQL: a fresh database for each test, and as many nodes on it as the test wants.

mod faults;
mod nodes;
mod one;
mod start;
mod tail;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use countersign::call::{Call, CallState, Chain, Declared, Facts, Path, Repeat, ToolId};
use countersign::digest::{Nonce, argument_digest};
use countersign::event::{Cursor, Draft, Event, EventName, hash};
use countersign::hold::{Answer, Decision, Who};
use countersign::id::CallId;
use countersign::limits::LEASE;
use countersign::store::{Applied, Claimant, EventFilter, Failure, NewCall, Op, Store, Submission};
use countersign::transition::Deciding;
use countersign::{Effect, Json, Limits, Policy, Time};
use countersign_store::postgres::{PostgresOptions, PostgresStore};
use countersign_testkit::{TestDatabase, TestPostgres};
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

/// What a test submits: a call of the tool `deploy`.
struct Proposal {
    path: Path,
    key: Option<Arc<str>>,
    arguments: &'static str,
    effect: Effect,
    claim: bool,
    limits: Limits,
}

fn proposal(session: &str) -> Proposal {
    Proposal {
        path: Path::session(session),
        key: None,
        arguments: r#"{"to":"production"}"#,
        effect: Effect::Ask,
        claim: false,
        limits: Limits::default(),
    }
}

impl Proposal {
    fn allowed(self) -> Proposal {
        Proposal { effect: Effect::Allow, ..self }
    }

    fn claimed(self) -> Proposal {
        Proposal { claim: true, ..self }
    }

    fn key(self, key: &str) -> Proposal {
        Proposal { key: Some(key.into()), ..self }
    }

    fn op(self) -> Op {
        let policy = Policy::ask_all();
        let facts = Facts {
            tool: ToolId::local("deploy"),
            toolset: None,
            arguments: Json::arguments(self.arguments, &self.limits).unwrap(),
            path: self.path,
            declared: Declared::Nothing,
            annotations: None,
            at: Time(0),
        };
        let mut verdict = policy.judge(&facts);
        verdict.effect = self.effect;
        let call = NewCall {
            id: CallId::new(),
            key: self.key,
            label: None,
            description: None,
            definition: None,
            redacted: None,
            raw: None,
            repeat: Repeat::AtMostOnce,
            argument_digest: argument_digest(&facts.tool, None, &facts.arguments),
            nonce: Nonce::new(),
            verdict: Arc::new(verdict),
            hint: None,
            payload: None,
            refusal: None,
            facts,
        };
        let claim = self.claim.then(claimant);
        Op::Submit(Box::new(Submission { call, unasked: None, limits: Arc::new(self.limits), claim, policy }))
    }

    async fn submit(self, store: &PostgresStore) -> Arc<Call> {
        store.run(self.op()).await.unwrap().call.unwrap()
    }
}

fn claimant() -> Claimant {
    Claimant { owner: "executor".into(), definition: None, lease: LEASE, attempts: 3 }
}

fn claim(call: CallId) -> Op {
    Op::Claim { call, claimant: claimant(), policy: Policy::ask_all() }
}

fn decide(call: &Call, who: &str, answer: Answer) -> Op {
    let hold = call.open_hold().unwrap();
    let decision = Decision::new(Who::person(who), "test", hold.digest, answer);
    Op::Decide(Box::new(Deciding { hold: hold.id, decision, groups: Vec::new(), edit: None }))
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
    let mut heads: std::collections::HashMap<&Chain, (u64, countersign::digest::EventHash)> = Default::default();
    for event in events {
        let (seq, head) = heads.get(&event.chain).copied().unwrap_or_else(|| {
            let none = countersign::event::Head::default();
            (none.seq, none.hash)
        });
        assert_eq!(event.seq, seq + 1, "in the order of the chain {:?}", event.chain);
        assert_eq!(event.hash, hash(&head, &event.body));
        heads.insert(&event.chain, (event.seq, event.hash));
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

type Answer2<'a> = Pin<Box<dyn Future<Output = Result<Applied, Failure>> + Send + 'a>>;

/// Runs the operations in one batch, in this order.
async fn in_one_batch(bench: &Bench, store: &PostgresStore, ops: Vec<Op>) -> Vec<Result<Applied, Failure>> {
    let mut stall = Stall::begin(bench).await;
    let mut fillers: Vec<Answer2<'_>> = Vec::new();
    // One filler for each batch that may be on its way; whatever comes after them waits together.
    for filler in 1..=2 {
        let mut answer: Answer2<'_> = store.run(note(&format!("filler/{filler}")));
        assert!(futures::poll!(&mut answer).is_pending());
        fillers.push(answer);
        stall.waiting(filler).await;
    }
    let mut answers: Vec<Answer2<'_>> = ops.into_iter().map(|op| store.run(op)).collect();
    for answer in &mut answers {
        assert!(futures::poll!(answer).is_pending());
    }
    stall.end().await;
    futures::future::join_all(fillers).await.into_iter().for_each(|answer| drop(answer.unwrap()));
    futures::future::join_all(answers).await
}

#[track_caller]
fn is_pending(call: &Call) {
    assert_eq!(call.state, CallState::Pending);
}
