//! Calls over HTTP: submitted, waited for, claimed, run and reported.

use countersign_api::wire::Role;
use serde_json::json;

use crate::events::Events;
use crate::stage::{Stage, text};

#[tokio::test]
async fn a_call_goes_the_whole_way() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let call = agent.submit("write_file", json!({ "path": "a.txt" })).await.expect(202);
    let id = text(&call, "id").to_owned();
    assert_eq!(call["state"], "pending");
    assert_eq!(call["principal"], "bot");
    agent.post(&format!("/v1/calls/{id}/claim"), &json!({})).await.problem(409, "wrong_state");

    let hold = &call["holds"][0];
    let decide = format!("/v1/holds/{}/decisions", text(hold, "id"));
    let decided = ann.post(&decide, &json!({ "answer": "approve", "digest": hold["digest"] })).await.expect(200);
    assert_eq!((&decided["state"], &decided["replayed"]), (&json!("approved"), &json!(false)));
    assert_eq!(decided["call"]["decided_by"], "ann");

    let waited = agent.get(&format!("/v1/calls/{id}?wait=30")).await.expect(200);
    assert_eq!(waited["state"], "approved");
    let claimed = agent.post(&format!("/v1/calls/{id}/claim"), &json!({})).await.expect(200);
    assert_eq!(claimed["arguments"], json!({ "path": "a.txt" }));
    agent.post(&format!("/v1/calls/{id}/claim"), &json!({})).await.problem(409, "already_claimed");
    let fence = &claimed["fence"];
    agent.post(&format!("/v1/calls/{id}/renew"), &json!({ "fence": fence })).await.expect(200);
    agent.post(&format!("/v1/calls/{id}/renew"), &json!({ "fence": 99 })).await.problem(409, "stale_fence");
    let outcome = json!({ "outcome": "succeeded", "output": { "written": 3 }, "fence": fence });
    let done = agent.post(&format!("/v1/calls/{id}/outcome"), &outcome).await.expect(200);
    assert_eq!(done["state"], "succeeded");
    assert_eq!(done["outcome"]["output"], json!({ "written": 3 }));
}

/// A receipt names who approved and what, and the key of the server signed it.
#[tokio::test]
async fn a_claim_comes_with_a_receipt() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let body = json!({ "session": "s", "tool": "read_file", "arguments": {}, "claim": true });
    let claimed = agent.post("/v1/calls", &body).await.expect(200);
    let receipt = &claimed["receipt"];
    let (statement, signature) = (text(receipt, "statement"), text(receipt, "signature"));
    assert!(countersign::signer::verify(&stage.signer.public_key(), statement, signature));
    let stated: serde_json::Value = serde_json::from_str(statement).unwrap();
    assert_eq!(stated["digest"], claimed["digest"]);
    assert_eq!(stated["call"], claimed["call"]);
}

/// B132: people read whether anybody waits for a call, as whoever holds it open for others says.
#[tokio::test]
async fn people_know_who_waits_as_far_as_it_is_told() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let body = json!({ "session": "s", "server": "files", "tool": "write", "arguments": {} });
    let call = agent.post("/v1/calls", &body).await.expect(202);
    let told = format!("/v1/calls/{}/caller", text(&call, "id"));
    let no_caller = async || ann.get("/v1/holds").await.expect(200)["items"][0]["no_caller"].clone();
    assert_eq!(no_caller().await, false, "nothing was said");
    for (who, gone) in [("waits", false), ("gone", true), ("waits", false), ("gone", true), ("unknown", false)] {
        agent.post(&told, &json!({ "caller": who, "by": "gateway" })).await.expect(200);
        assert_eq!(no_caller().await, gone, "{who}");
    }
    agent.post(&told, &json!({ "caller": "waits", "by": "x".repeat(10_000) })).await.problem(400, "bad_request");
    agent.post(&told, &json!({ "caller": "somebody" })).await.problem(400, "bad_request");
}

