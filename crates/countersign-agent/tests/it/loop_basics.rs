//! One agent, one conversation: what its model sees and what runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::gate::{Authorized, HookAnswer};
use countersign::{Answer, Definition, Gate, Json, Policy, Running, ToolError};
use countersign_agent::model::{Message, ModelError, Stop};
use countersign_agent::{Agent, AgentError, RunError, RunEvent, tool};

use crate::bed::{ALLOW, ASK, Bed, MIXED, Ran, Script, Turn, calls, recorder, says};

/// B1: an asked call that is approved runs once and the model sees its result.
#[tokio::test]
async fn an_approved_call_runs_once_and_its_result_reaches_the_model() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", r#"{"to":"bo"}"#)]), says("sent")]);
    let run = bed.agent(&script).spawn("send it to bo");
    let hold = bed.hold().await;
    assert_eq!(hold.call.facts.path.agents.iter().map(|a| &**a).collect::<Vec<_>>(), ["boss"]);
    assert_eq!(script.asked(), 1, "the model is not asked while a call is open");
    bed.approve(&hold).await;
    let reply = run.await.unwrap();
    assert_eq!((&*reply.text, &*reply.run, reply.turns, reply.usage.input), ("sent", "r1", 2, 20));
    assert_eq!(bed.ran(), [r#"send {"to":"bo"}"#]);
    assert_eq!((&*script.result().text, script.result().is_error), ("send done", false));
}

/// B34: where a person changed the arguments the model is told which ones ran, whether the tool did it or failed.
#[tokio::test]
async fn the_model_is_told_which_arguments_ran() {
    let told = r#"A person changed the arguments before this call ran. It ran with: {"to":"cy"}"#;
    for (name, words, is_error) in [("send", "send done", false), ("broken", "it is stuck", true)] {
        let bed = Bed::new(ASK);
        let script = Script::new([calls([(name, r#"{"to":"bo"}"#)]), says("well")]);
        let broken = countersign::tool::tool(Definition::new("broken", "Fails."), |_| async {
            Err(ToolError::Failed("it is stuck".to_owned()))
        });
        let run = bed.agent_with(&script, |builder| builder.tool(broken)).spawn("go");
        let arguments = Some(Json::of(&serde_json::json!({"to": "cy"})).unwrap());
        bed.answer(&bed.hold().await, Answer::Approve { arguments, payload: None, remember: None }).await;
        run.await.unwrap();
        let given = script.result();
        assert_eq!((&*given.text, given.is_error), (&*format!("{told}\n{words}"), is_error));
    }
}

/// B2: a denied call never runs; the model reads the reason as an error in the same turn, and the run goes on.
#[tokio::test]
async fn a_denial_is_data_for_the_model_and_the_run_goes_on() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", "{}")]), says("then not")]);
    let run = bed.agent(&script).spawn("send");
    bed.answer(&bed.hold().await, Answer::deny("not today")).await;
    assert_eq!(&*run.await.unwrap().text, "then not");
    assert!(bed.ran().is_empty());
    assert!(script.result().is_error);
    assert!(script.result().text.contains("Reason: not today."), "{}", script.result().text);
}

/// B3, B15: unknown tools and bad arguments are refused without a hold, and the run goes on.
#[tokio::test]
async fn unknown_tools_and_bad_arguments_ask_nobody() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("nope", "{}"), ("", "{}"), ("send", "[1"), ("send", "[]")]), says("well")]);
    bed.agent(&script).run("go").await.unwrap();
    let texts: Vec<String> = script.results().iter().map(|given| given.text.to_string()).collect();
    assert!(texts[0].contains("no tool `nope`"), "{texts:?}");
    assert!(texts[1].contains("no tool `(no name)`"), "{texts:?}");
    assert!(texts[2].contains("not valid") && texts[3].contains("not valid"), "{texts:?}");
    assert!(script.results().iter().all(|given| given.is_error));
    assert!(bed.ran().is_empty() && !bed.log().await.contains(&"hold.opened"));
}

/// B45: a tool whose rule hides it is not offered; calling it all the same gives the rule's refusal.
#[tokio::test]
async fn a_hidden_tool_is_not_offered_and_still_refused() {
    let bed = Bed::new("otherwise: allow\nrules: [{ id: gone, deny: drop, hide: true, reason: never }]");
    let script = Script::new([calls([("drop", "{}")]), says("no")]);
    bed.agent(&script).run("drop it").await.unwrap();
    let offered: Vec<String> = script.prompts()[0].tools.iter().map(|offer| offer.name.to_string()).collect();
    assert_eq!(offered, ["read", "send"]);
    assert!(script.result().text.contains("Reason: never."));
}

