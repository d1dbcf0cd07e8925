//! How calls come in.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::CallState;
use crate::event::{Cursor, EventName};
use crate::hold::{Answer, HoldState};
use crate::id::HoldId;
use crate::limits::{self, Limits};
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{EventFilter, Failure, Op, Store};
use crate::testing::{TestStore, approve, claimant, decide, proposal, rejection, submit};
use crate::transition::{Asking, Rejection, Unasked};
use crate::verdict::{Effect, Terms};

async fn names(store: &dyn Store, call: crate::id::CallId) -> Vec<EventName> {
    let filter = EventFilter { call: Some(call), ..EventFilter::default() };
    store.events(Cursor::default(), filter).await.unwrap().into_iter().map(|event| event.name).collect()
}

/// B92: an allow by rule is an event; the call then waits a limited time to be claimed.
pub async fn an_allowed_call_waits_to_be_claimed(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("ls", json!({}), "s").effect(Effect::Allow)).await;
    assert_eq!(call.state, CallState::Allowed);
    assert_eq!(call.claim_by, Some(call.created_at.after(limits::CLAIM_WITHIN)));
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    assert_eq!(names(&*store, call.id).await, [EventName::CallSubmitted, EventName::CallAllowed]);
}

/// B92: a denial by rule is an event, and final.
pub async fn a_denied_call_is_refused_and_ends(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s").effect(Effect::Deny)).await;
    assert_eq!(call.state, CallState::Denied);
    let refusal = call.refusal.clone().unwrap();
    assert_eq!((refusal.kind, refusal.reason.as_deref()), (RefusalKind::DeniedByRule, Some("because of the test")));
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    assert_eq!(names(&*store, call.id).await, [EventName::CallSubmitted, EventName::CallRefused]);
}

/// B105: the hold is stored before anybody hears of it, and found by its own id.
pub async fn an_asked_call_opens_one_hold(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({"path": "/tmp/x", "n": 1}), "s")).await;
    assert_eq!(call.state, CallState::Pending);
    let [hold] = &call.holds[..] else { panic!("expected one hold") };
    assert_eq!((hold.state, hold.digest), (HoldState::Pending, call.digest));
    assert_eq!(hold.expires_at, Some(call.created_at.after(limits::HOLD_LIFE)));
    assert_eq!(store.call_of_hold(hold.id).await.unwrap(), Some(Arc::clone(&call)));
    assert_eq!(names(&*store, call.id).await, [EventName::CallSubmitted, EventName::HoldOpened]);
}

/// B15, B16, B19: bad arguments, hooks and authorizers refuse before any rule is asked.
pub async fn a_call_refused_before_judging_keeps_its_refusal(test: &dyn TestStore) {
    let store = test.store();
    let refusal = Refusal::new(RefusalKind::Hook).because("not on Fridays").by("calendar");
    let call = submit(&*store, proposal("rm", json!({}), "s").refused(refusal.clone())).await;
    assert_eq!((call.state, call.refusal.clone()), (CallState::Denied, Some(refusal)));
    assert!(call.holds.is_empty());
}

/// B79: the same place with the same bytes is the same call, whatever became of it.
pub async fn the_same_key_and_arguments_are_the_same_call(test: &dyn TestStore) {
    let store = test.store();
    let first = proposal("rm", json!({}), "s").key("turn 1");
    let call = submit(&*store, first.clone()).await;
    let again = store.run(first.again().op()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.call.unwrap(), call);
    let approved = approve(&*store, &call).await;
    assert_eq!(submit(&*store, first.again()).await, approved);
    assert_eq!(names(&*store, call.id).await.len(), 3, "a repeat writes no event");
}

/// B79: the same place with other bytes is refused.
pub async fn a_key_with_other_arguments_is_refused(test: &dyn TestStore) {
    let store = test.store();
    submit(&*store, proposal("rm", json!({"path": "a"}), "s").key("turn 1")).await;
    let other = store.run(proposal("rm", json!({"path": "b"}), "s").key("turn 1").op()).await;
    assert_eq!(rejection(other), Rejection::KeyReused);
}

/// B79, B60: a key is a place in one run of one principal, with or without a session.
pub async fn a_key_counts_for_its_principal_and_run_only(test: &dyn TestStore) {
    let store = test.store();
    let in_session = |session: &str| proposal("rm", json!({}), session).key("k");
    let without = |principal: &str| in_session("s").principal(principal).path(|path| path.session = None);
    let places = [
        in_session("s"),
        in_session("t"),
        in_session("s").run("r1"),
        in_session("s").run("r2"),
        in_session("s").principal("bob"),
        without("ann"),
        without("bob"),
        without("ann").run("r1"),
    ];
    for place in &places {
        let applied = store.run(place.again().op()).await.unwrap();
        assert!(!applied.replayed, "{:?} is a place of its own", applied.call.unwrap().facts.path);
    }
    for place in &places {
        assert!(store.run(place.again().op()).await.unwrap().replayed);
    }
}

