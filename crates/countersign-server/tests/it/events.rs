//! Streams: server-sent events and WebSockets.

use countersign_api::wire::Role;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::people::Browser;
use crate::stage::{Client, Stage, text};

/// A stream of server-sent events, read one by one.
pub(crate) struct Events {
    response: reqwest::Response,
    buffer: String,
}

impl Events {
    /// Opens one.
    pub(crate) async fn open(client: &Client, path: &str) -> Events {
        let response = client.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { response, buffer: String::new() }
    }

    /// Opens one after an event that was seen before.
    pub(crate) async fn after(client: &Client, path: &str, id: &str) -> Events {
        let response = client.request(Method::GET, path).header("last-event-id", id).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events { response, buffer: String::new() }
    }

    /// The next event: its name, its id and its data. None when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<(String, Option<String>, Value)> {
        loop {
            while let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let block = block.to_owned();
                self.buffer = rest.to_owned();
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned())
                };
                if let Some(name) = field("event:") {
                    let data = serde_json::from_str(&field("data:").unwrap()).unwrap();
                    return Some((name, field("id:"), data));
                }
            }
            let chunk = self.response.chunk().await.ok()??;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The data of the next event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Value {
        loop {
            let (found, _, data) = self.next().await.expect("the stream ended");
            if found == name {
                return data;
            }
        }
    }

    async fn name(&mut self) -> String {
        self.next().await.unwrap().0
    }
}

/// B122: who joins late sees every hold that waits, then what happens.
#[tokio::test]
async fn a_stream_begins_with_what_waits_and_goes_on_live() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let mut early = Events::open(&ann, "/v1/events").await;
    let call = agent.submit("write_file", json!({})).await.expect(202);
    // Nobody who joins from here on is told of it as of something new.
    early.until("hold.opened").await;
    let mut events = Events::open(&ann, "/v1/events").await;
    let (name, id, opened) = events.next().await.unwrap();
    assert_eq!((name.as_str(), id), ("hold.opened", None));
    assert_eq!(opened["call"], call["id"]);
    let (name, cursor, _) = events.next().await.unwrap();
    assert_eq!(name, "ready");

    let hold = &call["holds"][0];
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &deny).await.expect(200);
    assert_eq!(events.name().await, "hold.decided");
    let (name, last, refused) = events.next().await.unwrap();
    assert_eq!((name.as_str(), &refused["call"]), ("call.refused", &call["id"]));

    // From a cursor, the same again; from the last one, nothing but what is new.
    let mut again = Events::open(&ann, &format!("/v1/events?after={}", cursor.unwrap())).await;
    assert_eq!([again.name().await, again.name().await, again.name().await], ["hold.decided", "call.refused", "ready"]);
    let mut rest = Events::after(&ann, "/v1/events", &last.unwrap()).await;
    assert_eq!(rest.name().await, "ready");

    // A place that is not in this log would hide everything before it.
    for nowhere in ["0.999999", "7.1"] {
        assert_eq!(Events::open(&ann, &format!("/v1/events?after={nowhere}")).await.name().await, "resync");
    }
}

/// I8: a stream shows an agent its own, with and without sessions, and no approver the secrets of operation.
#[tokio::test]
async fn each_role_sees_what_it_may() {
    let stage = Stage::new().await;
    let (bot, other) = (stage.agent().await, stage.with(Role::Agent, "other").await);
    let (ann, auditor) = (stage.ann().await, stage.with(Role::Auditor, "eve").await);
    bot.get("/v1/holds").await.problem(403, "forbidden");
    bot.submit("read_file", json!({})).await.expect(200);
    bot.post("/v1/calls", &json!({ "tool": "read_file", "arguments": { "no": "session" } })).await.expect(200);
    other.submit("read_file", json!({ "secret": "of another" })).await.expect(200);
    let see = async |client: &Client| {
        let mut events = Events::open(client, "/v1/events?after=0.0").await;
        let mut seen = Vec::new();
        loop {
            let (name, _, event) = events.next().await.unwrap();
            if name == "ready" {
                return seen;
            }
            seen.push((name, event["body"].clone()));
        }
    };
    let count = |seen: &[(String, Value)], name: &str| seen.iter().filter(|(found, _)| found == name).count();
    let seen = see(&bot).await;
    assert_eq!(count(&seen, "call.submitted"), 2);
    assert!(!format!("{seen:?}").contains("of another") && count(&seen, "access.refused") == 0);
    assert_eq!(count(&see(&other).await, "call.submitted"), 1);
    let seen = see(&ann).await;
    assert_eq!((count(&seen, "call.submitted"), count(&seen, "access.refused")), (3, 0));
    let seen = see(&auditor).await;
    assert_eq!((count(&seen, "call.submitted"), count(&seen, "access.refused")), (3, 1));
}

/// The end of the server ends the streams.
#[tokio::test]
async fn streams_end_with_the_server() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let mut events = Events::open(&ann, "/v1/events").await;
    assert_eq!(events.name().await, "ready");
    stage.end().await;
    assert!(events.next().await.is_none());
}

