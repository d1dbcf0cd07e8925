//! How calls run, end, and fall into doubt.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::{Call, CallState, Outcome, Repeat, Resolution, ResolvedAs};
use crate::event::Cursor;
use crate::hold::{Answer, HoldState};
use crate::id::HoldId;
use crate::limits::{self, Limits};
use crate::refusal::RefusalKind;
use crate::store::{EventFilter, Failure, Op, Store};
use crate::testing::{TestStore, approve, claim, decide, finish, proposal, rejection, submit, succeeded};
use crate::time::Time;
use crate::transition::{Asking, Rejection};
use crate::verdict::Effect;

/// A call that runs, as `worker`.
async fn running(store: &dyn Store, tool: &str, repeat: Repeat) -> Arc<Call> {
    let call = submit(store, proposal(tool, json!({}), "s").effect(Effect::Allow).repeat(repeat)).await;
    claim(store, call.id, "worker").await.unwrap().call.unwrap()
}

/// A call that nobody knows the outcome of.
async fn doubtful(test: &dyn TestStore, tool: &str) -> Arc<Call> {
    let store = test.store();
    let call = running(&*store, tool, Repeat::AtMostOnce).await;
    test.advance(limits::LEASE).await;
    store.run(Op::Tick { call: call.id }).await.unwrap().call.unwrap()
}

fn resolution(r#as: ResolvedAs) -> Resolution {
    Resolution { r#as, reason: "looked".into(), by: "olga".into(), at: Time::default() }
}

/// B86: one executor wins, the other learns how the call stands.
pub async fn a_call_is_claimed_once(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    assert_eq!(rejection(claim(&*store, call.id, "w").await), Rejection::WrongState(CallState::Pending));
    approve(&*store, &call).await;
    let claimed = claim(&*store, call.id, "one").await.unwrap().call.unwrap();
    let lease = claimed.lease.as_ref().unwrap();
    assert_eq!((&*lease.owner, lease.fence, lease.attempt), ("one", 1, 1));
    let second = claim(&*store, call.id, "two").await;
    assert_eq!(rejection(second), Rejection::AlreadyClaimed(CallState::Executing));
    assert_eq!(store.call(call.id).await.unwrap(), Some(claimed));
}

/// I2: sixty-four executors claim at once; one runs.
pub async fn one_of_many_claimants_wins(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("ls", json!({}), "s").effect(Effect::Allow)).await;
    let mut claimants = tokio::task::JoinSet::new();
    for n in 0..64 {
        let (store, id) = (Arc::clone(&store), call.id);
        claimants.spawn(async move { claim(&*store, id, &format!("worker {n}")).await });
    }
    let mut winners = 0;
    while let Some(claimed) = claimants.join_next().await {
        match claimed.unwrap() {
            Ok(_) => winners += 1,
            refused => assert_eq!(rejection(refused), Rejection::AlreadyClaimed(CallState::Executing)),
        }
    }
    assert_eq!(winners, 1);
}

/// B103: a halt stops every claim at once and ends nothing; denying goes on.
pub async fn a_halt_stops_claims_and_ends_nothing(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("ls", json!({}), "s").effect(Effect::Allow)).await;
    let waiting = submit(&*store, proposal("rm", json!({}), "s")).await;
    let halt = || Op::Halt { agent: None, by: "olga".into(), reason: Some("fire".into()) };
    assert!(!store.halted(&call.facts.path).await.unwrap());
    assert!(!store.run(halt()).await.unwrap().replayed);
    assert!(store.run(halt()).await.unwrap().replayed);
    assert!(store.halted(&call.facts.path).await.unwrap());
    assert_eq!(rejection(claim(&*store, call.id, "w").await), Rejection::Halted);
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    store.run(decide(&waiting, "ann", Answer::deny("no"))).await.unwrap();
    let lift = || Op::Lift { agent: None, by: "olga".into() };
    assert!(!store.run(lift()).await.unwrap().replayed);
    assert!(store.run(lift()).await.unwrap().replayed);
    assert_eq!(claim(&*store, call.id, "w").await.unwrap().call.unwrap().state, CallState::Executing);
}

