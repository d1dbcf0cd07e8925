//! Calls that wait as tasks: a client of the newer era asks how they stand, for as long as it likes.

use countersign_testkit::mcp::{ClientCapabilities, Era, McpClient, McpFixture, McpUser};
use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage};
use crate::gateway_web::{Door, Web};
use crate::serve::{Serving, token};

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }";

fn able(more: &Value) -> Value {
    let mut able = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    for (name, value) in more.as_object().unwrap() {
        able[name] = value.clone();
    }
    able
}

/// A client over HTTP that knows tasks.
struct Tasker {
    web: Web,
    able: Value,
}

impl Tasker {
    fn new(door: &Door, token: &str) -> Tasker {
        Tasker { web: Web::new(&door.url, token), able: able(&json!({})) }
    }

    /// Calls `write`; the task's name.
    async fn begin(&self, text: &str) -> String {
        let params = json!({"name": "write", "arguments": {"text": text}});
        let told = self.web.stateless("tools/call", "write", params, self.able.clone()).await;
        assert_eq!(
            (&told["result"]["resultType"], &told["result"]["status"]),
            (&json!("task"), &json!("working")),
            "{told}"
        );
        told["result"]["taskId"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, method: &str, task: &str, more: Value) -> Value {
        let mut params = more;
        params["taskId"] = task.into();
        self.web.stateless(method, task, params, self.able.clone()).await
    }

    async fn get(&self, task: &str) -> Value {
        let told = self.ask("tasks/get", task, json!({})).await;
        assert_eq!(told["result"]["resultType"], "complete", "{told}");
        told["result"].clone()
    }

    /// Asks until the task has ended.
    async fn ended(&self, task: &str) -> Value {
        loop {
            let told = self.get(task).await;
            if told["status"] != "working" {
                return told;
            }
        }
    }
}

/// B132: nothing runs for a client that does not ask; the outcome is there for as long as the task is.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_when_its_client_asks_and_keeps_its_outcome() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &[]);
    let client = Tasker::new(&door, &token(&stage.bed, "agent", "ann"));
    let task = client.begin("yes").await;
    assert_eq!(client.get(&task).await["status"], "working");
    assert_eq!(client.begin("yes").await, task, "the identical call is the same task, and takes no more room");
    assert_eq!(stage.holds().len(), 1, "the identical call joins the hold");
    stage.approve(&[]);
    assert_eq!(stage.ran(), [""; 0], "nobody has asked yet");
    let told = client.ended(&task).await;
    assert_eq!(told["status"], "completed", "{told}");
    assert_eq!(told["result"]["content"][0]["text"], "done: write");
    assert_eq!(client.get(&task).await, told, "it stays");
    assert_eq!(stage.ran(), [r#"write {"text":"yes"}"#]);
    let again = client.begin("yes").await;
    assert_eq!(stage.holds().len(), 1, "what was delivered is not delivered again: this is a new call");
    client.ask("tasks/cancel", &again, json!({})).await;
    let log = crate::bed::read(stage.bed.work().join("log"));
    let call = log.lines().find(|line| line.contains("tools/call")).unwrap();
    assert!(!call.contains("io.modelcontextprotocol/tasks"), "the server makes no task of its own of it: {call}");

    let denied = client.begin("no").await;
    stage.deny("not today");
    let told = client.ended(&denied).await;
    assert_eq!((&told["status"], &told["result"]["isError"]), (&json!("completed"), &json!(true)), "{told}");
    assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains("not today"), "{told}");

    let dropped = client.begin("never").await;
    assert_eq!(client.ask("tasks/cancel", &dropped, json!({})).await["result"], json!({"resultType": "complete"}));
    assert_eq!(client.get(&dropped).await["status"], "cancelled");
    assert_eq!((stage.holds().len(), stage.ran().len()), (0, 1));
}

/// The record is the truth: a gateway that starts anew knows every task, whatever happened meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_the_gateway() {
    let stage = Stage::new(ASK_WRITES);
    let secret = token(&stage.bed, "agent", "ann");
    let door = Door::open(&stage, &[]);
    let task = Tasker::new(&door, &secret).begin("x").await;
    drop(door);
    stage.approve(&[]);
    let door = Door::open(&stage, &[]);
    let client = Tasker::new(&door, &secret);
    assert_eq!(client.ended(&task).await["result"]["content"][0]["text"], "done: write");
    drop(door);
    let door = Door::open(&stage, &[]);
    let client = Tasker::new(&door, &secret);
    assert_eq!(client.get(&task).await["result"]["content"][0]["text"], "done: write");
    assert_eq!(stage.ran().len(), 1);
}

