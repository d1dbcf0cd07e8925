//! What is told after a commit, and what is found after a restart.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;

use crate::call::{CallState, Chain, Repeat, Resolution, ResolvedAs};
use crate::event::{Cursor, Draft, EventName};
use crate::hold::{Answer, Who};
use crate::id::HoldId;
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::signer::Signer;
use crate::store::{CallFilter, EventFilter, Expect, Op, Store};
use crate::testing::{
    TestStore, approve, claim, claimant, decide, finish, grant_for, proposal, rejection, submit, succeeded,
};
use crate::time::Time;
use crate::transition::{Asking, Rejection};
use crate::verdict::Effect;

/// Long enough for any ring to arrive; a ring that never comes fails the test instead of hanging it.
const RING: Duration = Duration::from_secs(20);

fn has_rung(listener: impl Future<Output = ()>) -> bool {
    pin!(listener).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

/// Runs an operation and waits for the ring that it must bring: for the call it is about, or for any.
async fn rings(store: &dyn Store, op: Op) -> crate::store::Applied {
    let about = match &op {
        Op::Submit(submission) => Some(submission.call.id),
        _ => match op.needs() {
            needs if needs.call.is_some() => needs.call,
            needs => match needs.hold {
                Some(hold) => store.call_of_hold(hold).await.unwrap().map(|call| call.id),
                None => None,
            },
        },
    };
    let mine = about.map(|call| store.bell().listen(call));
    let any = store.bell().listen_any();
    let applied = store.run(op.clone()).await.unwrap();
    assert!(!applied.replayed, "{op:?} must do something");
    tokio::time::timeout(RING, any).await.unwrap_or_else(|_| panic!("{op:?} did not ring for any"));
    if let Some(mine) = mine {
        tokio::time::timeout(RING, mine).await.unwrap_or_else(|_| panic!("{op:?} did not ring for its call"));
    }
    applied
}

/// DESIGN 6: every commit rings, after it can be read; a halt rings for everybody.
pub async fn the_bell_rings_after_every_commit(test: &dyn TestStore) {
    let store = test.store();
    let store = &*store;
    let asked = |n: u32| proposal("rm", json!({ "n": n }), "s");
    let first = rings(store, asked(1).op()).await.call.unwrap();
    rings(store, decide(&first, "ann", Answer::approve())).await;
    let claim = |call| Op::Claim { call, claimant: claimant("w"), policy: crate::Policy::ask_all() };
    rings(store, claim(first.id)).await;
    rings(store, Op::Renew { call: first.id, fence: 1, lease: limits::LEASE * 2 }).await;
    let (hint, payload, unattended) = (None, None, None);
    let asking = Asking { hold: HoldId::new(), fence: 1, hint, payload, unattended, limits: Arc::default() };
    let inner = rings(store, Op::Ask { call: first.id, asking: Box::new(asking) }).await.call.unwrap();
    rings(store, decide(&inner, "ann", Answer::approve())).await;
    rings(store, Op::Finish { call: first.id, fence: 1, outcome: succeeded("x") }).await;
    let second = rings(store, asked(2).op()).await.call.unwrap();
    let grant = grant_for(&second, store.now().await.unwrap());
    rings(store, Op::Grant(Box::new(grant.clone()))).await;
    rings(store, Op::Release { hold: second.holds[0].id, grant: grant.id }).await;
    rings(store, Op::Revoke { grant: grant.id, by: Who::person("olga") }).await;
    let third = rings(store, asked(3).op()).await.call.unwrap();
    rings(store, Op::Close { hold: third.holds[0].id, refusal: Refusal::new(RefusalKind::Error) }).await;
    let fourth = rings(store, asked(4).op()).await.call.unwrap();
    rings(store, Op::Cancel { call: fourth.id, refusal: Refusal::new(RefusalKind::Cancelled) }).await;
    let fifth = rings(store, asked(5).op()).await.call.unwrap();
    let sixth = rings(store, asked(6).effect(Effect::Allow).op()).await.call.unwrap();
    rings(store, claim(sixth.id)).await;
    test.advance(limits::HOLD_LIFE).await;
    rings(store, Op::Tick { call: fifth.id }).await;
    rings(store, Op::Tick { call: sixth.id }).await;
    let resolution =
        Resolution { r#as: ResolvedAs::Abandoned, reason: "gone".into(), by: "olga".into(), at: Time::default() };
    rings(store, Op::Resolve { call: sixth.id, resolution }).await;
    rings(store, Op::Note { chain: Chain::system(), draft: Draft::new(EventName::AccessRefused) }).await;
    rings(store, Op::Checkpoint { signer: Arc::new(Signer::generate().unwrap()) }).await;
    let everybody = store.bell().listen(first.id);
    rings(store, Op::Halt { agent: None, by: "olga".into(), reason: None }).await;
    tokio::time::timeout(RING, everybody).await.unwrap();
    rings(store, Op::Lift { agent: None, by: "olga".into() }).await;
    let everybody = store.bell().listen(first.id);
    rings(store, Op::SetPolicy { version: "p:1".into(), source: "x".into(), by: "olga".into() }).await;
    tokio::time::timeout(RING, everybody).await.unwrap();
    assert!(!has_rung(store.bell().listen(first.id)), "silence rings for nobody");
}

/// B108, I3: whoever opens the store anew finds all of it, and goes on where it stood.
pub async fn reopening_keeps_everything(test: &dyn TestStore) {
    let store = test.store();
    let keyed = proposal("rm", json!({"n": 1.50}), "s").key("k").agent("a").repeat(Repeat::Keyed);
    let pending = submit(&*store, keyed.clone()).await;
    let approved =
        submit(&*store, proposal("rm", json!({"n": 2}), "s").path(|path| path.thread = Some("th".into()))).await;
    approve(&*store, &approved).await;
    let done = submit(&*store, proposal("ls", json!({}), "s").effect(Effect::Allow)).await;
    claim(&*store, done.id, "w").await.unwrap();
    finish(&*store, done.id, 1, succeeded("x")).await.unwrap();
    let grant = grant_for(&done, store.now().await.unwrap());
    store.run(Op::Grant(Box::new(grant.clone()))).await.unwrap();
    store.run(Op::Halt { agent: Some("a".into()), by: "olga".into(), reason: None }).await.unwrap();
    let policy = Arc::clone(crate::Policy::ask_all().version());
    store.run(Op::SetPolicy { version: policy, source: "text".into(), by: "olga".into() }).await.unwrap();
    store.put_record("n", "k", b"v", Expect::Absent, Some(Duration::from_secs(600))).await.unwrap();
    let signer = Arc::new(Signer::generate().unwrap());
    store.run(Op::Checkpoint { signer: Arc::clone(&signer) }).await.unwrap();
    let before = everything(&*store).await;
    drop(store);

    let store = test.reopen().await;
    assert_eq!(everything(&*store).await, before);
    assert_eq!(submit(&*store, keyed.again()).await, pending, "its key is known");
    assert_eq!(rejection(claim(&*store, done.id, "w").await), Rejection::AlreadyClaimed(CallState::Succeeded));
    store.run(decide(&pending, "ann", Answer::approve())).await.unwrap();
    assert_eq!(rejection(claim(&*store, pending.id, "w").await), Rejection::Halted);
    claim(&*store, approved.id, "w").await.unwrap();
    assert!(!store.run(Op::Checkpoint { signer }).await.unwrap().replayed);
}

/// All that can be read of a store, as text.
async fn everything(store: &dyn Store) -> String {
    let calls = store.calls(CallFilter::default()).await.unwrap();
    let events = store.events(Cursor::default(), EventFilter::default()).await.unwrap();
    let (grants, policy) = (store.grants().await.unwrap(), store.policy().await.unwrap());
    let record = store.record("n", "k").await.unwrap();
    let halted = store.halted(&calls[0].facts.path).await.unwrap();
    format!("{calls:#?}\n{events:#?}\n{grants:#?}\n{policy:#?}\n{record:#?}\n{halted}")
}
