//! The gateway over streamable HTTP: the real program, real connections, both eras.

use countersign_testkit::mcp::{Era, McpClient, McpFixture};
use serde_json::json;

use crate::gateway_peer::{Stage, plain};
use crate::gateway_web::{Coming, Door, Web, call, held, last, read};
use crate::serve::{Serving, ask, token};

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }";

/// A real server over HTTP, which writes its files where the stage is.
async fn fixture(stage: &Stage) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(McpFixture::new(stage.bed.work(), Era::Every).serve_http(listener));
    url
}

/// Any client with any server: what each reads is byte for byte what it would read without the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn all_four_bridges_leave_messages_as_they_are() {
    let stage = Stage::new("{ preset: allow-all }");
    let script = [
        r#"{"id":"a-1","odd":[1, 2],"jsonrpc":"2.0","method":"tools/list","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"prompts/list","params":{"z":1,"a":2}}"#,
        r#"{"method":"tools/call","params":{"name":"write","task":{},"arguments":{"text":"x","count":1.50}},"id":3,"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fail"}}"#,
    ];
    let on_pipes = |mut peer: crate::gateway_peer::Peer| script.map(|line| peer.ask(line));
    let direct = on_pipes(stage.direct());

    let near = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&near.url, "").await;
    // The address behind is our own door: it lets nobody in who brings a token it does not know.
    let secret = token(&stage.bed, "agent", "far");
    let far = Door::before(&stage, &[], &near.url);
    let through = Web::greeted(&far.url, &secret).await;
    for (line, direct) in script.iter().zip(&direct) {
        assert_eq!(&web.ask(line).await, direct, "HTTP to pipes");
        assert_eq!(&through.ask(line).await, direct, "HTTP to HTTP");
    }
    let pipes_to_http = stage.client_at(&near.url);
    assert_eq!(on_pipes(pipes_to_http), direct, "pipes to HTTP");
}

/// A real client and a real server, over HTTP on both sides, in both eras.
#[tokio::test(flavor = "multi_thread")]
async fn real_peers_of_both_eras_talk_through_it() {
    let stage = Stage::new("{ preset: allow-all }");
    let upstream = fixture(&stage).await;
    let door = Door::before(&stage, &[], &upstream);
    let secret = token(&stage.bed, "agent", "bot");
    for (era, version) in [(Era::Every, "2026-07-28"), (Era::Handshake, "2025-11-25")] {
        let client = McpClient::http(&door.url, &secret, era).await.unwrap();
        assert_eq!(client.version().as_deref(), Some(version));
        assert!(client.tools().await.unwrap().contains(&"echo".to_owned()));
        let (error, text) = client.call("echo", json!({"text": "hello"})).await.unwrap();
        assert!(!error && text.contains("hello"), "{version}: {text}");
    }
}

/// Only a token of ours, of the role agent, lets a client in; it is told where to read what it needs.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_calls_without_a_token_of_ours() {
    let stage = Stage::new("{ preset: allow-all }");
    let door = Door::open(&stage, &[]);
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let refused = Web::new(&door.url, "").post(hello).await;
    assert_eq!(refused.status(), 401);
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    let metadata = challenge.split('"').nth(1).unwrap().to_owned();
    assert!(metadata.contains("/.well-known/oauth-protected-resource/mcp"), "{challenge}");
    let web = Web::new(&door.url, "");
    let told: serde_json::Value = web.http.get(&metadata).send().await.unwrap().json().await.unwrap();
    assert_eq!(told["resource"], door.url.as_str());
    assert_eq!(Web::new(&door.url, "csa_wrong").post(hello).await.status(), 401);
    let approver = token(&stage.bed, "approver", "ann");
    assert_eq!(Web::new(&door.url, &approver).post(hello).await.status(), 403);

    let agent = token(&stage.bed, "agent", "bot");
    let with = |name: &'static str, value: &'static str| {
        let request = web.http.post(&door.url).bearer_auth(&agent).header("content-type", "application/json");
        request.header(name, value).body(hello).send()
    };
    assert!(with("origin", "https://evil.example").await.unwrap().status().is_client_error());
    assert!(with("host", "evil.example").await.unwrap().status().is_client_error());
    assert!(Door::refuses(&stage, "0.0.0.0:0"), "beyond this machine there must be TLS");
    assert_eq!(stage.ran(), [""; 0]);
}

