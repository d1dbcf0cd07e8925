//! Many connections that say nothing, or say it slowly: others are served all the same.

use std::sync::Arc;
use std::time::Instant;

use countersign::Proposal;
use countersign::memory::MemoryStore;
use countersign_api::wire::Role;
use countersign_server::limits;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::events::Events;
use crate::stage::{Client, POLICY, Stage, text};

/// Connections that the servers of these tests have room for.
const ROOM: usize = 64;

async fn small() -> Stage {
    Stage::built(Arc::new(MemoryStore::new()), POLICY, |_, builder| builder.connections(ROOM)).await
}

/// A connection on which these bytes were sent.
async fn saying(stage: &Stage, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(stage.host()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// The head of a request with a body that never comes.
fn unfinished(stage: &Stage, client: &Client) -> Vec<u8> {
    let bearer = client.request(Method::GET, "/").build().unwrap().headers()["authorization"].clone();
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n{{",
        stage.host(),
        bearer.to_str().unwrap()
    );
    head.into_bytes()
}

/// Whatever came until the other side ended it.
async fn heard(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
    String::from_utf8_lossy(&heard).into_owned()
}

/// `idle_sockets`: more connections that say nothing than there is room for keep nobody out.
#[tokio::test]
async fn idle_sockets_keep_nobody_out() {
    let stage = small().await;
    let (agent, ann, op) = (stage.agent().await, stage.ann().await, stage.with(Role::Operator, "op").await);
    let mut idle = Vec::new();
    for n in 0..ROOM * 4 {
        let bytes: &[u8] = if n % 2 == 0 { b"" } else { b"GET /v1/me HTTP/1.1\r\nhost: " };
        idle.push(saying(&stage, bytes).await);
    }
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let hold = &call["holds"][0];
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &deny).await.expect(200);
    op.post("/v1/halt", &json!({})).await.expect(200);
}

/// Agents that keep every connection busy keep no overseer out.
#[tokio::test]
async fn overseers_deny_and_halt_while_agents_use_every_connection() {
    let stage = small().await;
    let (agent, ann, op) = (stage.agent().await, stage.ann().await, stage.with(Role::Operator, "op").await);
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let hold = &call["holds"][0];
    let mut busy = Vec::new();
    for _ in 0..ROOM * 2 {
        busy.push(saying(&stage, &unfinished(&stage, &agent)).await);
    }
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &deny).await.expect(200);
    op.post("/v1/halt", &json!({})).await.expect(200);
    // A stream of somebody who oversees is not cut for any number of others.
    let mut stream = ann.request(Method::GET, "/v1/events").send().await.unwrap();
    for _ in 0..ROOM * 2 {
        busy.push(saying(&stage, &unfinished(&stage, &agent)).await);
    }
    op.post("/v1/resume", &json!({})).await.expect(200);
    let mut seen = String::new();
    while !seen.contains("halt.lifted") {
        seen.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream was cut")));
    }
}

/// Headers that do not come in time, or are too large, end the connection; so does a body that does not come.
#[tokio::test]
async fn slow_and_large_requests_are_cut() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let begun = Instant::now();
    let mut silent = saying(&stage, b"").await;
    let mut slow = saying(&stage, b"GET /healthz HTTP/1.1\r\nhost: ").await;
    let mut bodyless = saying(&stage, &unfinished(&stage, &agent)).await;
    let large = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nx-large: {}\r\n\r\n", stage.host(), "x".repeat(20_000));
    let mut large = saying(&stage, large.as_bytes()).await;
    assert!(heard(&mut large).await.starts_with("HTTP/1.1 431 "));
    assert!(begun.elapsed() < limits::HEADERS_WITHIN, "too large is known at once");
    // A request in which nothing is missing is not kept waiting by them.
    stage.nobody().get("/healthz").await.expect(200);

    tokio::time::pause();
    let (silent, slow) = (heard(&mut silent).await, heard(&mut slow).await);
    assert!(!silent.contains(" 200 ") && !slow.contains(" 200 "), "{silent} {slow}");
    assert!(heard(&mut bodyless).await.starts_with("HTTP/1.1 400 "));
}

/// A socket that never subscribes counts among its principal's streams, is asked whether it is there, and ends with its
/// credential.
#[tokio::test]
async fn a_socket_that_never_subscribes_has_a_place_and_an_end() {
    let stage = Stage::new().await;
    let made = stage.with(Role::Approver, "ann").await;
    let bearer = made.request(Method::GET, "/").build().unwrap().headers()["authorization"].clone();
    let connect = || {
        let mut request = format!("ws://{}/v1/ws", stage.host()).into_client_request().unwrap();
        request.headers_mut().insert("authorization", bearer.clone());
        tokio_tungstenite::connect_async(request)
    };
    let mut sockets = Vec::new();
    for _ in 0..limits::STREAMS {
        sockets.push(connect().await.unwrap().0);
    }
    assert!(connect().await.is_err(), "one more than may be open");
    let op = stage.with(Role::Operator, "op").await;
    let metrics = op.get("/metrics").await.body.to_string();
    assert!(metrics.contains(&format!("countersign_streams {}", limits::STREAMS)), "{metrics}");

    let mut socket = sockets.pop().unwrap();
    drop(sockets);
    let tokens = op.get("/v1/tokens").await.expect(200);
    let token = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "ann").unwrap();
    op.delete(&format!("/v1/tokens/{}", text(token, "id"))).await.expect(200);
    tokio::time::pause();
    let mut last = None;
    while let Some(Ok(message)) = socket.next().await {
        last = Some(message);
    }
    let Some(Message::Close(Some(close))) = last else { panic!("{last:?}") };
    assert_eq!(close.reason.as_str(), "the credential ended");
}

