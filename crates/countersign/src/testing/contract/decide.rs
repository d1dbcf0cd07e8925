//! How people decide.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::{CallState, Outcome};
use crate::digest::CallDigest;
use crate::hold::{Answer, HoldState, Who};
use crate::id::{CallId, GrantId, HoldId};
use crate::json::Json;
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{CallFilter, Op};
use crate::testing::{
    TestStore, approve, claim, decide, decide_with, finish, grant_for, proposal, rejection, submit, verdict,
};
use crate::transition::{Edit, Rejection};
use crate::verdict::{Effect, Quorum, Terms};

/// B92: a decision records who, where and when.
pub async fn an_approval_lets_the_call_run(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    test.advance(Duration::from_secs(5)).await;
    let approved = approve(&*store, &call).await;
    let decision = approved.approval().unwrap();
    assert_eq!((&*decision.by.id, &*decision.channel, decision.digest), ("ann", "test", call.digest));
    assert!(decision.at >= call.created_at.after(Duration::from_secs(5)));
    assert_eq!(approved.claim_by, Some(decision.at.after(limits::CLAIM_WITHIN)));
    assert_eq!(store.call(call.id).await.unwrap(), Some(approved));
}

/// B81: one no closes the hold and ends the call.
pub async fn a_denial_ends_the_call(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let denied = store.run(decide(&call, "ann", Answer::deny("too much"))).await.unwrap().call.unwrap();
    assert_eq!((denied.state, denied.holds[0].state), (CallState::Denied, HoldState::Denied));
    let refusal = Refusal::new(RefusalKind::DeniedByApprover).because("too much").by("ann");
    assert_eq!(denied.refusal, Some(refusal));
    assert_eq!(rejection(claim(&*store, call.id, "w").await), Rejection::WrongState(CallState::Denied));
}

/// A person answers instead, and the tool never runs.
pub async fn an_answer_stands_in_for_the_tool(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("ask_user", json!({}), "s")).await;
    // A number that no float can hold must come back as it was.
    let response = Json::ingest(r#"{"n":12345678901234567890123}"#, crate::json::Bounds::STORED).unwrap();
    store.run(decide(&call, "ann", Answer::Respond { response: response.clone() })).await.unwrap();
    let answered = store.call(call.id).await.unwrap().unwrap();
    assert_eq!((answered.state, answered.response.as_ref()), (CallState::Answered, Some(&response)));
    assert_eq!(answered.holds[0].decisions[0].answer, Answer::Respond { response });
}

/// B80: an identical repeat is a replay, a different word is a conflict.
pub async fn the_first_decision_wins(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let approved = approve(&*store, &call).await;
    let again = store.run(decide(&call, "ann", Answer::approve())).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.call.unwrap(), approved);
    let late = store.run(decide(&call, "bob", Answer::deny("no"))).await;
    assert_eq!(rejection(late), Rejection::Closed(HoldState::Approved));
    assert_eq!(store.call(call.id).await.unwrap(), Some(approved));
}

/// B83: a decision made for other bytes decides nothing.
pub async fn a_decision_for_other_bytes_is_refused(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let other = |deciding: &mut crate::transition::Deciding| deciding.decision.digest = CallDigest::of(b"other");
    let decided = store.run(decide_with(&call, "ann", Answer::approve(), other)).await;
    assert_eq!(rejection(decided), Rejection::DigestMismatch);
    assert_eq!(store.call(call.id).await.unwrap(), Some(call));
}

/// B91: approvals count people, not clients.
pub async fn a_quorum_counts_distinct_people(test: &dyn TestStore) {
    let store = test.store();
    let two = Terms { quorums: vec![Quorum { approvals: 2, from: Vec::new() }], ..Terms::default() };
    let call = submit(&*store, proposal("deploy", json!({}), "s").terms(two)).await;
    let first = store.run(decide(&call, "ann", Answer::approve())).await.unwrap().call.unwrap();
    assert_eq!(first.state, CallState::Pending);
    assert!(store.run(decide(&call, "ann", Answer::approve())).await.unwrap().replayed);
    let payload = Answer::Approve { arguments: None, payload: Some(Json::string("x")), remember: None };
    assert_eq!(rejection(store.run(decide(&call, "ann", payload)).await), Rejection::Repeated("ann".into()));
    let program = |deciding: &mut crate::transition::Deciding| deciding.decision.by = Who::program("bot");
    let by_program = store.run(decide_with(&call, "bot", Answer::approve(), program)).await;
    assert_eq!(rejection(by_program), Rejection::HumanRequired("bot".into()));
    let second = store.run(decide(&call, "bob", Answer::approve())).await.unwrap().call.unwrap();
    assert_eq!((second.state, second.holds[0].decisions.len()), (CallState::Approved, 2));
}

