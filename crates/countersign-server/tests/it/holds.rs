//! Holds over HTTP: listed, looked at and decided.

use countersign_api::wire::Role;
use serde_json::{Value, json};

use crate::stage::{Client, Stage, text};

async fn held(agent: &Client, tool: &str, arguments: Value) -> Value {
    agent.submit(tool, arguments).await.expect(202)["holds"][0].clone()
}

fn decisions(hold: &Value) -> String {
    format!("/v1/holds/{}/decisions", text(hold, "id"))
}

/// B124: idempotent; not found 404, closed or conflicting 409, each with a stable code.
#[tokio::test]
async fn a_hold_closes_once_and_every_refusal_has_its_code() {
    let stage = Stage::new().await;
    let (agent, ann, bo) = (stage.agent().await, stage.ann().await, stage.with(Role::Approver, "bo").await);
    let hold = held(&agent, "write_file", json!({ "path": "a" })).await;
    let other = held(&agent, "write_file", json!({ "path": "b" })).await;
    let approve = json!({ "answer": "approve", "digest": hold["digest"] });
    let wrong = json!({ "answer": "approve", "digest": other["digest"] });
    ann.post(&decisions(&hold), &wrong).await.problem(409, "digest_mismatch");
    ann.post("/v1/holds/hold_00000000000070008000000000000000/decisions", &approve).await.problem(404, "not_found");
    let stray = json!({ "answer": "approve", "digest": hold["digest"], "reason": "x" });
    ann.post(&decisions(&hold), &stray).await.problem(400, "invalid_decision");
    let unknown = json!({ "answer": "approve", "digest": hold["digest"], "by": "bo" });
    ann.post(&decisions(&hold), &unknown).await.problem(400, "bad_request");
    assert_eq!(ann.post(&decisions(&hold), &approve).await.expect(200)["replayed"], false);
    assert_eq!(ann.post(&decisions(&hold), &approve).await.expect(200)["replayed"], true);
    bo.post(&decisions(&hold), &approve).await.problem(409, "hold_closed");
    agent.post(&decisions(&other), &wrong).await.problem(403, "forbidden");
}

#[tokio::test]
async fn two_people_are_two_people() {
    let stage = Stage::new().await;
    let (agent, ann, bo) = (stage.agent().await, stage.ann().await, stage.with(Role::Approver, "bo").await);
    let hold = held(&agent, "deploy", json!({})).await;
    let approve = json!({ "answer": "approve", "digest": hold["digest"] });
    assert_eq!(ann.post(&decisions(&hold), &approve).await.expect(200)["state"], "pending");
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    ann.post(&decisions(&hold), &deny).await.problem(409, "already_decided");
    let detail = bo.get(&format!("/v1/holds/{}", text(&hold, "id"))).await.expect(200);
    assert_eq!(detail["hold"]["approvals"], json!([{ "approvals": 2, "from": [], "have": 1 }]));
    assert_eq!(bo.post(&decisions(&hold), &approve).await.expect(200)["state"], "approved");
}

/// B125, B128: what is shown is made by the one renderer from the frozen bytes, with what might deceive marked.
#[tokio::test]
async fn a_hold_shows_everything_that_is_needed_to_decide() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let definition = json!({ "description": "Writes a file.", "annotations": { "destructiveHint": true } });
    let arguments = json!({ "path": "../a\u{202e}txt.exe", "n": 12345678901234567890_u64 });
    let body = |session: &str| json!({ "session": session, "tool": "write_file", "arguments": arguments, "definition": definition, "hint": "ok" });
    let call = agent.post("/v1/calls", &body("s")).await.expect(202);
    let twin = agent.post("/v1/calls", &body("t")).await.expect(202);
    let detail = ann.get(&format!("/v1/holds/{}", text(&call["holds"][0], "id"))).await.expect(200);
    assert_eq!(detail["definition"]["description"], "Writes a file.");
    assert_eq!(detail["siblings"][0]["id"], twin["holds"][0]["id"]);
    assert_eq!(detail["verdict"]["because"][0]["rule"], "writes");
    assert!(text(&detail, "arguments_text").contains("12345678901234567890"));
    let codes: Vec<&str> = detail["warnings"].as_array().unwrap().iter().map(|found| text(found, "code")).collect();
    assert_eq!(codes, ["bidi", "outside_path", "destructive", "first_seen"]);
    let again = ann.get(&format!("/v1/holds/{}", text(&twin["holds"][0], "id"))).await.expect(200);
    let codes: Vec<&str> = again["warnings"].as_array().unwrap().iter().map(|found| text(found, "code")).collect();
    assert_eq!(codes, ["bidi", "outside_path", "destructive"], "the second call of a tool is not its first");
    let shown: Vec<&str> = detail["view"].as_array().unwrap().iter().map(|line| text(line, "text")).collect();
    assert!(shown.iter().any(|text| text.contains(r"a\u{202e}txt.exe")), "{shown:#?}");
    assert!(!shown.iter().any(|text| text.contains('\u{202e}')));
}