/// I8: absent and foreign answer the same, for every verb.
#[tokio::test]
async fn an_agent_sees_and_touches_only_its_own() {
    let stage = Stage::new().await;
    let (bot, other) = (stage.agent().await, stage.with(Role::Agent, "other").await);
    let call = bot.submit("write_file", json!({})).await.expect(202);
    let id = text(&call, "id");
    let absent = "call_00000000000070008000000000000000";
    for id in [id, absent] {
        let read = other.get(&format!("/v1/calls/{id}")).await.problem(404, "not_found");
        assert_eq!(read["detail"], serde_json::Value::Null);
        for (verb, body) in [
            ("claim", json!({})),
            ("caller", json!({ "caller": "gone" })),
            ("cancel", json!({})),
            ("renew", json!({ "fence": 1 })),
            ("holds", json!({ "hint": "x", "fence": 1 })),
            ("outcome", json!({ "outcome": "failed", "fence": 1 })),
        ] {
            other.post(&format!("/v1/calls/{id}/{verb}"), &body).await.problem(404, "not_found");
        }
    }
    assert_eq!(other.get("/v1/calls").await.expect(200)["items"], json!([]));
    assert_eq!(bot.get("/v1/calls").await.expect(200)["items"][0]["id"], *id);
    assert_eq!(bot.get(&format!("/v1/calls/{id}")).await.expect(200)["state"], "pending");
}

#[tokio::test]
async fn the_same_key_is_the_same_call() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let body = |n: u32| json!({ "session": "s", "tool": "write_file", "arguments": { "n": n }, "key": "step-1" });
    let first = agent.post("/v1/calls", &body(1)).await.expect(202);
    let again = agent.post("/v1/calls", &body(1)).await.expect(202);
    assert_eq!(first["id"], again["id"]);
    agent.post("/v1/calls", &body(2)).await.problem(409, "key_reused");
}

/// What cannot be read strictly is refused and recorded; nobody is asked.
#[tokio::test]
async fn bad_arguments_are_a_refusal_with_words_for_the_model() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    for arguments in [r#"{"a": 1, "A": 2}"#, "[1]", r#"{"a": 1, "a": 1}"#] {
        let body = format!(r#"{{"session": "s", "tool": "write_file", "arguments": {arguments}}}"#);
        let request = agent.request(reqwest::Method::POST, "/v1/calls").header("content-type", "application/json");
        let call = crate::stage::read(request.body(body).send().await.unwrap()).await.expect(200);
        assert_eq!((&call["state"], &call["refusal"]["kind"]), (&json!("denied"), &json!("invalid_arguments")));
        assert!(text(&call, "words").starts_with("Not run."), "{call:#}");
    }
    let denied = agent.submit("drop_table", json!({})).await.expect(200);
    assert_eq!(denied["refusal"]["kind"], "denied_by_rule");
}

/// B130: a running tool asks; its question is decided like any other, and the answer comes with the call.
#[tokio::test]
async fn a_running_tool_asks_and_reads_the_answer() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let body = json!({ "session": "s", "tool": "read_file", "arguments": {}, "claim": true });
    let claimed = agent.post("/v1/calls", &body).await.expect(200);
    let id = text(&claimed, "call");
    let asked = json!({ "hint": "Really?", "payload": { "n": 1 }, "fence": claimed["fence"] });
    let hold = agent.post(&format!("/v1/calls/{id}/holds"), &asked).await.expect(202);
    let decide = format!("/v1/holds/{}/decisions", text(&hold, "id"));
    let no_edit = json!({ "answer": "approve", "digest": hold["digest"], "arguments": {} });
    ann.post(&decide, &no_edit).await.problem(409, "in_run_only");

    // While halted, a yes is recorded and not delivered.
    let operator = stage.with(Role::Operator, "op").await;
    operator.post("/v1/halt", &json!({})).await.expect(200);
    let mut live = Events::open(&agent, "/v1/events").await;
    let mut late = Events::open(&agent, "/v1/events?after=0.0").await;
    let yes = json!({ "answer": "approve", "digest": hold["digest"], "payload": { "go": true } });
    ann.post(&decide, &yes).await.expect(200);
    let halted = agent.get(&format!("/v1/calls/{id}")).await.expect(200);
    assert_eq!(halted["holds"][0]["state"], "pending");
    // Streams keep it back as well: what happens next is told before it.
    let next = agent.submit("read_file", json!({ "next": true })).await.expect(200);
    for events in [&mut live, &mut late] {
        loop {
            let (name, _, event) = events.next().await.unwrap();
            assert_ne!(name, "hold.decided", "{event:#}");
            if name == "call.submitted" && event["call"] == next["id"] {
                break;
            }
        }
    }
    operator.post("/v1/resume", &json!({})).await.expect(200);
    let answered = agent.get(&format!("/v1/calls/{id}?wait=30")).await.expect(200);
    assert_eq!(answered["holds"][0]["state"], "approved");
    assert_eq!(answered["holds"][0]["payload"], json!({ "go": true }));
    for events in [&mut live, &mut late] {
        let decided = events.until("hold.decided").await;
        assert_eq!((&decided["hold"], &decided["body"]["answer"]), (&hold["id"], &json!("approve")));
    }
}

