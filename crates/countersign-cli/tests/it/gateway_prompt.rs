//! People asked in their own client while a call waits: on pipes, with a handshake.

use serde_json::{Value, json};

use crate::bed::read;
use crate::gateway_peer::{Peer, Stage};
use crate::serve::{Serving, ask, token};

/// A policy whose `write` is asked about, and may be decided in the client.
const IN_CLIENT: &str =
    "{ preset: allow-all, in_client: allow, rules: [{ id: writes, ask: plain/write, requester: allowed }] }";

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

/// The prompt that comes next, and its id.
#[track_caller]
fn prompted(peer: &mut Peer) -> (Value, Value) {
    let told = peer.next();
    assert_eq!(told["method"], "elicitation/create", "{told}");
    (told["id"].clone(), told["params"].clone())
}

fn answer(peer: &mut Peer, id: &Value, result: &Value) {
    peer.send(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
}

fn allow() -> Value {
    json!({"action": "accept", "content": {"decision": "allow"}})
}

/// The next message that is no news of progress.
fn news(peer: &mut Peer) -> Value {
    loop {
        let told = peer.next();
        if told["method"] != "notifications/progress" {
            return told;
        }
    }
}

/// What is shown is what runs; the decision is on record as a program's, made in the client.
#[test]
fn a_form_in_the_client_decides_where_the_policy_accepts_it() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    peer.call(1, "write", &json!({"text": "yes \u{202e}please"}));
    let (id, params) = prompted(&mut peer);
    let message = params["message"].as_str().unwrap();
    assert!(message.contains("write on plain") && message.contains(r"yes \u{202e}please"), "{message}");
    assert_eq!(params["requestedSchema"]["properties"]["decision"]["enum"], json!(["deny", "allow"]));
    assert_eq!(stage.ran(), [""; 0]);
    answer(&mut peer, &id, &allow());
    assert_eq!(peer.answer(1), (false, "done: write".into()));

    peer.call(2, "write", &json!({"text": "no"}));
    let (id, _) = prompted(&mut peer);
    answer(&mut peer, &id, &json!({"action": "accept", "content": {"decision": "deny", "reason": "not today"}}));
    let (error, text) = peer.answer(2);
    assert!(error && text.contains("not today"), "{text}");

    peer.call(3, "write", &json!({"text": "never"}));
    let (id, _) = prompted(&mut peer);
    answer(&mut peer, &id, &json!({"action": "decline"}));
    assert!(peer.answer(3).0);
    assert_eq!(stage.ran().len(), 1);
    let log = stage.say("audit log --json").expect(0).stdout;
    let decided: Vec<&str> = log.lines().filter(|line| line.contains("hold.decided")).collect();
    assert_eq!(decided.len(), 3, "{log}");
    for line in decided {
        assert!(line.contains(r#""channel":"in-client""#) && line.contains(r#""by_kind":"program""#), "{line}");
        assert!(line.contains(r#""by":"in-client:os:"#), "{line}");
    }
}

/// No rule that wants more than a client's word is met by one, and without the policy's word no client is asked.
#[test]
fn a_form_is_not_asked_where_it_could_not_decide() {
    let in_client = |rule: &str| {
        format!("{{ preset: allow-all, in_client: allow, rules: [{{ id: writes, ask: plain/write, {rule} }}] }}")
    };
    for policy in [
        IN_CLIENT.replace("in_client: allow, ", ""),
        IN_CLIENT.replace("in_client: allow", "in_client: deny"),
        in_client("requester: allowed, human: required"),
        in_client("requester: allowed, approvals: 2"),
        in_client("requester: allowed, from: ['os:root', 'in-client:os:root']"),
        in_client("requester: excluded"),
        in_client("risk: high"),
    ] {
        let stage = Stage::new(&policy);
        let mut peer = stage.able_client(&["--wait", "1s"], &forms());
        peer.call(1, "write", &json!({"text": "x"}));
        peer.held();
        assert!(peer.answer(1).1.starts_with("Not run yet"), "{policy}");
        assert_eq!(stage.ran(), [""; 0], "{policy}");
    }
}

/// What cannot be shown in full is not asked in a form, and nobody is asked who cannot be shown one.
#[test]
fn what_is_too_long_for_a_form_is_decided_elsewhere() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    peer.call(1, "write", &json!({"text": "x".repeat(8 << 10)}));
    peer.held();
    stage.deny("too long");
    assert!(peer.answer(1).1.contains("too long"));
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut peer = stage.able_client(&["--wait", "1s"], &capabilities);
        peer.call(1, "write", &json!({"text": "x"}));
        peer.held();
        assert!(peer.answer(1).0);
    }
}

/// Only the first answer to a question that is still open counts; none of them ever reaches the server.
#[test]
fn late_doubled_and_forged_answers_decide_nothing() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    peer.call(1, "write", &json!({"text": "x"}));
    let (id, _) = prompted(&mut peer);
    let next = format!("{}9", id.as_str().unwrap());
    answer(&mut peer, &json!(next), &allow());
    answer(&mut peer, &id, &json!({"action": "cancel"}));
    answer(&mut peer, &id, &allow());
    // What was sent before this has been taken once it is answered.
    peer.send(r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#);
    while peer.next()["id"] != "ping" {}
    assert_eq!(stage.holds().len(), 1, "it waits for people");
    stage.deny("decided elsewhere");
    assert!(peer.answer(1).1.contains("decided elsewhere"));

    peer.call(2, "write", &json!({"text": "y"}));
    let (late, _) = prompted(&mut peer);
    stage.deny("again elsewhere");
    let told = news(&mut peer);
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &late), "{told}");
    assert!(peer.answer(2).0);
    answer(&mut peer, &late, &allow());
    peer.call(3, "read", &json!({}));
    assert_eq!(peer.answer(3), (false, "done: read".into()));
    assert_eq!(stage.ran(), ["read {}"]);
    assert_eq!(peer.leave(), 0);
    let log = read(stage.bed.work().join("log"));
    assert!(!log.contains("countersign-prompt") && !log.contains("\"action\""), "{log}");
}

