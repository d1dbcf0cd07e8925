//! Who may do what: every route, by every role and by nobody.

use countersign_api::wire::Role;
use countersign_server::{Row, table};
use reqwest::Method;
use serde_json::json;

use crate::stage::{Stage, read};

/// I9: every route lets in exactly the roles of its row, and tells everybody else so.
#[tokio::test]
async fn every_verb_by_every_scope() {
    let stage = Stage::new().await;
    let id = "call_00000000000070008000000000000000";
    let mut cells = 0;
    for row in table() {
        let path = row.path.replace("{id}", id);
        let method: Method = row.method.parse().unwrap();
        for role in Role::ALL.into_iter().map(Some).chain([None]) {
            let client = match role {
                Some(role) => stage.with(role, &format!("{role}-{cells}")).await,
                None => stage.nobody(),
            };
            let answered = client.request(method.clone(), &path).header("content-type", "application/json").body("{}");
            // A stream that is let in answers at once and goes on; its head is all we need.
            let response = answered.send().await.unwrap();
            let status = response.status().as_u16();
            let let_in = row.roles.is_empty() || role.is_some_and(|role| row.roles.contains(&role));
            let what = format!("{} {} by {role:?}: {status}", row.method, row.path);
            match (let_in, role) {
                (true, _) => assert!(!matches!(status, 401 | 403), "{what}"),
                // So many strangers are told to wait; that, too, is a no.
                (false, None) => assert!(matches!(status, 401 | 429), "{what}"),
                (false, Some(_)) => {
                    read(response).await.problem(403, "forbidden");
                }
            }
            cells += 1;
        }
    }
    assert!(cells >= 42 * 5, "only {cells} cells");
}

/// Who may do what, as it was agreed: a row that is wider, or new, is looked at by somebody before it passes.
#[test]
fn the_matrix_is_as_agreed() {
    let row = |row: Row| {
        let roles: Vec<&str> = row.roles.iter().map(|role| role.as_str()).collect();
        let who = if roles.is_empty() { "anybody".to_owned() } else { roles.join(" ") };
        format!("{} {}: {who}", row.method, row.path)
    };
    let mut rows: Vec<String> = table().into_iter().map(row).collect();
    rows.sort();
    let agreed: Vec<&str> = include_str!("matrix.txt").lines().collect();
    assert_eq!(rows, agreed, "\n{}", rows.join("\n"));
}

/// A credential that tries what it may not is on the record.
#[tokio::test]
async fn a_refused_access_is_recorded() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    agent.get("/v1/holds").await.problem(403, "forbidden");
    let auditor = stage.with(Role::Auditor, "eve").await;
    let log = auditor.get("/v1/audit").await.expect(200);
    let refused = log["items"].as_array().unwrap().iter().find(|event| event["event"] == "access.refused").unwrap();
    assert_eq!(refused["body"]["who"], "bot");
    assert_eq!(refused["body"]["path"], "/v1/holds");
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_and_not_a_page() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    ann.get("/v1/nothing").await.problem(404, "not_found");
    ann.get("/v1/holds/hold_nonsense").await.problem(404, "not_found");
    ann.post("/v1/me", &json!({})).await.problem(405, "method_not_allowed");
    let page = stage.nobody().get("/inbox/some/where").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
}
