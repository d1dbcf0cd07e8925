//! B46: words of a server that this version does not know: an unknown permission lets nothing run, and an unknown
//! answer is no yes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::tool::{FnTool, tool};
use countersign::{Answer, CallState, Claimed, Decision, Definition, Gate, GateError, Json, Policy, Proposal, Who};
use countersign_api::remote::Remote;
use countersign_api::wire;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

type Ran = Arc<Mutex<u32>>;

/// A tool that counts how often it ran.
fn pay(ran: &Ran) -> FnTool {
    let ran = Arc::clone(ran);
    tool(Definition::new("pay", "Pays."), move |_| {
        *ran.lock().unwrap() += 1;
        async { Ok(Json::empty()) }
    })
}

fn proposal() -> Proposal {
    Proposal::new("pay", r#"{"n":1}"#).session("s1")
}

fn value(answer: &impl Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(answer).unwrap()).unwrap()
}

/// A call that a person approved, as a server tells of it.
async fn approved() -> Value {
    let gate = Gate::builder().policy(Policy::ask_all()).decided_elsewhere().without_sweeper().build().unwrap();
    let call = gate.submit(&pay(&Ran::default()), proposal()).await.unwrap();
    let hold = call.open_hold().unwrap();
    let yes = Decision::new(Who::person("ann"), "test", hold.digest, Answer::approve());
    value(&wire::Call::from(&*gate.decide(hold.id, yes).await.unwrap().call))
}

/// A call that was allowed and claimed, as a server hands it over.
async fn claimed() -> Value {
    let gate = Gate::builder().policy(Policy::allow_all()).without_sweeper().build().unwrap();
    let claimed = gate.submit_and_claim(&pay(&Ran::default()), proposal()).await.unwrap();
    let Claimed::Permit(permit) = claimed else { panic!("{claimed:?}") };
    let call = permit.call();
    let lease = call.lease.as_ref().unwrap();
    value(&wire::Claimed {
        call: call.id,
        state: call.state,
        arguments: call.facts.arguments.clone(),
        digest: call.digest,
        fence: lease.fence,
        attempt: lease.attempt,
        lease_until: wire::timestamp(lease.until),
        payload: None,
        receipt: None,
        claimed_at: wire::timestamp(call.updated_at),
        decision: None,
        bound: wire::Bound::from(call),
    })
}

/// The same answer with another word at one place.
fn with(mut answer: Value, place: &str, word: &str) -> Value {
    *answer.pointer_mut(place).unwrap_or_else(|| panic!("there is no {place}")) = word.into();
    answer
}

/// Reads the one request of a connection to its end.
async fn request(client: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = |line: &str| line.to_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok();
        if body.len() >= head.lines().find_map(length).unwrap_or(0) {
            return Some(());
        }
    }
}

/// A gate at a server that gives this answer to whatever it is asked. It is not asked again about what cannot be read.
async fn at(answer: Value) -> (Gate, AbortOnDropHandle<()>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = answer.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if request(&mut client).await.is_some() {
                let _ = client.write_all(text.as_bytes()).await;
                let _ = client.shutdown().await;
            }
        }
    });
    let gate = Remote::new(&url, "cs_agent_test").unwrap().away_for(Duration::ZERO).gate();
    (gate, AbortOnDropHandle::new(serving))
}

fn id(answer: &Value) -> countersign::CallId {
    answer["id"].as_str().unwrap().parse().unwrap()
}

/// B46: a state or an effect that this version does not know is no call that may run: it is an error, and nothing runs.
#[tokio::test]
async fn an_unknown_permission_lets_nothing_run() {
    let known = approved().await;
    let (gate, _serving) = at(known.clone()).await;
    assert_eq!(gate.get(id(&known)).await.unwrap().state, CallState::Approved, "as it is, it can be read");
    for place in ["/state", "/verdict/effect", "/verdict/matched/0/effect", "/holds/0/state", "/repeat"] {
        let (gate, _serving) = at(with(known.clone(), place, "blessed")).await;
        let ran = Ran::default();
        for answered in [gate.get(id(&known)).await, gate.call(&pay(&ran), proposal()).await] {
            assert!(matches!(answered, Err(GateError::Unreachable(_))), "{place}: {answered:?}");
        }
        assert_eq!(*ran.lock().unwrap(), 0, "{place}");
    }
}

/// B46: the same holds for a claim, which is all that a tool would run by.
#[tokio::test]
async fn an_unknown_claim_runs_nothing() {
    for (word, runs) in [("executing", 1), ("failed", 0), ("blessed", 0)] {
        let (gate, _serving) = at(with(claimed().await, "/state", word)).await;
        let ran = Ran::default();
        // This server never says what came of it, so the call fails in any case.
        assert!(gate.call(&pay(&ran), proposal()).await.is_err(), "{word}");
        assert_eq!(*ran.lock().unwrap(), runs, "{word}");
    }
}

/// B46: nor does a claim run by an answer that is no yes, or that this version does not know.
#[tokio::test]
async fn a_claim_without_a_yes_runs_nothing() {
    for (word, runs) in [("approve", 1), ("deny", 0), ("respond", 0), ("bless", 0)] {
        let mut claimed = claimed().await;
        let at_once = claimed["claimed_at"].clone();
        claimed["decision"] =
            serde_json::json!({"answer": word, "by": "ann", "kind": "person", "channel": "test", "at": at_once});
        let (gate, _serving) = at(claimed).await;
        let ran = Ran::default();
        assert!(gate.call(&pay(&ran), proposal()).await.is_err(), "{word}");
        assert_eq!(*ran.lock().unwrap(), runs, "{word}");
    }
}

/// B46: an answer that this version does not know reads as a no.
#[tokio::test]
async fn an_unknown_answer_is_no_yes() {
    let known = approved().await;
    for (word, yes) in [("approve", true), ("respond", false), ("deny", false), ("bless", false)] {
        let (gate, _serving) = at(with(known.clone(), "/holds/0/decisions/0/answer", word)).await;
        let call = gate.get(id(&known)).await.unwrap();
        let answer = &call.holds[0].decisions[0].answer;
        assert_eq!(matches!(answer, Answer::Approve { .. }), yes, "{word}: {answer:?}");
        assert_eq!(matches!(answer, Answer::Deny { .. }), matches!(word, "deny" | "bless"), "{word}: {answer:?}");
    }
}
