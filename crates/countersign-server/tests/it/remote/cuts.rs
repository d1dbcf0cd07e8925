//! Connections that are cut at each step, before the request arrives and after it was done: nothing lost, nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign::tool::tool;
use countersign::{CallState, Claimed, Definition, GateError, Json, Proposal};

use super::proxy::{Lost, Proxy};
use super::{calls, counter, remote, story, yes_to_all};
use crate::stage::Stage;

const SUBMIT: (&str, &str) = ("POST", "/v1/calls");
const CLAIM: (&str, &str) = ("POST", "/claim");
const ASK: (&str, &str) = ("POST", "/holds");
const OUTCOME: (&str, &str) = ("POST", "/outcome");

/// A call that is asked about, and asks again from inside, with one thing lost on the way.
async fn asked(lost: Option<(Lost, (&'static str, &'static str), usize)>) {
    let stage = Stage::new().await;
    let proxy = Proxy::before(stage.host()).await;
    if let Some((lost, (method, path), times)) = lost {
        proxy.lose(lost, method, path, times);
    }
    let gate = remote(&stage, &proxy.url).await.gate();
    let _ann = yes_to_all(&stage.gate);
    let runs = Arc::new(AtomicUsize::new(0));
    let write = {
        let runs = Arc::clone(&runs);
        tool(Definition::new("write_file", "Writes a file."), move |running| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move {
                let yes = running.confirm("go on?", &"over there").await?;
                assert_eq!((&*yes.by.id, running.decision().map(|yes| &*yes.by.id)), ("ann", Some("ann")));
                assert_eq!(running.payload(), Some(&Json::string("go on")));
                Ok(running.arguments().clone())
            }
        })
    };
    let call = gate.call(&write, Proposal::new("write_file", r#"{"n": 1.50}"#).session("s")).await.unwrap();
    assert_eq!((call.state, runs.load(Ordering::SeqCst)), (CallState::Succeeded, 1), "{lost:?}: {:?}", call.refusal);
    assert!(proxy.is_done(), "{lost:?}: nothing was lost");
    let told = [
        "call.submitted",
        "hold.opened",
        "hold.decided",
        "call.claimed",
        "hold.opened",
        "hold.decided",
        "call.succeeded",
    ];
    assert_eq!(story(&stage.gate, call.id).await, told, "{lost:?}");
    assert_eq!(calls(&stage.gate).await, 1, "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_takes_its_whole_way_over_a_server() {
    asked(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_never_arrives_is_made_again() {
    for step in [SUBMIT, CLAIM, ASK, OUTCOME] {
        asked(Some((Lost::Request, step, 2))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_but_not_heard_of_is_not_done_twice() {
    for step in [SUBMIT, CLAIM, ASK, OUTCOME] {
        asked(Some((Lost::Answer, step, 2))).await;
    }
}

/// An allowed call is claimed with its submission: one request, whose answer may be lost like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_claimed_unheard_runs_once() {
    for lost in [Lost::Request, Lost::Answer] {
        let stage = Stage::new().await;
        let proxy = Proxy::before(stage.host()).await;
        proxy.lose(lost, SUBMIT.0, SUBMIT.1, 1);
        let gate = remote(&stage, &proxy.url).await.gate();
        let runs = Arc::new(AtomicUsize::new(0));
        let read = counter("read_file", &runs);
        let call = gate.call(&read, Proposal::new("read_file", "{}").session("s")).await.unwrap();
        assert_eq!((call.state, runs.load(Ordering::SeqCst)), (CallState::Succeeded, 1));
        let told = ["call.submitted", "call.allowed", "call.claimed", "call.succeeded"];
        assert_eq!(story(&stage.gate, call.id).await, told);
        assert_eq!((proxy.seen("POST", "/claim"), calls(&stage.gate).await), (0, 1));
        // The claim was asked for twice, so it was renewed before anything ran.
        assert_eq!(proxy.seen("POST", "/renew"), 1);
    }
}

/// A server that is away runs nothing, and says so within its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_nothing_runs() {
    let stage = Stage::new().await;
    let runs = Arc::new(AtomicUsize::new(0));
    for (step, states) in [(SUBMIT, vec![]), (CLAIM, vec![CallState::Approved])] {
        let proxy = Proxy::before(stage.host()).await;
        proxy.lose(Lost::Request, step.0, step.1, usize::MAX);
        let gate = remote(&stage, &proxy.url).await.away_for(Duration::from_millis(300)).gate();
        let _ann = yes_to_all(&stage.gate);
        let write = counter("write_file", &runs);
        let error = gate.call(&write, Proposal::new("write_file", "{}").session("s")).await.unwrap_err();
        assert!(matches!(error, GateError::Unreachable(_)), "{error}");
        let known = stage.gate.store().calls(Default::default()).await.unwrap();
        assert_eq!(known.iter().map(|call| call.state).collect::<Vec<_>>(), states);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// A claim whose answers are all lost may have been made: it is never run, and ends as a doubt that people see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_never_heard_of_is_never_run() {
    let stage = Stage::new().await;
    let proxy = Proxy::before(stage.host()).await;
    proxy.lose(Lost::Answer, CLAIM.0, CLAIM.1, usize::MAX);
    let gate = remote(&stage, &proxy.url).await.away_for(Duration::from_millis(300)).gate();
    let _ann = yes_to_all(&stage.gate);
    let runs = Arc::new(AtomicUsize::new(0));
    let write = counter("write_file", &runs);
    let proposal = Proposal::new("write_file", "{}").session("s").key("k");
    assert!(matches!(gate.call(&write, proposal.clone()).await, Err(GateError::Unreachable(_))));
    let known = stage.gate.store().calls(Default::default()).await.unwrap();
    assert_eq!(known[0].state, CallState::Executing);
    // Nor does anybody else get it: the claim has a name, and they do not know it.
    let other = remote(&stage, &stage.url).await.gate();
    let again = other.claim(known[0].id, known[0].definition).await.unwrap();
    assert!(matches!(again, Claimed::Not(call) if call.state == CallState::Executing));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}
