//! The gateway between a client and a server of different eras: either of them hears its own.

use countersign_testkit::mcp::{Era, McpClient, McpFixture};
use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage};
use crate::gateway_web::{Door, Web, held};
use crate::serve::token;

const ASK: &str = "{ preset: allow-all, rules: [{ id: writes, ask: [plain/write, far/writes] }] }";

/// A place whose server knows one era only.
fn stage(era: &str) -> Stage {
    let stage = Stage::new(ASK);
    stage.bed.write("log.era", era);
    stage
}

/// A client that has said nothing yet.
fn bare(stage: &Stage) -> Peer {
    Peer::bare(stage.gateway("policy.yml", &stage.bed.url(), &[], &[]))
}

/// A request of the newer era.
fn newer(id: u64, method: &str, params: Value, capabilities: &Value) -> String {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn ask(peer: &mut Peer, line: &str) -> Value {
    serde_json::from_str(&peer.ask(line)).unwrap()
}

/// What the server was sent, by these methods.
fn got(stage: &Stage, method: &str) -> Vec<Value> {
    let log = crate::bed::read(stage.bed.work().join("log"));
    let got = log.lines().filter_map(|line| line.strip_prefix("got "));
    got.map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|message| message["method"] == method).collect()
}

/// A client that knows no handshake uses a server that knows nothing else: it is told what there is, its calls are held
/// and decided as ever, and every result says of what type it is.
#[test]
fn a_newer_client_uses_a_server_that_shakes_hands() {
    let stage = stage("handshake");
    let mut peer = bare(&stage);
    let nothing = json!({});
    let found = ask(&mut peer, &newer(1, "server/discover", json!({}), &nothing));
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{found}");
    assert_eq!(found["result"]["capabilities"], json!({"tools": {}}));
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "plain");
    let listed = ask(&mut peer, &newer(2, "tools/list", json!({}), &nothing));
    assert_eq!((&listed["result"]["resultType"], &listed["result"]["ttlMs"]), (&json!("complete"), &json!(0)));
    assert_eq!(listed["result"]["tools"][0]["name"], "write");
    let ran = ask(&mut peer, &newer(3, "tools/call", json!({"name": "read", "arguments": {}}), &nothing));
    assert_eq!((&ran["result"]["resultType"], &ran["result"]["zeta"]), (&json!("complete"), &json!(1.5)), "{ran}");

    let write = json!({"name": "write", "arguments": {"text": "x"}});
    peer.send(newer(4, "tools/call", write, &nothing));
    while stage.holds().is_empty() {
        std::thread::yield_now();
    }
    stage.approve(&[]);
    let ran = peer.next();
    assert_eq!((&ran["id"], &ran["result"]["resultType"]), (&json!(4), &json!("complete")), "{ran}");
    assert_eq!(stage.ran(), ["read {}", r#"write {"text":"x"}"#]);
    assert_eq!((got(&stage, "initialize").len(), got(&stage, "notifications/initialized").len()), (1, 1));
    let calls = got(&stage, "tools/call");
    assert!(calls.iter().all(|call| call["params"]["_meta"] == json!({})), "{calls:?}");
}

/// One that its server could ask something is told that there is no such method, and loses nothing by shaking hands; if
/// it goes on without that, it is served, and the server is told that nobody can be asked.
#[test]
fn a_newer_client_that_can_be_asked_may_shake_hands() {
    let able = json!({"elicitation": {"form": {}}});
    let stage = stage("handshake");
    let mut peer = bare(&stage);
    let found = ask(&mut peer, &newer(1, "server/discover", json!({}), &able));
    assert_eq!(found["error"]["code"], -32601, "{found}");
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": able, "clientInfo": {"name": "c", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": hello}).to_string();
    assert_eq!(ask(&mut peer, &hello)["result"]["protocolVersion"], "2025-11-25");
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    peer.call(3, "ask", &json!({}));
    assert_eq!(peer.next()["params"]["message"], "[plain] May I?");

    let mut other = bare(&stage);
    let found = ask(&mut other, &newer(1, "server/discover", json!({}), &able));
    assert_eq!(found["error"]["code"], -32601, "{found}");
    let asked = ask(&mut other, &newer(2, "tools/call", json!({"name": "ask", "arguments": {}}), &able));
    assert_eq!(asked["result"]["resultType"], "complete", "{asked}");
    let log = crate::bed::read(stage.bed.work().join("log"));
    let told = log.lines().filter(|line| line.contains(r#""id":"q1""#) && line.contains("cannot be asked"));
    assert_eq!(told.count(), 1, "{log}");
}

/// A client that shakes hands uses a server that knows no handshake: its requests are dressed, what it says in another
/// way is answered for the server, and it is asked what the server wants to know.
#[test]
fn a_client_that_shakes_hands_uses_a_newer_server() {
    let stage = stage("newer");
    let command = stage.gateway("policy.yml", &stage.bed.url(), &[], &[]);
    let mut peer = Peer::bare(command);
    let able = json!({"elicitation": {"form": {}}});
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": able, "clientInfo": {"name": "c", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}).to_string();
    let greeted = ask(&mut peer, &hello);
    assert_eq!((&greeted["id"], &greeted["result"]["protocolVersion"]), (&json!("hello"), &json!("2025-06-18")));
    assert_eq!(greeted["result"]["serverInfo"], json!({"name": "plain", "version": "2"}));
    assert_eq!(greeted["result"]["instructions"], "Be kind.");
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(ask(&mut peer, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)["result"], json!({}));
    let level = r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}"#;
    assert_eq!(ask(&mut peer, level)["result"], json!({}));
    let listed = ask(&mut peer, r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    assert_eq!(listed["result"]["tools"][0]["name"], "write", "{listed}");

    peer.call(4, "write", &json!({"text": "x"}));
    peer.held();
    stage.approve(&[]);
    assert_eq!(peer.answer(4), (false, "done: write".into()));

    stage.bed.write("log.many", "have-asked 1");
    peer.call(5, "have-asked0", &json!({}));
    let question = peer.next();
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("[plain] May I?"))
    );
    peer.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}).to_string());
    assert_eq!(peer.answer(5), (false, "done: have-asked0".into()));
    // Nobody answers what nobody can.
    peer.call(6, "have-asked0", &json!({"n": 2}));
    let question = peer.next();
    peer.send(json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": 1, "message": "no"}}).to_string());
    let (error, text) = peer.answer(6);
    assert!(error && text.contains("gave no answer"), "{text}");

    assert_eq!(got(&stage, "notifications/initialized").len(), 0);
    let calls = got(&stage, "tools/call");
    let dress = &calls[0]["params"]["_meta"];
    assert_eq!(dress["io.modelcontextprotocol/clientCapabilities"], able);
    assert_eq!((&dress["io.modelcontextprotocol/logLevel"], &dress["progressToken"]), (&json!("debug"), &json!(4)));
    let answered = &calls[2]["params"];
    assert_eq!(answered["inputResponses"], json!({"countersign": {"action": "accept"}}));
    assert_eq!(answered["requestState"], "theirs");
}

