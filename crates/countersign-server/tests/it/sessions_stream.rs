//! The stream of a session: everything once, in order, from any place on, and nothing that is not the reader's.

use std::sync::Arc;

use countersign::memory::MemoryStore;
use countersign_agent::Agent;
use countersign_agent::model::{Scripted, Turn};
use countersign_testkit::stores::Kind;
use serde_json::{Value, json};

use crate::events::Events;
use crate::sessions::{Following, POLICY, Ran, begin, calls, decide, follow, recorder, says, stage};
use crate::stage::{Client, Stage};

const PATH: &str = "/v1/sessions/s/events";

/// Events that have a place, up to the second `done`.
async fn rest(mut events: Following) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    let mut runs = 0;
    while runs < 2 {
        let (name, id, data) = events.next().await;
        if let Some(id) = id {
            runs += usize::from(name == "done");
            found.push((name, id, data));
        }
    }
    found
}

/// Reading on from any event gives exactly the events after it: none missed, none twice, in the same order.
#[tokio::test]
async fn a_reader_that_comes_back_misses_and_repeats_nothing() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let turns = vec![
            Turn::new("Both.").call("read_balance", "{}").call("transfer_money", "{}"),
            says("Sent."),
            calls("read_balance", r#"{"again":true}"#),
            says("Looked again."),
        ];
        let stage = stage(test.store(), &Ran::default(), turns).await;
        let bot = stage.agent().await;
        begin(&bot, "go").await;
        let mut events = follow(&bot).await;
        let hold = events.until("hold").await;
        decide(&stage, &hold, "approve").await;
        events.until("done").await;
        bot.post("/v1/sessions/s/messages", &json!({ "text": "once more" })).await.expect(202);
        events.until("done").await;

        let all = rest(follow(&bot).await).await;
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names[..2], ["message", "said"], "{kind:?}");
        assert_eq!(names.iter().filter(|name| **name == "call").count(), 3);
        assert_eq!(names.iter().filter(|name| **name == "ended").count(), 3);
        for word in ["hold", "hold_closed"] {
            assert_eq!(names.iter().filter(|name| **name == word).count(), 1, "{word}");
        }
        let place = |word: &str| names.iter().position(|name| *name == word).unwrap();
        assert!(place("hold") < place("hold_closed") && place("hold_closed") < place("results"));
        assert!(place("results") < place("done"));

        check_every_place(&bot, &all).await;
    }
}

/// Reads on from every event, and compares what comes with what came.
async fn check_every_place(bot: &Client, all: &[(String, String, Value)]) {
    let told = |told: &[(String, String, Value)]| -> Vec<(String, String)> {
        told.iter().map(|(name, id, _)| (name.clone(), id.clone())).collect()
    };
    for (index, (_, id, _)) in all.iter().enumerate() {
        let mut again = Events::after(bot, PATH, id).await;
        let mut found = Vec::new();
        while found.len() < all.len() - index - 1 {
            let (name, id, data) = again.next().await.unwrap();
            found.extend(id.map(|id| (name, id, data)));
        }
        assert_eq!(told(&found), told(&all[index + 1..]), "after {id}");
    }
}

/// Agents in the background and hand-overs are told where they happened, and reading on from any place tells the same.
#[tokio::test]
async fn background_agents_and_hand_overs_are_told_in_order() {
    const SCRIPT: &str = "
agents:
  banker:
    - calls: [{ tool: ask_clerk, arguments: { task: look } }]
    - text: The clerk looks.
    - calls: [{ tool: transfer_to_auditor, arguments: {} }]
  clerk: [{ calls: [{ tool: read_balance, arguments: {} }] }, { text: It is 100. }]
  auditor: [{ text: All is well. }]
";
    let script = Scripted::from_yaml("script.yml", SCRIPT).unwrap();
    let ran = Ran::default();
    let stage = Stage::with_agents(Arc::new(MemoryStore::new()), POLICY, |gate| {
        let agent = |name: &str| Agent::builder(name, script.playing(name)).gate(gate.clone());
        let clerk = agent("clerk").tool(recorder("read_balance", &ran)).build().unwrap();
        let auditor = agent("auditor").build().unwrap();
        vec![agent("banker").background_agent(clerk).handoff(auditor).build().unwrap()]
    });
    let stage = stage.await;
    let bot = stage.agent().await;
    begin(&bot, "go").await;
    let mut live = follow(&bot).await;
    live.until("done").await;

    let mut events = follow(&bot).await;
    let mut all = Vec::new();
    loop {
        let (name, id, data) = events.next().await;
        all.extend(id.map(|id| (name.clone(), id, data)));
        if name == "done" {
            break;
        }
    }
    let entries: Vec<String> = all
        .iter()
        .filter(|(_, _, data)| data["kind"].is_string())
        .map(|(name, _, data)| {
            format!("{name} {}", data["agents"].as_array().unwrap().last().unwrap().as_str().unwrap())
        })
        .collect();
    let of = |agent: &str| entries.iter().filter(|entry| entry.ends_with(agent)).cloned().collect::<Vec<_>>();
    assert_eq!(of("clerk"), ["message clerk", "said clerk", "results clerk", "said clerk"]);
    let banker = ["message banker", "said banker", "results banker", "said banker", "told banker", "said banker"];
    assert_eq!(of("banker"), [&banker[..], &["results banker"]].concat());
    let place = |entry: &str| entries.iter().rposition(|found| found == entry).unwrap();
    assert!(place("said clerk") < place("told banker"), "{entries:?}");
    assert_eq!(entries.last().map(String::as_str), Some("done auditor"));
    let handed = all.iter().filter_map(|(_, _, data)| data["handed_to"].as_str()).collect::<Vec<_>>();
    assert_eq!(handed, ["auditor"]);
    check_every_place(&bot, &all).await;
}