/// B101: nobody to ask means refused, or passed and marked; must-ask is never passed.
pub async fn where_nobody_can_be_asked_the_call_is_refused_or_marked(test: &dyn TestStore) {
    let store = test.store();
    let asked = || proposal("rm", json!({}), "s");
    let refused = submit(&*store, asked().unasked(Unasked::Deny)).await;
    assert_eq!(refused.refusal.as_ref().unwrap().kind, RefusalKind::NoApprover);
    let passed = submit(&*store, asked().unasked(Unasked::Allow)).await;
    assert_eq!((passed.state, passed.unattended), (CallState::Allowed, true));
    let must_ask = Terms { human_required: true, ..Terms::default() };
    let kept = submit(&*store, asked().terms(must_ask).unasked(Unasked::Allow)).await;
    assert_eq!(kept.refusal.as_ref().unwrap().kind, RefusalKind::NoApprover);
}

/// Safety 2, pending caps: over the cap is a refusal at once, and every closed hold makes room.
pub async fn too_many_pending_calls_are_refused_at_once(test: &dyn TestStore) {
    let store = test.store();
    let limits = Limits { pending_per_session: 2, pending_total: 3, ..Limits::default() };
    let next = |session: &str, n: u32| proposal("rm", json!({ "n": n }), session).limits(limits.clone());
    let state = |n: u32, session: &'static str| {
        let (store, next) = (Arc::clone(&store), next(session, n));
        async move { submit(&*store, next).await }
    };
    let first = state(1, "s").await;
    assert_eq!(state(2, "s").await.state, CallState::Pending);
    let over = state(3, "s").await;
    assert_eq!(over.refusal.as_ref().unwrap().kind, RefusalKind::Limit);
    assert_eq!(state(4, "t").await.state, CallState::Pending);
    assert_eq!(state(5, "t").await.refusal.as_ref().unwrap().kind, RefusalKind::Limit, "three in all");
    store.run(decide(&first, "ann", Answer::deny("no"))).await.unwrap();
    assert_eq!(state(6, "s").await.state, CallState::Pending);
    assert_eq!(state(7, "s").await.refusal.as_ref().unwrap().kind, RefusalKind::Limit);
    test.advance(limits::HOLD_LIFE + Duration::from_secs(1)).await;
    for id in store.due(100).await.unwrap() {
        store.run(Op::Tick { call: id }).await.unwrap();
    }
    assert_eq!(state(8, "s").await.state, CallState::Pending, "expired holds make room too");
}

/// Safety 2, pending caps: what a running tool asks counts as a call that waits does, and is refused as one is.
pub async fn too_many_questions_of_running_tools_are_refused(test: &dyn TestStore) {
    let store = test.store();
    let caps = [
        Limits { pending_per_session: 2, ..Limits::default() },
        Limits { pending_per_agent: 2, ..Limits::default() },
        Limits { pending_total: 2, ..Limits::default() },
    ];
    for (round, limits) in caps.into_iter().enumerate() {
        let (limits, session) = (Arc::new(limits), format!("s{round}"));
        let allowed = proposal("deploy", json!({ "round": round }), &session).effect(Effect::Allow);
        let running = submit(&*store, allowed.claim(claimant("w"))).await;
        let ask = || {
            let (hold, hint, limits) = (HoldId::new(), None, Arc::clone(&limits));
            let asking = Asking { hold, fence: 1, hint, payload: None, unattended: None, limits };
            store.run(Op::Ask { call: running.id, asking: Box::new(asking) })
        };
        let next = |n: u32| {
            let next = proposal("rm", json!({ "n": n }), &session).limits(Limits::clone(&limits));
            submit(&*store, next)
        };
        let asked = ask().await.unwrap().call.unwrap();
        let waiting = next(1).await;
        assert_eq!(waiting.state, CallState::Pending, "round {round}: one question leaves room for one call");
        let refused = next(2).await;
        let refusal = refused.refusal.as_ref().unwrap();
        assert_eq!(refusal.kind, RefusalKind::Limit, "round {round}: and for no second one");
        let over = ask().await.unwrap().call.unwrap();
        let hold = over.holds.last().unwrap();
        assert_eq!((over.state, hold.state), (CallState::Executing, HoldState::Cancelled), "round {round}");
        assert_eq!(hold.refusal.as_ref().unwrap(), refusal, "round {round}: the same refusal");
        store.run(decide(&asked, "ann", Answer::approve())).await.unwrap();
        let again = ask().await.unwrap().call.unwrap();
        assert!(again.open_hold().is_some(), "round {round}: an answered question makes room");
        // For the next round.
        store.run(decide(&again, "ann", Answer::approve())).await.unwrap();
        store.run(decide(&waiting, "ann", Answer::deny("no"))).await.unwrap();
    }
}

