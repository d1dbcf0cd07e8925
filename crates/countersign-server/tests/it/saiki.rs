//! Saiki's dialect: its REST route and its WebSocket messages, as its own clients use them.

use countersign_api::wire::Role;
use serde_json::{Value, json};

use crate::events::{Talk, socket};
use crate::people::Browser;
use crate::stage::{Client, Stage, text};

async fn held(agent: &Client, session: Option<&str>, n: u32) -> Value {
    let body = json!({ "session": session, "tool": "write_file", "arguments": { "n": n }, "hint": "Writes" });
    agent.post("/v1/calls", &body).await.expect(202)
}

fn confirmation(call: &Value) -> String {
    format!("/saiki/api/tool-confirmation/{}", text(&call["holds"][0], "id"))
}

async fn connect(stage: &Stage) -> Talk {
    let browser = Browser::sign_in(stage, "os:ann").await;
    let headers = [("cookie", browser.cookie().to_owned()), ("origin", stage.url.clone())];
    socket(stage, "/saiki/ws", &headers).await.unwrap_or_else(|status| panic!("{status}"))
}

/// A second answer to one id gives 404 and changes nothing, and so does one for nothing or for another session.
#[tokio::test]
async fn a_confirmation_counts_once() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let gone = json!({ "error": "Confirmation not found or expired" });
    let call = held(&agent, Some("s"), 1).await;
    let (yes, no) = (json!({ "approved": true }), json!({ "approved": false }));
    let other = json!({ "approved": true, "sessionId": "another" });
    assert_eq!(ann.post(&confirmation(&call), &other).await.expect(404), gone);
    assert_eq!(ann.post("/saiki/api/tool-confirmation/exec-1", &yes).await.expect(404), gone);
    let misled = json!({ "approved": true, "executionId": "exec-1" });
    assert_eq!(ann.post(&confirmation(&call), &misled).await.expect(404), gone);
    ann.post(&confirmation(&call), &json!({ "approved": "yes" })).await.problem(400, "bad_request");
    agent.post(&confirmation(&call), &yes).await.problem(403, "forbidden");
    stage.nobody().post(&confirmation(&call), &yes).await.problem(401, "unauthenticated");

    assert_eq!(ann.post(&confirmation(&call), &yes).await.expect(200), json!({ "success": true }));
    for again in [&yes, &no] {
        assert_eq!(ann.post(&confirmation(&call), again).await.expect(404), gone);
    }
    let path = format!("/v1/calls/{}", text(&call, "id"));
    let approved = agent.get(&path).await.expect(200);
    assert_eq!((&approved["state"], &approved["decided_by"]), (&json!("approved"), &json!("ann")));

    let call = held(&agent, Some("s"), 2).await;
    assert_eq!(ann.post(&confirmation(&call), &no).await.expect(200), json!({ "success": true }));
    let denied = agent.get(&format!("/v1/calls/{}", text(&call, "id"))).await.expect(200);
    assert_eq!(denied["refusal"]["kind"], "denied_by_approver");
}

/// B58: where Saiki kept choices in its storage, a remembered one counts in every session; in memory, in its own.
#[tokio::test]
async fn a_choice_is_remembered_as_far_as_saikis_configuration_says() {
    for (storage, scope) in [("storage", "global"), ("memory", "session")] {
        let text = format!("toolConfirmation: {{ mode: event-based, allowedToolsStorage: {storage} }}");
        let config = countersign::config::Config::from_yaml("countersign.yml", &text, &|_| None).unwrap();
        let gate = countersign::Gate::builder().policy(config.policy).decided_elsewhere().build().unwrap();
        let signer = std::sync::Arc::new(countersign::signer::Signer::generate().unwrap());
        let stage = Stage::behind(gate, signer, |builder| builder).await;
        let (agent, ann) = (stage.agent().await, stage.ann().await);
        let yes = json!({ "approved": true, "rememberChoice": true });
        ann.post(&confirmation(&held(&agent, Some("s"), 1).await), &yes).await.expect(200);
        assert_eq!(ann.get("/v1/grants").await.expect(200)["items"][0]["scope"], scope, "{storage}");
    }
}

