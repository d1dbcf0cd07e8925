//! Tools that appear later, and tools that become something else.

use countersign::call::Declared;
use countersign::{CallState, Json, RefusalKind, Who};
use countersign_mcp::{McpToolset, gateway};

use crate::bed::{ALLOW, Bed, Kind, find, tool};

const POLICY: &str =
    "policy:\n  otherwise: ask\n  rules:\n    - { id: some, allow: [files/grows, files/changes, files/dies] }";

/// B49: a tool that appears later is offered without a restart, and is judged like any that no rule names.
#[tokio::test]
async fn a_tool_that_appears_later_is_judged() {
    for kind in Kind::ALL {
        let bed = Bed::new(POLICY);
        let (toolset, _serving) = bed.connect(kind).await;
        assert!(find(&toolset, "later").is_none());
        let anew = toolset.changed();
        bed.output(&toolset, "grows", "{}").await;
        anew.await;
        let call = bed.call(&toolset, "later", "{}").await;
        assert_eq!(call.state, CallState::Pending, "{kind:?}");
    }
}

/// B49: a changed definition takes its holds and approvals with it. It is not offered until somebody accepts it, and no rule
/// lets it run unasked afterwards.
#[tokio::test]
async fn a_changed_definition_voids_what_was_decided() {
    for kind in Kind::ALL {
        let bed = Bed::new(POLICY);
        let (toolset, _serving) = bed.connect(kind).await;
        let waits = bed.call(&toolset, "echo", r#"{"text":"waits"}"#).await;
        let approved = bed.call(&toolset, "echo", r#"{"text":"approved"}"#).await;
        let hold = bed.holds().await.into_iter().find(|hold| hold.call.id == approved.id).unwrap();
        bed.approve(&hold).await;
        let before = tool(&toolset, "echo");
        let digest = before.definition().digest();

        let anew = toolset.changed();
        bed.output(&toolset, "changes", "{}").await;
        anew.await;

        let closed = bed.gate.get(waits.id).await.unwrap();
        assert_eq!(closed.refusal.as_ref().map(|refusal| refusal.kind), Some(RefusalKind::Superseded), "{kind:?}");
        let lapsed = bed.gate.resume(&*before, approved.id).await.unwrap();
        assert!(lapsed.outcome.is_none() && lapsed.state != CallState::Approved, "{kind:?}: {lapsed:?}");
        assert!(find(&toolset, "echo").is_none(), "{kind:?}");
        accept(&bed, &toolset, "echo").await;
        assert_ne!(tool(&toolset, "echo").definition().digest(), digest, "{kind:?}");
        assert_eq!(before.declares(&Json::empty()).unwrap(), Declared::MustAsk, "{kind:?}");
    }
}

/// Accepts a tool that has changed, and waits until it is offered.
async fn accept(bed: &Bed, toolset: &McpToolset, name: &str) {
    let changed = gateway::changes(&**bed.gate.store(), "agents:files").await.unwrap();
    let seals: Vec<_> = changed.iter().map(|change| (change.tool.as_str(), change.seal())).collect();
    assert_eq!((seals.len(), seals[0].0), (1, name));
    let anew = toolset.changed();
    gateway::accept(&bed.gate, "agents:files", name, &seals[0].1, &Who::person("ann")).await.unwrap();
    anew.await;
}

/// What changed while no process looked is noticed by the next one: what is pinned outlives them all.
#[tokio::test]
async fn what_changed_over_a_restart_is_not_offered() {
    for kind in [Kind::Pipes, Kind::PipesHandshake] {
        let bed = Bed::new(ALLOW);
        let (toolset, _) = bed.connect(kind).await;
        assert!(find(&toolset, "echo").is_some());
        drop(toolset);
        std::fs::write(bed.file("changed"), "").unwrap();
        let (toolset, _) = bed.connect(kind).await;
        assert!(find(&toolset, "echo").is_none() && find(&toolset, "add").is_some(), "{kind:?}");
        let left_out = toolset.left_out();
        let why = left_out.iter().find(|left_out| &*left_out.tool == "echo").map(|left_out| left_out.why.as_str());
        assert!(why.unwrap().contains("countersign gateway accept agents:files echo"), "{kind:?}: {why:?}");
        accept(&bed, &toolset, "echo").await;
        assert_eq!(bed.call(&toolset, "echo", r#"{"text":"x"}"#).await.state, CallState::Succeeded, "{kind:?}");
    }
}

/// A server that is gone may come back as something else: its tools are compared before any call goes through.
#[tokio::test]
async fn what_changed_while_a_server_was_gone_is_noticed() {
    let bed = Bed::new(POLICY);
    let (toolset, _serving) = bed.connect(Kind::Pipes).await;
    let waits = bed.call(&toolset, "echo", r#"{"text":"waits"}"#).await;
    std::fs::write(bed.file("changed"), "").unwrap();
    let anew = toolset.changed();
    assert_eq!(bed.call(&toolset, "dies", r#"{"file":"died"}"#).await.state, CallState::InDoubt);
    anew.await;
    let closed = bed.gate.get(waits.id).await.unwrap();
    assert_eq!(closed.refusal.as_ref().map(|refusal| refusal.kind), Some(RefusalKind::Superseded));
}
