//! Two nodes on one database: one winner, one halt, one policy, and everybody wakes.

use std::sync::Arc;
use std::time::Duration;

use countersign::Effect;
use countersign::call::CallState;
use countersign::event::EventName;
use countersign::grant::Remember;
use countersign::hold::{Answer, Who};
use countersign::id::{CallId, GrantId};
use countersign::store::{Failure, Op, Store};
use countersign::testing::{claimant, decide, submit};
use countersign::transition::Rejection;
use countersign_store::PostgresStore;
use futures::future::join_all;
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use super::{Bench, PATIENCE, Stall, all_events, check_chains, claim, deploy, until};

/// I4: of sixty-four deciders on two nodes exactly one closes the hold; the others are told how it closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_decider_wins_over_all_nodes() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    for _ in 0..5 {
        let call = submit(&nodes[0], deploy("s1")).await;
        let decide = |index: usize| {
            let answer = if index.is_multiple_of(3) { Answer::deny("no") } else { Answer::approve() };
            nodes[index % 2].run(decide(&call, &format!("approver-{index}"), answer))
        };
        let answers = join_all((0..64).map(decide)).await;
        let closed = |answer: &&Result<_, Failure>| matches!(answer, Err(Failure::Rejected(Rejection::Closed(_))));
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        assert_eq!(answers.iter().filter(closed).count(), 63);
        assert_eq!(nodes[1].call(call.id).await.unwrap().unwrap().holds[0].decisions.len(), 1);
        if nodes[1].call(call.id).await.unwrap().unwrap().state == CallState::Denied {
            break;
        }
    }
    check_chains(&all_events(&nodes[1]).await);
}

/// B86: of many executors on two nodes one claims, the others learn that it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_executor_claims_over_all_nodes() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let call = submit(&nodes[0], deploy("s1").effect(Effect::Allow)).await;
    let answers = join_all((0..32).map(|index| nodes[index % 2].run(claim(call.id)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let told = |answer: &&Result<_, Failure>| {
        matches!(answer, Err(Failure::Rejected(Rejection::AlreadyClaimed(CallState::Executing))))
    };
    assert_eq!(answers.iter().filter(told).count(), 31);
}

/// I4: a node that has a call in memory believes the database, where another node has moved it since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_another_node_moved_is_read_anew() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let call = submit(&nodes[0], deploy("s1")).await;
    nodes[1].run(decide(&call, "ann", Answer::approve())).await.unwrap();
    assert_eq!(nodes[0].run(claim(call.id)).await.unwrap().call.unwrap().state, CallState::Executing);
    let again = nodes[1].run(claim(call.id)).await;
    let told = matches!(again, Err(Failure::Rejected(Rejection::AlreadyClaimed(CallState::Executing))));
    assert!(told, "{again:?}");
}

/// B61: a grant with one use left is spent once, though claims in four sessions on two nodes lean on it at one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limited_grant_is_spent_exactly() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    let first = submit(&nodes[0], deploy("s0")).await;
    let remember = Remember { uses: Some(1), ..Remember::global() };
    let yes = Answer::Approve { arguments: None, payload: None, remember: Some(remember) };
    nodes[0].run(decide(&first, "ann", yes)).await.unwrap();
    let mut stall = Stall::begin(&bench).await;
    let mut answers = Vec::new();
    for (index, node) in [&nodes[0], &nodes[1], &nodes[0], &nodes[1]].into_iter().enumerate() {
        let mut answer = node.run(deploy(&format!("s{index}")).claim(claimant("executor")).op());
        assert!(futures::poll!(&mut answer).is_pending());
        answers.push(answer);
        stall.waiting(index as i64 + 1).await;
    }
    stall.end().await;
    let states = join_all(answers).await.into_iter().map(|answer| answer.unwrap().call.unwrap().state);
    assert_eq!(states.filter(|state| *state == CallState::Executing).count(), 1);
    assert_eq!(nodes[1].grants().await.unwrap()[0].uses_left, Some(0));
}

