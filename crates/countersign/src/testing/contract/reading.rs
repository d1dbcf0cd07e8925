//! How calls are found.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::{Call, CallState, Outcome};
use crate::event::{Cursor, EventName};
use crate::hold::Answer;
use crate::id::{CallId, GrantId, HoldId};
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{CallFilter, EventFilter, Op, Order, Store};
use crate::testing::{TestStore, approve, claim, decide, finish, proposal, submit, succeeded};
use crate::transition::Asking;
use crate::verdict::{Effect, Life, Terms};

async fn listed(store: &dyn Store, filter: CallFilter) -> Vec<CallId> {
    store.calls(filter).await.unwrap().iter().map(|call| call.id).collect()
}

fn in_state(state: CallState) -> CallFilter {
    CallFilter { state: Some(state), ..CallFilter::default() }
}

/// Leaves a call in each state that can be reached without time passing.
async fn one_in_each(store: &dyn Store) -> Vec<(CallState, CallId)> {
    let asked = |tool: &'static str| submit(store, proposal(tool, json!({}), "s"));
    let allowed = |tool: &'static str| submit(store, proposal(tool, json!({}), "s").effect(Effect::Allow));
    let pending = asked("pending").await.id;
    let approved = approve(store, &*asked("approved").await).await.id;
    let denied = asked("denied").await;
    store.run(decide(&denied, "ann", Answer::deny("no"))).await.unwrap();
    let answered = asked("answered").await;
    let response = crate::Json::string("me");
    store.run(decide(&answered, "ann", Answer::Respond { response })).await.unwrap();
    let cancelled = asked("cancelled").await.id;
    let refusal = Refusal::new(RefusalKind::Cancelled);
    store.run(Op::Cancel { call: cancelled, refusal }).await.unwrap();
    let waiting = allowed("allowed").await.id;
    let mut found = vec![
        (CallState::Pending, pending),
        (CallState::Approved, approved),
        (CallState::Denied, denied.id),
        (CallState::Answered, answered.id),
        (CallState::Cancelled, cancelled),
        (CallState::Allowed, waiting),
    ];
    for state in [CallState::Executing, CallState::Succeeded, CallState::Failed, CallState::InDoubt] {
        let call = allowed("run").await.id;
        claim(store, call, "w").await.unwrap();
        let outcome = match state {
            CallState::Succeeded => Some(succeeded("x")),
            CallState::Failed => Some(Outcome::Failed { error: "x".into(), refusal: None }),
            CallState::InDoubt => Some(Outcome::MayHaveApplied { why: "cut".into() }),
            _ => None,
        };
        if let Some(outcome) = outcome {
            finish(store, call, 1, outcome).await.unwrap();
        }
        found.push((state, call));
    }
    found
}

/// B122: whoever joins late finds every call by state, session, principal, arguments, and whether it holds.
pub async fn calls_are_listed_by_every_filter(test: &dyn TestStore) {
    let store = test.store();
    let in_each = one_in_each(&*store).await;
    for (state, id) in &in_each {
        assert_eq!(listed(&*store, in_state(*state)).await, [*id], "{state}");
    }
    for state in [CallState::Expired, CallState::Lapsed, CallState::Resolved] {
        assert!(listed(&*store, in_state(state)).await.is_empty());
    }
    let other = submit(&*store, proposal("rm", json!({"n": 1}), "t").principal("bob")).await;
    let bob_too = submit(&*store, proposal("rm", json!({"n": 2}), "s").principal("bob")).await;
    let all: Vec<CallId> = in_each.iter().map(|(_, id)| *id).chain([other.id, bob_too.id]).collect();
    assert_eq!(listed(&*store, CallFilter::default()).await, all);
    let holding = CallFilter { holding: true, ..CallFilter::default() };
    assert_eq!(listed(&*store, holding.clone()).await, [in_each[0].1, other.id, bob_too.id]);
    assert_eq!(store.holding().await.unwrap(), 3);
    let session = |session: &str| CallFilter { session: Some(session.into()), ..CallFilter::default() };
    assert_eq!(listed(&*store, session("t")).await, [other.id]);
    assert_eq!(listed(&*store, session("nowhere")).await, []);
    assert_eq!(listed(&*store, session("s")).await.len(), in_each.len() + 1);
    let bob = CallFilter { principal: Some("bob".into()), ..CallFilter::default() };
    assert_eq!(listed(&*store, bob.clone()).await, [other.id, bob_too.id]);
    assert_eq!(listed(&*store, CallFilter { session: Some("s".into()), ..bob.clone() }).await, [bob_too.id]);
    let digest = CallFilter { argument_digest: Some(other.argument_digest), ..CallFilter::default() };
    assert_eq!(listed(&*store, digest.clone()).await, [other.id]);
    let narrow = CallFilter { holding: true, session: Some("t".into()), state: Some(CallState::Pending), ..digest };
    assert_eq!(listed(&*store, narrow.clone()).await, [other.id]);
    assert_eq!(listed(&*store, CallFilter { principal: Some("local".into()), ..narrow }).await, []);
    assert_eq!(listed(&*store, CallFilter { holding: true, ..in_state(CallState::Denied) }).await, []);
    let denied_by_bob = CallFilter { principal: Some("bob".into()), ..in_state(CallState::Denied) };
    assert_eq!(listed(&*store, denied_by_bob).await, []);
}