/// B103: one agent is halted, by its own name and nobody else's.
pub async fn a_halt_of_one_agent_stops_no_other(test: &dyn TestStore) {
    let store = test.store();
    let by = |agent: &str| proposal("ls", json!({}), "s").effect(Effect::Allow).agent(agent);
    let (halted, free) = (submit(&*store, by("coder")).await, submit(&*store, by("all")).await);
    let halt = Op::Halt { agent: Some("coder".into()), by: "olga".into(), reason: None };
    store.run(halt).await.unwrap();
    assert!(store.halted(&halted.facts.path).await.unwrap());
    assert!(!store.halted(&free.facts.path).await.unwrap());
    assert_eq!(rejection(claim(&*store, halted.id, "w").await), Rejection::Halted);
    claim(&*store, free.id, "w").await.unwrap();
    store.run(Op::Lift { agent: Some("coder".into()), by: "olga".into() }).await.unwrap();
    claim(&*store, halted.id, "w").await.unwrap();
}

/// Safety 4.8: leases are by the store's clock; an old fence renews nothing.
pub async fn a_lease_is_renewed_by_its_own_fence_only(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "build", Repeat::AtMostOnce).await;
    test.advance(limits::LEASE / 2).await;
    let renew = |fence| Op::Renew { call: call.id, fence, lease: limits::LEASE };
    let renewed = store.run(renew(1)).await.unwrap().call.unwrap();
    assert!(renewed.lease.as_ref().unwrap().until >= call.lease.as_ref().unwrap().until.after(limits::LEASE / 2));
    assert_eq!(rejection(store.run(renew(2)).await), Rejection::StaleFence { found: 2, current: 1 });
    test.advance(limits::LEASE / 2).await;
    assert!(store.due(10).await.unwrap().is_empty(), "the renewed lease holds");
    test.advance(limits::LEASE / 2).await;
    assert_eq!(store.due(10).await.unwrap(), [call.id]);
    assert_eq!(rejection(store.run(renew(1)).await), Rejection::WrongState(CallState::InDoubt));
}

/// B27: a running tool asks, is answered by its hold's own id, and ends.
pub async fn a_running_tool_may_ask(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "deploy", Repeat::AtMostOnce).await;
    let hold = HoldId::new();
    let asking = |hold, fence, most| {
        let limits = Arc::new(Limits { holds_per_call: most, ..Limits::default() });
        let asking = Asking { hold, fence, hint: Some("go on?".into()), payload: None, unattended: None, limits };
        Op::Ask { call: call.id, asking: Box::new(asking) }
    };
    let stale = store.run(asking(HoldId::new(), 7, 9)).await;
    assert_eq!(rejection(stale), Rejection::StaleFence { found: 7, current: 1 });
    let asked = store.run(asking(hold, 1, 9)).await.unwrap().call.unwrap();
    assert_eq!((asked.state, asked.holds[0].state), (CallState::Executing, HoldState::Pending));
    let over = store.run(asking(HoldId::new(), 1, 1)).await;
    assert!(matches!(rejection(over), Rejection::Limit { limit: 1, .. }));
    assert_eq!(store.call_of_hold(hold).await.unwrap(), Some(Arc::clone(&asked)));
    let yes = store.run(decide(&asked, "ann", Answer::approve())).await.unwrap().call.unwrap();
    assert_eq!((yes.state, yes.holds[0].state), (CallState::Executing, HoldState::Approved));
    let done = finish(&*store, call.id, 1, succeeded("deployed")).await.unwrap().call.unwrap();
    assert_eq!(done.state, CallState::Succeeded);
}

/// I4: one hold id, one hold, for ever; a second one is refused whole.
pub async fn a_hold_id_is_taken_once(test: &dyn TestStore) {
    let store = test.store();
    let taken = submit(&*store, proposal("rm", json!({}), "s")).await;
    let call = running(&*store, "deploy", Repeat::AtMostOnce).await;
    let (hint, payload, unattended) = (None, None, None);
    let asking = Asking { hold: taken.holds[0].id, fence: 1, hint, payload, unattended, limits: Arc::default() };
    let asked = store.run(Op::Ask { call: call.id, asking: Box::new(asking) }).await;
    assert!(matches!(asked, Err(Failure::Store(_))));
    assert_eq!(store.call_of_hold(taken.holds[0].id).await.unwrap(), Some(taken));
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    let about = EventFilter { call: Some(call.id), ..EventFilter::default() };
    assert_eq!(store.events(Cursor::default(), about).await.unwrap().len(), 3, "nothing of it was written");
    finish(&*store, call.id, 1, succeeded("x")).await.unwrap();
}