async fn rings(store: &PostgresStore, call: CallId, then: impl Future<Output = ()>) {
    let ring = store.bell().listen(call);
    then.await;
    tokio::time::timeout(PATIENCE, ring).await.expect("the bell rings");
}

async fn notify(admin: &mut PgConnection, payload: &str) {
    sqlx::query("SELECT pg_notify('countersign', $1)").bind(payload).execute(admin).await.unwrap();
}

/// I16: who waits on one node wakes when another decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_wakes_the_other_node() {
    let bench = Bench::new();
    let (here, there) = (bench.node().await, bench.node().await);
    let call = submit(&here, deploy("s1")).await;
    let mut overheard = PgListener::connect(bench.database.url()).await.unwrap();
    overheard.listen("countersign").await.unwrap();
    rings(&there, call.id, async { drop(here.run(decide(&call, "ann", Answer::approve())).await.unwrap()) }).await;
    let said = tokio::time::timeout(PATIENCE, overheard.recv()).await.unwrap().unwrap();
    assert!(said.payload().ends_with(&call.id.to_string()), "ids only: {}", said.payload());
    // A call of which there is no event: only the notification itself can ring for it.
    let unknown = CallId::new();
    let mut admin = bench.admin().await;
    rings(&there, unknown, async { notify(&mut admin, &format!("another {} {unknown}", CallId::new())).await }).await;
    rings(&there, unknown, async { notify(&mut admin, "another *").await }).await;
}

/// A lost notification costs a second, not a wake-up: new events are read while somebody listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unannounced_event_still_rings() {
    let bench = Bench::new();
    let store = bench.node().await;
    let call = submit(&store, deploy("s1")).await;
    let mut admin = bench.admin().await;
    let silent = "INSERT INTO events (chain, seq, name, call, at, hash, body)
                  SELECT 'local/silent', 1, name, call, at, hash, body FROM events LIMIT 1";
    rings(&store, call.id, async {
        sqlx::query(silent).execute(&mut admin).await.unwrap();
    })
    .await;
}

/// A node whose listening connection is cut off wakes its waiters, and listens again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_listener_still_wakes_and_listens_again() {
    let bench = Bench::new();
    let (here, there) = (bench.node().await, bench.node().await);
    let call = submit(&here, deploy("s1")).await;
    let mut admin = bench.admin().await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    rings(&there, call.id, async {
        let cut = sqlx::query(cut).execute(&mut admin).await.unwrap();
        assert_eq!(cut.rows_affected(), 2, "both nodes were listening");
        here.run(decide(&call, "ann", Answer::approve())).await.unwrap();
    })
    .await;
    until(
        &mut admin,
        "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .await;
    let unknown = CallId::new();
    rings(&there, unknown, async { notify(&mut admin, &format!("another {unknown}")).await }).await;
}

/// B103: once `halt` returned on one node, nothing is claimed on any, not even by what was on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_halt_nothing_is_claimed_anywhere() {
    let bench = Bench::new();
    let nodes = [bench.node().await, bench.node().await];
    for round in 0..6 {
        let submit = |index: usize| deploy(&format!("s{round}-{index}")).effect(Effect::Allow).op();
        let calls = join_all((0..40).map(|index| nodes[index % 2].run(submit(index)))).await;
        let calls: Vec<_> = calls.into_iter().map(|answer| answer.unwrap().call.unwrap().id).collect();
        let claims = join_all(calls.iter().enumerate().map(|(index, call)| nodes[index % 2].run(claim(*call))));
        let halt = Op::Halt { agent: None, by: "op".into(), reason: None };
        let (claims, halted) = tokio::join!(claims, nodes[round % 2].run(halt));
        halted.unwrap();
        let refused = |answer: &Result<_, Failure>| matches!(answer, Err(Failure::Rejected(Rejection::Halted)));
        assert!(claims.iter().all(|answer| answer.is_ok() || refused(answer)));
        for call in &calls {
            assert!(nodes[(round + 1) % 2].run(claim(*call)).await.is_err());
        }
        assert!(nodes[0].halted(&Default::default()).await.unwrap());
        nodes[0].run(Op::Lift { agent: None, by: "op".into() }).await.unwrap();
    }
    let mut halted = false;
    for event in all_events(&nodes[0]).await {
        match event.name {
            EventName::HaltSet => halted = true,
            EventName::HaltLifted => halted = false,
            EventName::CallClaimed => assert!(!halted, "claimed after the halt"),
            _ => {}
        }
    }
}

