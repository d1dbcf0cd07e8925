//! Sessions over durable stores: what was said and decided survives the server, and only one of several drives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use countersign::Gate;
use countersign_agent::Agent;
use countersign_agent::model::{Answer, Model, ModelError, Prompt, Scripted, Turn};
use countersign_api::wire::Role;
use countersign_testkit::stores::Kind;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::sessions::{POLICY, Ran, banker, begin, calls, decide, follow, recorder, says, stage};
use crate::stage::{Stage, text};

const DURABLE: [Kind; 2] = [Kind::Sqlite, Kind::Postgres];

/// A conversation of several turns, with what was said, done and taken.
#[tokio::test]
async fn a_conversation_goes_on_over_several_turns() {
    for kind in DURABLE {
        let test = kind.fresh().await.unwrap();
        let ran = Ran::default();
        let turns = vec![calls("read_balance", "{}"), says("You have 100."), says("I remember: 100.")];
        let stage = stage(test.store(), &ran, turns).await;
        let bot = stage.agent().await;
        begin(&bot, "how much is there?").await;
        let mut events = follow(&bot).await;
        assert_eq!(events.until("done").await["text"], "You have 100.");
        bot.post("/v1/sessions/s/messages", &json!({ "text": "and again?" })).await.expect(202);
        assert_eq!(events.until("done").await["text"], "I remember: 100.");
        events.until_state("idle").await;

        let detail = bot.get("/v1/sessions/s").await.expect(200);
        let entries = detail["transcript"]["items"].as_array().unwrap();
        let kinds: Vec<&str> = entries.iter().map(|entry| text(entry, "kind")).collect();
        assert_eq!(kinds, ["message", "said", "results", "said", "message", "said"], "{kind:?}");
        assert_eq!((&entries[4]["run"], &entries[4]["text"]), (&json!("r2"), &json!("and again?")));
        assert_eq!(detail["usage"], json!({ "turns": 3, "input": 30, "cached": 0, "output": 15, "micro_dollars": 0 }));
        let page = bot.get("/v1/sessions/s?after=3&limit=1").await.expect(200);
        assert_eq!(page["transcript"]["items"][0]["entry"], 4);
        assert_eq!(page["transcript"]["next"], "4");
    }
}

/// B108: a server ends while a hold is pending; the hold is decided while no agent is there; the next server goes on.
#[tokio::test]
async fn a_session_goes_on_after_a_restart_with_what_was_decided_meanwhile() {
    for kind in DURABLE {
        let test = kind.fresh().await.unwrap();
        let ran = Ran::default();
        let turns = || vec![calls("transfer_money", "{}"), says("Sent.")];
        let before = stage(test.store(), &ran, turns()).await;
        begin(&before.agent().await, "send it").await;
        let hold = follow(&before.agent().await).await.until("hold").await;
        before.end().await;

        // A server without agents decides, and leaves the session alone.
        let between = Stage::over(test.reopen().await, POLICY).await;
        decide(&between, &hold, "approve").await;
        between.end().await;
        assert!(ran.lock().unwrap().is_empty());

        let after = stage(test.reopen().await, &ran, turns()).await;
        let done = follow(&after.agent().await).await.until("done").await;
        assert_eq!((&done["text"], ran.lock().unwrap().len()), (&json!("Sent."), 1), "{kind:?}");
        after.end().await;
    }
}