/// B57, B58, B60: a remembered choice is for these arguments in this session; a no is not remembered; a rule that allows
/// no memory makes it a plain yes.
#[tokio::test]
async fn a_remembered_choice_goes_no_further_than_it_may() {
    let policy =
        "rules: [{ id: writes, ask: 'write_*', remember: session }, { id: pairs, ask: deploy, remember: none }]";
    let stage = Stage::over(std::sync::Arc::new(countersign::memory::MemoryStore::new()), policy).await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let no = json!({ "approved": false, "rememberChoice": true });
    ann.post(&confirmation(&held(&agent, Some("s"), 1).await), &no).await.expect(200);
    let call = held(&agent, Some("t"), 1).await;
    let yes = json!({ "approved": true, "rememberChoice": true, "sessionId": "t" });
    ann.post(&confirmation(&call), &yes).await.expect(200);
    let grants = ann.get("/v1/grants").await.expect(200);
    let grants = grants["items"].as_array().unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!((&grants[0]["scope"], &grants[0]["session"]), (&json!("session"), &json!("t")));
    assert!(grants[0]["covers"]["exact"].is_string(), "{:#}", grants[0]);

    // Neither a rule without memory nor a call without a session makes a yes fail, or one that lasts.
    let yes = json!({ "approved": true, "rememberChoice": true });
    let deploy = agent.submit("deploy", json!({})).await.expect(202);
    ann.post(&confirmation(&deploy), &yes).await.expect(200);
    ann.post(&confirmation(&held(&agent, None, 1).await), &yes).await.expect(200);
    assert_eq!(ann.get("/v1/grants").await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_socket_asks_what_waits_and_what_comes_and_takes_answers() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let first = held(&agent, Some("s"), 1).await;
    let mut talk = connect(&stage).await;
    let asked = talk.hear().await;
    assert_eq!(asked["type"], "toolConfirmationRequest");
    let data = &asked["data"];
    assert_eq!(data["executionId"], first["holds"][0]["id"]);
    assert_eq!(
        (&data["toolName"], &data["args"], &data["sessionId"], &data["description"]),
        (&json!("write_file"), &json!({ "n": 1 }), &json!("s"), &json!("Writes"))
    );
    assert_eq!(data["timestamp"], first["holds"][0]["opened_at"]);
    let second = held(&agent, None, 2).await;
    // What waited may be asked once more, as it happened.
    let mut asked = talk.hear().await;
    while asked["data"]["executionId"] == first["holds"][0]["id"] {
        asked = talk.hear().await;
    }
    assert_eq!(asked["data"]["executionId"], second["holds"][0]["id"]);
    assert_eq!(asked["data"].get("sessionId"), None);

    let say = |call: &Value, approved: bool| {
        let data = json!({ "executionId": call["holds"][0]["id"], "approved": approved });
        json!({ "type": "toolConfirmationResponse", "data": data })
    };
    talk.say(say(&first, false)).await;
    let path = format!("/v1/calls/{}?wait=30", text(&first, "id"));
    assert_eq!(agent.get(&path).await.expect(200)["refusal"]["kind"], "denied_by_approver");
    talk.say(say(&first, true)).await;
    let error = json!({ "type": "error", "data": { "message": "Confirmation not found or expired" } });
    assert_eq!(talk.hear().await, error);
    talk.say(json!({ "type": "approve everything", "data": { "approved": true } })).await;
    assert_eq!(talk.hear().await["type"], "error");
    assert_eq!(agent.get(&path).await.expect(200)["state"], "denied");
}

/// The dialect has the same walls as everything else: no other page, no form, no agent.
#[tokio::test]
async fn a_foreign_page_confirms_nothing() {
    let stage = Stage::new().await;
    let call = held(&stage.agent().await, Some("s"), 1).await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let post = |body: &'static str| browser.request(reqwest::Method::POST, &confirmation(&call)).body(body);
    let yes = r#"{"approved":true}"#;
    assert_eq!(post(yes).header("content-type", "text/plain").send().await.unwrap().status(), 415);
    let foreign = post(yes).header("content-type", "application/json").header("origin", "https://evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    let cookie = ("cookie", browser.cookie().to_owned());
    assert_eq!(socket(&stage, "/saiki/ws", std::slice::from_ref(&cookie)).await.err(), Some(403));
    let ann = stage.with(Role::Approver, "ann").await;
    assert_eq!(ann.get("/v1/holds").await.expect(200)["items"].as_array().unwrap().len(), 1);
    ann.get("/saiki/nothing").await.problem(404, "not_found");
}