/// Opens a WebSocket, or says with which status that was refused.
pub(crate) async fn socket(stage: &Stage, path: &str, headers: &[(&str, String)]) -> Result<Talk, u16> {
    let mut request = format!("ws://{}{path}", stage.host()).into_client_request().unwrap();
    for (name, value) in headers {
        let name: tokio_tungstenite::tungstenite::http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(Talk(socket)),
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// An open WebSocket.
pub(crate) struct Talk(tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>);

impl Talk {
    pub(crate) async fn say(&mut self, message: Value) {
        self.0.send(Message::Text(message.to_string().into())).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            match self.0.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next message of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let heard = self.hear().await;
            if heard["type"] == kind {
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn a_socket_streams_and_decides() {
    let stage = Stage::new().await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let headers = [("cookie", browser.cookie().to_owned()), ("origin", stage.url.clone())];
    let mut talk = socket(&stage, "/v1/ws", &headers).await.unwrap_or_else(|status| panic!("{status}"));
    talk.say(json!({ "type": "subscribe" })).await;
    assert_eq!(talk.hear().await["type"], "ready");
    let call = stage.agent().await.submit("write_file", json!({})).await.expect(202);
    for name in ["call.submitted", "hold.opened"] {
        while talk.until("event").await["event"]["event"] != name {}
    }
    let hold = &call["holds"][0];
    let wrong = json!({ "answer": "deny", "digest": format!("cs1c:{}", "0".repeat(64)) });
    talk.say(json!({ "type": "decide", "id": "1", "hold": hold["id"], "decision": wrong })).await;
    let problem = talk.hear().await;
    assert_eq!((&problem["id"], &problem["problem"]["code"]), (&json!("1"), &json!("digest_mismatch")));
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    talk.say(json!({ "type": "decide", "id": "2", "hold": hold["id"], "decision": deny })).await;
    let mut heard = [talk.hear().await, talk.hear().await, talk.hear().await];
    heard.sort_by_key(|message| text(message, "type").to_owned());
    assert_eq!((&heard[0]["id"], &heard[0]["decided"]["state"]), (&json!("2"), &json!("denied")));
    // The members of a decision may stand beside `hold`, too; but only there or in `decision`.
    let call = stage.agent().await.submit("write_file", json!({ "inline": true })).await.expect(202);
    let (hold, digest) = (&call["holds"][0]["id"], &call["holds"][0]["digest"]);
    let nested = json!({ "answer": "deny", "digest": digest });
    for unclear in [
        json!({ "type": "decide", "hold": hold, "answer": "approve", "digest": digest, "decision": nested }),
        json!({ "type": "decide", "hold": hold, "reason": "no", "decision": nested }),
        json!({ "type": "decide", "hold": hold, "answer": "approve" }),
        json!({ "type": "subscribe", "answer": "approve", "digest": digest }),
    ] {
        talk.say(unclear).await;
        assert_eq!(talk.until("problem").await["problem"]["code"], "bad_request");
    }
    talk.say(json!({ "type": "decide", "id": "3", "hold": hold, "answer": "deny", "digest": digest, "reason": "no" }))
        .await;
    let decided = talk.until("decided").await;
    assert_eq!((&decided["id"], &decided["decided"]["state"]), (&json!("3"), &json!("denied")));
    talk.say(json!({ "type": "approve everything" })).await;
    assert_eq!(talk.until("problem").await["problem"]["code"], "bad_request");
}

/// A socket from another page, or from none, is refused at the upgrade; an agent's decides nothing.
#[tokio::test]
async fn foreign_socket_refused() {
    let stage = Stage::new().await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let cookie = ("cookie", browser.cookie().to_owned());
    assert_eq!(socket(&stage, "/v1/ws", &[]).await.err(), Some(401));
    assert_eq!(socket(&stage, "/v1/ws", std::slice::from_ref(&cookie)).await.err(), Some(403));
    let evil = ("origin", "https://evil.example".to_owned());
    assert_eq!(socket(&stage, "/v1/ws", &[cookie, evil]).await.err(), Some(403));

    let made = countersign_server::tokens::create(
        &**stage.gate.store(),
        countersign_api::wire::NewToken { role: Role::Agent, name: "bot".into(), expires_after: None, r#for: None },
        "test",
    );
    let bearer = ("authorization", format!("Bearer {}", made.await.unwrap().token));
    let mut talk = socket(&stage, "/v1/ws", &[bearer]).await.unwrap_or_else(|status| panic!("{status}"));
    let call = stage.agent().await.submit("write_file", json!({})).await.expect(202);
    let approve = json!({ "answer": "approve", "digest": call["holds"][0]["digest"] });
    talk.say(json!({ "type": "decide", "hold": call["holds"][0]["id"], "decision": approve })).await;
    assert_eq!(talk.hear().await["problem"]["code"], "forbidden");
    let log = stage.with(Role::Auditor, "eve").await.get("/v1/audit").await.expect(200);
    let refused = |event: &&Value| event["event"] == "access.refused" && event["body"]["who"] == "bot";
    let refused = log["items"].as_array().unwrap().iter().find(refused).expect("the try is on the record");
    assert_eq!((&refused["body"]["path"], &refused["body"]["roles"]), (&json!("/v1/ws"), &json!("agent")));
}
