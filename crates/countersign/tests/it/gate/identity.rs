//! B78 to B92, B102: who is who, what counts once, and what is a replay.

use std::sync::{Arc, Mutex};

use countersign::hold::HoldState;
use countersign::store::EventFilter;
use countersign::tool::tool;
use countersign::transition::Rejection;
use countersign::{Answer, CallState, Decision, Definition, GateError, HoldId, Json, Proposal, Who};

use super::desk::{Desk, kind};

fn rejected<T>(result: Result<T, GateError>) -> Rejection {
    match result {
        Err(GateError::Rejected(rejection)) => rejection,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

/// B78: the model's call ids are labels: reused, empty or another call's id, they cause no cross-talk. Ours are UUID v7.
#[tokio::test(start_paused = true)]
async fn labels_never_cross() {
    let desk = Desk::new();
    let labelled = |n: u32, label: &str| {
        let mut proposal = Desk::proposal(&format!(r#"{{"n":{n}}}"#));
        proposal.label = Some(label.into());
        proposal
    };
    let other = desk.propose(labelled(0, "toolu_0")).await;
    let foreign = other.id.to_string();
    for (n, label) in [(1, ""), (3, "toolu_1"), (5, foreign.as_str())] {
        let (first, second) = (desk.propose(labelled(n, label)).await, desk.propose(labelled(n + 1, label)).await);
        assert_ne!(first.id, second.id, "`{label}`");
        assert_eq!((first.label.as_deref(), second.label.as_deref()), (Some(label), Some(label)));
        desk.approve(&first).await;
        assert_eq!(desk.resume(&first).await.state, CallState::Succeeded, "`{label}`");
        assert_eq!(*desk.now(&second).await, *second, "`{label}`");
    }
    assert_eq!(*desk.now(&other).await, *other, "who is named in a label is not touched");
    assert_eq!(desk.ran(), [r#"{"n":1}"#, r#"{"n":3}"#, r#"{"n":5}"#]);
    for id in [other.id.as_bytes(), other.holds[0].id.as_bytes()] {
        assert_eq!(id[6] >> 4, 7, "the version of a UUID is in its seventh byte");
    }
    let twins = (desk.submit("{}").await, desk.submit("{}").await);
    assert_ne!(twins.0.id, twins.1.id, "identical calls are two calls");
    assert_ne!(twins.0.digest, twins.1.digest, "and bind apart");
}

/// B79, B84: the same key is the same call, with the same hold and the same result; other bytes there are refused.
#[tokio::test(start_paused = true)]
async fn a_key_names_one_call() {
    let desk = Desk::new();
    let keyed = |arguments: &str| Desk::proposal(arguments).key("run1/turn1/0");
    let call = desk.propose(keyed(r#"{"n":1}"#)).await;
    let again = desk.propose(keyed(r#"{ "n": 1 }"#)).await;
    assert_eq!((again.id, again.holds.len()), (call.id, 1));
    assert_eq!(rejected(desk.gate.submit(desk.tool.as_ref(), keyed(r#"{"n":2}"#)).await), Rejection::KeyReused);
    desk.approve(&call).await;
    desk.resume(&call).await;
    let replayed = desk.gate.call(desk.tool.as_ref(), keyed(r#"{"n":1}"#)).await.unwrap();
    assert_eq!((replayed.id, replayed.state), (call.id, CallState::Succeeded));
    assert_eq!(desk.ran().len(), 1, "a finished call replays its result without running");
    let elsewhere = Proposal::new("deploy", r#"{"n":1}"#).session("s2").key("run1/turn1/0");
    assert_ne!(desk.propose(elsewhere).await.id, call.id, "another session, another call");
}

/// B80: the first decision wins; an identical repeat is a replay, a different one a conflict.
#[tokio::test(start_paused = true)]
async fn the_first_decision_wins() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    assert!(!desk.ann(&call, Answer::deny("no")).await.unwrap().replayed);
    assert!(desk.ann(&call, Answer::deny("no")).await.unwrap().replayed);
    let others = [
        desk.ann(&call, Answer::deny("another reason")).await,
        desk.ann(&call, Answer::approve()).await,
        desk.decide(&call, Who::person("bo"), Answer::deny("no")).await,
    ];
    for other in others {
        assert!(matches!(rejected(other), Rejection::Closed(_)));
    }
    assert_eq!(desk.count("hold.decided").await, 1);
}

/// B81, B102: an approval after denial, expiry or cancelling is refused, and nothing runs.
#[tokio::test(start_paused = true)]
async fn an_approval_after_the_end_runs_nothing() {
    let desk = Desk::new();
    let denied = desk.submit(r#"{"n":1}"#).await;
    desk.decide(&denied, Who::person("bo"), Answer::deny("no")).await.unwrap();
    let cancelled = desk.submit(r#"{"n":2}"#).await;
    desk.gate.cancel(cancelled.id).await.unwrap();
    let expired = desk.submit(r#"{"n":3}"#).await;
    tokio::time::advance(countersign::limits::HOLD_LIFE).await;
    for call in [denied, cancelled, expired] {
        assert!(matches!(rejected(desk.ann(&call, Answer::approve()).await), Rejection::Closed(_)));
        desk.resume(&call).await;
    }
    assert!(desk.ran().is_empty());
}

/// B82: a decision for an unknown, ungated or finished call is refused, and nothing runs.
#[tokio::test(start_paused = true)]
async fn a_decision_for_nothing_is_refused() {
    let desk = Desk::under("otherwise: allow");
    let call = desk.submit("{}").await;
    let decision = Decision::new(Who::person("ann"), "test", call.digest, Answer::approve());
    assert_eq!(rejected(desk.gate.decide(HoldId::new(), decision).await), Rejection::NotFound("hold"));
    assert_eq!(*desk.now(&call).await, *call);

    let desk = Desk::new();
    let finished = desk.submit("{}").await;
    desk.approve(&finished).await;
    let finished = desk.resume(&finished).await;
    for answer in [Answer::approve(), Answer::deny("too late")] {
        let late = desk.decide(&finished, Who::person("bo"), answer).await;
        assert_eq!(rejected(late), Rejection::Closed(HoldState::Approved));
    }
    desk.resume(&finished).await;
    assert_eq!((&*desk.now(&finished).await, desk.ran().len()), (&*finished, 1));
}

/// B83: a decision made for another digest is refused.
#[tokio::test(start_paused = true)]
async fn a_decision_names_what_it_saw() {
    let desk = Desk::new();
    let (call, twin) = (desk.submit("{}").await, desk.submit("{}").await);
    let decision = Decision::new(Who::person("ann"), "test", twin.digest, Answer::approve());
    let crossed = desk.gate.decide(call.open_hold().unwrap().id, decision).await;
    assert_eq!(rejected(crossed), Rejection::DigestMismatch);
    assert_eq!(desk.now(&call).await.state, CallState::Pending);
}

/// B84: `executing` is on record before the tool gets its bytes.
#[tokio::test(start_paused = true)]
async fn executing_is_recorded_before_the_tool_begins() {
    let seen = Arc::new(Mutex::new(None));
    let desk = Desk::under("otherwise: allow");
    let (log, store) = (Arc::clone(&seen), Arc::clone(desk.gate.store()));
    let desk = desk.with_tool(tool(Definition::new("deploy", ""), move |running| {
        let (log, store) = (Arc::clone(&log), Arc::clone(&store));
        async move {
            *log.lock().unwrap() = store.call(running.id()).await.unwrap().map(|call| call.state);
            Ok(Json::empty())
        }
    }));
    desk.call("{}").await;
    assert_eq!(*seen.lock().unwrap(), Some(CallState::Executing));
}

/// B91: approvals count distinct people, not clients; programs do not count; one deny closes.
#[tokio::test(start_paused = true)]
async fn a_quorum_counts_people() {
    let desk = Desk::under("rules: [{ id: two, ask: deploy, approvals: 2 }]");
    let call = desk.submit(r#"{"n":1}"#).await;
    desk.approve(&call).await;
    assert!(desk.ann(&call, Answer::approve()).await.unwrap().replayed, "ann again is a replay");
    assert!(matches!(rejected(desk.ann(&call, super::desk::edit("{}")).await), Rejection::Repeated(_)));
    let bot = desk.decide(&call, Who::program("bot"), Answer::approve()).await;
    assert!(matches!(rejected(bot), Rejection::HumanRequired(_)));
    assert_eq!(desk.now(&call).await.state, CallState::Pending);
    desk.decide(&call, Who::person("bo"), Answer::approve()).await.unwrap();
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);

    let call = desk.submit(r#"{"n":2}"#).await;
    desk.approve(&call).await;
    desk.decide(&call, Who::person("bo"), Answer::deny("no")).await.unwrap();
    assert_eq!(desk.now(&call).await.state, CallState::Denied);
}

/// B91: a quorum from a group takes only its members; whoever asked for the work never counts.
#[tokio::test(start_paused = true)]
async fn a_quorum_takes_members_and_no_requester() {
    let groups = [("finance".into(), vec!["ann".into(), "bo".into()])].into();
    let yaml = "rules: [{ id: f, ask: deploy, from: [finance], requester: excluded }]";
    let policy = super::desk::policy(yaml).with_groups(groups);
    let desk = Desk::build(|builder| builder.policy(policy).decided_elsewhere());
    let mut proposal = Desk::proposal("{}");
    proposal.path.requester = Some("ann".into());
    let call = desk.propose(proposal).await;
    let cy = desk.decide(&call, Who::person("cy"), Answer::approve()).await;
    assert!(matches!(rejected(cy), Rejection::NotEligible(..)));
    assert!(matches!(rejected(desk.ann(&call, Answer::approve()).await), Rejection::Requester(_)));
    desk.decide(&call, Who::person("bo"), Answer::approve()).await.unwrap();
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
}

/// B91: from medium risk up, whoever asked for the work may not approve it, unless the rule says otherwise.
#[tokio::test(start_paused = true)]
async fn from_medium_risk_nobody_approves_their_own() {
    for (risk, own) in [("low", true), ("medium", false), ("high", false)] {
        let desk = Desk::under(&format!("rules: [{{ id: r, ask: deploy, risk: {risk} }}]"));
        let mut proposal = Desk::proposal("{}");
        proposal.path.requester = Some("ann".into());
        let call = desk.propose(proposal).await;
        assert_eq!(desk.ann(&call, Answer::approve()).await.is_ok(), own, "{risk}");
    }
}

/// B92: decisions by people, and allows and denies by policy, are events that say who, where, what and why.
#[tokio::test(start_paused = true)]
async fn the_record_names_person_rule_and_digest() {
    let desk = Desk::under(
        "rules: [{ id: reads, allow: deploy, when: arguments.n < 5 }, { id: no, deny: deploy, when: arguments.n > 50 }]",
    );
    for n in [1, 10, 100] {
        let call = desk.submit(&format!(r#"{{"n":{n}}}"#)).await;
        if call.state == CallState::Pending {
            desk.ann(&call, Answer::deny("not now")).await.unwrap();
        }
    }
    let log = desk.log().await;
    let find =
        |name: &str| log.iter().filter(|event| event.name.as_str() == name).map(|e| e.value()).collect::<Vec<_>>();
    assert_eq!(find("call.allowed")[0]["rules"][0], "reads");
    let refusals = find("call.refused");
    assert_eq!((&refusals[0]["by"], &refusals[0]["reason"]), (&"ann".into(), &"not now".into()));
    assert_eq!((&refusals[1]["by"], &refusals[1]["kind"]), (&"no".into(), &"denied_by_rule".into()));
    let decided = &find("hold.decided")[0];
    assert_eq!(
        (&decided["by"], &decided["by_kind"], &decided["channel"]),
        (&"ann".into(), &"person".into(), &"test".into())
    );
    assert_eq!(decided["digest"], find("hold.opened")[0]["digest"]);
}

/// B88, B105, B106: a hold is decidable as soon as it is visible; who looks late sees it closed, once.
#[tokio::test(start_paused = true)]
async fn a_late_subscriber_sees_a_closed_hold() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.approve(&call).await;
    assert!(desk.waiting().await.is_empty());
    let events = desk.gate.next_events(Default::default(), EventFilter::default()).await.unwrap();
    let of_hold = events.iter().filter(|event| event.hold.is_some()).map(|event| event.name.as_str());
    assert_eq!(of_hold.collect::<Vec<_>>(), ["hold.opened", "hold.decided"]);
    let rest = desk.gate.next_events(events[1].cursor, EventFilter::default()).await.unwrap();
    assert_eq!(rest.len(), 1, "from a cursor, only what came after");
    assert_eq!(kind(&call), None);
}
