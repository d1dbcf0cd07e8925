//! Claims and their leases, as a server gives them to executors elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign::memory::MemoryStore;
use countersign::signer::Signer;
use countersign::tool::tool;
use countersign::{CallState, Definition, Gate, GateError, Json, Limits, Policy, Proposal, ToolError};
use countersign_api::client::Client;
use countersign_api::wire::{Claim, Code, NewHold};
use countersign_server::tokens;
use serde_json::json;
use tokio::sync::Notify;

use super::proxy::{Lost, Proxy};
use super::{calls, remote, token};
use crate::stage::{POLICY, Stage, text};

/// A server whose leases are short, and long enough for a busy machine to renew one.
async fn short_leases() -> Stage {
    let limits = Limits { lease_seconds: 3, ..Limits::default() };
    let policy = Policy::from_yaml(POLICY).unwrap();
    let gate = Gate::builder().policy(policy).store(Arc::new(MemoryStore::new())).decided_elsewhere();
    let signer = Arc::new(Signer::generate().unwrap());
    Stage::behind(gate.limits(limits.clone()).build().unwrap(), signer, |builder| builder.limits(limits)).await
}

/// Sets a flag when a run is given up in the middle.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A tool that says when it began and never ends by itself.
fn endless(began: &Arc<Notify>, dropped: &Arc<AtomicBool>) -> countersign::tool::FnTool {
    let (began, dropped) = (Arc::clone(began), Arc::clone(dropped));
    tool(Definition::new("read_all", "Never ends."), move |_| {
        let (began, dropped) = (Arc::clone(&began), Dropped(Arc::clone(&dropped)));
        async move {
            let _dropped = dropped;
            began.notify_one();
            std::future::pending::<Result<Json, ToolError>>().await
        }
    })
}

/// A lease that cannot be renewed ends the run before somebody else may think that it did, and that is a doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_when_its_lease_cannot_be_renewed() {
    let stage = short_leases().await;
    let proxy = Proxy::before(stage.host()).await;
    proxy.lose(Lost::Request, "POST", "/renew", usize::MAX);
    let gate = remote(&stage, &proxy.url).await.gate();
    let (began, dropped) = (Arc::default(), Arc::default());
    let call = gate.call(&endless(&began, &dropped), Proposal::new("read_all", "{}").session("s")).await.unwrap();
    assert_eq!(call.state, CallState::InDoubt);
    assert!(dropped.load(Ordering::SeqCst) && proxy.seen("POST", "/renew") > 0);
}

/// A renewal that is refused ends the run at once: whoever refuses it may have given the call to somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_when_its_renewal_is_refused() {
    let stage = short_leases().await;
    let gate = remote(&stage, &stage.url).await.gate();
    let (began, dropped) = (Arc::<Notify>::default(), Arc::default());
    let endless = endless(&began, &dropped);
    let revoke = async {
        began.notified().await;
        let made = tokens::list(&**stage.gate.store(), None, 10).await.unwrap();
        for token in made {
            tokens::revoke(&**stage.gate.store(), &token.id, "test").await.unwrap();
        }
    };
    let (ended, ()) = tokio::join!(gate.call(&endless, Proposal::new("read_all", "{}").session("s")), revoke);
    assert!(matches!(ended, Err(GateError::Refused(_))), "{ended:?}");
    assert!(dropped.load(Ordering::SeqCst));
}

/// A run that outlasts several leases goes on, because it renews them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_keeps_its_lease_for_as_long_as_it_takes() {
    let stage = short_leases().await;
    let proxy = Arc::new(Proxy::before(stage.host()).await);
    let gate = remote(&stage, &proxy.url).await.gate();
    let long = {
        let proxy = Arc::clone(&proxy);
        tool(Definition::new("read_all", "Takes a while."), move |_| {
            let proxy = Arc::clone(&proxy);
            async move {
                // Four renewals are more than one lease.
                while proxy.seen("POST", "/renew") < 4 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok(Json::empty())
            }
        })
    };
    let call = gate.call(&long, Proposal::new("read_all", "{}").session("s")).await.unwrap();
    assert_eq!(call.state, CallState::Succeeded);
}

/// The name of a claim gets that claim again, and nobody else does; a question with a name is asked once.
#[tokio::test]
async fn a_claim_and_a_question_by_name_are_the_same_again() {
    let stage = Stage::new().await;
    let token = token(&stage, "bot").await;
    let (bot, client) = (stage.nobody().token(&token), Client::new(&stage.url, &token).unwrap());
    let call = bot.submit("read_file", json!({ "path": "a" })).await.expect(200);
    let id = text(&call, "id").parse().unwrap();
    let claim = Claim { executor: Some("one-0123456789abcdef".to_owned()), ..Claim::default() };
    let first = client.claim(id, &claim).await.unwrap();
    assert_eq!(client.claim(id, &claim).await.unwrap(), first);
    for executor in [None, Some("two-0123456789abcdef".to_owned())] {
        let refused = client.claim(id, &Claim { executor, ..Claim::default() }).await;
        let Err(countersign_api::client::ClientError::Refused(problem)) = refused else { panic!("{refused:?}") };
        assert_eq!(problem.code, Code::AlreadyClaimed);
    }
    bot.post(&format!("/v1/calls/{id}/claim"), &json!({ "executor": "short" })).await.problem(400, "bad_request");

    let ask = NewHold { hint: "go on?".to_owned(), payload: None, fence: first.fence, key: Some("q1".to_owned()) };
    let hold = client.ask(id, &ask).await.unwrap();
    assert_eq!(client.ask(id, &ask).await.unwrap().id, hold.id);
    let other = client.ask(id, &NewHold { key: Some("q2".to_owned()), ..ask }).await.unwrap();
    assert_ne!(other.id, hold.id);
    assert_eq!(client.call(id).await.unwrap().holds.len(), 2);
    // Once it has ended, its name gets nothing any more.
    client
        .report(id, &serde_json::from_value(json!({ "outcome": "failed", "fence": first.fence })).unwrap())
        .await
        .unwrap();
    assert!(client.claim(id, &claim).await.is_err());
}

/// What an agent's own checks say only tightens, and speaks for nobody but the agent.
#[tokio::test]
async fn an_agents_checks_tighten_and_forge_nothing() {
    let stage = Stage::new().await;
    let bot = stage.agent().await;
    let new = |more: serde_json::Value| {
        let mut new =
            json!({ "session": "s", "tool": "read_file", "arguments": {}, "definition": { "description": "Reads." } });
        new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        new
    };
    let raised =
        bot.post("/v1/calls", &new(json!({ "raised": "it is Friday", "expires_after": "5s" }))).await.expect(202);
    assert_eq!(raised["verdict"]["because"][0]["reason"], "it is Friday");
    let hold = &raised["holds"][0];
    let moment = |name: &str| text(hold, name).parse::<jiff::Timestamp>().unwrap();
    assert_eq!(moment("expires_at").duration_since(moment("opened_at")).as_secs(), 5);
    let refused = new(json!({ "refusal": { "kind": "hook", "reason": "not today", "by": "ann" } }));
    let refused = bot.post("/v1/calls", &refused).await.expect(200);
    assert_eq!(refused["refusal"], json!({ "kind": "hook", "reason": "not today" }));
    let before = calls(&stage.gate).await;
    for kind in ["denied_by_approver", "denied_by_rule", "halted", "nonsense"] {
        let forged = new(json!({ "refusal": { "kind": kind } }));
        bot.post("/v1/calls", &forged).await.problem(400, "bad_request");
    }
    assert_eq!(calls(&stage.gate).await, before);
}
