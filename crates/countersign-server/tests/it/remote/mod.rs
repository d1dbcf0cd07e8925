//! The remote gate: the library's own code against a real server.

mod agent;
mod cuts;
mod door;
mod leases;
mod proxy;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign::event::Cursor;
use countersign::hold::HoldState;
use countersign::store::{CallFilter, EventFilter};
use countersign::tool::{FnTool, tool};
use countersign::{Answer, CallId, Decision, Definition, Gate, Json, Who};
use countersign_api::remote::Remote;
use countersign_api::wire::{NewToken, Role};
use countersign_server::tokens;
use tokio_util::task::AbortOnDropHandle;

use crate::stage::Stage;

/// An agent's token for a server.
async fn token(stage: &Stage, name: &str) -> String {
    let new = NewToken { role: Role::Agent, name: name.to_owned(), expires_after: None, r#for: None };
    tokens::create(&**stage.gate.store(), new, "test").await.unwrap().token
}

/// A gate at a server, or at whatever stands before it.
async fn remote(stage: &Stage, url: &str) -> Remote {
    Remote::new(url, &token(stage, "bot").await).unwrap()
}

/// A tool that counts its runs.
fn counter(name: &'static str, runs: &Arc<AtomicUsize>) -> FnTool {
    let runs = Arc::clone(runs);
    tool(Definition::new(name, "Counts its runs."), move |running| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok(running.arguments().clone()) }
    })
}

/// Somebody who says yes to everything that is asked behind the server.
fn yes_to_all(gate: &Gate) -> AbortOnDropHandle<()> {
    let gate = gate.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let rung = gate.store().bell().listen_any();
            let holding = CallFilter { holding: true, ..CallFilter::default() };
            for call in gate.store().calls(holding).await.unwrap() {
                for hold in call.holds.iter().filter(|hold| hold.state == HoldState::Pending) {
                    let payload = Some(Json::string("go on"));
                    let yes = Answer::Approve { arguments: None, payload, remember: None };
                    // Somebody else may have closed it meanwhile.
                    let _ = gate.decide(hold.id, Decision::new(Who::person("ann"), "test", hold.digest, yes)).await;
                }
            }
            rung.await;
        }
    }))
}

/// Everything that happened to a call, by the names of its events.
async fn story(gate: &Gate, call: CallId) -> Vec<&'static str> {
    let filter = EventFilter { call: Some(call), ..EventFilter::default() };
    let events = gate.store().events(Cursor::default(), filter).await.unwrap();
    events.iter().map(|event| event.name.as_str()).collect()
}

/// How many calls a server knows.
async fn calls(gate: &Gate) -> usize {
    gate.store().calls(CallFilter::default()).await.unwrap().len()
}
