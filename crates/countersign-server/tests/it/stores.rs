//! The same over durable stores: what is found by reading a store's order works in every one of them.

use countersign_api::wire::Role;
use countersign_testkit::stores::Kind;
use serde_json::json;

use crate::stage::{POLICY, Stage, text};

#[tokio::test]
async fn calls_streams_and_pages_work_on_sqlite() {
    works_on(Kind::Sqlite).await;
}

#[tokio::test]
async fn calls_streams_and_pages_work_on_postgres() {
    works_on(Kind::Postgres).await;
}

async fn works_on(kind: Kind) {
    let test = kind.fresh().await.unwrap();
    let before = Stage::over(test.store(), POLICY).await;
    let (agent, ann) = (before.agent().await, before.ann().await);
    for n in 0..5 {
        let call = agent.submit("write_file", json!({ "n": n })).await.expect(202);
        let hold = &call["holds"][0];
        let approve = json!({ "answer": "approve", "digest": hold["digest"] });
        ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &approve).await.expect(200);
        agent.post(&format!("/v1/calls/{}/claim", text(&call, "id")), &json!({})).await.expect(200);
    }
    before.end().await;

    // Another server on the same store: credentials, calls and the end of the log are where they were.
    let stage = Stage::over(test.store(), POLICY).await;
    let ann = stage.with(Role::Approver, "ann").await;
    let newest = ann.get("/v1/calls?order=newest&limit=2").await.expect(200);
    let numbers: Vec<u64> =
        newest["items"].as_array().unwrap().iter().filter_map(|call| call["arguments"]["n"].as_u64()).collect();
    assert_eq!(numbers, [4, 3]);
    let insights = ann.get("/v1/insights").await.expect(200);
    assert_eq!((&insights["holds"]["opened"], &insights["holds"]["approved"]), (&json!(5), &json!(5)));
}
