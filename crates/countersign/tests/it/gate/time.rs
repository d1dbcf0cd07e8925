//! B93 to B104: expiry, cancelling, halting, lapsing.

use std::time::Duration;

use countersign::gate::Claimed;
use countersign::store::CallFilter;
use countersign::tool::Tool as _;
use countersign::{Answer, CallState, Proposal, RefusalKind};

use super::desk::{Desk, kind, policy};

/// B93: a hold nobody decides expires; the record says so and the loop goes on.
#[tokio::test(start_paused = true)]
async fn a_hold_expires_into_its_own_refusal() {
    let desk = Desk::under("expires_after: 1m");
    let ended = desk.call("{}").await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Expired, Some(RefusalKind::Expired)));
    assert_eq!(desk.events().await, ["call.submitted", "hold.opened", "hold.expired", "call.refused"]);
    assert!(desk.ran().is_empty());
}

/// I5, B109: one tick before the deadline counts, the deadline does not.
#[tokio::test(start_paused = true)]
async fn the_deadline_itself_is_too_late() {
    for (early, accepted) in [(1, true), (0, false)] {
        let desk = Desk::under("expires_after: 1m");
        let call = desk.submit("{}").await;
        tokio::time::advance(Duration::from_millis(60_000 - early)).await;
        assert_eq!(desk.ann(&call, Answer::approve()).await.is_ok(), accepted, "{early} ms before");
        let state = if accepted { CallState::Approved } else { CallState::Expired };
        assert_eq!(desk.now(&call).await.state, state, "what time brought is on record");
    }
}

/// B93: the sweeper closes holds nobody waits for.
#[tokio::test(start_paused = true)]
async fn the_sweeper_closes_what_nobody_waits_for() {
    let gate = countersign::Gate::builder().store(super::desk::memory()).policy(policy("expires_after: 1m"));
    let desk = Desk { gate: gate.decided_elsewhere().build().unwrap(), ..Desk::new() };
    let call = desk.submit("{}").await;
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(desk.now(&call).await.state, CallState::Expired);
}

/// B97: cancelling a waiting call withdraws it; nothing runs, and cancelling again is no error.
#[tokio::test(start_paused = true)]
async fn cancelling_withdraws_a_call_before_it_runs() {
    for allowed in [false, true] {
        let desk = if allowed { Desk::under("otherwise: allow") } else { Desk::new() };
        let call = desk.submit("{}").await;
        desk.gate.cancel(call.id).await.unwrap();
        desk.gate.cancel(call.id).await.unwrap();
        let ended = desk.resume(&call).await;
        assert_eq!((ended.state, kind(&ended)), (CallState::Cancelled, Some(RefusalKind::Cancelled)));
        assert!(desk.waiting().await.is_empty() && desk.ran().is_empty());
        assert_eq!(desk.count("call.cancelled").await, 1);
    }
}

