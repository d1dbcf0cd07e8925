//! Agents over HTTP: sessions, their holds, and tools that the client runs.

use std::sync::{Arc, Mutex};

use countersign::memory::MemoryStore;
use countersign::tool::FnTool;
use countersign::{Definition, Gate, Json, Store};
use countersign_agent::model::{Scripted, Turn, Usage};
use countersign_agent::{Agent, AgentBuilder};
use countersign_api::wire::Role;
use serde_json::{Value, json};

use crate::events::Events;
use crate::stage::{Client, Stage, text};

/// Transfers are asked about, everything else runs.
pub(crate) const POLICY: &str = "
otherwise: allow
rules:
  - { id: transfers, ask: transfer_money, reason: It moves money }
  - { id: tasks, allow: 'agent:*' }
";

/// What tools were given, run by run.
pub(crate) type Ran = Arc<Mutex<Vec<String>>>;

/// A tool that writes down its arguments and answers `NAME done`.
pub(crate) fn recorder(name: &'static str, ran: &Ran) -> FnTool {
    let ran = Arc::clone(ran);
    countersign::tool::tool(Definition::new(name, "Writes down that it ran."), move |running| {
        let ran = Arc::clone(&ran);
        async move {
            ran.lock().unwrap().push(format!("{name} {}", running.arguments()));
            Ok(Json::string(&format!("{name} done")))
        }
    })
}

/// The agent of these tests: it transfers money, looks up balances, and asks its client where the user is.
pub(crate) fn banker(gate: &Gate, ran: &Ran, turns: Vec<Turn>) -> AgentBuilder {
    Agent::builder("banker", Scripted::new(turns))
        .gate(gate.clone())
        .tool(recorder("transfer_money", ran))
        .tool(recorder("read_balance", ran))
        .client_tool(Definition::new("locate", "Where the user is."))
}

/// A turn that calls a tool.
pub(crate) fn calls(tool: &str, arguments: &str) -> Turn {
    let usage = Usage { input: 10, output: 5, ..Usage::default() };
    Turn::new("").call(tool, arguments).usage(usage)
}

/// A turn that says something.
pub(crate) fn says(text: &str) -> Turn {
    Turn::new(text).usage(Usage { input: 10, output: 5, ..Usage::default() })
}

/// A server with a banker that follows a script.
pub(crate) async fn stage(store: Arc<dyn Store>, ran: &Ran, turns: Vec<Turn>) -> Stage {
    Stage::with_agents(store, POLICY, |gate| vec![banker(gate, ran, turns).build().unwrap()]).await
}

async fn in_memory(ran: &Ran, turns: Vec<Turn>) -> Stage {
    stage(Arc::new(MemoryStore::new()), ran, turns).await
}

/// Begins the session `s`.
pub(crate) async fn begin(bot: &Client, message: &str) {
    let new = json!({ "agent": "banker", "session": "s", "message": message });
    let begun = bot.post("/v1/sessions", &new).await.expect(201);
    assert_eq!((text(&begun, "session"), text(&begun, "principal")), ("s", "bot"));
}

/// A stream of the session `s`, and how it said last that the session stands.
pub(crate) struct Following {
    events: Events,
    status: Value,
}

/// Follows the session `s`.
pub(crate) async fn follow(bot: &Client) -> Following {
    Following { events: Events::open(bot, "/v1/sessions/s/events").await, status: Value::Null }
}

impl Following {
    /// The next event: its name, its place and its data.
    pub(crate) async fn next(&mut self) -> (String, Option<String>, Value) {
        let next = self.events.next().await.expect("the stream ended");
        if next.0 == "state" {
            self.status = next.2.clone();
        }
        next
    }

    /// The data of the next event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Value {
        loop {
            let (found, _, data) = self.next().await;
            if found == name {
                return data;
            }
        }
    }

    /// The status once it is like this.
    pub(crate) async fn until_status(&mut self, like: impl Fn(&Value) -> bool) -> Value {
        while !like(&self.status) {
            self.next().await;
        }
        self.status.clone()
    }

    /// The status once the session is in this state.
    pub(crate) async fn until_state(&mut self, state: &str) -> Value {
        self.until_status(|status| status["state"] == state).await
    }
}

/// Decides a hold as ann.
pub(crate) async fn decide(stage: &Stage, hold: &Value, answer: &str) {
    let decision = json!({ "answer": answer, "digest": hold["digest"] });
    let path = format!("/v1/holds/{}/decisions", text(hold, "id"));
    stage.ann().await.post(&path, &decision).await.expect(200);
}

