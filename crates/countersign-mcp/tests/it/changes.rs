//! Tools that appear later, and tools that become something else.

use countersign::call::Declared;
use countersign::{CallState, Json, RefusalKind};

use crate::bed::{Bed, Kind, find, tool};

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

/// B49: a changed definition takes its holds and approvals with it, and no rule lets it run unasked afterwards.
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
        assert_ne!(tool(&toolset, "echo").definition().digest(), digest, "{kind:?}");
        assert_eq!(before.declares(&Json::empty()).unwrap(), Declared::MustAsk, "{kind:?}");
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