/// A server that is gone without a word is waited for, and then another takes its sessions over.
#[tokio::test]
async fn a_session_of_a_crashed_server_is_taken_over() {
    /// Says that it was asked, and never answers: whoever asks it drives its session.
    struct Stuck(Arc<Notify>);

    #[async_trait]
    impl Model for Stuck {
        fn name(&self) -> Arc<str> {
            "stuck".into()
        }

        async fn answer(&self, _prompt: Prompt) -> Result<Answer, ModelError> {
            self.0.notify_one();
            std::future::pending().await
        }
    }

    let test = Kind::Sqlite.fresh().await.unwrap();
    let (driven, ran, asked) = (Arc::new(Notify::new()), Ran::default(), Arc::new(AtomicUsize::new(0)));
    let banker = |model: Arc<dyn Model>, gate: &Gate| {
        let agent = Agent::builder("banker", model).gate(gate.clone()).tool(recorder("transfer_money", &ran));
        vec![agent.build().unwrap()]
    };
    let stuck = Arc::new(Stuck(Arc::clone(&driven)));
    let before = Stage::with_agents(test.store(), POLICY, |gate| banker(stuck, gate)).await;
    begin(&before.agent().await, "send it").await;
    driven.notified().await;
    before.crash().await;

    let counted = Arc::new(Counted(Scripted::new([calls("transfer_money", "{}"), says("Sent.")]), Arc::clone(&asked)));
    let after = Stage::with_agents(test.reopen().await, POLICY, |gate| banker(counted, gate)).await;
    let bot = after.agent().await;
    let mut events = follow(&bot).await;
    assert_eq!(bot.get("/v1/sessions/s").await.expect(200)["session"]["state"], "running");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "it may still be driven");
    test.advance(countersign_server::limits::SESSION_LEASE).await;
    decide(&after, &events.until("hold").await, "approve").await;
    assert_eq!(events.until("done").await["text"], "Sent.");
    assert_eq!((ran.lock().unwrap().len(), asked.load(Ordering::SeqCst)), (1, 2));
}

/// A run that waits for people is put away, and costs nothing but its ticket; the decision brings it back.
#[tokio::test]
async fn a_run_that_waits_is_put_away_and_comes_back() {
    let test = Kind::Sqlite.fresh().await.unwrap();
    let ran = Ran::default();
    let stage = stage(test.store(), &ran, vec![calls("transfer_money", "{}"), says("Sent.")]).await;
    let bot = stage.agent().await;
    begin(&bot, "send it").await;
    let mut events = follow(&bot).await;
    let hold = events.until("hold").await;
    loop {
        let record = stage.gate.store().record("session-tickets", "bot/s").await.unwrap().unwrap();
        let ticket: Value = serde_json::from_slice(&record.value).unwrap();
        if ticket["parked"] == true {
            assert_eq!(ticket["driver"], Value::Null);
            break;
        }
        stage.nobody().get("/healthz").await.expect(200);
    }
    assert_eq!(bot.get("/v1/sessions/s").await.expect(200)["session"]["state"], "waiting");
    decide(&stage, &hold, "approve").await;
    assert_eq!(events.until("done").await["text"], "Sent.");
    assert_eq!(ran.lock().unwrap().len(), 1);
}

/// A model that counts how often it is asked.
struct Counted(Scripted, Arc<AtomicUsize>);

#[async_trait]
impl Model for Counted {
    fn name(&self) -> Arc<str> {
        self.0.name()
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.answer(prompt).await
    }
}

/// Of two servers on one store one drives a session; the other shows it all the same, and takes messages for it.
#[tokio::test]
async fn of_two_servers_one_drives_and_both_tell() {
    for kind in DURABLE {
        let test = kind.fresh().await.unwrap();
        let (ran, asked) = (Ran::default(), Arc::new(AtomicUsize::new(0)));
        let agents = |gate: &Gate| {
            let turns = [calls("transfer_money", "{}"), says("Sent."), says("Again.")];
            let model = Counted(Scripted::new(turns), Arc::clone(&asked));
            let agent = Agent::builder("banker", model).gate(gate.clone()).tool(recorder("transfer_money", &ran));
            vec![agent.build().unwrap()]
        };
        let one = Stage::with_agents(test.store(), POLICY, agents).await;
        let other = Stage::with_agents(test.reopen().await, POLICY, agents).await;
        let (bot, at_other) = (one.agent().await, other.agent().await);
        begin(&bot, "send it").await;
        let mut events = follow(&at_other).await;
        let hold = events.until("hold").await;
        decide(&other, &hold, "approve").await;
        assert_eq!(events.until("done").await["text"], "Sent.");
        at_other.post("/v1/sessions/s/messages", &json!({ "text": "again" })).await.expect(202);
        let mut at_one = follow(&bot).await;
        assert_eq!(at_one.until("done").await["text"], "Sent.");
        assert_eq!(at_one.until("done").await["text"], "Again.");
        assert_eq!((ran.lock().unwrap().len(), asked.load(Ordering::SeqCst)), (1, 3), "{kind:?}");
        one.end().await;
        other.end().await;
    }
}