/// B14, B16, B19, B20: an agent's own hooks stand after the gate's; a refusal by one asks nobody and is told once.
#[tokio::test]
async fn an_agents_own_checks_come_after_the_gates() {
    let order = Ran::default();
    let note = |what: &'static str, order: &Ran| order.lock().unwrap().push(what.to_owned());
    let (gates, agents, ends) = (Arc::clone(&order), Arc::clone(&order), Arc::clone(&order));
    let bed = Bed::build(crate::bed::memory(), ASK, move |builder| {
        builder.decided_elsewhere().before_tool(move |_| {
            note("gate", &gates);
            async { Ok(HookAnswer::Pass) }
        })
    });
    let script = Script::new([calls([("send", "{}")]), calls([("read", "{}")]), says("no")]);
    let agent = bed.agent_with(&script, |builder| {
        let builder = builder.before_tool(move |proposed| {
            note("agent", &agents);
            let refuse = &*proposed.tool.name == "send";
            async move { Ok(if refuse { HookAnswer::Refuse("too often".into()) } else { HookAnswer::Pass }) }
        });
        builder.authorizer(|_| async { Ok(Authorized::No("not you".into())) }).after_tool(move |call| {
            note(if call.refusal.is_some() { "ended refused" } else { "ended" }, &ends);
            async {}
        })
    });
    agent.run("go").await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["gate", "agent", "ended refused", "gate", "agent", "ended refused"]);
    let prompts = script.prompts();
    let text = |at: usize| format!("{:?}", prompts[at].messages.last());
    assert!(text(1).contains("too often") && text(2).contains("not you"));
    assert!(!bed.log().await.contains(&"hold.opened"));
}

/// B113 (first half), B8: an agent's own approver is asked instead of the gate's, and its error is no denial.
#[tokio::test]
async fn an_agents_own_approver_is_asked() {
    let bed = Bed::new("otherwise: ask\nunattended: deny");
    let script = Script::new([calls([("send", "{}")]), calls([("drop", "{}")]), says("ok")]);
    let agent = bed.agent_with(&script, |builder| {
        builder.approver(|hold| async move {
            if &*hold.call.facts.tool.name == "send" { Ok(Answer::approve()) } else { Err("broken".into()) }
        })
    });
    agent.run("go").await.unwrap();
    assert_eq!(bed.ran(), ["send {}"]);
    assert!(script.result().text.contains("the approver failed: broken"), "{}", script.result().text);
}