/// Real clients and servers of one era each, over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn peers_of_different_eras_meet_over_http() {
    for (client, server, version) in
        [(Era::Newer, Era::Handshake, "2026-07-28"), (Era::Handshake, Era::Newer, "2025-11-25")]
    {
        let stage = Stage::new(ASK);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(McpFixture::new(stage.bed.work(), server).serve_http(listener));
        let door = Door::before(&stage, &[], &url);
        let secret = token(&stage.bed, "agent", "bot");
        let client = std::sync::Arc::new(McpClient::http(&door.url, &secret, client).await.unwrap());
        assert_eq!(client.version().as_deref(), Some(version));
        assert!(client.tools().await.unwrap().contains(&"writes".to_owned()));
        for (decision, error) in [("approve", false), ("deny", true)] {
            let calling = std::sync::Arc::clone(&client);
            let file = decision.to_owned();
            let call = tokio::spawn(async move { calling.call("writes", json!({ "file": file })).await.unwrap() });
            held(&stage).await;
            match error {
                false => stage.approve(&[]),
                true => stage.deny("not that"),
            }
            let (is_error, text) = call.await.unwrap();
            assert_eq!((is_error, stage.bed.work().join(decision).exists()), (error, !error), "{text}");
        }
    }
}

/// Every revision that begins with a handshake is spoken from end to end, on pipes and over HTTP, as client and server
/// agree on it: calls run, wait and are answered.
#[tokio::test(flavor = "multi_thread")]
async fn every_revision_with_a_handshake_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let stage = Stage::new("{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }");
        stage.bed.write("log.agrees", "");
        let mut peer = Peer::speaking(stage.gateway("policy.yml", &stage.bed.url(), &[], &[]), version, &json!({}));
        peer.call(1, "read", &json!({}));
        assert_eq!(peer.answer(1), (false, "done: read".into()), "{version}");
        peer.call(2, "write", &json!({"text": "x"}));
        peer.held();
        stage.approve(&[]);
        assert_eq!(peer.answer(2), (false, "done: write".into()), "{version}");
        assert_eq!(peer.leave(), 0, "{version}");

        let door = Door::open(&stage, &["--no-token"]);
        let web = Web::speaking(&door.url, "", version, json!({})).await;
        assert_eq!(web.call(1, "read", json!({})).await, (false, "done: read".into()), "{version}");
        assert_eq!(stage.ran().len(), 3, "{version}");
        let asked = got(&stage, "initialize");
        assert!(asked.len() == 2 && asked.iter().all(|hello| hello["params"]["protocolVersion"] == version));
    }
}