/// B82: nothing is decided, claimed or withdrawn that is not there.
pub async fn what_is_unknown_is_not_found(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let elsewhere = |deciding: &mut crate::transition::Deciding| deciding.hold = HoldId::new();
    let decided = store.run(decide_with(&call, "ann", Answer::approve(), elsewhere)).await;
    assert_eq!(rejection(decided), Rejection::NotFound("hold"));
    assert_eq!(rejection(claim(&*store, CallId::new(), "w").await), Rejection::NotFound("call"));
    let hold = call.holds[0].id;
    let released = store.run(Op::Release { hold, grant: GrantId::new() }).await;
    assert_eq!(rejection(released), Rejection::NotFound("grant"));
    let revoked = store.run(Op::Revoke { grant: GrantId::new(), by: Who::person("olga") }).await;
    assert_eq!(rejection(revoked), Rejection::NotFound("grant"));
    let refusal = Refusal::new(RefusalKind::Cancelled);
    let closed = store.run(Op::Close { hold: HoldId::new(), refusal }).await;
    assert_eq!(rejection(closed), Rejection::NotFound("hold"));
}

/// B93, B109: a late approval never runs; the expiry it met is written though the decision is refused.
pub async fn a_late_decision_finds_the_hold_expired(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    test.advance(limits::HOLD_LIFE).await;
    let late = store.run(decide(&call, "ann", Answer::approve())).await;
    assert_eq!(rejection(late), Rejection::Closed(HoldState::Expired));
    let expired = store.call(call.id).await.unwrap().unwrap();
    assert_eq!((expired.state, expired.holds[0].state), (CallState::Expired, HoldState::Expired));
    assert_eq!(expired.refusal.as_ref().unwrap().kind, RefusalKind::Expired);
    assert!(store.due(10).await.unwrap().is_empty());
}

/// B33: edited bytes that need another decision close the hold and open one of their own.
pub async fn an_edit_that_asks_again_opens_another_hold(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("pay", json!({"n": 1}), "s")).await;
    let arguments = Json::of(&json!({"n": 1000})).unwrap();
    let two = Terms { quorums: vec![Quorum { approvals: 2, from: Vec::new() }], ..Terms::default() };
    let mut asked_again = verdict(Effect::Ask);
    asked_again.terms = Arc::new(two);
    let edit = Edit::of(&call, arguments.clone(), asked_again);
    let digest = edit.argument_digest;
    let answer = Answer::Approve { arguments: Some(arguments.clone()), payload: None, remember: None };
    let op = decide_with(&call, "ann", answer, |deciding| deciding.edit = Some(edit));
    let edited = store.run(op).await.unwrap().call.unwrap();
    assert_eq!((edited.state, edited.holds.len()), (CallState::Pending, 2));
    assert_eq!(edited.holds[0].state, HoldState::Superseded);
    assert_ne!(edited.holds[0].digest, edited.holds[1].digest);
    for hold in edited.holds.iter() {
        assert_eq!(store.call_of_hold(hold.id).await.unwrap(), Some(Arc::clone(&edited)));
    }
    let by_digest = |digest| CallFilter { argument_digest: Some(digest), ..CallFilter::default() };
    assert_eq!(store.calls(by_digest(digest)).await.unwrap(), [Arc::clone(&edited)]);
    assert!(store.calls(by_digest(call.argument_digest)).await.unwrap().is_empty());
    let old = store.run(decide(&call, "bob", Answer::approve())).await;
    assert_eq!(rejection(old), Rejection::Closed(HoldState::Superseded));
}

/// B33, B51: an edit that was judged by a policy that is not in force any more is to be judged again.
pub async fn an_edit_under_an_old_policy_is_turned_away(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("pay", json!({"n": 1}), "s")).await;
    let set = Op::SetPolicy { version: "p:new".into(), source: "rules".into(), by: "olga".into() };
    store.run(set).await.unwrap();
    let arguments = Json::of(&json!({"n": 1000})).unwrap();
    let answer = || Answer::Approve { arguments: Some(arguments.clone()), payload: None, remember: None };
    let judged = Edit::of(&call, arguments.clone(), verdict(Effect::Allow));
    let under = |policy: &str| Edit { policy: policy.into(), ..judged.clone() };
    let (old, new) = (under("p:old"), under("p:new"));
    let stale = store.run(decide_with(&call, "ann", answer(), |deciding| deciding.edit = Some(old))).await;
    assert_eq!(rejection(stale), Rejection::StalePolicy);
    assert_eq!(store.call(call.id).await.unwrap(), Some(Arc::clone(&call)), "nothing changed");
    let edited = store.run(decide_with(&call, "ann", answer(), |deciding| deciding.edit = Some(new))).await;
    assert_eq!(edited.unwrap().call.unwrap().state, CallState::Approved);
}