/// B116: a sub-agent's hold shows on the root's stream with its thread and path, and is decided by its id alone, also
/// after a restart.
#[tokio::test]
async fn a_sub_agents_hold_shows_with_its_thread_and_path() {
    for kind in DURABLE {
        let test = kind.fresh().await.unwrap();
        let ran = Ran::default();
        let agents = |gate: &Gate| {
            let clerk = Agent::builder("clerk", Scripted::new([calls("transfer_money", "{}"), says("It is sent.")]));
            let clerk = clerk.gate(gate.clone()).tool(recorder("transfer_money", &ran)).build().unwrap();
            let turns = vec![Turn::new("").call("ask_clerk", r#"{"task":"send it"}"#), says("The clerk sent it.")];
            vec![banker(gate, &ran, turns).sub_agent(clerk).build().unwrap()]
        };
        let before = Stage::with_agents(test.store(), POLICY, agents).await;
        begin(&before.agent().await, "send it").await;
        let mut events = follow(&before.agent().await).await;
        let hold = events.until("hold").await;
        let thread = text(&hold, "thread").to_owned();
        assert!(thread.starts_with("call_"), "{thread}");
        assert_eq!(hold["agent"], json!(["banker", "clerk"]), "{kind:?}");
        before.end().await;

        let after = Stage::with_agents(test.reopen().await, POLICY, agents).await;
        let bot = after.agent().await;
        decide(&after, &hold, "approve").await;
        let mut events = follow(&bot).await;
        let mut seen: Vec<(String, String)> = Vec::new();
        loop {
            let (name, _, data) = events.next().await;
            if let Some(thread) = data["thread"].as_str().filter(|_| data["kind"].is_string()) {
                seen.push((name.clone(), if thread == "main" { "main".into() } else { "clerk".into() }));
            }
            if name == "done" {
                assert_eq!(data["text"], "The clerk sent it.");
                break;
            }
        }
        let expected = ["message main", "said main", "message clerk", "said clerk", "results clerk", "said clerk"];
        let seen: Vec<String> = seen.iter().map(|(name, thread)| format!("{name} {thread}")).collect();
        assert_eq!(seen[..6], expected, "{kind:?}");
        assert_eq!(seen[6..], ["results main", "done main"], "{kind:?}");
        let detail = bot.get("/v1/sessions/s").await.expect(200);
        let threads = detail["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 2);
        assert!(threads.contains(&json!({ "thread": thread, "agents": ["banker", "clerk"] })), "{threads:?}");
        let child = bot.get(&format!("/v1/sessions/s?thread={thread}")).await.expect(200);
        assert_eq!(child["transcript"]["items"][0]["text"], "send it");
        after.end().await;
    }
}

/// A run that breaks off says so, stays where it is, and goes on with what is said next.
#[tokio::test]
async fn a_run_that_breaks_off_is_failed_until_something_is_said() {
    struct Flaky(Arc<AtomicUsize>);

    #[async_trait]
    impl Model for Flaky {
        fn name(&self) -> Arc<str> {
            "flaky".into()
        }

        async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(ModelError::Settings("out of order".into())),
                _ => Scripted::new([says("Here I am."), says("And again.")]).answer(prompt).await,
            }
        }
    }

    let test = Kind::Sqlite.fresh().await.unwrap();
    let agents = |gate: &Gate| {
        let agent = Agent::builder("banker", Flaky(Arc::new(AtomicUsize::new(0)))).gate(gate.clone());
        vec![agent.build().unwrap()]
    };
    let stage = Stage::with_agents(test.store(), POLICY, agents).await;
    let (bot, auditor) = (stage.agent().await, stage.with(Role::Auditor, "eve").await);
    begin(&bot, "hello?").await;
    let mut events = follow(&bot).await;
    assert_eq!(events.until_state("failed").await["error"], "out of order");
    let listed = auditor.get("/v1/sessions").await.expect(200);
    assert_eq!(listed["items"][0]["state"], "failed");
    bot.post("/v1/sessions/s/messages", &json!({ "text": "still there?" })).await.expect(202);
    assert_eq!(events.until("done").await["text"], "Here I am.");
    assert_eq!(events.until("done").await["text"], "And again.");
    events.until_state("idle").await;
}
