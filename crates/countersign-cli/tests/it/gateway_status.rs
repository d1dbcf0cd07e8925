//! The status server: a model may look at what waits, and decide nothing.

use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage};

fn looker(stage: &Stage, more: &[&str]) -> Peer {
    let url = stage.bed.url();
    let args = ["gateway", "status-server", "--config", "policy.yml", "--store", &url];
    Peer::start(stage.bed.command(args.iter().chain(more)))
}

/// What a tool of the status server says.
fn ask(peer: &mut Peer, tool: &str, arguments: &Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    let answer: Value = serde_json::from_str(&peer.ask(&request.to_string())).unwrap();
    answer["result"].clone()
}

#[test]
fn a_model_sees_its_own_calls_without_their_arguments_and_decides_nothing() {
    let stage = Stage::new("{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }");
    let mut caller = stage.client(&[]);
    caller.call(1, "write", &json!({"text": "s3cr3t"}));
    let hold = caller.held();

    let mut looker = looker(&stage, &[]);
    let listed = looker.ask(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#);
    assert!(listed.contains("list_pending_calls") && listed.contains("call_status"), "{listed}");
    assert_eq!(listed.matches("\"name\"").count(), 2, "there is no tool that decides: {listed}");
    let pending = ask(&mut looker, "list_pending_calls", &json!({}));
    let calls = pending["structuredContent"]["calls"].as_array().unwrap();
    assert_eq!(
        (calls.len(), &calls[0]["tool"], &calls[0]["hold"]),
        (1, &json!("plain/write"), &json!(hold)),
        "{pending}"
    );
    assert!(!pending.to_string().contains("s3cr3t"), "{pending}");

    stage.deny("not today");
    let (error, _) = caller.answer(1);
    assert!(error);
    let status = ask(&mut looker, "call_status", &json!({"id": hold}));
    let status = &status["structuredContent"];
    assert_eq!(status["state"], "denied");
    assert!(status["words"].as_str().unwrap().contains("not today"), "{status}");
    assert_eq!(ask(&mut looker, "list_pending_calls", &json!({}))["structuredContent"]["calls"], json!([]));
}

/// Calls of others in the same store are nobody's here, and neither are those of another server where one is named.
#[test]
fn calls_of_others_are_not_shown() {
    let stage = Stage::new("{ otherwise: ask }");
    let mut caller = stage.client(&[]);
    caller.call(1, "write", &json!({}));
    let hold = caller.held();
    let mut other = looker(&stage, &["--server", "files"]);
    assert_eq!(ask(&mut other, "list_pending_calls", &json!({}))["structuredContent"]["calls"], json!([]));
    let unknown = ask(&mut other, "call_status", &json!({"id": hold}));
    assert_eq!(unknown["isError"], true, "{unknown}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = runtime.block_on(async {
        let store = stage.bed.store().await;
        crate::bed::submit(&crate::bed::gate(&store, "{ otherwise: ask }"), "pay", "{}").await.id
    });
    let theirs = runtime.block_on(async {
        let store = stage.bed.store().await;
        let gate = crate::bed::gate(&store, "{ otherwise: ask }");
        let session = Some("gateway:plain:1".into());
        let path = countersign::Path { principal: "eve".into(), session, ..countersign::Path::default() };
        gate.submit_undefined(countersign::Proposal::new("write", "{}").path(path)).await.unwrap().id
    });
    let mut looker = looker(&stage, &[]);
    let pending = ask(&mut looker, "list_pending_calls", &json!({}));
    assert_eq!(pending["structuredContent"]["calls"].as_array().unwrap().len(), 1, "only one's own: {pending}");
    assert_eq!(ask(&mut looker, "call_status", &json!({"id": theirs.to_string()}))["isError"], true);
    assert_eq!(ask(&mut looker, "call_status", &json!({"id": call.to_string()}))["isError"], true);
    assert_eq!(ask(&mut looker, "call_status", &json!({"id": "no id"}))["isError"], true);
}
