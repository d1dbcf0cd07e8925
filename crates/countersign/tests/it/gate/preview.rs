//! What a tool shows of a change before it is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use countersign::redact::Redactor;
use countersign::{CallState, Definition, Json, Policy, Proposal, Running, Tool, ToolError};

use super::desk::{Desk, json};

type What = fn() -> Option<Json>;

/// A tool that shows something, and counts how often it was asked to.
struct Shows {
    what: What,
    asked: AtomicUsize,
}

impl Shows {
    fn new(what: What) -> Shows {
        Shows { what, asked: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Tool for Shows {
    fn definition(&self) -> Arc<Definition> {
        Arc::new(Definition::new("write", "Writes something down."))
    }

    async fn preview(&self, _arguments: &Json) -> Option<Json> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.what)()
    }

    async fn run(&self, _running: Running) -> Result<Json, ToolError> {
        Ok(Json::empty())
    }
}

fn proposal() -> Proposal {
    Proposal { payload: Some(json(r#"{"before":"forged"}"#)), ..Proposal::new("write", r#"{"content":"new"}"#) }
}

#[tokio::test]
async fn a_preview_is_bound_to_the_hold_and_replaces_the_agents_payload() {
    let desk = Desk::new();
    let tool = Shows::new(|| Some(json(r#"{"before":"old"}"#)));
    let call = desk.gate.submit(&tool, proposal()).await.unwrap();
    assert_eq!(call.holds[0].payload, Some(json(r#"{"before":"old"}"#)));
    assert_eq!(call.compute_digest(), call.digest);
    let mut other = (*call).clone();
    Arc::make_mut(&mut other.holds)[0].payload = Some(json(r#"{"before":"other"}"#));
    assert_ne!(other.compute_digest(), call.digest);
}

#[tokio::test]
async fn nothing_is_previewed_where_nobody_is_asked() {
    for policy in [Policy::allow_all(), Policy::deny_all()] {
        let desk = Desk::build(|builder| builder.policy(policy));
        let tool = Shows::new(|| Some(Json::empty()));
        desk.gate.submit(&tool, proposal()).await.unwrap();
        desk.gate.submit(&tool, Proposal::new("write", "not json")).await.unwrap();
        assert_eq!(tool.asked.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn a_preview_that_fails_stops_no_call_and_lets_nothing_pass_for_it() {
    let desk = Desk::new();
    let forged = proposal().payload;
    let cases: [(What, Option<Json>); 3] =
        [(|| panic!("broken"), None), (|| Some(Json::string(&"x".repeat(100_000))), None), (|| None, forged)];
    for (what, expected) in cases {
        let call = desk.gate.submit(&Shows::new(what), proposal()).await.unwrap();
        assert_eq!((call.state, &call.holds[0].payload), (CallState::Pending, &expected));
    }
}

#[tokio::test]
async fn a_preview_is_redacted_before_it_is_written_down() {
    let redactor = Redactor::new(&[], &["canary-[0-9]+".to_owned()]).unwrap();
    let desk = Desk::build(|builder| builder.policy(Policy::ask_all()).decided_elsewhere().redactor(redactor));
    let tool = Shows::new(|| Some(json(r#"{"before":"key canary-17"}"#)));
    let call = desk.gate.submit(&tool, proposal()).await.unwrap();
    assert!(!format!("{call:?}").contains("canary-17"));
}

/// Invariant 9: what an agent says or shows about its call is masked before it is written down, as its arguments are.
#[tokio::test]
async fn secrets_in_an_agents_own_words_are_masked() {
    let desk = Desk::new();
    let secret = format!("sk-ant-{}", "a".repeat(40));
    let tool = Shows::new(|| None);
    let proposal = Proposal {
        hint: Some(format!("use {secret}").into()),
        payload: Some(json(&format!(r#"{{"header":"Bearer {secret}"}}"#))),
        ..Proposal::new("write", r#"{"content":"new"}"#)
    };
    let call = desk.gate.submit(&tool, proposal).await.unwrap();
    let hold = call.open_hold().unwrap();
    assert!(hold.hint.as_ref().unwrap().contains("[masked"), "{:?}", hold.hint);
    assert!(!format!("{hold:?}").contains(&secret));
    let events = desk.gate.store().events(Default::default(), Default::default()).await.unwrap();
    assert!(events.iter().all(|event| !event.body.contains(&secret)));
}