/// An answer that is no answer, an error or nonsense, leaves the hold to people.
#[test]
fn an_answer_that_says_nothing_leaves_the_hold_open() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    peer.call(1, "write", &json!({"text": "x"}));
    let (id, _) = prompted(&mut peer);
    peer.send(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no forms here"}}).to_string());
    peer.held();
    stage.approve(&[]);
    assert_eq!(peer.answer(1), (false, "done: write".into()));
}

/// B132: a cancelled call detaches; its question is withdrawn, and its hold stays for the identical call.
#[test]
fn whoever_cancels_the_call_is_not_asked_any_more() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    peer.call(1, "write", &json!({"text": "x"}));
    let (id, _) = prompted(&mut peer);
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let told = news(&mut peer);
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &id), "{told}");
    answer(&mut peer, &id, &allow());
    peer.call(2, "write", &json!({"text": "x"}));
    let (again, _) = prompted(&mut peer);
    assert_ne!(again, id);
    assert_eq!((stage.holds().len(), stage.ran().len()), (1, 0));
    answer(&mut peer, &again, &allow());
    assert_eq!(peer.answer(2), (false, "done: write".into()));
    assert_eq!(stage.ran().len(), 1);
}

/// Many identical calls are one question to the person at the client, too.
#[test]
fn a_storm_of_identical_calls_is_one_prompt() {
    let stage = Stage::new(IN_CLIENT);
    let mut peer = stage.able_client(&[], &forms());
    for id in 1..=20 {
        peer.call(id, "write", &json!({"text": "x"}));
    }
    let mut prompts = Vec::new();
    let mut told = std::iter::from_fn(|| Some(peer.next()));
    // Each of them is told that it waits, when it has come as far as asking.
    let waiting = told.by_ref().filter(|told| {
        if told["method"] == "elicitation/create" {
            prompts.push(told["id"].clone());
        }
        told["method"] == "notifications/progress"
    });
    assert_eq!(waiting.take(20).count(), 20);
    assert_eq!(prompts.len(), 1);
    answer(&mut peer, &prompts[0], &allow());
    let answered = (1..=20).map(|_| news(&mut peer)).filter(|told| told["result"]["zeta"] == 1.5).count();
    assert_eq!((answered, stage.ran().len()), (20, 1));
}

/// A link says where to decide. Whatever the client answers to it, only the record decides.
#[test]
fn a_link_leads_to_the_hold_and_decides_nothing() {
    let stage = Stage::new("{}");
    let policy = "policy: { preset: allow-all, in_client: allow, rules: [{ id: writes, ask: plain/write }] }";
    let server = Serving::under(&stage.bed, policy, &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let own = format!("sqlite:{}", stage.bed.work().join("own.db").display());
    let variables = [("COUNTERSIGN_URL", server.url.as_str()), ("COUNTERSIGN_TOKEN", bot.as_str())];
    let command = stage.gateway("policy.yml", &own, &[], &variables);
    let mut peer = Peer::able(command, &json!({"elicitation": {"form": {}, "url": {}}}));
    for (call, ran, said) in [(1, 0, allow()), (2, 1, json!({"action": "decline"}))] {
        peer.call(call, "write", &json!({"text": call.to_string()}));
        let (id, params) = prompted(&mut peer);
        let hold = peer.held();
        assert_eq!(params["mode"], "url");
        assert_eq!(params["url"], format!("{}/#/inbox/{hold}", server.url));
        assert!(!params["message"].as_str().unwrap().contains("text"), "{params}");
        answer(&mut peer, &id, &said);
        peer.send(r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#);
        while peer.next()["id"] != "ping" {}
        let holds = ask(&stage.bed, &ann, &server.url, &["holds", "--json"]).expect(0).json();
        assert_eq!((holds[0]["id"].as_str(), stage.ran().len()), (Some(&*hold), ran), "it still waits");
        let digest = holds[0]["digest"].as_str().unwrap();
        ask(&stage.bed, &ann, &server.url, &["approve", &hold, "--digest", digest]).expect(0);
        let told = news(&mut peer);
        assert_eq!(told["method"], "notifications/elicitation/complete", "{told}");
        assert_eq!(told["params"]["elicitationId"], params["elicitationId"]);
        assert_eq!(peer.answer(call), (false, "done: write".into()));
    }
}
