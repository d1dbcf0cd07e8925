//! Agents that know one another by name, and hand a conversation to and fro.

use std::sync::Arc;

use countersign::Answer;
use countersign::config::Config;
use countersign_agent::config::{Client, Makings};
use countersign_agent::model::Model;
use countersign_agent::tools::Workspace;
use countersign_agent::{Agent, AgentBuilder, AgentError, RunEvent, Team};

use crate::bed::{ALLOW, Bed, EVERY, Script, calls, recorder, says};
use crate::loop_restart::{DURABLE, reborn_under, restart_under};

/// Both hand over freely; each of the two forbids something, to whoever acts.
const POLICY: &str = "
policy: { otherwise: ask, rules: [{ allow: 'agent:*' }] }
agents:
  sales: { policy: { rules: [{ deny: drop, reason: sales says no }] } }
  support: { policy: { rules: [{ deny: read, reason: support says no }] } }
";

fn member(bed: &Bed, name: &str, script: &Script, leads: &[&str]) -> AgentBuilder {
    let builder = Agent::builder(name, script.clone()).gate(bed.gate.clone()).description(format!("Does {name}."));
    let tools = ["send", "drop", "read"].into_iter().fold(builder, |b, tool| b.tool(recorder(tool, &bed.ran)));
    leads.iter().fold(tools, |builder, other| builder.handoff_to(*other))
}

fn team(bed: &Bed, sales: &Script, support: &Script) -> Agent {
    let members = [member(bed, "sales", sales, &["support"]), member(bed, "support", support, &["sales"])];
    Team::of(members).unwrap().agent("sales").unwrap()
}

/// B113: a conversation goes there and back, and the rules of all who took part bind, whoever acts.
#[tokio::test]
async fn a_conversation_is_handed_over_and_back() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, POLICY).await;
        let sales = Script::new([
            calls([("transfer_to_support", "{}")]),
            calls([("read", "{}"), ("drop", "{}"), ("send", "{}")]),
            says("sold"),
        ]);
        let support = Script::new([calls([("drop", "{}"), ("read", "{}")]), calls([("transfer_to_sales", "{}")])]);
        let run = team(&bed, &sales, &support).spawn("go");
        let hold = bed.hold().await;
        let path: Vec<&str> = hold.call.facts.path.agents.iter().map(|agent| &**agent).collect();
        assert_eq!((&*hold.call.facts.tool.name, path), ("send", vec!["support", "sales"]));
        bed.approve(&hold).await;
        let reply = run.await.unwrap();
        assert_eq!((&*reply.text, &*reply.agent), ("sold", "sales"));
        let texts: Vec<String> = sales.results().iter().map(|given| given.text.to_string()).collect();
        assert!(texts[0].contains("support says no") && texts[1].contains("sales says no"), "{texts:?}");
        assert_eq!(bed.ran(), ["send {}"]);
        let offered = &sales.prompts()[0].tools;
        assert!(
            offered
                .iter()
                .any(|offer| &*offer.name == "transfer_to_support" && offer.description.contains("Does support."))
        );
    }
}

/// B113: going round in circles adds nobody to the path and drops nobody from it, and only the run's limits end it.
#[tokio::test]
async fn a_circle_neither_grows_nor_forgets() {
    let bed = Bed::new(ALLOW);
    let round = |to| calls([(to, "{}")]);
    let sales = Script::new(std::array::from_fn::<_, 40, _>(|_| round("transfer_to_support")));
    let support = Script::new(std::array::from_fn::<_, 40, _>(|_| round("transfer_to_sales")));
    let mut stream = team(&bed, &sales, &support).stream("go");
    let (mut handed, mut longest) = (0, 0);
    while let Some(event) = stream.next().await {
        if let RunEvent::HandedOver { place } = event {
            handed += 1;
            longest = longest.max(place.agents.len());
        }
    }
    assert_eq!((handed, longest), (80, 2));
}

/// B114: a hand-over back that is refused does not happen.
#[tokio::test]
async fn a_refused_way_back_is_not_taken() {
    let bed = Bed::new("otherwise: allow\nrules: [{ allow: 'agent:support' }, { ask: 'agent:sales' }]");
    let sales = Script::new([calls([("transfer_to_support", "{}")])]);
    let support = Script::new([calls([("transfer_to_sales", "{}")]), says("I stay")]);
    let run = team(&bed, &sales, &support).spawn("go");
    bed.answer(&bed.hold().await, Answer::deny("no way back")).await;
    let reply = run.await.unwrap();
    assert_eq!((&*reply.text, &*reply.agent, sales.asked()), ("I stay", "support", 1));
    assert!(support.result().text.contains("no way back"));
}

/// B108, B113: there and back survives a restart at any point of it.
#[tokio::test]
async fn there_and_back_survives_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, POLICY).await;
        let sales = Script::new([calls([("transfer_to_support", "{}")]), calls([("send", "{}")])]);
        let support = Script::new([calls([("transfer_to_sales", "{}")])]);
        let run = team(&bed, &sales, &support).session("s").spawn("go");
        let hold = bed.hold().await;
        run.park();
        let bed = reborn_under(&*stores, &bed, POLICY).await;
        bed.approve(&hold).await;
        let sales = Script::new([calls([("read", "{}")]), says("sold")]);
        let reply = team(&bed, &sales, &Script::default()).resume("s").await.unwrap();
        assert_eq!((&*reply.text, &*reply.agent), ("sold", "sales"), "{kind:?}");
        assert!(sales.result().text.contains("support says no"), "{kind:?}: who took part still binds");
        assert_eq!(bed.ran(), ["send {}"], "{kind:?}");
    }
}