/// What one principal began is nobody else's: not the session, not the hold, not the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn principals_never_meet() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--wait", "1s"]);
    let (ann, bob) = (token(&stage.bed, "agent", "ann"), token(&stage.bed, "agent", "bob"));
    let mut of_ann = Web::greeted(&door.url, &ann).await;
    let of_bob = Web::greeted(&door.url, &bob).await;
    assert!(of_ann.call(1, "write", json!({"text": "x"})).await.1.starts_with("Not run yet"));
    stage.approve(&[]);
    assert!(of_bob.call(1, "write", json!({"text": "x"})).await.1.starts_with("Not run yet"), "another hold");
    assert_eq!(stage.ran(), [""; 0]);
    let of_both = stage.say("audit log --json").expect(0).stdout;
    assert!(of_both.contains("ann/gateway:plain:") && of_both.contains("bob/gateway:plain:"), "{of_both}");
    of_ann.borrow_session(&of_bob);
    assert_eq!(of_ann.post(&call(2, "write", json!({"text": "x"}))).await.status(), 404);
}

/// However many sessions one principal opens and leaves, the others get in, and so does itself.
#[tokio::test(flavor = "multi_thread")]
async fn one_principal_never_takes_the_place_of_others() {
    let stage = Stage::new("{ preset: allow-all }");
    let door = Door::open(&stage, &[]);
    let (greedy, bob) = (token(&stage.bed, "agent", "greedy"), token(&stage.bed, "agent", "bob"));
    let first = Web::greeted(&door.url, &greedy).await;
    for _ in 0..countersign_mcp::limits::CONVERSATIONS_OF_ONE {
        Web::greeted(&door.url, &greedy).await;
    }
    let listed = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(first.post(listed).await.status(), 404, "the one that was idle longest has ended");
    assert_eq!(Web::greeted(&door.url, &bob).await.post(listed).await.status(), 200);
    assert_eq!(Web::greeted(&door.url, &greedy).await.post(listed).await.status(), 200);
}

/// B132: nothing runs for a caller that is gone; the hold stays, and the identical call gets what was approved.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_for_a_connection_that_was_cut() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let mut stream = Coming::new(web.post(&call(1, "write", json!({"text": "x"}))).await);
    assert_eq!(stream.next().await["method"], "notifications/progress");
    drop(stream);
    // The connection is closed with its pool; another client shows that the gateway knows.
    drop(web);
    stage.approve(&[]);
    let web = Web::greeted(&door.url, "").await;
    assert_eq!(web.call(2, "read", json!({})).await, (false, "done: read".into()));
    assert_eq!(stage.ran(), ["read {}"]);
    assert_eq!(web.call(3, "write", json!({"text": "x"})).await, (false, "done: write".into()));
    assert_eq!(stage.ran().len(), 2);
}

/// A thousand identical calls are one question to people, and one run.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_over_http_is_one_hold() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token", "--wait", "10s"]);
    let web = Web::greeted(&door.url, "").await;
    let storm: Vec<_> = (1..=1_000)
        .map(|id| {
            let web = web.clone();
            tokio::spawn(async move { web.call(id, "write", json!({"text": "x"})).await })
        })
        .collect();
    held(&stage).await;
    stage.approve(&[]);
    let mut ran = 0;
    for answer in storm {
        let (error, text) = answer.await.unwrap();
        // Whoever came after the outcome was delivered has a call of its own, and a hold.
        ran += usize::from(!error);
        assert!(text == "done: write" || text.starts_with("Not run yet"), "{text}");
    }
    assert!(ran >= 1);
    assert_eq!(stage.ran().len(), 1);
    assert!(stage.holds().len() <= 1);
}