/// Safety 5, `flood_leaves_others_alone`: one agent may fill its own share, in however many sessions, and nobody else's.
pub async fn a_flood_leaves_other_agents_alone(test: &dyn TestStore) {
    let store = test.store();
    let limits = Limits { pending_per_agent: 3, ..Limits::default() };
    let next = |principal: &str, session: Option<String>, n: u32| {
        let next = proposal("rm", json!({ "n": n }), "s").principal(principal).limits(limits.clone());
        let next = next.path(|path| path.session = session.map(Into::into));
        let store = Arc::clone(&store);
        async move { submit(&*store, next).await }
    };
    let first = next("flood", Some("s-0".into()), 0).await;
    for n in 1..3 {
        assert_eq!(next("flood", Some(format!("s-{n}")), n).await.state, CallState::Pending);
    }
    let over = next("flood", Some("s-3".into()), 3).await;
    assert_eq!(over.refusal.as_ref().unwrap().kind, RefusalKind::Limit);
    let bare = next("flood", None, 4).await;
    assert_eq!(bare.refusal.as_ref().unwrap().kind, RefusalKind::Limit, "a call without a session counts too");
    for n in 0..3 {
        assert_eq!(next("calm", None, n).await.state, CallState::Pending);
    }
    assert_eq!(next("third", None, 0).await.state, CallState::Pending, "calls without a session are counted apart");
    store.run(decide(&first, "ann", Answer::deny("no"))).await.unwrap();
    assert_eq!(next("flood", Some("s-5".into()), 5).await.state, CallState::Pending, "a closed hold makes room");
}

/// B84: a submission may bring its claim along; what is not claimed stays allowed.
pub async fn an_allowed_call_may_be_claimed_at_once(test: &dyn TestStore) {
    let store = test.store();
    let next = || proposal("ls", json!({}), "s").effect(Effect::Allow).claim(claimant("worker"));
    let call = submit(&*store, next()).await;
    assert_eq!(call.state, CallState::Executing);
    assert_eq!(call.lease.as_ref().map(|lease| (&*lease.owner, lease.fence)), Some(("worker", 1)));
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    let expected = [EventName::CallSubmitted, EventName::CallAllowed, EventName::CallClaimed];
    assert_eq!(names(&*store, call.id).await, expected);
    let asked = submit(&*store, next().effect(Effect::Ask)).await;
    assert_eq!(asked.state, CallState::Pending);
    store.run(Op::Halt { agent: None, by: "olga".into(), reason: None }).await.unwrap();
    let halted = submit(&*store, next()).await;
    assert_eq!(halted.state, CallState::Allowed);
    assert_eq!(store.call(halted.id).await.unwrap(), Some(halted));
}

/// B51: a node that judged by another policy than the one in force must judge again.
pub async fn a_stale_policy_judges_nothing(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("ls", json!({}), "s").effect(Effect::Allow)).await;
    let set = |version: &str| Op::SetPolicy { version: version.into(), source: "rules".into(), by: "olga".into() };
    store.run(set("p:other")).await.unwrap();
    let next = || proposal("ls", json!({}), "s").effect(Effect::Allow);
    assert_eq!(rejection(store.run(next().op()).await), Rejection::StalePolicy);
    let claimed = crate::testing::claim(&*store, call.id, "worker").await;
    assert_eq!(rejection(claimed), Rejection::StalePolicy);
    store.run(set(crate::Policy::ask_all().version())).await.unwrap();
    assert_eq!(submit(&*store, next()).await.state, CallState::Allowed);
}

/// B78: an id is ours and names one call, however often it is sent.
pub async fn a_call_id_is_taken_once(test: &dyn TestStore) {
    let store = test.store();
    let first = proposal("rm", json!({}), "s");
    let call = submit(&*store, first.clone()).await;
    assert!(matches!(store.run(first.op()).await, Err(Failure::Store(_))));
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)));
    assert_eq!(names(&*store, call.id).await.len(), 2, "nothing of the second was written");
}