/// Members can be given tasks too, at once and in the background; a task never goes deeper than allowed.
#[tokio::test]
async fn members_are_given_tasks_by_name() {
    let bed = Bed::new(ALLOW);
    let aide = Script::new([says("one"), says("two")]);
    let tasks = calls([("ask_aide", r#"{"task":"x"}"#), ("ask_late", r#"{"task":"y"}"#)]);
    let boss = Script::new([tasks, says("so far"), says("all")]);
    let late = Script::new([says("late")]);
    let boss = member(&bed, "boss", &boss, &[]).sub_agent_of_team("aide").background_agent_of_team("late");
    let members = [boss, member(&bed, "aide", &aide, &["boss"]), member(&bed, "late", &late, &["boss"])];
    let reply = Team::of(members).unwrap().agent("boss").unwrap().run("go").await.unwrap();
    assert_eq!((&*reply.text, aide.asked(), late.asked()), ("all", 1, 1));
}

/// A name that is missing or means two is found when the team is built, and an agent that names others needs one.
#[test]
fn a_team_is_whole_or_not_at_all() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let bed = Bed::new(ALLOW);
    let script = Script::default();
    let begin = |name: &str, leads: &[&str]| member(&bed, name, &script, leads);
    let error = Team::of([begin("a", &["b"])]).unwrap_err();
    assert!(
        matches!(&error, AgentError::NoSuchAgent { agent, other } if &**agent == "a" && &**other == "b"),
        "{error}"
    );
    assert!(matches!(Team::of([begin("a", &[]), begin("a", &[])]), Err(AgentError::TwoAgents(_))));
    assert!(matches!(begin("a", &["a"]).build(), Err(AgentError::NoSuchAgent { .. })));
    let other = member(&Bed::new(ALLOW), "b", &script, &[]);
    assert!(matches!(Team::of([begin("a", &["b"]), other]), Err(AgentError::OtherGate(_))));
    assert!(Team::of([begin("a", &["b"]), begin("b", &["a"])]).unwrap().agent("c").is_none());
}

/// A team is gone when nobody holds one of its agents any more: circles of names hold nothing.
#[tokio::test]
async fn a_team_is_not_held_for_ever() {
    struct Witness(Script, #[allow(dead_code)] Arc<()>);
    #[async_trait::async_trait]
    impl Model for Witness {
        fn name(&self) -> Arc<str> {
            "witness".into()
        }
        async fn answer(
            &self,
            prompt: countersign_agent::model::Prompt,
        ) -> Result<countersign_agent::model::Answer, countersign_agent::model::ModelError> {
            self.0.answer(prompt).await
        }
    }
    let bed = Bed::new(ALLOW);
    let alive = Arc::new(());
    let begin = |name: &str, to: &str, script: Script| {
        Agent::builder(name, Witness(script, Arc::clone(&alive))).gate(bed.gate.clone()).handoff_to(to)
    };
    let a = begin("a", "b", Script::new([calls([("transfer_to_b", "{}")])]));
    let agent = Team::of([a, begin("b", "a", Script::new([says("done")]))]).unwrap().agent("a").unwrap();
    assert_eq!(&*agent.run("go").await.unwrap().text, "done");
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(agent);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Agents of a configuration may hand over to one another; tasks in a circle are refused.
#[tokio::test]
async fn configured_agents_may_hand_over_in_circles() {
    let bed = Bed::new(ALLOW);
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::new(folder.path()).unwrap();
    let build = |yaml: &str| {
        let config = Config::from_yaml("test.yml", yaml, &|_| None).unwrap();
        let casting = |name: &str, _: Option<&countersign::config::ModelConfig>| {
            let script = match name {
                "sales" => Script::new([calls([("transfer_to_support", "{}")]), says("sold")]),
                _ => Script::new([calls([("transfer_to_sales", "{}")])]),
            };
            Ok(Arc::new(script) as Arc<dyn Model>)
        };
        let makings = Makings {
            config: &config,
            base: folder.path(),
            workspace: &workspace,
            gate: &bed.gate,
            casting: &casting,
            client: Client::Present,
            processes: None,
            toolsets: &[],
        };
        countersign_agent::config::agent(makings, "sales").map_err(|error| error.to_string())
    };
    let agent = build("agents: { sales: { handoffs: [support] }, support: { handoffs: [sales] } }").unwrap();
    let reply = agent.run("go").await.unwrap();
    assert_eq!((&*reply.text, &*reply.agent), ("sold", "sales"));
    assert!(build("agents: { sales: { sub_agents: [support] }, support: { handoffs: [sales] } }").is_ok());
    let error = build("agents: { sales: { sub_agents: [support] }, support: { sub_agents: [sales] } }").unwrap_err();
    assert!(error.contains("sales → support → sales"), "{error}");
}