/// Headers say what the message says, or the message goes nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn headers_that_lie_are_refused() {
    let stage = Stage::new("{ preset: allow-all }");
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::new(&door.url, "");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let send_body = |headers: &[(&str, &str)], body: String| {
        let request = web.http.post(&door.url).header("content-type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(body).send()
    };
    let send = |headers: &[(&str, &str)]| send_body(headers, body.to_owned());
    let version = ("mcp-protocol-version", "2026-07-28");
    for headers in [
        vec![],
        vec![version],
        vec![version, ("mcp-method", "tools/list"), ("mcp-name", "write")],
        vec![version, ("mcp-method", "tools/call"), ("mcp-name", "read")],
        vec![version, ("mcp-method", "tools/call"), ("mcp-name", "write"), ("mcp-name", "read")],
        vec![("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", "write")],
    ] {
        let refused = send(&headers).await.unwrap();
        assert_eq!(refused.status(), 400, "{headers:?}");
        assert!(refused.text().await.unwrap().contains("-32020"), "{headers:?}");
    }
    let headers = [version, ("mcp-method", "tools/call"), ("mcp-name", "write")];
    for key in ["protocolVersion", "clientCapabilities"] {
        let refused = send_body(&headers, body.replace(key, "other")).await.unwrap();
        assert_eq!(refused.status(), 400, "{key}");
        let said = refused.text().await.unwrap();
        assert!(said.contains("-32602") && said.contains(key), "{said}");
    }
    let begin = [version, ("mcp-method", "initialize")];
    let refused = send_body(&begin, body.replace("tools/call", "initialize")).await.unwrap();
    assert_eq!(refused.status(), 404, "sessions are of the older revisions");
    assert_eq!(stage.ran(), [""; 0]);
    let good = send(&[version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?d3JpdGU=?=")]).await.unwrap();
    assert_eq!(read(&last(&good.text().await.unwrap())), (false, "done: write".into()));
}

/// What is too large, twice there or no message is refused, and the next message is taken as ever.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_posts_are_refused_and_forgotten() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token", "--wait", "5s"]);
    let web = Web::greeted(&door.url, "").await;
    let huge = call(1, "write", json!({"text": "x".repeat(5 << 20)}));
    // From a client of its own: the connection is closed, and nobody else may be about to use it again.
    assert!(Web::greeted(&door.url, "").await.post(&huge).await.status().is_client_error());
    for line in ["", "{", "[]", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#] {
        assert_eq!(web.post(line).await.status(), 400, "{line}");
    }
    let two = ["a", "b"].map(|text| call(7, "write", json!({ "text": text })));
    let (first, second) = tokio::join!(web.post(&two[0]), web.post(&two[1]));
    let both = [last(&first.text().await.unwrap()), last(&second.text().await.unwrap())];
    assert_eq!(both.iter().filter(|answer| answer.contains("that of a request in hand")).count(), 1, "{both:?}");
    assert_eq!(web.call(8, "read", json!({})).await, (false, "done: read".into()));
    assert_eq!(stage.ran(), ["read {}"]);
}

/// A server that dies leaves a doubt; its session is over, and the next one begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_ends_the_session() {
    let stage = Stage::new("{ preset: allow-all }");
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let (error, text) = web.call(1, "die", json!({})).await;
    assert!(error && text.starts_with("Outcome unknown"), "{text}");
    while web.post(&call(2, "read", json!({}))).await.status() != 404 {
        tokio::task::yield_now().await;
    }
    let web = Web::greeted(&door.url, "").await;
    assert_eq!(web.call(3, "read", json!({})).await, (false, "done: read".into()));
}

/// B132: a real client of the newer era goes on waiting, leg after leg, until a person has decided.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_client_waits_over_several_legs() {
    let stage = Stage::new("{ preset: allow-all, rules: [{ id: writes, ask: far/writes }] }");
    let door = Door::before(&stage, &["--wait", "3s"], &fixture(&stage).await);
    let secret = token(&stage.bed, "agent", "bot");
    let client = std::sync::Arc::new(McpClient::http(&door.url, &secret, Era::Every).await.unwrap());
    let ask = |file: &'static str| {
        let client = std::sync::Arc::clone(&client);
        tokio::spawn(async move { client.call("writes", json!({"file": file})).await.unwrap() })
    };
    let call = ask("yes");
    held(&stage).await;
    assert!(!stage.bed.work().join("yes").exists());
    stage.approve(&[]);
    let (error, text) = call.await.unwrap();
    assert!(!error && stage.bed.work().join("yes").exists(), "{text}");
    let call = ask("no");
    held(&stage).await;
    stage.deny("not there");
    let (error, text) = call.await.unwrap();
    assert!(error && text.contains("not there") && !stage.bed.work().join("no").exists(), "{text}");
}

