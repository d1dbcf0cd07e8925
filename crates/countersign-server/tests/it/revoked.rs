//! Credentials that end while servers remember them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use countersign::memory::MemoryStore;
use countersign::store::Expect;
use countersign::testing::{Fault, FaultStore};
use countersign_api::wire::{NewToken, Role};
use countersign_server::{limits, people, tokens};
use countersign_testkit::stores::Kind;
use serde_json::{Value, json};

use crate::events::Events;
use crate::people::Browser;
use crate::stage::{Client, POLICY, Stage};

/// How often something is looked at that must change by itself.
const LOOK: Duration = Duration::from_millis(20);
/// What a slow machine may take beyond what is promised.
const SLACK: Duration = Duration::from_secs(5);

/// A client of a role, and the id of its token.
async fn client(stage: &Stage, role: Role, name: &str) -> (Client, String) {
    let new = NewToken { role, name: name.to_owned(), expires_after: None, r#for: None };
    let made = tokens::create(&**stage.gate.store(), new, "test").await.unwrap();
    (stage.nobody().token(&made.token), made.id)
}

/// A server whose readings of records are counted, and whose event log can be taken away.
struct Watched {
    stage: Stage,
    reads: Arc<AtomicUsize>,
    deaf: Arc<AtomicBool>,
}

impl Watched {
    async fn new() -> Watched {
        let (reads, deaf) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, is_deaf) = (Arc::clone(&reads), Arc::clone(&deaf));
        let store = FaultStore::new(Arc::new(MemoryStore::new()), move |_, site| match site {
            "read record" => {
                counted.fetch_add(1, Ordering::SeqCst);
                Fault::None
            }
            "read events" if is_deaf.load(Ordering::SeqCst) => Fault::Fail,
            _ => Fault::None,
        });
        Watched { stage: Stage::over(Arc::new(store), POLICY).await, reads, deaf }
    }

    /// How many readings so many requests cost.
    async fn cost(&self, client: &Client, requests: usize) -> usize {
        let before = self.reads.load(Ordering::SeqCst);
        for _ in 0..requests {
            client.get("/v1/me").await.expect(200);
        }
        self.reads.load(Ordering::SeqCst) - before
    }

    /// Asks until five requests cost this much.
    async fn until_five_cost(&self, client: &Client, reads: usize) {
        let mut look = tokio::time::interval(LOOK);
        let begin = Instant::now();
        while self.cost(client, 5).await != reads {
            assert!(begin.elapsed() < limits::HEARS_WITHIN + SLACK, "five requests do not come to cost {reads}");
            look.tick().await;
        }
    }
}

/// A credential that is known costs no reading; a server that cannot hear of changes reads it every time, until it can.
#[tokio::test]
async fn a_server_that_hears_nothing_asks_the_store_every_time() {
    let watched = Watched::new().await;
    let (agent, _) = client(&watched.stage, Role::Agent, "bot").await;
    watched.until_five_cost(&agent, 0).await;
    watched.deaf.store(true, Ordering::SeqCst);
    watched.until_five_cost(&agent, 5).await;
    watched.deaf.store(false, Ordering::SeqCst);
    watched.until_five_cost(&agent, 0).await;
}

/// On the server where it happens, a revocation counts from the next request on, on every store.
#[tokio::test]
async fn a_revoked_token_is_nothing_to_the_next_request() {
    for kind in [Kind::Memory, Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let stage = Stage::over(test.store(), POLICY).await;
        let operator = stage.with(Role::Operator, "op").await;
        // Fewer than the wrong credentials an address may show in a minute.
        for n in 0..4 {
            let (bot, id) = client(&stage, Role::Agent, "bot").await;
            for _ in 0..3 {
                bot.get("/v1/me").await.expect(200);
            }
            match n % 2 {
                0 => assert_eq!(operator.delete(&format!("/v1/tokens/{id}")).await.expect(200)["live"], false),
                _ => assert!(!tokens::revoke(&**stage.gate.store(), &id, "test").await.unwrap().live),
            }
            bot.get("/v1/me").await.problem(401, "unauthenticated");
        }
        stage.end().await;
    }
}

/// What a person may do is what their account says at that moment, and a session that was left is over.
#[tokio::test]
async fn a_changed_account_counts_from_the_next_request_on() {
    let watched = Watched::new().await;
    let stage = &watched.stage;
    let store = &**stage.gate.store();
    let browser = Browser::sign_in(stage, "os:ann").await;
    assert_eq!(browser.get("/v1/me").await.expect(200)["roles"], json!(["approver", "operator", "auditor"]));
    browser.get("/v1/tokens").await.expect(200);
    people::put_user(store, "os:ann", &[Role::Approver]).await.unwrap();
    browser.get("/v1/tokens").await.problem(403, "forbidden");
    people::remove_user(store, "os:ann").await.unwrap();
    browser.get("/v1/me").await.problem(401, "unauthenticated");

    let browser = Browser::sign_in(stage, "os:ann").await;
    browser.get("/v1/me").await.expect(200);
    let out = browser.request(reqwest::Method::POST, "/v1/sign-out").json(&json!({})).send().await.unwrap();
    assert_eq!(out.status(), 204);
    browser.get("/v1/me").await.problem(401, "unauthenticated");
}

/// On another server a revocation counts as soon as that server has heard of it: by then nobody there remembers.
#[tokio::test]
async fn a_revocation_elsewhere_counts_once_it_is_heard() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let here = Stage::over(test.store(), POLICY).await;
        let there = Stage::over(test.reopen().await, POLICY).await;
        let operator = here.with(Role::Operator, "op").await;
        let mut told = Events::open(&there.with(Role::Auditor, "eve").await, "/v1/events").await;
        while told.next().await.unwrap().0 != "ready" {}
        for _ in 0..4 {
            let (bot, id) = client(&there, Role::Agent, "bot").await;
            bot.get("/v1/me").await.expect(200);
            operator.delete(&format!("/v1/tokens/{id}")).await.expect(200);
            let event = loop {
                let event = told.until("access.changed").await;
                if event["body"]["how"] == "revoked" {
                    break event;
                }
            };
            assert_eq!(event["body"]["id"], json!(id), "{kind:?} {event:#}");
            bot.get("/v1/me").await.problem(401, "unauthenticated");
        }
        here.end().await;
        there.end().await;
    }
}

/// A server that died between a revocation and its event leaves the others with what they know, but not for long.
#[tokio::test]
async fn a_revocation_that_nobody_heard_of_counts_within_its_bound() {
    let test = Kind::Postgres.fresh().await.unwrap();
    let other = test.store();
    let stage = Stage::over(test.reopen().await, POLICY).await;
    let (bot, id) = client(&stage, Role::Agent, "bot").await;
    bot.get("/v1/me").await.expect(200);
    let record = other.record("tokens", &id).await.unwrap().unwrap();
    let mut kept: Value = serde_json::from_slice(&record.value).unwrap();
    kept["revoked"] = json!([kept["made_at"], "test"]);
    other.put_record("tokens", &id, kept.to_string().as_bytes(), Expect::Any, None).await.unwrap();
    let begin = Instant::now();
    let mut look = tokio::time::interval(LOOK);
    while bot.get("/v1/me").await.status == 200 {
        assert!(begin.elapsed() < limits::BELIEVED_FOR + SLACK, "a revoked token is believed for too long");
        look.tick().await;
    }
    bot.get("/v1/me").await.problem(401, "unauthenticated");
}