/// Seed 003: the schema of a typed tool comes from its type, and its predicate sees the input.
#[tokio::test]
async fn a_typed_tool_asks_depending_on_its_input() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Transfer {
        /// How much.
        amount: u64,
    }
    async fn transfer(input: Transfer, _cx: Running) -> Result<serde_json::Value, ToolError> {
        Ok(serde_json::json!({"sent": input.amount}))
    }
    let bed = Bed::new("otherwise: declared");
    let wants = [("transfer", r#"{"amount":5}"#), ("transfer", r#"{"amount":"x"}"#), ("transfer", r#"{"amount":50}"#)];
    let script = Script::new([calls(wants), says("ok")]);
    let transfer = tool("transfer", "Moves money.", transfer).asks_when(|input: &Transfer| input.amount > 10);
    let run = bed.agent_with(&script, |builder| builder.tool(transfer.hint("Large transfer"))).spawn("go");
    let hold = bed.hold().await;
    assert_eq!(
        (hold.call.facts.arguments.as_str(), hold.hint.as_deref()),
        (r#"{"amount":50}"#, Some("Large transfer"))
    );
    bed.approve(&hold).await;
    run.await.unwrap();
    let results = script.results();
    assert_eq!((&*results[0].text, &*results[2].text), (r#"{"sent":5}"#, r#"{"sent":50}"#));
    assert!(results[1].is_error);
    let offered = script.prompts()[0].tools.iter().find(|offer| &*offer.name == "transfer").unwrap().clone();
    assert_eq!(offered.input_schema.value()["properties"]["amount"]["description"], "How much.");
}

/// A conversation goes on under its name, and each run has its own.
#[tokio::test]
async fn a_session_remembers_what_was_said() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([says("hello"), says("again")]);
    let agent = bed.agent(&script);
    agent.session("s/1").run("hi").await.unwrap();
    let reply = agent.session("s/1").run("hi again").await.unwrap();
    assert_eq!((&*reply.run, reply.turns), ("r2", 1));
    assert_eq!(script.prompts()[1].messages.len(), 3);
    assert_eq!(agent.session("s").messages().await.unwrap().len(), 0);
    let fresh = agent.new_session();
    assert!(matches!(fresh.run("hi").await, Err(RunError::Model(_))));
    assert!(matches!(fresh.run("hi").await, Err(RunError::Model(_))), "said twice, not refused as busy");
    let other = bed.named("other", &script, |builder| builder);
    assert!(matches!(other.session("s/1").run("hi").await, Err(RunError::OtherAgent { .. })));
    assert!(matches!(agent.resume("nobody").await, Err(RunError::NoSession(_))));
    let listed = countersign_agent::sessions(&**bed.gate.store(), "local", None, 10).await.unwrap();
    let names: Vec<_> = listed.iter().map(|listed| (&*listed.session, &*listed.agent)).collect();
    assert_eq!(names, [("s/1", "boss"), (fresh.id(), "boss")]);
}

/// An answer that was cut counts for nothing: nothing of it is written down, and resuming asks again.
#[tokio::test]
async fn a_cut_answer_counts_for_nothing() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([Turn::Cut, says("whole")]);
    let agent = bed.agent(&script);
    let cut = agent.session("s").run("hi").await;
    assert!(matches!(cut, Err(RunError::Model(ModelError::Unreachable { .. }))), "{cut:?}");
    assert_eq!(&*agent.resume("s").await.unwrap().text, "whole");
    assert_eq!(script.prompts()[1].messages.len(), 1);
}

/// The prompt shares the history instead of copying it.
#[tokio::test]
async fn asking_copies_no_history() {
    let bed = Bed::new(ALLOW);
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    struct Watch(Script, Arc<Mutex<Vec<usize>>>);
    #[async_trait::async_trait]
    impl countersign_agent::model::Model for Watch {
        fn name(&self) -> Arc<str> {
            "watch".into()
        }
        async fn answer(
            &self,
            prompt: countersign_agent::model::Prompt,
        ) -> Result<countersign_agent::model::Answer, ModelError> {
            if let Some(Message::User { text }) = prompt.messages.first() {
                self.1.lock().unwrap().push(text.as_ptr() as usize);
            }
            self.1.lock().unwrap().push(Arc::strong_count(&prompt.messages));
            drop(prompt);
            self.0.answer(Default::default()).await
        }
    }
    let script = Script::new([calls([("read", "{}")]), says("ok")]);
    let watch = Watch(script, Arc::clone(&seen));
    let agent = Agent::builder("a", watch).gate(bed.gate.clone()).tool(recorder("read", &bed.ran)).build().unwrap();
    agent.run("hi").await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!((seen[0], seen[1]), (seen[2], seen[3]), "the same text, held by the run and the prompt alone");
    assert_eq!(seen[1], 2);
}

/// B5, B7, B95: an agent that would let calls pass unjudged, or whose holds would outlive its run, is not built.
#[tokio::test]
async fn an_agent_that_could_not_work_is_not_built() {
    let bed = Bed::new(ASK);
    let script = Script::default();
    let begin = || Agent::builder("boss", script.clone()).gate(bed.gate.clone());
    let second = Duration::from_secs(1);
    assert!(matches!(Agent::builder("boss", script.clone()).build(), Err(AgentError::NoGate(_))));
    assert!(matches!(
        Agent::builder("a/b", script.clone()).gate(bed.gate.clone()).build(),
        Err(AgentError::BadName(_))
    ));
    let twice = begin().tool(recorder("x", &bed.ran)).tool(recorder("x", &bed.ran)).build();
    assert!(matches!(twice, Err(AgentError::TwoTools(name)) if name == "x"));
    assert!(matches!(begin().tool(recorder("a:b", &bed.ran)).build(), Err(AgentError::Tool(_))));
    let broken = Definition::new("x", "").with_schema(&serde_json::json!({"type": 7})).unwrap();
    let broken = countersign::tool::tool(broken, |_| async { Ok(Json::empty()) });
    assert!(matches!(begin().tool(broken).build(), Err(AgentError::Tool(_))));
    let late = begin().timeout(60 * second).approval_timeout(60 * second).build();
    assert!(matches!(late, Err(AgentError::ApprovalTimeout { .. })));
    assert!(matches!(begin().timeout(30 * second).build(), Err(AgentError::ApprovalTimeout { .. })));
    assert!(begin().timeout(60 * second).approval_timeout(59 * second).build().is_ok());
    let other = Gate::builder().policy(Policy::allow_all()).build().unwrap();
    let stranger = Agent::builder("stranger", script.clone()).gate(other).build().unwrap();
    assert!(matches!(begin().sub_agent(stranger).build(), Err(AgentError::OtherGate(_))));
}

/// B44, B48: tools of servers and skills are offered under names that models can speak, and judged by who they are.
#[tokio::test]
async fn offered_names_are_looked_up_and_never_taken_apart() {
    struct Set(Vec<Arc<dyn countersign::Tool>>);
    impl countersign::Toolset for Set {
        fn name(&self) -> Arc<str> {
            "files".into()
        }
        fn tools(&self) -> Vec<Arc<dyn countersign::Tool>> {
            self.0.clone()
        }
    }
    let on = |server: &'static str, name: &'static str| {
        let mut definition = Definition::new(name, "On a server.");
        definition.tool = countersign::ToolId::on(server, name);
        Arc::new(countersign::tool::tool(definition, |running| async move {
            Ok(Json::string(&running.call().facts.tool.to_string()))
        })) as Arc<dyn countersign::Tool>
    };
    let bed = Bed::new("otherwise: allow\nrules: [{ deny: 'skill:pdf', except: ['b/x'], reason: no skills }]");
    let script = Script::new([calls([("a__b_c", "{}"), ("a__b_c_1", "{}")]), says("ok")]);
    let set = Set(vec![on("a", "b.c"), on("a", "b_c"), on("b", "x")]);
    let agent = bed.agent_with(&script, |builder| builder.skill("pdf", set));
    agent.run("go").await.unwrap();
    let offered: Vec<String> = script.prompts()[0].tools.iter().map(|offer| offer.name.to_string()).collect();
    assert_eq!(offered.len(), 6, "{offered:?}");
    assert_eq!(offered[3], "a__b_c");
    assert!(offered[4].starts_with("a__b_c_") && offered[4].len() == 15, "{offered:?}");
    assert!(offered.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')));
    assert!(script.results()[0].text.contains("no skills") && script.results()[1].text.contains("no tool"));
}

/// Seed 002: some models write nothing for "no arguments".
#[tokio::test]
async fn no_arguments_at_all_are_no_arguments() {
    let bed = Bed::new(MIXED);
    let script = Script::new([calls([("read", "")]), says("ok")]);
    bed.agent(&script).run("go").await.unwrap();
    assert_eq!(bed.ran(), ["read {}"]);
}

/// What a provider refused to finish is not to be run, whatever stood in it.
#[tokio::test]
async fn calls_of_a_refused_answer_are_not_proposed() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([Turn::Refuse("send")]);
    let reply = bed.agent(&script).run("go").await.unwrap();
    assert_eq!((&*reply.text, reply.turns, reply.stop), ("I would", 1, Stop::Refused));
    assert!(bed.ran().is_empty() && bed.log().await.is_empty());
}

/// An answer that reached the bound on tokens says so: on the stream, in the reply, later too, and to a parent's model.
#[tokio::test]
async fn an_answer_that_was_cut_never_passes_for_a_whole_one() {
    let bed = Bed::new(ALLOW);
    let kid = bed.named("kid", &Script::new([Turn::Short("half an")]), |builder| builder);
    let script = Script::new([calls([("ask_kid", r#"{"task":"t"}"#)]), Turn::Short("no more than")]);
    let agent = bed.agent_with(&script, |builder| builder.sub_agent(kid));
    let mut stream = agent.session("s").stream("go");
    let mut stops = Vec::new();
    while let Some(event) = stream.next().await {
        if matches!(event, RunEvent::Turn { .. } | RunEvent::Done(_)) {
            stops.push(serde_json::to_value(&event).unwrap()["stop"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(stops, ["calls", "length", "length", "length"]);
    let reply = stream.reply().await.unwrap();
    assert_eq!((&*reply.text, reply.stop), ("no more than", Stop::Length));
    assert_eq!(agent.resume("s").await.unwrap(), reply, "it is written down");
    let given = script.result();
    assert!(given.text.starts_with("half an [the answer was cut"), "{given:?}");
}