/// A wait ends when the call is decided, not when its time is over.
#[tokio::test]
async fn a_wait_ends_with_the_decision() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let path = format!("/v1/calls/{}?wait=60", text(&call, "id"));
    let waiting = tokio::spawn(async move { agent.get(&path).await.expect(200) });
    let hold = &call["holds"][0];
    let deny = json!({ "answer": "deny", "digest": hold["digest"], "reason": "no" });
    ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &deny).await.expect(200);
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert_eq!(waited["refusal"], json!({ "kind": "denied_by_approver", "reason": "no", "by": "ann" }));
}

#[tokio::test]
async fn history_is_listed_and_searched_from_either_end() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    for n in 0..25 {
        agent.submit("write_file", json!({ "n": n, "to": if n % 5 == 0 { "Bo" } else { "Al" } })).await.expect(202);
    }
    let numbers = |page: &serde_json::Value| -> Vec<u64> {
        page["items"].as_array().unwrap().iter().map(|call| call["arguments"]["n"].as_u64().unwrap()).collect()
    };
    for (query, expected) in [
        ("limit=10", (0..25).collect::<Vec<u64>>()),
        ("limit=10&order=newest", (0..25).rev().collect()),
        ("limit=2&q=bo%22", vec![0, 5, 10, 15, 20]),
        ("limit=2&q=BO%22&order=newest", vec![20, 15, 10, 5, 0]),
    ] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = ann.get(&format!("/v1/calls?{query}{after}")).await.expect(200);
            found.extend(numbers(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn a_call_is_withdrawn_and_a_doubt_is_settled_once() {
    let stage = Stage::new().await;
    let (agent, operator) = (stage.agent().await, stage.with(Role::Operator, "op").await);
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let cancelled = agent.post(&format!("/v1/calls/{}/cancel", text(&call, "id")), &json!({})).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");

    let body = json!({ "session": "s", "tool": "read_file", "arguments": {}, "claim": true });
    let claimed = agent.post("/v1/calls", &body).await.expect(200);
    let id = text(&claimed, "call");
    let lost = json!({ "outcome": "may_have_applied", "output": "the line went dead", "fence": claimed["fence"] });
    let doubt = agent.post(&format!("/v1/calls/{id}/outcome"), &lost).await.expect(200);
    assert_eq!(doubt["state"], "in_doubt");
    assert!(text(&doubt, "words").starts_with("Outcome unknown"));
    let listed = operator.get("/v1/calls?state=in_doubt").await.expect(200);
    assert_eq!(listed["items"][0]["id"], *id);
    let settle = format!("/v1/calls/{id}/resolve");
    operator.post(&settle, &json!({ "as": "applied", "reason": " " })).await.problem(400, "bad_request");
    let resolved = operator.post(&settle, &json!({ "as": "not_applied", "reason": "I looked" })).await.expect(200);
    assert_eq!(resolved["resolution"]["by"], "op");
    operator.post(&settle, &json!({ "as": "applied", "reason": "x" })).await.problem(409, "wrong_state");
}