/// B84: a finished call replays its stored result; another result is refused.
pub async fn a_result_is_stored_and_replayed(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "ls", Repeat::AtMostOnce).await;
    let stale = finish(&*store, call.id, 2, succeeded("x")).await;
    assert_eq!(rejection(stale), Rejection::StaleFence { found: 2, current: 1 });
    let done = finish(&*store, call.id, 1, succeeded("a b")).await.unwrap().call.unwrap();
    assert_eq!((done.state, done.outcome.clone()), (CallState::Succeeded, Some(succeeded("a b"))));
    assert!(finish(&*store, call.id, 1, succeeded("a b")).await.unwrap().replayed);
    let other = finish(&*store, call.id, 1, succeeded("c")).await;
    assert_eq!(rejection(other), Rejection::WrongState(CallState::Succeeded));
    let again = claim(&*store, call.id, "w").await;
    assert_eq!(rejection(again), Rejection::AlreadyClaimed(CallState::Succeeded));
    assert_eq!(store.call(call.id).await.unwrap(), Some(done));
}

/// Safety 4.6: an answered error is a failure, not a doubt.
pub async fn a_failed_run_keeps_its_error(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "ls", Repeat::AtMostOnce).await;
    let outcome = Outcome::Failed { error: "no such folder".into(), refusal: None };
    finish(&*store, call.id, 1, outcome.clone()).await.unwrap();
    let failed = store.call(call.id).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.outcome.clone()), (CallState::Failed, Some(outcome)));
}

/// B85: a lost lease of a call that may not be repeated is a doubt, and is never claimed again.
pub async fn a_lost_lease_is_a_doubt(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "pay", Repeat::AtMostOnce).await;
    let early = store.run(Op::Tick { call: call.id }).await.unwrap();
    assert!(early.replayed, "time has brought nothing yet");
    test.advance(limits::LEASE).await;
    assert_eq!(store.due(10).await.unwrap(), [call.id]);
    let doubt = store.run(Op::Tick { call: call.id }).await.unwrap().call.unwrap();
    assert_eq!(doubt.state, CallState::InDoubt);
    assert!(matches!(doubt.outcome, Some(Outcome::MayHaveApplied { .. })));
    assert!(store.due(10).await.unwrap().is_empty());
    let again = claim(&*store, call.id, "other").await;
    assert_eq!(rejection(again), Rejection::AlreadyClaimed(CallState::InDoubt));
}

/// B87: a repeatable call gets another attempt under its own fence; the old one is heard no more.
pub async fn a_repeatable_call_gets_another_attempt(test: &dyn TestStore) {
    let store = test.store();
    let call = running(&*store, "fetch", Repeat::Idempotent).await;
    test.advance(limits::LEASE).await;
    let second = claim(&*store, call.id, "other").await.unwrap().call.unwrap();
    let lease = second.lease.as_ref().unwrap();
    assert_eq!((&*lease.owner, lease.fence, lease.attempt), ("other", 2, 2));
    let old = finish(&*store, call.id, 1, succeeded("late")).await;
    assert_eq!(rejection(old), Rejection::StaleFence { found: 1, current: 2 });
    let done = finish(&*store, call.id, 2, succeeded("now")).await.unwrap().call.unwrap();
    assert_eq!(done.outcome, Some(succeeded("now")));
}