/// B103: a halt of one agent stops the calls under it and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_halt_of_one_agent_stops_only_its_calls() {
    let bench = Bench::new();
    let (here, there) = (bench.node().await, bench.node().await);
    let of = |agent: &str| {
        let agents = Arc::from(["root".into(), agent.into()]);
        deploy("s1").effect(Effect::Allow).path(|path| path.agents = agents)
    };
    let (stopped, other) = (submit(&here, of("a")).await, submit(&here, of("b")).await);
    let halt = Op::Halt { agent: Some("a".into()), by: "op".into(), reason: None };
    assert!(!here.run(halt.clone()).await.unwrap().replayed);
    assert!(there.run(halt).await.unwrap().replayed);
    assert!(matches!(there.run(claim(stopped.id)).await, Err(Failure::Rejected(Rejection::Halted))));
    there.run(claim(other.id)).await.unwrap();
}

/// B51: a policy set on one node makes the other judge again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_policy_is_seen_by_every_node() {
    let bench = Bench::new();
    let (here, there) = (bench.node().await, bench.node().await);
    let call = submit(&there, deploy("s1").effect(Effect::Allow)).await;
    assert_eq!(there.policy().await.unwrap(), None);
    let set = Op::SetPolicy { version: "p:new".into(), source: "otherwise: deny".into(), by: "op".into() };
    rings(&there, call.id, async { drop(here.run(set.clone()).await.unwrap()) }).await;
    assert!(there.run(set).await.unwrap().replayed);
    assert_eq!(there.policy().await.unwrap(), Some(("p:new".into(), "otherwise: deny".into())));
    for op in [deploy("s1").op(), claim(call.id)] {
        let stale = there.run(op).await;
        assert!(matches!(stale, Err(Failure::Rejected(Rejection::StalePolicy))), "{stale:?}");
    }
}

/// B69: once a grant is revoked on one node, no call that leans on it is claimed on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_grant_carries_nothing() {
    let bench = Bench::new();
    let (here, there) = (bench.node().await, bench.node().await);
    let first = submit(&here, deploy("s1")).await;
    let yes = Answer::Approve { arguments: None, payload: None, remember: Some(Remember::session()) };
    let grant = here.run(decide(&first, "ann", yes)).await.unwrap().grant.unwrap();
    let covered = submit(&there, deploy("s1")).await;
    assert_eq!((covered.state, covered.grant), (CallState::Allowed, Some(grant.id)));
    here.run(Op::Revoke { grant: grant.id, by: Who::person("ann") }).await.unwrap();
    assert_eq!(there.run(claim(covered.id)).await.unwrap().call.unwrap().state, CallState::Lapsed);
    super::is_pending(&submit(&there, deploy("s1")).await);
    let none = there.run(Op::Revoke { grant: GrantId::new(), by: Who::person("ann") }).await;
    assert!(matches!(none, Err(Failure::Rejected(Rejection::NotFound("grant")))));
}

/// The nodes of a closed store answer, and do not hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_gone_is_an_error() {
    let bench = Bench::new();
    let mut options = bench.options();
    options.reconnect_within = Duration::from_secs(1);
    let store = PostgresStore::connect(bench.database.url(), options).await.unwrap();
    drop(bench);
    let answer = tokio::time::timeout(PATIENCE, store.run(deploy("s1").op())).await.unwrap();
    assert!(matches!(answer, Err(Failure::Store(_))), "{answer:?}");
}
