//! People are told when they see a tool for the first time.

use std::sync::Arc;

use countersign::show::WarningKind;
use countersign::{Call, Gate, Hold, Policy};

use super::desk::{Desk, memory};

async fn is_first(gate: &Gate, call: &Arc<Call>) -> bool {
    let hold = Hold::of(call, call.open_hold().unwrap().id).unwrap();
    let view = gate.view(&hold, call.created_at).await.unwrap();
    let told = view.warnings.iter().any(|warning| warning.kind == WarningKind::FirstSeen);
    assert_eq!(told, view.lines.iter().any(|line| line.text.starts_with("first time seen")), "in the text too");
    told
}

/// Another session sees the same tool; another principal and another server's tool of that name are others.
#[tokio::test(start_paused = true)]
async fn the_first_call_of_a_tool_is_marked_for_each_principal() {
    let desk = Desk::new();
    let first = desk.submit("{}").await;
    let second = desk.propose(Desk::proposal(r#"{"n":2}"#).session("s2")).await;
    assert!(is_first(&desk.gate, &first).await && !is_first(&desk.gate, &second).await);
    assert!(is_first(&desk.gate, &first).await, "it stays the first however often it is looked at");
    let mut proposal = Desk::proposal("{}");
    proposal.path.principal = "somebody else".into();
    assert!(is_first(&desk.gate, &desk.propose(proposal).await).await);
    let mut proposal = Desk::proposal("{}");
    proposal.tool.server = Some("prod".into());
    assert!(is_first(&desk.gate, &desk.gate.submit_undefined(proposal).await.unwrap()).await);
}

/// Another process on the same store knows it, too: what counts is in the store.
#[tokio::test(start_paused = true)]
async fn another_gate_on_the_same_store_knows_the_tool() {
    let store = memory();
    let build = || Gate::builder().store(store.clone()).policy(Policy::ask_all()).decided_elsewhere();
    let (one, other) = (build().without_sweeper().build().unwrap(), build().without_sweeper().build().unwrap());
    let desk = Desk::new();
    let first = one.submit(desk.tool.as_ref(), Desk::proposal("{}")).await.unwrap();
    let second = other.submit(desk.tool.as_ref(), Desk::proposal(r#"{"n":2}"#)).await.unwrap();
    assert!(is_first(&other, &first).await && !is_first(&other, &second).await);
}
