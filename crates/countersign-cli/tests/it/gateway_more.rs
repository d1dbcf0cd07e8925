//! What a client of the newer era sends a server beside the arguments: answers to its questions, and its state.

use serde_json::{Value, json};

use crate::gateway_peer::Stage;
use crate::gateway_web::{Door, Web, read};
use crate::serve::token;

const ASK: &str = "{ preset: allow-all, rules: [{ id: asks, ask: plain/have-asked }] }";

fn says(action: &str) -> Value {
    json!({"requestState": "theirs", "inputResponses": {"countersign": {"action": action}}})
}

/// The state of ours that a client goes on waiting with.
#[track_caller]
fn ours(told: &Value) -> String {
    assert_eq!(told["result"]["resultType"], "input_required", "{told}");
    let state = told["result"]["requestState"].as_str().unwrap();
    assert!(state.starts_with("countersign."), "{told}");
    state.to_owned()
}

fn approve(stage: &Stage, hold: &Value) {
    let (id, digest) = (hold["id"].as_str().unwrap(), hold["digest"].as_str().unwrap());
    stage.say(&format!("approve {id} --digest {digest}")).expect(0);
}

/// How calls ended, in order.
fn ends(stage: &Stage) -> Vec<String> {
    let log = stage.say("audit log --json").expect(0).stdout;
    let names = ["call.succeeded", "call.failed"];
    log.lines().filter(|line| names.iter().any(|name| line.contains(name))).map(str::to_owned).collect()
}

/// What the server asks for is no outcome. The call that brings it is another one: people see what it brings, and exactly
/// that is sent, though the client that waited brings only our own state.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_along_is_seen_bound_and_judged() {
    let stage = Stage::new(ASK);
    let door = Door::open(&stage, &["--wait", "1s"]);
    let web = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    let state = ours(&web.modern("have-asked", json!({}), None).await);
    stage.approve(&[]);
    let told = web.modern("have-asked", json!({}), Some(&state)).await;
    assert_eq!(told["result"]["requestState"], "theirs", "the server's own question: {told}");
    let ended = ends(&stage);
    assert!(ended.len() == 1 && ended[0].contains("call.failed"), "{ended:?}");

    let yes = ours(&web.modern_with("have-asked", json!({}), says("accept")).await);
    ours(&web.modern_with("have-asked", json!({}), says("decline")).await);
    let holds = stage.holds();
    assert_eq!(holds.len(), 2, "other answers are another call: {holds:?}");
    let of = |action: &str| {
        let sent = json!({ "sent_along": says(action) });
        holds.iter().find(|hold| hold["payload"] == sent).unwrap_or_else(|| panic!("{action}: {holds:?}"))
    };
    assert_ne!(of("accept")["digest"], of("decline")["digest"]);
    approve(&stage, of("accept"));
    assert_eq!(stage.ran().len(), 1, "only the first round has run");
    let told = web.modern("have-asked", json!({}), Some(&yes)).await;
    assert_eq!(read(&told.to_string()), (false, "done: have-asked".into()));
    let log = crate::bed::read(stage.bed.work().join("log"));
    let sent = log.lines().rfind(|line| line.contains("tools/call")).unwrap();
    let sent: Value = serde_json::from_str(sent.strip_prefix("got ").unwrap_or(sent)).unwrap_or_default();
    assert_eq!(sent["params"]["requestState"], "theirs", "{log}");
    assert_eq!(sent["params"]["inputResponses"], says("accept")["inputResponses"], "{log}");
    assert!(ends(&stage)[1].contains("call.succeeded"));
    assert_eq!((stage.ran().len(), stage.holds().len()), (2, 1));
}

/// A grant is made for arguments. It lets no answers through that nobody saw.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_covers_no_answers() {
    let stage = Stage::new(&ASK.replace("have-asked", "have-asked0"));
    stage.bed.write("log.many", "have-asked 1");
    let door = Door::open(&stage, &["--wait", "1s"]);
    let web = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    let state = ours(&web.modern("have-asked0", json!({}), None).await);
    stage.approve(&["--remember", "session"]);
    for told in
        [web.modern("have-asked0", json!({}), Some(&state)).await, web.modern("have-asked0", json!({}), None).await]
    {
        assert_eq!(told["result"]["requestState"], "theirs", "granted: {told}");
    }
    assert_eq!(stage.ran().len(), 2);
    let state = ours(&web.modern_with("have-asked0", json!({}), says("accept")).await);
    assert_eq!((stage.ran().len(), stage.holds().len()), (2, 1), "asked about all the same");
    stage.approve(&[]);
    let told = web.modern("have-asked0", json!({}), Some(&state)).await;
    assert_eq!(read(&told.to_string()), (false, "done: have-asked0".into()));
}

/// Where all is allowed, both rounds go through, and the same question may be asked again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_goes_through_in_both_rounds() {
    let stage = Stage::new("{ preset: allow-all }");
    let door = Door::open(&stage, &[]);
    let web = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    for _ in 0..2 {
        let told = web.modern("have-asked", json!({}), None).await;
        assert_eq!(told["result"]["requestState"], "theirs", "{told}");
    }
    let told = web.modern_with("have-asked", json!({}), says("accept")).await;
    assert_eq!(read(&told.to_string()), (false, "done: have-asked".into()));
    assert_eq!((stage.ran().len(), stage.holds().len()), (3, 0));
}
