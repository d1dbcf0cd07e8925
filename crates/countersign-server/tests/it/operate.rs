//! Operating: halt, policy, insights, health and the end of the server.

use countersign_api::wire::Role;
use serde_json::json;

use crate::events::Events;
use crate::stage::{Stage, text};

#[tokio::test]
async fn nothing_is_claimed_while_halted() {
    let stage = Stage::new().await;
    let (agent, operator) = (stage.agent().await, stage.with(Role::Operator, "op").await);
    let call = agent.submit("read_file", json!({})).await.expect(200);
    let claim = format!("/v1/calls/{}/claim", text(&call, "id"));
    operator.post("/v1/halt", &json!({ "reason": "strange" })).await.expect(200);
    agent.post(&claim, &json!({})).await.problem(409, "halted");
    operator.post("/v1/resume", &json!({ "reason": "x" })).await.problem(400, "bad_request");
    operator.post("/v1/resume", &json!({})).await.expect(200);
    agent.post(&claim, &json!({})).await.expect(200);
}

#[tokio::test]
async fn the_policy_is_shown_and_explained() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let policy = ann.get("/v1/policy").await.expect(200);
    assert_eq!((&policy["rules"], &policy["unattended"]), (&json!(4), &json!("deny")));
    let ask = ann.post("/v1/policy/explain", &json!({ "tool": "write_file", "arguments": {} })).await.expect(200);
    assert_eq!((&ask["effect"], &ask["because"][0]["rule"]), (&json!("ask"), &json!("writes")));
    assert_eq!(ask["would_change"].as_array().unwrap().len(), 2);
    let deny = ann.post("/v1/policy/explain", &json!({ "tool": "drop_all", "arguments": {} })).await.expect(200);
    assert_eq!(deny["effect"], "deny");
}

#[tokio::test]
async fn insights_count_how_holds_ended() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    for answer in ["approve", "approve", "deny"] {
        let call = agent.submit("write_file", json!({ "answer": answer })).await.expect(202);
        let call =
            if answer == "approve" { call } else { agent.submit("write_file", json!({ "n": 2 })).await.expect(202) };
        let hold = &call["holds"][0];
        let path = format!("/v1/holds/{}/decisions", text(hold, "id"));
        ann.post(&path, &json!({ "answer": answer, "digest": hold["digest"] })).await.expect(200);
    }
    let insights = ann.get("/v1/insights?hours=1").await.expect(200);
    assert_eq!(insights["complete"], true);
    let holds = &insights["holds"];
    assert_eq!((&holds["opened"], &holds["approved"], &holds["denied"]), (&json!(4), &json!(2), &json!(1)));
    assert!(holds["timing"]["median"].is_u64());
    assert_eq!(insights["by_rule"][0][0], "writes");
    assert_eq!(insights["by_tool"][0][1]["opened"], 4);
    let opened: u64 =
        insights["over_time"].as_array().unwrap().iter().map(|step| step["opened"].as_u64().unwrap()).sum();
    assert_eq!(opened, 4);
    let waits = insights["waits"].as_array().unwrap();
    assert_eq!((waits.len(), &waits[0]["under"]), (7, &json!(5_000)));
    assert_eq!(waits.iter().map(|wait| wait["decided"].as_u64().unwrap()).sum::<u64>(), 3);
    assert_eq!(insights["savings"], json!([]), "somebody said no");
}

/// What people always approve, a rule could; but never a tool that runs whatever it is told to.
#[tokio::test]
async fn insights_name_the_prompts_that_a_rule_would_have_saved() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    for n in 0..4 {
        for tool in ["write_file", "bash"] {
            let call = agent.submit(tool, json!({ "n": n })).await.expect(202);
            let hold = &call["holds"][0];
            let path = format!("/v1/holds/{}/decisions", text(hold, "id"));
            ann.post(&path, &json!({ "answer": "approve", "digest": hold["digest"] })).await.expect(200);
        }
    }
    let insights = ann.get("/v1/insights?hours=1").await.expect(200);
    assert_eq!(insights["savings"], json!([{ "rule": "writes", "tool": "write_file", "prompts": 4 }]));
}