/// Whoever asks at the same time, it runs once.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_many_ask_for_runs_once() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &[]);
    let client = std::sync::Arc::new(Tasker::new(&door, &token(&stage.bed, "agent", "ann")));
    let task = client.begin("x").await;
    stage.approve(&[]);
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let (client, task) = (std::sync::Arc::clone(&client), task.clone());
            tokio::spawn(async move { client.ended(&task).await })
        })
        .collect();
    for told in asking {
        assert_eq!(told.await.unwrap()["status"], "completed");
    }
    assert_eq!(stage.ran().len(), 1);
}

/// A task is its principal's; what is no task of ours is the server's business.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_reaches_a_task_of_somebody_else() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &[]);
    let ann = Tasker::new(&door, &token(&stage.bed, "agent", "ann"));
    let bob = Tasker::new(&door, &token(&stage.bed, "agent", "bob"));
    let task = ann.begin("x").await;
    let forged = format!("{}{}", &task[..task.len() - 64], "0".repeat(64));
    for (who, name) in [(&bob, &*task), (&ann, &*forged), (&ann, &task[..task.len() - 1])] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let told = who.ask(method, name, json!({"inputResponses": {}})).await;
            assert_eq!(told["error"]["code"], -32602, "{method}: {told}");
        }
    }
    let told = ann.web.stateless("tasks/get", &task, json!({"taskId": task}), json!({})).await;
    assert_eq!(told["error"]["code"], -32021, "{told}");
    assert_eq!(ann.get(&task).await["status"], "working", "nothing happened to it");
    let told = ann.ask("tasks/get", "theirs", json!({})).await;
    assert_eq!(told["result"]["echo"], "tasks/get", "{told}");
    assert_eq!(stage.ran(), [""; 0]);
}

/// Where the policy accepts it, the person at the client decides from inside the task; nobody else's answer counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_asks_the_person_at_its_client() {
    let stage = Stage::new(
        "{ preset: allow-all, in_client: allow, rules: [{ id: writes, ask: plain/write, requester: allowed }] }",
    );
    let door = Door::open(&stage, &[]);
    let mut client = Tasker::new(&door, &token(&stage.bed, "agent", "ann"));
    let task = client.begin("x").await;
    assert_eq!(client.get(&task).await["status"], "working", "this client can show no form");
    let allow = || json!({"action": "accept", "content": {"decision": "allow"}});
    let hold = stage.holds()[0]["id"].as_str().unwrap().to_owned();
    client.ask("tasks/update", &task, json!({"inputResponses": {&*hold: allow()}})).await;
    client.able = able(&json!({"elicitation": {"url": {}}}));
    client.ask("tasks/update", &task, json!({"inputResponses": {&*hold: allow()}})).await;
    assert_eq!(stage.holds().len(), 1, "whoever was shown no form has filled none");

    client.able = able(&json!({"elicitation": {"form": {}}}));
    let told = client.get(&task).await;
    assert_eq!(told["status"], "input_required", "{told}");
    assert!(told["inputRequests"][&hold]["params"]["message"].as_str().unwrap().contains(r#"text: "x""#), "{told}");
    for answers in [json!({"other": allow()}), json!({&*hold: {"action": "cancel"}}), json!([]), json!(null)] {
        client.ask("tasks/update", &task, json!({"inputResponses": answers})).await;
        assert_eq!((stage.holds().len(), stage.ran().len()), (1, 0), "{answers}");
    }
    let told = client.ask("tasks/update", &task, json!({"inputResponses": {&*hold: allow()}})).await;
    assert_eq!(told["result"], json!({"resultType": "complete"}));
    let told = client.ended(&task).await;
    assert_eq!(told["result"]["content"][0]["text"], "done: write", "{told}");
    assert_eq!(stage.ran().len(), 1);
}

/// A link decides nothing, from inside a task either, though the policy would accept a form.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_task_decides_nothing() {
    let stage = Stage::new("{ preset: allow-all }");
    let near = Door::open(&stage, &["--no-token"]);
    let config = format!(
        "policy: {{ preset: allow-all, in_client: allow, rules: [{{ id: writes, ask: far/write, requester: allowed }}] \
         }}\nmcp_servers: {{ far: {{ url: '{}' }} }}\n",
        near.url
    );
    let serving = Serving::under(&stage.bed, &config, &stage.bed.url());
    let web = Web::new(&format!("{}/mcp/far", serving.url), &token(&stage.bed, "agent", "bot"));
    let client = Tasker { web, able: able(&json!({"elicitation": {"url": {}}})) };
    let task = client.begin("x").await;
    let told = client.get(&task).await;
    let hold = stage.holds()[0]["id"].as_str().unwrap().to_owned();
    let params = &told["inputRequests"][&hold]["params"];
    assert_eq!(params["url"], format!("{}/#/inbox/{hold}", serving.url), "{told}");
    let allow = json!({"action": "accept", "content": {"decision": "allow"}});
    client.ask("tasks/update", &task, json!({"inputResponses": {&*hold: allow}})).await;
    assert_eq!((stage.holds().len(), stage.ran().len()), (1, 0));
    stage.approve(&[]);
    assert_eq!(client.ended(&task).await["status"], "completed");
    assert_eq!(stage.ran().len(), 1);
}