/// B33, safety 4.2: edited into bytes that may already have acted, a call is asked about anew.
pub async fn an_edit_into_a_doubt_asks_again(test: &dyn TestStore) {
    let store = test.store();
    let lost = submit(&*store, proposal("pay", json!({"n": 2}), "s")).await;
    approve(&*store, &lost).await;
    let fence = claim(&*store, lost.id, "worker").await.unwrap().call.unwrap().lease.as_ref().unwrap().fence;
    finish(&*store, lost.id, fence, Outcome::MayHaveApplied { why: "cut".into() }).await.unwrap();
    let call = submit(&*store, proposal("pay", json!({"n": 1}), "s")).await;
    let arguments = Json::of(&json!({"n": 2})).unwrap();
    let edit = Edit::of(&call, arguments.clone(), verdict(Effect::Ask));
    let answer = Answer::Approve { arguments: Some(arguments), payload: None, remember: None };
    let op = decide_with(&call, "ann", answer, |deciding| deciding.edit = Some(edit));
    let edited = store.run(op).await.unwrap().call.unwrap();
    assert_eq!((edited.state, edited.holds.len()), (CallState::Pending, 2));
    assert_eq!(&*edited.holds[1].because[0].rule, "doubt");
}

/// B64: a new grant releases holds it covers, and no others.
pub async fn a_new_grant_releases_an_open_hold(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({"path": "a"}), "s")).await;
    let other = submit(&*store, proposal("rm", json!({"path": "b"}), "s")).await;
    let grant = grant_for(&call, store.now().await.unwrap());
    store.run(Op::Grant(Box::new(grant.clone()))).await.unwrap();
    let release = |hold| Op::Release { hold, grant: grant.id };
    let released = store.run(release(call.holds[0].id)).await.unwrap().call.unwrap();
    assert_eq!((released.state, released.grant), (CallState::Approved, Some(grant.id)));
    assert_eq!(released.holds[0].state, HoldState::Released);
    assert_eq!(rejection(store.run(release(other.holds[0].id)).await), Rejection::NotCovered);
    assert_eq!(claim(&*store, call.id, "w").await.unwrap().call.unwrap().state, CallState::Executing);
}

/// B8: an approver function that fails closes the hold, and nothing runs.
pub async fn a_failed_approver_closes_the_hold(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let refusal = Refusal::new(RefusalKind::Error).because("the approver panicked");
    let op = Op::Close { hold: call.holds[0].id, refusal: refusal.clone() };
    let closed = store.run(op.clone()).await.unwrap().call.unwrap();
    assert_eq!((closed.state, closed.refusal.clone()), (CallState::Cancelled, Some(refusal)));
    assert_eq!(rejection(store.run(op).await), Rejection::Closed(HoldState::Cancelled));
}

/// B97: a withdrawn call takes its hold with it.
pub async fn a_cancelled_call_never_runs(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let cancel = || Op::Cancel { call: call.id, refusal: Refusal::new(RefusalKind::Cancelled).by("agent") };
    let cancelled = store.run(cancel()).await.unwrap().call.unwrap();
    assert_eq!((cancelled.state, cancelled.holds[0].state), (CallState::Cancelled, HoldState::Cancelled));
    assert!(store.run(cancel()).await.unwrap().replayed);
    let late = store.run(decide(&call, "ann", Answer::approve())).await;
    assert_eq!(rejection(late), Rejection::Closed(HoldState::Cancelled));
    assert_eq!(rejection(claim(&*store, call.id, "w").await), Rejection::WrongState(CallState::Cancelled));
}

/// I4: sixty-four people decide at once, half of them no; exactly one is heard.
pub async fn one_of_many_deciders_wins(test: &dyn TestStore) {
    let store = test.store();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    let mut deciders = tokio::task::JoinSet::new();
    for n in 0..64 {
        let answer = if n % 2 == 0 { Answer::approve() } else { Answer::deny("no") };
        let (store, op) = (Arc::clone(&store), decide(&call, &format!("person {n}"), answer));
        deciders.spawn(async move { (n, store.run(op).await) });
    }
    let mut winners = Vec::new();
    while let Some(decided) = deciders.join_next().await {
        match decided.unwrap() {
            (n, Ok(applied)) => winners.push((n, applied.call.unwrap())),
            (_, refused) => assert!(matches!(rejection(refused), Rejection::Closed(_))),
        }
    }
    let [(n, decided)] = &winners[..] else { panic!("{} won", winners.len()) };
    let expected = if n % 2 == 0 { CallState::Approved } else { CallState::Denied };
    assert_eq!(decided.state, expected);
    assert_eq!(store.call(call.id).await.unwrap().as_ref(), Some(decided));
}