#[tokio::test]
async fn an_edit_runs_as_edited_and_a_grant_is_shown_before_it_is_made() {
    let stage = Stage::new().await;
    let (agent, ann, operator) = (stage.agent().await, stage.ann().await, stage.with(Role::Operator, "op").await);
    let hold = held(&agent, "write_file", json!({ "path": "a" })).await;
    let remember = json!({ "scope": "session", "covers": { "fields": ["path"] }, "expires_after": "1h" });
    let preview = format!("/v1/holds/{}/preview-grant", text(&hold, "id"));
    let shown = ann.post(&preview, &json!({ "remember": remember })).await.expect(200);
    assert!(text(&shown, "rule").starts_with("allow write_file whenever the same in path"), "{shown:#}");
    assert_eq!(shown["examples"][0]["arguments"], json!({ "path": "a" }));
    let lacking = json!({ "remember": { "scope": "session", "covers": { "fields": ["nope"] } } });
    ann.post(&preview, &lacking).await.problem(409, "grant_refused");

    let approve = json!({ "answer": "approve", "digest": hold["digest"], "remember": remember });
    let decided = ann.post(&decisions(&hold), &approve).await.expect(200);
    let grant = text(&decided["grant"], "id").to_owned();
    let again = agent.submit("write_file", json!({ "path": "a", "mode": 1 })).await.expect(200);
    assert_eq!((&again["state"], &again["grant"]), (&json!("allowed"), &json!(grant)));

    // An approver's grants are their own; an operator's are all.
    let bo = stage.with(Role::Approver, "bo").await;
    assert_eq!(bo.get("/v1/grants").await.expect(200)["items"], json!([]));
    bo.delete(&format!("/v1/grants/{grant}")).await.problem(404, "not_found");
    assert_eq!(operator.get("/v1/grants").await.expect(200)["items"][0]["id"], *grant);
    let revoked = ann.delete(&format!("/v1/grants/{grant}")).await.expect(200);
    assert_eq!((&revoked["live"], &revoked["revoked_by"]), (&json!(false), &json!("ann")));
    agent.post(&format!("/v1/calls/{}/claim", text(&again, "id")), &json!({})).await.problem(409, "wrong_state");

    let hold = held(&agent, "write_file", json!({ "path": "b" })).await;
    let edited = json!({ "answer": "approve", "digest": hold["digest"], "arguments": { "path": "c" } });
    let decided = ann.post(&decisions(&hold), &edited).await.expect(200);
    assert_eq!(decided["call"]["arguments"], json!({ "path": "c" }));
}

#[tokio::test]
async fn holds_are_paged_oldest_first() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    for n in 0..7 {
        held(&agent, "write_file", json!({ "n": n })).await;
    }
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = ann.get(&format!("/v1/holds?limit=3{after}")).await.expect(200);
        found.extend(page["items"].as_array().unwrap().iter().map(|hold| hold["arguments"]["n"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
    ann.get("/v1/holds?after=nonsense").await.problem(400, "bad_request");
    ann.get("/v1/holds?stat=pending").await.problem(400, "bad_request");
}