/// A session's hold is like any other: decided by anybody who may, by its id alone; then the run goes on.
#[tokio::test]
async fn a_hold_of_a_session_is_decided_and_the_run_goes_on() {
    let ran = Ran::default();
    let turns = vec![calls("transfer_money", r#"{"to":"Bo"}"#), says("Sent.")];
    let stage = in_memory(&ran, turns).await;
    let bot = stage.agent().await;
    begin(&bot, "send it").await;
    let mut events = follow(&bot).await;
    let hold = events.until("hold").await;
    assert_eq!((&hold["thread"], &hold["agent"], &hold["run"]), (&json!("main"), &json!(["banker"]), &json!("r1")));
    assert_eq!(events.until_state("waiting").await["holds"], json!([hold["id"]]));
    decide(&stage, &hold, "approve").await;
    assert_eq!(events.until("hold_closed").await["hold"]["state"], "approved");
    assert_eq!(events.until("results").await["results"][0]["text"], "transfer_money done");
    assert_eq!(events.until("done").await["text"], "Sent.");
    events.until_state("idle").await;
    assert_eq!(*ran.lock().unwrap(), [r#"transfer_money {"to":"Bo"}"#]);
}

/// B130: the client claims the call, gets its exact bytes, and gives one result; anything else is refused.
#[tokio::test]
async fn a_client_runs_its_tool_and_gives_one_result() {
    let ran = Ran::default();
    let turns = vec![calls("read_balance", "{}"), calls("locate", r#"{ "fine": true }"#), says("At home.")];
    let stage = in_memory(&ran, turns).await;
    let (bot, other) = (stage.agent().await, stage.with(Role::Agent, "other").await);
    begin(&bot, "where am I?").await;
    let mut events = follow(&bot).await;
    let served = events.until("ended").await;
    let status = events.until_status(|status| !status["client_calls"][0].is_null()).await;
    let waiting = &status["client_calls"][0];
    assert_eq!((&waiting["tool"], &waiting["thread"]), (&json!("locate"), &json!("main")));
    let results = "/v1/sessions/s/tool-results";
    let give = |call: &Value, fence: u64| json!({ "call": call, "fence": fence, "output": "at home" });
    // Unasked: nobody has taken the call.
    bot.post(results, &give(&waiting["call"], 0)).await.problem(409, "wrong_state");

    let claim = format!("/v1/calls/{}/claim", text(waiting, "call"));
    other.post(&claim, &json!({})).await.problem(404, "not_found");
    let taken = bot.post(&claim, &json!({})).await.expect(200);
    assert_eq!(taken["arguments"], json!({ "fine": true }));
    let fence = taken["fence"].as_u64().unwrap();
    bot.post(&claim, &json!({})).await.problem(409, "already_claimed");
    // Foreign: another principal's, another session's, a call the server runs itself, a stale attempt.
    other.post(results, &give(&waiting["call"], fence)).await.problem(404, "not_found");
    bot.post(results, &give(&served["id"], 1)).await.problem(404, "not_found");
    bot.post(results, &give(&waiting["call"], fence + 1)).await.problem(409, "stale_fence");
    let both = json!({ "call": waiting["call"], "fence": fence, "output": 1, "error": "no" });
    bot.post(results, &both).await.problem(400, "bad_request");

    bot.post(results, &give(&waiting["call"], fence)).await.expect(200);
    bot.post(results, &give(&waiting["call"], fence)).await.problem(409, "wrong_state");
    assert_eq!(events.until("done").await["text"], "At home.");
}

/// B129: what the server runs itself, no client can take or answer, though it is its own session.
#[tokio::test]
async fn a_client_cannot_take_what_the_server_runs() {
    let stage = in_memory(&Ran::default(), vec![calls("transfer_money", "{}"), says("ok")]).await;
    let bot = stage.agent().await;
    begin(&bot, "send it").await;
    let hold = follow(&bot).await.until("hold").await;
    let claim = format!("/v1/calls/{}/claim", text(&hold, "call"));
    let refused = bot.post(&claim, &json!({})).await.problem(409, "wrong_state");
    assert!(text(&refused, "detail").contains("own server"), "{refused}");
}

/// B129: a client cannot make up the outcome of what the server runs, nor speak for it, at whatever server it tries.
#[tokio::test]
async fn a_client_cannot_speak_for_what_the_server_runs() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (began, begun) = tokio::sync::oneshot::channel();
    let (began, go_on) = (Mutex::new(Some(began)), Arc::new(tokio::sync::Notify::new()));
    let waiting = Arc::clone(&go_on);
    let slow = countersign::tool::tool(Definition::new("read_balance", "Takes its time."), move |_| {
        began.lock().unwrap().take().unwrap().send(()).unwrap();
        let waiting = Arc::clone(&waiting);
        async move {
            waiting.notified().await;
            Ok(Json::string("what the tool found"))
        }
    });
    let agent = |gate: &Gate| {
        let model = Scripted::new(vec![calls("read_balance", "{}"), says("ok")]);
        vec![Agent::builder("banker", model).gate(gate.clone()).tool(slow).build().unwrap()]
    };
    let stage = Stage::with_agents(Arc::clone(&store), POLICY, agent).await;
    let other = Stage::over(Arc::clone(&store), POLICY).await;
    let bot = stage.agent().await;
    begin(&bot, "look it up").await;
    begun.await.unwrap();

    let running = bot.get("/v1/calls?state=executing").await.expect(200)["items"][0].clone();
    let id = text(&running, "id").to_owned();
    let fence = store.call(id.parse().unwrap()).await.unwrap().unwrap().lease.as_ref().unwrap().fence;
    for bot in [bot.clone(), other.also(&bot)] {
        for shown in [&running, &bot.get(&format!("/v1/calls/{id}")).await.expect(200)] {
            assert_eq!((&shown["state"], &shown["lease"]), (&json!("executing"), &Value::Null), "{shown:#}");
        }
        for (verb, body) in [
            ("claim", json!({})),
            ("renew", json!({ "fence": fence })),
            ("holds", json!({ "fence": fence, "hint": "May I?" })),
            ("outcome", json!({ "fence": fence, "outcome": "succeeded", "output": "what the client made up" })),
        ] {
            let refused = bot.post(&format!("/v1/calls/{id}/{verb}"), &body).await.problem(409, "wrong_state");
            assert!(text(&refused, "detail").contains("own server"), "{verb}: {refused}");
        }
        let planted = json!({
            "session": "s", "run": running["run"], "thread": running["thread"], "tool": "read_balance",
            "arguments": {}, "claim": true,
        });
        bot.post("/v1/calls", &planted).await.problem(409, "wrong_state");
    }
    go_on.notify_one();
    let mut events = follow(&bot).await;
    assert_eq!(events.until("done").await["text"], "ok");
    assert_eq!(bot.get(&format!("/v1/calls/{id}")).await.expect(200)["outcome"]["output"], "what the tool found");
}

/// Cancelling withdraws what waits for people; the session goes on with what is said next.
#[tokio::test]
async fn cancelling_withdraws_the_holds_of_the_run() {
    let ran = Ran::default();
    let stage = in_memory(&ran, vec![calls("transfer_money", "{}"), says("As you wish.")]).await;
    let (bot, ann) = (stage.agent().await, stage.ann().await);
    begin(&bot, "send it").await;
    let mut events = follow(&bot).await;
    let hold = events.until("hold").await;
    bot.post("/v1/sessions/s/cancel", &json!({})).await.expect(202);
    assert_eq!(events.until("hold_closed").await["hold"]["state"], "cancelled");
    assert_eq!(events.until("stopped").await["why"], "cancelled");
    events.until_state("idle").await;
    let late = json!({ "answer": "approve", "digest": hold["digest"] });
    ann.post(&format!("/v1/holds/{}/decisions", text(&hold, "id")), &late).await.problem(409, "hold_closed");
    bot.post("/v1/sessions/s/cancel", &json!({})).await.problem(409, "wrong_state");

    bot.post("/v1/sessions/s/messages", &json!({ "text": "never mind" })).await.expect(202);
    assert_eq!(events.until("done").await["text"], "As you wish.");
    assert!(ran.lock().unwrap().is_empty());
}

/// B110: what is said while a hold is pending waits; it neither decides nor cancels.
#[tokio::test]
async fn what_is_said_while_a_hold_is_pending_waits() {
    let ran = Ran::default();
    let stage = in_memory(&ran, vec![calls("transfer_money", "{}"), says("Sent."), says("You are welcome.")]).await;
    let bot = stage.agent().await;
    begin(&bot, "send it").await;
    let mut events = follow(&bot).await;
    let hold = events.until("hold").await;
    bot.post("/v1/sessions/s/messages", &json!({ "text": "thanks" })).await.expect(202);
    let detail = bot.get("/v1/sessions/s").await.expect(200);
    assert_eq!((&detail["status"]["queued"], &detail["status"]["holds"]), (&json!(1), &json!([hold["id"]])));
    decide(&stage, &hold, "approve").await;
    assert_eq!(events.until("done").await["text"], "Sent.");
    assert_eq!(events.until("message").await["text"], "thanks");
    assert_eq!(events.until("done").await["text"], "You are welcome.");
    assert_eq!(ran.lock().unwrap().len(), 1);
}

/// I8: whose session it is, the credential says; a foreign session and none at all look the same.
#[tokio::test]
async fn foreign_and_absent_sessions_look_the_same() {
    let stage = in_memory(&Ran::default(), vec![says("hello")]).await;
    let (bot, other) = (stage.agent().await, stage.with(Role::Agent, "other").await);
    begin(&bot, "hi").await;
    follow(&bot).await.until("done").await;
    let call = "call_00000000000070008000000000000000";
    for id in ["s", "nothing"] {
        let foreign = other.get(&format!("/v1/sessions/{id}")).await.problem(404, "not_found");
        assert_eq!(foreign["detail"], Value::Null);
        other.get(&format!("/v1/sessions/{id}?principal=bot")).await.problem(404, "not_found");
        other.get(&format!("/v1/sessions/{id}/events")).await.problem(404, "not_found");
        let path = format!("/v1/sessions/{id}");
        other.post(&format!("{path}/messages"), &json!({ "text": "hi" })).await.problem(404, "not_found");
        other.post(&format!("{path}/cancel"), &json!({})).await.problem(404, "not_found");
        let result = json!({ "call": call, "fence": 1, "output": 1 });
        other.post(&format!("{path}/tool-results"), &result).await.problem(404, "not_found");
    }
    assert_eq!(other.get("/v1/sessions").await.expect(200)["items"], json!([]));
    assert_eq!(bot.get("/v1/sessions").await.expect(200)["items"][0]["session"], "s");
    // The same name under another principal is another session.
    let new = json!({ "agent": "banker", "session": "s" });
    assert_eq!(other.post("/v1/sessions", &new).await.expect(201)["state"], "idle");
    let all = stage.ann().await.get("/v1/sessions").await.expect(200);
    let owners: Vec<&str> = all["items"].as_array().unwrap().iter().map(|item| text(item, "principal")).collect();
    assert_eq!(owners, ["bot", "other"]);
}

/// What cannot be begun is refused before anything is written down.
#[tokio::test]
async fn a_session_that_cannot_be_is_refused() {
    let stage = in_memory(&Ran::default(), vec![says("hello")]).await;
    let bot = stage.agent().await;
    let begin = async |new: Value| bot.post("/v1/sessions", &new).await;
    begin(json!({ "agent": "nobody" })).await.problem(400, "bad_request");
    begin(json!({ "agent": "banker", "mesage": "hi" })).await.problem(400, "bad_request");
    begin(json!({ "agent": "banker", "message": "  " })).await.problem(400, "bad_request");
    begin(json!({ "agent": "banker", "session": ".." })).await.problem(400, "bad_request");
    begin(json!({ "agent": "banker", "session": "x".repeat(1_000) })).await.problem(400, "bad_request");
    begin(json!({ "agent": "banker", "message": "x".repeat(300_000) })).await.problem(413, "too_large");
    assert_eq!(bot.get("/v1/sessions").await.expect(200)["items"], json!([]));
    begin(json!({ "agent": "banker", "session": "a/b ü" })).await.expect(201);
    begin(json!({ "agent": "banker", "session": "a/b ü" })).await.problem(409, "conflict");
    let named = bot.get("/v1/sessions/a%2Fb%20%C3%BC").await.expect(200);
    assert_eq!(named["session"]["state"], "idle");
}

/// Too many messages wait rather than fill the store.
#[tokio::test]
async fn only_so_many_messages_wait() {
    let stage = in_memory(&Ran::default(), vec![calls("transfer_money", "{}"), says("ok")]).await;
    let bot = stage.agent().await;
    begin(&bot, "send it").await;
    follow(&bot).await.until("hold").await;
    for n in 0..countersign_server::limits::MESSAGES_QUEUED {
        bot.post("/v1/sessions/s/messages", &json!({ "text": n.to_string() })).await.expect(202);
    }
    bot.post("/v1/sessions/s/messages", &json!({ "text": "more" })).await.problem(429, "limit");
}