/// On pipes, too; and a client that does not know tasks gets none.
#[test]
fn tasks_are_for_clients_that_know_them() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = Peer::bare(stage.gateway("policy.yml", &stage.bed.url(), &["--wait", "1s"], &[]));
    let mut ask = |method: &str, params: Value, capabilities: Value| -> Value {
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities});
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        serde_json::from_str(&peer.ask(&line)).unwrap()
    };
    let call = || json!({"name": "write", "arguments": {"text": "x"}});
    assert_eq!(ask("tools/call", call(), json!({}))["result"]["resultType"], "input_required");
    let told = ask("tools/call", call(), able(&json!({})));
    let task = told["result"]["taskId"].as_str().unwrap().to_owned();
    stage.approve(&[]);
    let mut get = || ask("tasks/get", json!({"taskId": task}), able(&json!({})))["result"].clone();
    while get()["status"] == "working" {}
    assert_eq!(get()["result"]["content"][0]["text"], "done: write");
}

/// A client that others made: it is told that there are tasks, gets one, and follows it; another one answers forms and is
/// shown what it allows, in both eras.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_client_follows_tasks_and_answers_forms() {
    let policy =
        "{ preset: allow-all, in_client: allow, rules: [{ id: writes, ask: far/writes, requester: allowed }] }";
    let stage = Stage::new(policy);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(McpFixture::new(stage.bed.work(), Era::Every).serve_http(listener));
    let door = Door::before(&stage, &[], &upstream);
    let secret = token(&stage.bed, "agent", "bot");
    let capabilities = |json: Value| -> ClientCapabilities { serde_json::from_value(json).unwrap() };

    let tasker = McpUser::new(capabilities(able(&json!({}))), None);
    let client = McpClient::of(tasker, &door.url, &secret, Era::Every).await.unwrap();
    assert!(client.may_get_tasks());
    let task = client.begin("writes", json!({"file": "task"})).await.unwrap();
    assert_eq!(client.task(&task).await.unwrap()["status"], "working");
    stage.approve(&[]);
    let told = loop {
        let told = client.task(&task).await.unwrap();
        if told["status"] != "working" {
            break told;
        }
    };
    assert_eq!((&told["status"], stage.bed.work().join("task").exists()), (&json!("completed"), true), "{told}");
    let task = client.begin("writes", json!({"file": "never"})).await.unwrap();
    client.cancel(&task).await.unwrap();
    assert_eq!(client.task(&task).await.unwrap()["status"], "cancelled");

    for (era, file) in [(Era::Every, "newer"), (Era::Handshake, "older")] {
        let forms = capabilities(json!({"elicitation": {"form": {}}}));
        let user = McpUser::new(forms, Some(json!({"decision": "allow"})));
        let client = McpClient::of(user.clone(), &door.url, &secret, era).await.unwrap();
        let (error, text) = client.call("writes", json!({"file": file})).await.unwrap();
        assert!(!error && stage.bed.work().join(file).exists(), "{text}");
        assert!(user.asked()[0].contains(&format!("file: \"{file}\"")), "{:?}", user.asked());
    }
}