/// B98: cancel one, one session, or all; the others are untouched.
#[tokio::test(start_paused = true)]
async fn cancelling_some_touches_no_others() {
    let desk = Desk::new();
    let one = desk.submit(r#"{"n":1}"#).await;
    let sibling = desk.submit(r#"{"n":2}"#).await;
    let other = desk.propose(Proposal::new("deploy", "{}").session("s2")).await;
    desk.gate.cancel(one.id).await.unwrap();
    assert_eq!(desk.waiting().await, [sibling.id, other.id]);
    let session = CallFilter { session: Some("s1".into()), ..CallFilter::default() };
    assert_eq!(desk.gate.cancel_all(session).await.unwrap(), 1);
    assert_eq!(desk.waiting().await, [other.id]);
    assert_eq!(desk.gate.cancel_all(CallFilter::default()).await.unwrap(), 1);
    assert!(desk.waiting().await.is_empty());
}

/// B98: cancelling one run touches no other run of the session, and no run of that name elsewhere.
#[tokio::test(start_paused = true)]
async fn cancelling_a_run_touches_no_others() {
    let desk = Desk::new();
    let within = |session: &str, run: Option<&str>| {
        let mut proposal = Proposal::new("deploy", "{}").session(session);
        proposal.path.run = run.map(Into::into);
        proposal
    };
    let one = desk.propose(within("s1", Some("r1"))).await;
    let two = desk.propose(within("s1", Some("r1"))).await;
    let other = desk.propose(within("s1", Some("r2"))).await;
    let none = desk.propose(within("s1", None)).await;
    let elsewhere = desk.propose(within("s2", Some("r1"))).await;
    let session = CallFilter { session: Some("s1".into()), ..CallFilter::default() };
    assert_eq!(desk.gate.cancel_run("r1", session.clone()).await.unwrap(), 2);
    assert_eq!(desk.waiting().await, [other.id, none.id, elsewhere.id]);
    for cancelled in [one, two] {
        assert_eq!(desk.now(&cancelled).await.state, CallState::Cancelled);
    }
    assert_eq!(desk.gate.cancel_run("r1", session).await.unwrap(), 0, "again");
}

/// B99: a caller that stops waiting is neither expiry nor denial; the hold stands and its listener is gone.
#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_changes_nothing() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    let told = desk.log().await;
    let waited = tokio::time::timeout(Duration::from_secs(5), desk.gate.wait(call.id)).await;
    assert!(waited.is_err());
    assert_eq!(*desk.now(&call).await, *call);
    assert_eq!(desk.log().await, told, "nothing is said of it");
    assert_eq!(desk.gate.store().bell().listeners(), 0, "nobody is left listening");
    desk.approve(&call).await;
    assert_eq!(desk.resume(&call).await.state, CallState::Succeeded);
}

/// B100: `never` must be spelled out, and such a hold stays and is listed.
#[tokio::test(start_paused = true)]
async fn a_hold_that_never_expires_says_so() {
    let desk = Desk::under("expires_after: never");
    let call = desk.submit("{}").await;
    assert_eq!(call.open_hold().unwrap().expires_at, None);
    tokio::time::advance(Duration::from_secs(365 * 24 * 3600)).await;
    desk.gate.sweep().await.unwrap();
    assert_eq!(desk.waiting().await, [call.id]);
    let plain = Desk::new().submit("{}").await;
    assert!(plain.open_hold().unwrap().expires_at.is_some(), "unset is not never");
}

/// B101: nobody reachable: deny refuses at once, wait waits for expiry, allow runs marked as unattended.
#[tokio::test(start_paused = true)]
async fn unattended_says_what_happens_without_anybody() {
    let cases = [
        ("unattended: deny", CallState::Denied, Some(RefusalKind::NoApprover)),
        ("unattended: wait", CallState::Expired, Some(RefusalKind::Expired)),
        ("unattended: allow", CallState::Succeeded, None),
        (
            "unattended: allow\nrules: [{ id: p, ask: deploy, human: required }]",
            CallState::Denied,
            Some(RefusalKind::NoApprover),
        ),
        ("unattended: allow\nrules: [{ id: d, deny: deploy }]", CallState::Denied, Some(RefusalKind::DeniedByRule)),
    ];
    for (yaml, state, refusal) in cases {
        let desk = Desk::build(|builder| builder.policy(policy(yaml)));
        let ended = desk.call("{}").await;
        assert_eq!((ended.state, kind(&ended)), (state, refusal), "{yaml}");
        assert_eq!(ended.unattended, state == CallState::Succeeded, "{yaml}");
    }
}

/// B103: a halt stops every claim and ends nothing; denying, listing and cancelling keep working.
#[tokio::test(start_paused = true)]
async fn a_halt_stops_claims_and_ends_nothing() {
    let desk = Desk::new();
    let approved = desk.submit(r#"{"n":1}"#).await;
    desk.approve(&approved).await;
    let denied = desk.submit(r#"{"n":2}"#).await;
    let cancelled = desk.submit(r#"{"n":3}"#).await;
    desk.gate.halt(None, "op", Some("incident")).await.unwrap();
    desk.gate.halt(None, "op", Some("incident")).await.unwrap();
    assert!(desk.gate.claim(approved.id, None).await.is_err(), "a claim is told");
    let (gate, tool, id) = (desk.gate.clone(), desk.tool.clone(), approved.id);
    let running = tokio::spawn(async move { gate.resume(tool.as_ref(), id).await.unwrap() });
    desk.ann(&denied, Answer::deny("no")).await.unwrap();
    desk.gate.cancel(cancelled.id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(desk.now(&approved).await.state, CallState::Approved);
    assert!(desk.ran().is_empty());
    desk.gate.lift(None, "op").await.unwrap();
    assert_eq!(running.await.unwrap().state, CallState::Succeeded, "it goes on where it stood");
    assert_eq!((desk.count("halt.set").await, desk.count("halt.lifted").await), (1, 1));
}

/// B103: halting one agent leaves the others alone.
#[tokio::test(start_paused = true)]
async fn a_halt_of_one_agent_stops_only_its_claims() {
    let desk = Desk::under("otherwise: allow");
    let of = |agents: &[&str]| {
        let mut proposal = Desk::proposal("{}");
        proposal.path.agents = agents.iter().map(|agent| (*agent).into()).collect();
        proposal
    };
    desk.gate.halt(Some("banker"), "op", None).await.unwrap();
    let halted = desk.propose(of(&["root", "banker", "helper"])).await;
    assert!(desk.gate.claim(halted.id, None).await.is_err(), "its children are halted with it");
    let free = desk.propose(of(&["root", "clerk"])).await;
    assert_eq!(desk.resume(&free).await.state, CallState::Succeeded);
}

/// B104: an approval that is not claimed in time lapses; trying again is a new call, asked anew.
#[tokio::test(start_paused = true)]
async fn an_unclaimed_approval_lapses() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.approve(&call).await;
    tokio::time::advance(countersign::limits::CLAIM_WITHIN).await;
    let ended = desk.resume(&call).await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Lapsed, Some(RefusalKind::Lapsed)));
    assert!(desk.ran().is_empty());
    assert_eq!(desk.submit("{}").await.state, CallState::Pending);
}

/// B104, B103: a halt does not stop the clock of a claim.
#[tokio::test(start_paused = true)]
async fn a_halted_approval_lapses_too() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.approve(&call).await;
    desk.gate.halt(None, "op", None).await.unwrap();
    let ended = desk.resume(&call).await;
    assert_eq!(ended.state, CallState::Lapsed, "nothing hangs for ever");
}

async fn claimed(desk: &Desk) -> countersign::Permit {
    let call = desk.submit("{}").await;
    match desk.gate.claim(call.id, Some(desk.tool.definition().digest())).await.unwrap() {
        Claimed::Permit(permit) => permit,
        Claimed::Not(call) => panic!("{} is {}", call.id, call.state),
    }
}

/// safety 4.8: a permit whose lease is over runs nothing; one that is still good is renewed before it runs.
#[tokio::test(start_paused = true)]
async fn a_permit_is_no_longer_good_than_its_lease() {
    let third = countersign::limits::LEASE / 3;
    for (waited, runs) in [(third / 2, true), (third * 2, true), (third * 3, false), (third * 9, false)] {
        let desk = Desk::under("otherwise: allow");
        let permit = claimed(&desk).await;
        tokio::time::advance(waited).await;
        let ended = desk.gate.run(permit, desk.tool.as_ref()).await.unwrap();
        assert_eq!(desk.ran().len(), usize::from(runs), "after {waited:?}");
        assert_eq!(ended.state == CallState::Succeeded, runs, "after {waited:?}");
        assert_ne!(ended.state, CallState::Executing, "after {waited:?}");
    }
}