/// With a server, a gateway that listens is its executor, too: the server's policy judges, its people decide, and clients
/// come in with tokens of the gateway's own store.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_judge_what_a_listening_gateway_runs() {
    let stage = Stage::new("{ preset: deny-all }");
    let policy = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }, { id: gone, deny: plain/secret, hide: true }] }";
    let server = Serving::under(&stage.bed, &format!("policy: {policy}"), &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let own = format!("sqlite:{}", stage.bed.work().join("own.db").display());
    let made = stage.bed.run(["token", "create", "--role", "agent", "--name", "client", "--json", "--store", &own]);
    let client = made.expect(0).json()["token"].as_str().unwrap().to_owned();
    let args = ["gateway", "--json", "--listen", "127.0.0.1:0", "--config", "policy.yml", "--server", "plain"];
    let mut command = stage.bed.command(args);
    command.args(["--store", &own, "--"]).arg(plain()).arg("log");
    command.env("COUNTERSIGN_URL", &server.url).env("COUNTERSIGN_TOKEN", &bot);
    let door = Door::of(command);
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    assert_eq!(Web::new(&door.url, &bot).post(hello).await.status(), 401, "the server's tokens are not the door's");
    let web = Web::greeted(&door.url, &client).await;
    let listed = web.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert!(listed.contains("\"write\"") && !listed.contains("secret"), "{listed}");
    assert_eq!(web.call(2, "read", json!({})).await, (false, "done: read".into()));
    let calling = tokio::spawn(async move { web.call(3, "write", json!({"text": "all"})).await });
    let held = || ask(&stage.bed, &ann, &server.url, &["holds", "--json"]).expect(0).json();
    let hold = loop {
        if let Some(hold) = held().get(0) {
            break hold.clone();
        }
    };
    assert_eq!((&hold["principal"], stage.ran().len()), (&json!("bot"), 1));
    let (id, digest) = (hold["id"].as_str().unwrap(), hold["digest"].as_str().unwrap());
    let edit = ["approve", id, "--digest", digest, "--arguments", r#"{"text":"less"}"#];
    ask(&stage.bed, &ann, &server.url, &edit).expect(0);
    let (error, text) = calling.await.unwrap();
    assert!(!error && text.starts_with("A person changed the arguments") && text.ends_with("|done: write"), "{text}");
    assert_eq!(stage.ran(), ["read {}", r#"write {"text":"less"}"#]);
}

/// A state is bound to one call of one principal and good once; it decides nothing, and the server never sees it.
#[tokio::test(flavor = "multi_thread")]
async fn forged_and_replayed_states_are_refused() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--wait", "1s"]);
    let ann = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    let bob = Web::new(&door.url, &token(&stage.bed, "agent", "bob"));
    let state = |told: &serde_json::Value| {
        assert_eq!(told["result"]["resultType"], "input_required", "{told}");
        told["result"]["requestState"].as_str().unwrap().to_owned()
    };
    let x = || json!({"text": "x"});
    let first = state(&ann.modern("write", x(), None).await);
    let forged = format!("{}{}", &first[..first.len() - 64], "0".repeat(64));
    for (who, arguments, sent) in [
        (&ann, x(), forged.as_str()),
        (&ann, json!({"text": "y"}), first.as_str()),
        (&bob, x(), first.as_str()),
        (&ann, x(), &first[..first.len() - 1]),
    ] {
        let told = who.modern("write", arguments, Some(sent)).await;
        assert_eq!(told["error"]["code"], -32602, "{told}");
    }
    let second = state(&ann.modern("write", x(), Some(&first)).await);
    assert_eq!(ann.modern("write", x(), Some(&first)).await["error"]["code"], -32602, "used twice");
    assert_eq!(stage.ran(), [""; 0]);
    stage.approve(&[]);
    let told = ann.modern("write", x(), Some(&second)).await;
    assert_eq!(read(&told.to_string()), (false, "done: write".into()));
    assert_eq!(stage.ran().len(), 1);
    assert!(!crate::bed::read(stage.bed.work().join("log")).contains("requestState"));
}

/// Several servers behind one endpoint: each by its name, for the principal of the token. A program is offered only
/// where the operator says so.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_configuration_are_behind_one_endpoint() {
    let stage = Stage::new("{}");
    let config = format!(
        "policy: {{ preset: allow-all, rules: [{{ id: writes, ask: far/writes }}] }}\nmcp_servers: {{ far: {{ url: \
         '{}' }}, near: {{ command: cat }} }}\n",
        fixture(&stage).await
    );
    let serving = Serving::under(&stage.bed, &config, &stage.bed.url());
    let (far, near) = (format!("{}/mcp/far", serving.url), format!("{}/mcp/near", serving.url));
    let secret = token(&stage.bed, "agent", "bot");
    let client = McpClient::http(&far, &secret, Era::Every).await.unwrap();
    assert!(!client.call("echo", json!({"text": "x"})).await.unwrap().0);
    let call = tokio::spawn(async move { client.call("writes", json!({"file": "yes"})).await.unwrap() });
    held(&stage).await;
    assert!(stage.holds()[0].to_string().contains("bot"), "{:?}", stage.holds());
    stage.approve(&[]);
    assert!(!call.await.unwrap().0 && stage.bed.work().join("yes").exists());

    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    assert_eq!(Web::new(&near, &secret).post(hello).await.status(), 404);
    let refused = Web::new(&far, "").post(hello).await;
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("/.well-known/oauth-protected-resource/mcp/far"), "{challenge}");
}