/// Waiting for people is bounded, too.
#[tokio::test]
async fn whoever_waits_has_a_place() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let path = format!("/v1/calls/{}?wait=60", text(&call, "id"));
    let mut waits: Vec<_> = (0..=limits::WAITS)
        .map(|_| {
            let (agent, path) = (agent.clone(), path.clone());
            tokio::spawn(async move { agent.get(&path).await })
        })
        .collect();
    // One of them is told to come back; the others wait.
    let (first, place, _) = futures::future::select_all(&mut waits).await;
    drop(waits.remove(place));
    let limited = first.unwrap().problem(429, "limit");
    assert!(text(&limited, "detail").contains("wait"), "{limited}");
    let deny = json!({ "answer": "deny", "digest": call["holds"][0]["digest"] });
    let ann = stage.ann().await;
    ann.post(&format!("/v1/holds/{}/decisions", text(&call["holds"][0], "id")), &deny).await.expect(200);
    let answered: Vec<Value> = futures::future::join_all(waits)
        .await
        .into_iter()
        .filter_map(Result::ok)
        .filter(|answered| answered.status == 200)
        .map(|answered| answered.body)
        .collect();
    assert!(answered.len() >= limits::WAITS - 1 && answered.iter().all(|call| call["state"] == "denied"));
}

/// A connection whose reader takes next to nothing before it stops.
async fn narrow(stage: &Stage) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(stage.host().parse().unwrap()).await.unwrap()
}

/// More events than a stopped reader's buffers, and its place in the queue, can hold; another reader sees each of them.
async fn flood(stage: &Stage, reader: &mut Events) {
    let long = "x".repeat(200);
    for n in 0..60 {
        for m in 0..100 {
            let proposal = Proposal::new(format!("read_{long}"), format!("{{\"n\":{n},\"m\":{m}}}"));
            stage.gate.submit_undefined(proposal.session(format!("{n}-{long}"))).await.unwrap();
        }
        let session = format!("{n}-{long}");
        let mut left = 100;
        while left > 0 {
            let (name, _, event) = reader.next().await.expect("the reader that keeps up was cut");
            assert_ne!(name, "resync", "the reader that keeps up was left behind");
            left -= usize::from(name == "call.submitted" && text(&event, "chain").ends_with(&session));
        }
    }
}

/// A reader of server-sent events that stops reading is told to begin anew, and keeps nobody waiting.
#[tokio::test]
async fn a_slow_reader_of_a_stream_is_told_to_begin_anew() {
    let stage = Stage::new().await;
    let (ann, bo) = (stage.ann().await, stage.with(Role::Approver, "bo").await);
    let bearer = ann.request(Method::GET, "/").build().unwrap().headers()["authorization"].clone();
    let mut slow = narrow(&stage).await;
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\r\n",
        stage.host(),
        bearer.to_str().unwrap()
    );
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut begun = [0; 512];
    assert!(slow.read(&mut begun).await.unwrap() > 0);
    let mut reader = Events::open(&bo, "/v1/events").await;
    flood(&stage, &mut reader).await;

    let mut told = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    while !told.ends_with(b"0\r\n\r\n") {
        let read = slow.read(&mut chunk).await.unwrap();
        assert!(read > 0, "cut without a word");
        told.extend_from_slice(&chunk[..read]);
    }
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.trim_end().ends_with("event: resync\ndata: {}\n\n\r\n0"),
        "{}",
        &told[told.len().saturating_sub(300)..]
    );
}

/// And so is one of a socket.
#[tokio::test]
async fn a_slow_reader_of_a_socket_is_told_to_begin_anew() {
    let stage = Stage::new().await;
    let (ann, bo) = (stage.ann().await, stage.with(Role::Approver, "bo").await);
    let mut request = format!("ws://{}/v1/ws", stage.host()).into_client_request().unwrap();
    let bearer = ann.request(Method::GET, "/").build().unwrap().headers()["authorization"].clone();
    request.headers_mut().insert("authorization", bearer);
    let (mut slow, _) = tokio_tungstenite::client_async(request, narrow(&stage).await).await.unwrap();
    slow.send(Message::Text(json!({ "type": "subscribe" }).to_string().into())).await.unwrap();
    slow.next().await.unwrap().unwrap();
    let mut reader = Events::open(&bo, "/v1/events").await;
    flood(&stage, &mut reader).await;

    let mut last = Value::Null;
    while let Some(Ok(message)) = slow.next().await {
        if let Message::Text(message) = message {
            last = serde_json::from_str(&message).unwrap();
        }
    }
    // On a machine that took too long over the flood the socket was cut instead.
    assert!(matches!(last["type"].as_str(), Some("resync" | "event")), "{last}");
}
