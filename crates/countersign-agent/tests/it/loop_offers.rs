//! What agents are offered by other frameworks, asked of an agent here and not of the gate alone.

use std::sync::Arc;

use countersign::call::Declared;
use countersign::grant::Remember;
use countersign::tool::asks_first;
use countersign::{Answer, CallState, Definition, Json, Running, Tool, ToolError, ToolId, Toolset};
use countersign_agent::tool;

use crate::bed::{Bed, EVERY, Script, calls, recorder, says};
use crate::loop_restart::restart_under;

struct Set(Vec<Arc<dyn Tool>>);

impl Toolset for Set {
    fn name(&self) -> Arc<str> {
        "files".into()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.clone()
    }
}

/// B23, B38: a flag on a tool counts under `otherwise: declared`, a must-ask one under every policy.
#[tokio::test]
async fn a_flag_on_a_tool_asks_first() {
    async fn nothing(_input: serde_json::Map<String, serde_json::Value>, _cx: Running) -> Result<(), ToolError> {
        Ok(())
    }
    for (policy, asked) in [("otherwise: declared", ["first", "must"].as_slice()), ("otherwise: allow", &["must"])] {
        let bed = Bed::new(policy);
        let script = Script::new([calls([("first", "{}"), ("must", "{}"), ("read", "{}")]), says("ok")]);
        let run = bed.agent_with(&script, |builder| {
            let first = tool("first", "Asks first.", nothing).asks_first();
            builder.tool(first).tool(tool("must", "Always asks.", nothing).always_asks())
        });
        let run = run.spawn("go");
        let holds = bed.holds_open(asked.len()).await;
        let names: Vec<&str> = holds.iter().map(|hold| &*hold.call.facts.tool.name).collect();
        assert_eq!(names, asked, "{policy}");
        for hold in &holds {
            bed.approve(hold).await;
        }
        run.await.unwrap();
        assert!(script.results().iter().all(|given| !given.is_error), "{policy}");
    }
}

/// B27, B29: a no to a question from inside a tool comes back to the tool as a refusal, and its call ends with it.
#[tokio::test]
async fn a_no_inside_a_tool_ends_its_call() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, "otherwise: allow").await;
        let asker = countersign::tool::tool(Definition::new("asker", "Asks."), |running| async move {
            running.confirm("Really all of it?", &serde_json::json!({"rows": 7})).await?;
            Ok(Json::string("yes"))
        });
        let script = Script::new([calls([("asker", "{}"), ("read", "{}")]), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.tool(asker)).spawn("go");
        let hold = bed.hold().await;
        let payload = hold.payload.as_ref().map(Json::as_str);
        assert_eq!((hold.hint.as_deref(), payload), (Some("Really all of it?"), Some(r#"{"rows":7}"#)), "{kind:?}");
        bed.answer(&hold, Answer::deny("not all of it")).await;
        run.await.unwrap();
        let results = script.results();
        assert!(results[0].is_error && results[0].text.contains("not all of it"), "{kind:?} {results:?}");
        assert_eq!(&*results[1].text, "read done", "{kind:?}");
        assert_eq!(bed.gate.get(hold.call.id).await.unwrap().state, CallState::Failed, "{kind:?}");
    }
}

/// B23: a toolset asks as a whole, and the tools it was made of do not.
#[tokio::test]
async fn a_toolset_asks_as_a_whole() {
    let bed = Bed::new("otherwise: declared");
    let original: Arc<dyn Tool> = Arc::new(recorder("list", &bed.ran));
    let set = asks_first(Set(vec![Arc::clone(&original), Arc::new(recorder("wipe", &bed.ran))]));
    let script = Script::new([calls([("list", "{}"), ("wipe", "{}"), ("read", "{}")]), says("ok")]);
    let run = bed.agent_with(&script, |builder| builder.toolset(set)).spawn("go");
    for hold in bed.holds_open(2).await {
        assert_eq!(hold.call.facts.toolset.as_deref(), Some("files"));
        bed.approve(&hold).await;
    }
    run.await.unwrap();
    assert_eq!(bed.ran().len(), 3);
    assert_eq!(original.declares(&Json::empty()), Ok(Declared::Nothing));
}

/// B56, B59: what was approved for good is asked about once: the next session passes, in any store.
#[tokio::test]
async fn what_is_remembered_is_not_asked_again() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, "otherwise: ask").await;
        let script = Script::new([calls([("send", "{}")]), says("one"), calls([("send", "{}")]), says("two")]);
        let agent = bed.agent(&script);
        let run = agent.session("first").spawn("go");
        let remember = Some(Remember::global());
        bed.answer(&bed.hold().await, Answer::Approve { arguments: None, payload: None, remember }).await;
        run.await.unwrap();
        assert_eq!(&*agent.session("second").run("go").await.unwrap().text, "two", "{kind:?}");
        assert_eq!(bed.ran(), ["send {}", "send {}"], "{kind:?}");
        let log = bed.log().await;
        assert_eq!(log.iter().filter(|name| **name == "hold.opened").count(), 1, "{kind:?}");
    }
}