/// Pages in order of submission, under every filter, without gap or double.
pub async fn calls_come_in_pages(test: &dyn TestStore) {
    let store = test.store();
    let mut ids = Vec::new();
    for n in 0..7 {
        ids.push(submit(&*store, proposal("rm", json!({ "n": n }), "s")).await.id);
    }
    let filters = [
        CallFilter::default(),
        CallFilter { holding: true, ..CallFilter::default() },
        CallFilter { session: Some("s".into()), ..CallFilter::default() },
        CallFilter { principal: Some("local".into()), ..CallFilter::default() },
    ];
    let newest = filters.clone().map(|filter| CallFilter { order: Order::Newest, ..filter });
    for filter in filters.into_iter().chain(newest) {
        let mut found: Vec<CallId> = Vec::new();
        loop {
            let next = CallFilter { after: found.last().copied(), limit: Some(3), ..filter.clone() };
            let page = listed(&*store, next).await;
            assert!(page.len() <= 3);
            if page.is_empty() {
                break;
            }
            found.extend(page);
            assert!(found.len() <= ids.len(), "a page came twice");
        }
        if filter.order == Order::Newest {
            found.reverse();
        }
        assert_eq!(found, ids, "{filter:?}");
    }
    assert!(listed(&*store, CallFilter { limit: Some(0), ..CallFilter::default() }).await.is_empty());
}

/// B27: a running call whose tool asks is in the queue until it is answered.
pub async fn holds_inside_a_run_are_listed(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("deploy", json!({}), "s").effect(Effect::Allow)).await;
    claim(&*store, call.id, "w").await.unwrap();
    let holding = || CallFilter { holding: true, ..CallFilter::default() };
    assert!(listed(&*store, holding()).await.is_empty());
    let (hint, payload, unattended) = (None, None, None);
    let asking = Asking { hold: HoldId::new(), fence: 1, hint, payload, unattended, limits: Arc::default() };
    let asked = store.run(Op::Ask { call: call.id, asking: Box::new(asking) }).await.unwrap().call.unwrap();
    assert_eq!(listed(&*store, holding()).await, [call.id]);
    assert!(listed(&*store, in_state(CallState::Pending)).await.is_empty());
    store.run(decide(&asked, "ann", Answer::approve())).await.unwrap();
    assert!(listed(&*store, holding()).await.is_empty());
}

/// B122: the events by which holds opened are found for many at once, a hold from inside a run among them.
pub async fn openings_are_found_together(test: &dyn TestStore) {
    let store = test.store();
    let mut wanted = Vec::new();
    for n in 0..5 {
        let call = submit(&*store, proposal("rm", json!({ "n": n }), "s")).await;
        wanted.push((call.id, call.open_hold().unwrap().id));
    }
    let running = submit(&*store, proposal("deploy", json!({}), "t").effect(Effect::Allow)).await;
    claim(&*store, running.id, "w").await.unwrap();
    let (hint, payload, unattended) = (None, None, None);
    let asking = Asking { hold: HoldId::new(), fence: 1, hint, payload, unattended, limits: Arc::default() };
    wanted.push((running.id, asking.hold));
    store.run(Op::Ask { call: running.id, asking: Box::new(asking) }).await.unwrap();
    let of = |events: Vec<crate::event::Event>| -> Vec<(CallId, HoldId)> {
        assert!(events.iter().all(|event| event.name == EventName::HoldOpened));
        events.iter().filter_map(|event| Some((event.call?, event.hold?))).collect()
    };
    assert_eq!(of(store.openings(&wanted).await.unwrap()), wanted, "oldest first");
    let some = [wanted[4], (CallId::new(), HoldId::new()), wanted[1]];
    assert_eq!(of(store.openings(&some).await.unwrap()), [wanted[1], wanted[4]]);
    assert!(store.openings(&[]).await.unwrap().is_empty());
}

/// B93, B100: what is due is listed, the longest overdue first; what never expires is not.
pub async fn due_calls_are_listed_when_their_time_has_come(test: &dyn TestStore) {
    let store = test.store();
    let lasting = |life: Life| proposal("rm", json!({}), "s").terms(Terms { life, ..Terms::default() });
    let hour = submit(&*store, lasting(Life::For(Duration::from_secs(3600)))).await;
    let minute = submit(&*store, lasting(Life::For(Duration::from_secs(60)))).await;
    submit(&*store, lasting(Life::Never)).await;
    assert!(store.due(10).await.unwrap().is_empty());
    test.advance(Duration::from_secs(60)).await;
    assert_eq!(store.due(10).await.unwrap(), [minute.id]);
    test.advance(Duration::from_secs(3600)).await;
    assert_eq!(store.due(10).await.unwrap(), [minute.id, hour.id]);
    assert_eq!(store.due(1).await.unwrap(), [minute.id]);
    store.run(Op::Tick { call: minute.id }).await.unwrap();
    assert_eq!(store.due(10).await.unwrap(), [hour.id]);
    let state = |call: Option<Arc<Call>>| call.unwrap().state;
    assert_eq!(state(store.call(minute.id).await.unwrap()), CallState::Expired);
}

/// B82: what is not there reads as nothing, not as an error.
pub async fn absent_things_read_as_nothing(test: &dyn TestStore) {
    let store = test.store();
    assert_eq!(store.call(CallId::new()).await.unwrap(), None);
    assert_eq!(store.call_of_hold(HoldId::new()).await.unwrap(), None);
    assert_eq!(store.grant(GrantId::new()).await.unwrap(), None);
    assert!(store.calls(CallFilter::default()).await.unwrap().is_empty());
    assert!(store.grants().await.unwrap().is_empty());
    assert!(store.due(10).await.unwrap().is_empty());
    assert!(store.events(Cursor::default(), EventFilter::default()).await.unwrap().is_empty());
    assert_eq!(store.policy().await.unwrap(), None);
    assert_eq!(store.record("n", "k").await.unwrap(), None);
    assert!(store.records("n", "", None, 10).await.unwrap().is_empty());
}