/// A place that is not one of this session's hides nothing: the reader is told to begin anew.
#[tokio::test]
async fn a_place_of_nowhere_is_told_as_such() {
    let stage = stage(Arc::new(MemoryStore::new()), &Ran::default(), vec![says("hello")]).await;
    let bot = stage.agent().await;
    begin(&bot, "hi").await;
    follow(&bot).await.until("done").await;
    let foreign = "call_00000000000070008000000000000000";
    for nowhere in ["0.999~main.1", "7.1~main.1", "0.0~main.99", &format!("0.0~main.1~{foreign}.0")] {
        let (name, ..) = Events::after(&bot, PATH, nowhere).await.next().await.unwrap();
        assert_eq!(name, "resync", "{nowhere}");
    }
    for nonsense in ["1", "main", "0.0~other.1", "0.0"] {
        bot.get(&format!("{PATH}?after={nonsense}")).await.problem(400, "bad_request");
    }
}

/// What a model is saying comes in pieces, and then whole.
#[tokio::test]
async fn text_comes_in_pieces_and_then_whole() {
    let stage = stage(Arc::new(MemoryStore::new()), &Ran::default(), vec![says("One by one.")]).await;
    let bot = stage.agent().await;
    bot.post("/v1/sessions", &json!({ "agent": "banker", "session": "s" })).await.expect(201);
    let mut events = follow(&bot).await;
    assert_eq!(events.until("state").await["state"], "idle");
    bot.post("/v1/sessions/s/messages", &json!({ "text": "speak" })).await.expect(202);
    let mut pieces = String::new();
    loop {
        let (name, id, data) = events.next().await;
        match name.as_str() {
            "text" => {
                assert_eq!((id, &data["entry"], &data["agents"]), (None, &json!(1), &json!(["banker"])));
                assert_eq!(data["start"] == true, pieces.is_empty());
                pieces.push_str(data["text"].as_str().unwrap());
            }
            "done" => {
                assert_eq!(data["text"], "One by one.");
                break;
            }
            _ => {}
        }
    }
    assert!("One by one.".starts_with(&pieces), "{pieces}");
    events.until_state("idle").await;
}

/// I10: whoever oversees a session sees what was said in it with secrets masked; whose it is sees it as it is.
#[tokio::test]
async fn people_see_a_transcript_with_secrets_masked() {
    let secret = &format!("AKIA{}", "Q7".repeat(8));
    let answer = format!("Your key is {secret} and that is all.");
    let stage = stage(Arc::new(MemoryStore::new()), &Ran::default(), vec![says(&answer)]).await;
    let (bot, ann) = (stage.agent().await, stage.ann().await);
    begin(&bot, "what is my key?").await;
    assert_eq!(follow(&bot).await.until("done").await["text"], json!(answer));
    let mut seen = Events::open(&ann, &format!("{PATH}?principal=bot")).await;
    let done = loop {
        let (name, _, data) = seen.next().await.unwrap();
        if name == "done" {
            break data;
        }
    };
    assert!(!done.to_string().contains(secret) && done.to_string().contains("Your key is"), "{done}");
    let detail = ann.get("/v1/sessions/s?principal=bot").await.expect(200);
    assert!(!detail.to_string().contains(secret), "{detail}");
    ann.get("/v1/sessions/s").await.problem(400, "bad_request");
    ann.post("/v1/sessions/s/messages", &json!({ "text": "hi" })).await.problem(403, "forbidden");
}