/// Safety 4.3: a person settles a doubt, with a reason; the store says when.
pub async fn a_doubt_is_resolved_by_a_person(test: &dyn TestStore) {
    let call = doubtful(test, "pay").await;
    let store = test.store();
    let resolve = || Op::Resolve { call: call.id, resolution: resolution(ResolvedAs::NotApplied) };
    let resolved = store.run(resolve()).await.unwrap().call.unwrap();
    assert_eq!(resolved.state, CallState::Resolved);
    let found = resolved.resolution.as_ref().unwrap();
    assert_eq!((found.r#as, &*found.by, &*found.reason), (ResolvedAs::NotApplied, "olga", "looked"));
    assert!(found.at >= call.updated_at, "the store's moment, not the sender's");
    assert_eq!(rejection(store.run(resolve()).await), Rejection::WrongState(CallState::Resolved));
}

/// Safety 4.4: a late result of the current attempt settles the doubt.
pub async fn a_late_result_settles_its_doubt(test: &dyn TestStore) {
    let call = doubtful(test, "pay").await;
    let store = test.store();
    let silent = Outcome::MayHaveApplied { why: "cut".into() };
    assert_eq!(finish(&*store, call.id, 1, silent).await.unwrap().call.unwrap().state, CallState::InDoubt);
    let settled = finish(&*store, call.id, 1, succeeded("paid")).await.unwrap().call.unwrap();
    assert_eq!(settled.state, CallState::Resolved);
    let found = settled.resolution.as_ref().unwrap();
    assert_eq!((found.r#as, &*found.by), (ResolvedAs::Applied, "late-result"));
}

/// Safety 4.2: while any identical call of the session is in doubt, a person must know.
pub async fn a_doubt_makes_identical_calls_ask_until_all_are_settled(test: &dyn TestStore) {
    let store = test.store();
    let next = |session: &str| proposal("pay", json!({}), session).effect(Effect::Allow);
    let first = running(&*store, "pay", Repeat::AtMostOnce).await;
    let second = running(&*store, "pay", Repeat::AtMostOnce).await;
    test.advance(limits::LEASE).await;
    for call in [first.id, second.id] {
        store.run(Op::Tick { call }).await.unwrap();
    }
    let asked = submit(&*store, next("s")).await;
    assert_eq!((asked.state, &*asked.holds[0].because[0].rule), (CallState::Pending, "doubt"));
    assert_eq!(submit(&*store, next("t")).await.state, CallState::Allowed, "another session");
    assert_eq!(submit(&*store, next("s").repeat(Repeat::Idempotent)).await.state, CallState::Allowed);
    let settle = |call| Op::Resolve { call, resolution: resolution(ResolvedAs::Applied) };
    store.run(settle(second.id)).await.unwrap();
    assert_eq!(submit(&*store, next("s")).await.state, CallState::Pending, "one doubt is left");
    store.run(settle(first.id)).await.unwrap();
    assert_eq!(submit(&*store, next("s")).await.state, CallState::Allowed);
}

/// I8: without a session the chain is everybody's; a doubt in it still is its principal's.
pub async fn a_doubt_is_its_principals_own(test: &dyn TestStore) {
    let store = test.store();
    let next = |principal: &str| {
        let next = proposal("pay", json!({}), "s").principal(principal).path(|path| path.session = None);
        next.effect(Effect::Allow)
    };
    let call = submit(&*store, next("ann")).await;
    claim(&*store, call.id, "worker").await.unwrap();
    test.advance(limits::LEASE).await;
    store.run(Op::Tick { call: call.id }).await.unwrap();
    assert_eq!(submit(&*store, next("bob")).await.state, CallState::Allowed);
    assert_eq!(submit(&*store, next("ann")).await.state, CallState::Pending);
}

/// B104: an approval that is not claimed in time lapses; a claim that comes then is told so.
pub async fn an_unclaimed_approval_lapses(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    approve(&*store, &call).await;
    test.advance(limits::CLAIM_WITHIN - Duration::from_secs(5)).await;
    assert!(store.due(10).await.unwrap().is_empty());
    test.advance(Duration::from_secs(5)).await;
    assert_eq!(store.due(10).await.unwrap(), [call.id]);
    assert_eq!(rejection(claim(&*store, call.id, "w").await), Rejection::WrongState(CallState::Lapsed));
    let lapsed = store.call(call.id).await.unwrap().unwrap();
    assert_eq!((lapsed.state, lapsed.refusal.as_ref().unwrap().kind), (CallState::Lapsed, RefusalKind::Lapsed));
}
