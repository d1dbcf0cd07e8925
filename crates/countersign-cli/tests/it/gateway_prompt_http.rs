//! People asked in their own client while a call waits: over HTTP, in both eras.

use serde_json::{Value, json};

use crate::gateway_peer::Stage;
use crate::gateway_web::{Coming, Door, Web, call, held, read};
use crate::serve::{Serving, ask, token};

const IN_CLIENT: &str =
    "{ preset: allow-all, in_client: allow, rules: [{ id: writes, ask: plain/write, requester: allowed }] }";

fn allow() -> Value {
    json!({"action": "accept", "content": {"decision": "allow"}})
}

fn x() -> Value {
    json!({"text": "x"})
}

/// The question comes in the answer to the call, and its answer counts in that session only.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_answers_its_own_prompts_only() {
    let stage = Stage::new(IN_CLIENT);
    let door = Door::open(&stage, &[]);
    let (ann, bob) = (token(&stage.bed, "agent", "ann"), token(&stage.bed, "agent", "bob"));
    let forms = || json!({"elicitation": {"form": {}}});
    let web = Web::able(&door.url, &ann, forms()).await;
    let (other_session, other) = (Web::able(&door.url, &ann, forms()).await, Web::able(&door.url, &bob, forms()).await);
    let mut coming = Coming::new(web.post(&call(1, "write", x())).await);
    let prompt = coming.next().await;
    assert_eq!(prompt["method"], "elicitation/create", "{prompt}");
    let said = json!({"jsonrpc": "2.0", "id": prompt["id"], "result": allow()}).to_string();
    assert_eq!(other_session.post(&said).await.status(), 202);
    assert_eq!(other.post(&said).await.status(), 202);
    let mut borrowed = other.clone();
    borrowed.borrow_session(&web);
    assert_eq!(borrowed.post(&said).await.status(), 404);
    assert_eq!((stage.holds().len(), stage.ran().len()), (1, 0));
    assert_eq!(web.post(&said).await.status(), 202);
    let told = loop {
        let told = coming.next().await;
        if told["id"] == 1 {
            break told;
        }
    };
    assert_eq!(read(&told.to_string()), (false, "done: write".into()));
    let log = stage.say("audit log --json").expect(0).stdout;
    assert!(log.contains(r#""by":"in-client:ann""#), "{log}");
}

/// In the newer era the answer comes with the next leg; only with the state that was given for it does it count.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_only_with_its_own_state() {
    let stage = Stage::new(IN_CLIENT);
    let door = Door::open(&stage, &["--wait", "1s"]);
    let ann = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    let bob = Web::new(&door.url, &token(&stage.bed, "agent", "bob"));
    let prompt = |told: &Value| {
        let result = &told["result"];
        assert_eq!(result["resultType"], "input_required", "{told}");
        let asked = &result["inputRequests"]["countersign"];
        assert_eq!((&asked["method"], &asked["params"]["mode"]), (&json!("elicitation/create"), &json!("form")));
        assert!(asked["params"]["message"].as_str().unwrap().contains(r#"text: "x""#), "{asked}");
        result["requestState"].as_str().unwrap().to_owned()
    };
    let with = |state: &str, said: Value| json!({"requestState": state, "inputResponses": {"countersign": said}});
    let first = prompt(&ann.modern("write", x(), None).await);
    let second = prompt(&ann.modern("write", x(), None).await);
    assert_eq!(stage.holds().len(), 1, "the identical call joins the hold");
    // Without a state it is not ours but the server's, so it is part of the call, and the call another one.
    prompt(&ann.modern_with("write", x(), json!({"inputResponses": {"countersign": allow()}})).await);
    let forged = format!("{}{}", &first[..first.len() - 64], "0".repeat(64));
    for (who, arguments, state) in [(&ann, x(), &*forged), (&ann, json!({"text": "y"}), &first), (&bob, x(), &first)] {
        let told = who.modern_with("write", arguments, with(state, allow())).await;
        assert_eq!(told["error"]["code"], -32602, "{told}");
    }
    assert_eq!((stage.holds().len(), stage.ran().len()), (2, 0));
    // Whoever cancels has decided nothing, and is not asked again in this wait.
    let told = ann.modern_with("write", x(), with(&first, json!({"action": "cancel"}))).await;
    assert_eq!(told["result"]["resultType"], "input_required", "{told}");
    assert_eq!(told["result"].get("inputRequests"), None, "{told}");
    let third = told["result"]["requestState"].as_str().unwrap();
    // A state that carried no question carries no answer.
    let told = ann.modern_with("write", x(), with(third, allow())).await;
    assert_eq!((&told["result"]["resultType"], stage.ran().len()), (&json!("input_required"), 0), "{told}");
    let told = ann.modern_with("write", x(), with(&second, allow())).await;
    assert_eq!(read(&told.to_string()), (false, "done: write".into()));
    let told = ann.modern_with("write", x(), with(&second, allow())).await;
    assert_eq!(told["error"]["code"], -32602, "{told}");
    assert_eq!(stage.ran().len(), 1);
    let log = crate::bed::read(stage.bed.work().join("log"));
    assert!(log.lines().filter(|line| line.contains("tools/call")).all(|line| !line.contains("requestState")), "{log}");
}

/// B131: what a server has its client ask is labelled with the server, whatever it calls itself, and decides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_servers_question_is_not_taken_for_ours() {
    let stage = Stage::new(IN_CLIENT);
    let door = Door::open(&stage, &["--wait", "1s"]);
    let web = Web::new(&door.url, &token(&stage.bed, "agent", "ann"));
    let told = web.modern("have-asked", json!({}), None).await;
    let asked = &told["result"]["inputRequests"]["countersign"];
    assert_eq!(asked["params"]["message"], "[plain] May I?", "{told}");
    web.modern("write", x(), None).await;
    let said = json!({"requestState": "theirs", "inputResponses": {"countersign": allow()}});
    let told = web.modern_with("write", x(), said).await;
    // What answers another's question is a call of its own, and waits as the first one does.
    assert_eq!((&told["result"]["resultType"], stage.holds().len()), (&json!("input_required"), 2), "{told}");
    assert_eq!(stage.ran(), ["have-asked {}"]);
}

/// At a server's `/mcp/NAME` the link leads to its own app; accepting it decides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_links_to_its_own_app() {
    let stage = Stage::new("{ preset: allow-all }");
    let near = Door::open(&stage, &["--no-token"]);
    let config = format!(
        "policy: {{ preset: allow-all, rules: [{{ id: writes, ask: far/write }}] }}\nmcp_servers: {{ far: {{ url: '{}' }} \
         }}\n",
        near.url
    );
    let serving = Serving::under(&stage.bed, &config, &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let web = Web::new(&format!("{}/mcp/far", serving.url), &bot);
    let ask_tool = |more: Value| {
        let mut params = json!({"name": "write", "arguments": x()});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        web.stateless("tools/call", "write", params, json!({"elicitation": {"form": {}, "url": {}}}))
    };
    let told = ask_tool(json!({})).await;
    let asked = &told["result"]["inputRequests"]["countersign"]["params"];
    held(&stage).await;
    let holds = ask(&stage.bed, &ann, &serving.url, &["holds", "--json"]).expect(0).json();
    let hold = holds[0]["id"].as_str().unwrap();
    assert_eq!(
        (&asked["mode"], &asked["url"]),
        (&json!("url"), &json!(format!("{}/#/inbox/{hold}", serving.url))),
        "{told}"
    );
    let state = &told["result"]["requestState"];
    let going_on = ask_tool(json!({"requestState": state, "inputResponses": {"countersign": allow()}}));
    let deciding = async {
        assert_eq!(stage.ran(), [""; 0]);
        ask(&stage.bed, &ann, &serving.url, &["deny", hold, "--reason", "not so fast"]).expect(0);
    };
    let (told, ()) = tokio::join!(going_on, deciding);
    assert!(told.to_string().contains("not so fast"), "{told}");
    assert_eq!(stage.ran(), [""; 0]);
}