/// B41, B44, B48: one policy over tools, skills, servers and agents: what its allow rules name is free, all else asks.
#[tokio::test]
async fn an_allow_list_reaches_tools_skills_servers_and_agents() {
    const LIST: &str = "otherwise: ask\nrules: [{ allow: [read, 'skill:pdf', 'erp/find', 'agent:aide'] }]";
    let bed = Bed::new(LIST);
    let on = |server: &'static str, name: &'static str| {
        let mut definition = Definition::new(name, "On a server.");
        definition.tool = ToolId::on(server, name);
        Arc::new(countersign::tool::tool(definition, |_| async { Ok(Json::string("served")) })) as Arc<dyn Tool>
    };
    let skill = Set(vec![Arc::new(recorder("merge", &bed.ran))]);
    let served = Set(vec![on("erp", "find"), on("erp", "pay")]);
    let (aide, rival) = (Script::new([says("aided")]), Script::new([says("rivalled")]));
    let (aide, rival) = (bed.named("aide", &aide, |b| b), bed.named("rival", &rival, |b| b));
    let task = r#"{"task":"t"}"#;
    let wanted = [
        ("read", "{}"),
        ("merge", "{}"),
        ("erp__find", "{}"),
        ("ask_aide", task),
        ("send", "{}"),
        ("erp__pay", "{}"),
        ("ask_rival", task),
    ];
    let script = Script::new([calls(wanted), says("ok")]);
    let agent = bed.agent_with(&script, |builder| {
        builder.skill("pdf", skill).skill("books", served).sub_agent(aide).sub_agent(rival)
    });
    let run = agent.spawn("go");
    let holds = bed.holds_open(3).await;
    let asked: Vec<String> = holds.iter().map(|hold| hold.call.facts.tool.to_string()).collect();
    assert_eq!(asked, ["send", "erp/pay", "agent:rival"]);
    for hold in &holds {
        bed.answer(hold, Answer::deny("not on the list")).await;
    }
    run.await.unwrap();
    let failed: Vec<bool> = script.results().iter().map(|given| given.is_error).collect();
    assert_eq!(failed, [false, false, false, false, true, true, true]);
}

/// B35: what came with the approval reaches the running tool, with who approved, and the arguments stay as approved.
#[tokio::test]
async fn a_payload_and_its_giver_reach_the_tool() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Trip {
        /// How many days.
        days: u32,
    }
    async fn book(trip: Trip, cx: Running) -> Result<String, ToolError> {
        let by = cx.decision().map(|decision| decision.by.id.to_string());
        Ok(format!("{} days by {by:?} with {:?}", trip.days, cx.payload().map(Json::as_str)))
    }
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, "otherwise: ask").await;
        let script = Script::new([calls([("book", r#"{"days":3}"#)]), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.tool(tool("book", "Books a trip.", book))).spawn("go");
        let payload = Some(Json::of(&serde_json::json!({"budget": 900})).unwrap());
        bed.answer(&bed.hold().await, Answer::Approve { arguments: None, payload, remember: None }).await;
        run.await.unwrap();
        let expected = r#"3 days by Some("ann") with Some("{\"budget\":900}")"#;
        assert_eq!(&*script.result().text, expected, "{kind:?}");
    }
}

/// B45: a denied tool stays offered; every call of it is refused with the rule's reason.
#[tokio::test]
async fn a_denied_tool_stays_offered() {
    let bed = Bed::new("otherwise: allow\nrules: [{ auto_deny: drop, reason: it is forever }]");
    let script = Script::new([calls([("drop", "{}")]), says("ok")]);
    bed.agent(&script).run("go").await.unwrap();
    assert!(script.prompts()[0].tools.iter().any(|offer| &*offer.name == "drop"));
    assert!(script.result().text.contains("it is forever"));
    assert!(bed.ran().is_empty());
}