#[tokio::test]
async fn the_record_is_read_in_pages_by_auditors() {
    let stage = Stage::new().await;
    let (agent, auditor) = (stage.agent().await, stage.with(Role::Auditor, "eve").await);
    for n in 0..4 {
        agent.submit("read_file", json!({ "n": n })).await.expect(200);
    }
    stage.gate.checkpoint().await.unwrap();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = auditor.get(&format!("/v1/audit?limit=3&session=s{after}")).await.expect(200);
        found.extend(page["items"].as_array().unwrap().iter().map(|event| text(event, "event").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found.iter().filter(|name| *name == "call.submitted").count(), 4);
    let signed = auditor.get("/v1/audit/checkpoints").await.expect(200);
    assert_eq!(signed["items"][0]["event"], "checkpoint.signed");
    assert_eq!(auditor.get("/v1/keys").await.expect(200)["keys"][0]["key"], stage.signer.public_key());
}

/// Nodes on one database sign with keys of their own; each lists the keys of all, so that whoever reads the record at
/// one of them knows who signed.
#[tokio::test]
async fn every_node_lists_the_keys_of_all() {
    let test = countersign_testkit::stores::Kind::Postgres.fresh().await.unwrap();
    let one = Stage::over(test.store(), crate::stage::POLICY).await;
    let agent = one.agent().await;
    agent.submit("read_file", json!({ "n": 1 })).await.expect(200);
    one.gate.checkpoint().await.unwrap();
    let other = Stage::over(test.store(), crate::stage::POLICY).await;
    other.also(&agent).submit("read_file", json!({ "n": 2 })).await.expect(200);
    other.gate.checkpoint().await.unwrap();
    let gone = one.signer.public_key();
    one.end().await;
    let third = Stage::over(test.store(), crate::stage::POLICY).await;
    for (stage, own) in [(&other, &other.signer), (&third, &third.signer)] {
        let auditor = stage.with(Role::Auditor, "eve").await;
        let keys = auditor.get("/v1/keys").await.expect(200);
        let listed: Vec<&str> = keys["keys"].as_array().unwrap().iter().map(|key| text(key, "key")).collect();
        assert!(listed.contains(&gone.as_str()) && listed.contains(&other.signer.public_key().as_str()), "{keys}");
        let current: Vec<&serde_json::Value> =
            keys["keys"].as_array().unwrap().iter().filter(|key| key["current"] == true).collect();
        assert_eq!(current.len(), 1, "{keys}");
        assert_eq!(text(current[0], "key"), own.public_key());
        let signed = auditor.get("/v1/audit/checkpoints").await.expect(200);
        for checkpoint in signed["items"].as_array().unwrap() {
            assert!(listed.contains(&text(&checkpoint["body"], "key")), "{checkpoint}");
        }
    }
}

/// What the policy says, what people say and how long they take is counted.
#[tokio::test]
async fn verdicts_and_decisions_are_counted() {
    let stage = Stage::new().await;
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let mut events = Events::open(&ann, "/v1/events").await;
    events.until("ready").await;
    agent.submit("read_file", json!({})).await.expect(200);
    agent.submit("drop_table", json!({})).await.expect(200);
    for (n, answer) in ["approve", "deny", "deny"].into_iter().enumerate() {
        let call = agent.submit("write_file", json!({ "n": n })).await.expect(202);
        let hold = &call["holds"][0];
        let decision = json!({ "answer": answer, "digest": hold["digest"] });
        ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &decision).await.expect(200);
        // What was told was counted.
        events.until("hold.decided").await;
    }
    let metrics = stage.nobody().get("/metrics").await.expect(200);
    let metrics = metrics.as_str().unwrap();
    for line in [
        r#"countersign_verdicts_total{effect="allow"} 1"#,
        r#"countersign_verdicts_total{effect="ask"} 3"#,
        r#"countersign_verdicts_total{effect="deny"} 1"#,
        r#"countersign_decisions_total{answer="approve"} 1"#,
        r#"countersign_decisions_total{answer="deny"} 2"#,
        r#"countersign_decision_seconds_bucket{le="3600"} 3"#,
        "countersign_decision_seconds_count 3",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn the_server_says_how_it_is_and_names_nobody() {
    let stage = Stage::new().await;
    stage.agent().await.submit("write_secret_plan", json!({})).await.expect(202);
    let nobody = stage.nobody();
    assert_eq!(nobody.get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(nobody.get("/readyz").await.expect(200)["status"], "ok");
    let metrics = nobody.get("/metrics").await.expect(200);
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("countersign_holds_pending 1"), "{metrics}");
    assert!(metrics.contains(r#"route="/v1/calls",method="POST",status="202"} 1"#), "{metrics}");
    assert!(!metrics.contains("secret_plan") && !metrics.contains("bot"), "{metrics}");
    for line in ["countersign_delivery_failures_total 0", "countersign_holds_expired_total 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert_eq!(nobody.get("/openapi.json").await.expect(200)["openapi"], "3.1.0");
}

/// Waiting requests are answered, not cut, when the server ends.
#[tokio::test]
async fn the_server_ends_with_its_last_answer() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let call = agent.submit("write_file", json!({})).await.expect(202);
    let path = format!("/v1/calls/{}?wait=60", text(&call, "id"));
    let waiting = tokio::spawn(async move { agent.get(&path).await.expect(200) });
    // The tail listens, too, and whoever remembers credentials.
    while stage.gate.store().bell().listeners() < 3 {
        tokio::task::yield_now().await;
    }
    stage.end().await;
    assert_eq!(waiting.await.unwrap()["state"], "pending");
}
