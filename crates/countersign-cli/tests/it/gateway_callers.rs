//! Whoever is asked knows whether anybody waits for the call, and what it may be taken for.

use countersign_api::client::Client;
use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage, plain};
use crate::serve::{Serving, ask, token};

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: [plain/write, evil/write] }] }";

fn no_caller(stage: &Stage) -> bool {
    let holds = stage.holds();
    assert_eq!(holds.len(), 1, "{holds:?}");
    holds[0]["no_caller"].as_bool().unwrap()
}

fn until_no_caller(stage: &Stage) {
    while !no_caller(stage) {
        std::thread::yield_now();
    }
}

/// The codes of what a hold warns of, at a server on the same store.
fn warnings(serving: &Serving, approver: &str, hold: &Value) -> Vec<(String, String)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new(&serving.url, approver).unwrap();
    let detail = runtime.block_on(client.hold(hold["id"].as_str().unwrap().parse().unwrap())).unwrap();
    detail.warnings.into_iter().map(|warning| (warning.code, warning.text)).collect()
}

/// B132: a caller that left shows on the hold, wherever it is listed, until the identical call comes; so does a gateway
/// that was killed.
#[test]
fn a_hold_that_lost_its_caller_says_so() {
    let stage = Stage::new(ASK_WRITES);
    let serving = Serving::under(&stage.bed, &format!("policy: {ASK_WRITES}"), &stage.bed.url());
    let ann = token(&stage.bed, "approver", "ann");
    let x = json!({"text": "x"});
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &x);
    peer.held();
    assert!(!no_caller(&stage));
    let listed = || ask(&stage.bed, &ann, &serving.url, &["holds", "--json"]).expect(0).json();
    assert_eq!(listed()[0]["no_caller"], false);
    assert!(!warnings(&serving, &ann, &stage.holds()[0]).iter().any(|(code, _)| code == "no_caller"));

    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    until_no_caller(&stage);
    assert!(stage.say("holds").expect(0).stdout.contains("(no caller)"));
    assert_eq!(listed()[0]["no_caller"], true);
    assert!(warnings(&serving, &ann, &stage.holds()[0]).iter().any(|(code, _)| code == "no_caller"));

    peer.call(2, "write", &x);
    peer.held();
    assert!(!no_caller(&stage), "the identical call came");
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    until_no_caller(&stage);

    let mut peer = stage.client(&[]);
    peer.call(3, "write", &x);
    peer.held();
    assert!(!no_caller(&stage));
    stage.approve(&[]);
    assert_eq!(peer.answer(3), (false, "done: write".into()));
    assert_eq!(stage.ran().len(), 1);
}

/// B132: where a server judges and holds, its people read there whether anybody waits at the gateway.
#[test]
fn a_server_knows_that_a_gateway_elsewhere_lost_its_caller() {
    let stage = Stage::new(ASK_WRITES);
    stage.bed.write("own.yml", "policy: { preset: deny-all }\n");
    let server = Serving::under(&stage.bed, &format!("policy: {ASK_WRITES}"), &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let own = format!("sqlite:{}", stage.bed.work().join("own.db").display());
    let variables = [("COUNTERSIGN_URL", server.url.as_str()), ("COUNTERSIGN_TOKEN", bot.as_str())];
    let hold = || {
        let holds = ask(&stage.bed, &ann, &server.url, &["holds", "--json"]).expect(0).json();
        let is_x = |hold: &&Value| hold["arguments"]["text"] == "x";
        holds.as_array().unwrap().iter().find(is_x).unwrap_or_else(|| panic!("{holds}")).clone()
    };
    let no_caller = || hold()["no_caller"].as_bool().unwrap();
    let until = |gone: bool| {
        while no_caller() != gone {
            std::thread::yield_now();
        }
    };
    let x = json!({"text": "x"});
    let mut peer = stage.client_of("own.yml", &own, &[], &variables);
    // Somebody else waits all the while, so that the gateway goes on to say that it is there.
    peer.call(1, "write", &json!({"text": "other"}));
    peer.held();
    peer.call(2, "write", &x);
    peer.held();
    assert!(!no_caller());
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    until(true);
    peer.call(3, "write", &x);
    until(false);
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    until(true);

    let mut peer = stage.client_of("own.yml", &own, &[], &variables);
    peer.call(4, "write", &x);
    until(false);
    let hold = hold();
    let approve = ["approve", hold["id"].as_str().unwrap(), "--digest", hold["digest"].as_str().unwrap()];
    ask(&stage.bed, &ann, &server.url, &approve).expect(0);
    assert_eq!(peer.answer(4), (false, "done: write".into()));
    assert_eq!(stage.ran().len(), 1);
}

/// A client that is told to call again does not wait meanwhile.
#[test]
fn a_client_that_was_sent_away_does_not_wait() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(1, "write", &json!({"text": "x"}));
    assert!(peer.answer(1).1.starts_with("Not run yet"));
    assert!(no_caller(&stage));
}

/// A tool that another server has, too, or one that looks the same, says so where it is decided.
#[test]
fn a_hold_names_the_tools_that_look_like_its_own() {
    let stage = Stage::new(ASK_WRITES);
    let serving = Serving::under(&stage.bed, &format!("policy: {ASK_WRITES}"), &stage.bed.url());
    let ann = token(&stage.bed, "approver", "ann");
    let look_alikes = || {
        let holds = stage.holds();
        let told = holds.iter().find(|hold| hold["server"] == "plain").unwrap();
        let told = warnings(&serving, &ann, told).into_iter();
        told.filter_map(|(code, text)| (code == "look_alike").then_some(text)).collect::<Vec<_>>()
    };
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    assert_eq!(look_alikes(), [""; 0]);
    let url = stage.bed.url();
    let args = ["gateway", "--config", "policy.yml", "--server", "evil", "--store", &url, "--"];
    let mut command = stage.bed.command(args);
    command.arg(plain()).arg("log");
    let mut evil = Peer::start(command);
    evil.ask(r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#);
    assert_eq!(look_alikes(), ["another tool looks the same: evil/write"]);
}
