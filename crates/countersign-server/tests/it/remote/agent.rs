//! An agent whose gate is at a server: its tools run here, its people are there.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign::memory::MemoryStore;
use countersign::{CallState, Definition, GateError, Policy, Proposal, Who};
use countersign_agent::Agent;
use countersign_agent::model::{Answer, Model, ModelError, Prompt, Scripted};

use super::{remote, story, yes_to_all};
use crate::sessions::{POLICY, Ran, calls, recorder, says};
use crate::stage::Stage;

/// The tools of an agent run in its own process, each once, with what was approved at the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_runs_its_tools_on_a_remote_gate() {
    let stage = Stage::over(Arc::new(MemoryStore::new()), POLICY).await;
    let ann = yes_to_all(&stage.gate);
    let ran: Ran = Arc::new(Mutex::new(Vec::new()));
    let turns = vec![
        calls("read_balance", r#"{"of": "Al"}"#),
        calls("transfer_money", r#"{"to": "Bo", "amount": 100}"#),
        calls("no_such_tool", "{}"),
        says("Bo has it."),
    ];
    let records = Arc::new(MemoryStore::new());
    let gate = remote(&stage, &stage.url).await.records(records).gate();
    let agent = Agent::builder("banker", Scripted::new(turns))
        .gate(gate.clone())
        .tool(recorder("transfer_money", &ran))
        .tool(recorder("read_balance", &ran))
        .build()
        .unwrap();
    let reply = agent.run("send 100 to Bo").await.unwrap();
    assert_eq!(&*reply.text, "Bo has it.");
    let told = [r#"read_balance {"of":"Al"}"#, r#"transfer_money {"amount":100,"to":"Bo"}"#];
    assert_eq!(*ran.lock().unwrap(), told);
    drop(ann);

    let known = stage.gate.store().calls(Default::default()).await.unwrap();
    let states: Vec<_> = known.iter().map(|call| (&*call.facts.tool.name, call.state)).collect();
    let expected = [
        ("read_balance", CallState::Succeeded),
        ("transfer_money", CallState::Succeeded),
        ("no_such_tool", CallState::Denied),
    ];
    assert_eq!(states, expected);
    assert!(known.iter().all(|call| &*call.facts.path.principal == "bot" && call.facts.path.agents.len() == 1));
    let asked = ["call.submitted", "hold.opened", "hold.decided", "call.claimed", "call.succeeded"];
    assert_eq!(story(&stage.gate, known[1].id).await, asked);
}

/// A model that writes down what it is offered.
struct Noting {
    model: Scripted,
    offered: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Model for Noting {
    fn name(&self) -> Arc<str> {
        self.model.name()
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        *self.offered.lock().unwrap() = prompt.tools.iter().map(|offer| offer.name.to_string()).collect();
        self.model.answer(prompt).await
    }
}

/// B45: what the server's rules hide is not offered to a model here, and calling it gives their refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_on_a_remote_gate_is_not_offered_what_its_server_hides() {
    let policy = "otherwise: allow\nrules: [{ id: gone, deny: [drop, db/drop], hide: true, reason: never }]";
    let stage = Stage::over(Arc::new(MemoryStore::new()), policy).await;
    let (ran, offered) = (Ran::default(), Arc::default());
    let model = Noting { model: Scripted::new([calls("drop", "{}"), says("no")]), offered: Arc::clone(&offered) };
    let mut of_db = Definition::new("drop", "Drops a table.");
    of_db.tool.server = Some("db".into());
    let gate = remote(&stage, &stage.url).await.records(Arc::new(MemoryStore::new())).gate();
    let agent = Agent::builder("banker", model)
        .gate(gate)
        .tool(recorder("drop", &ran))
        .tool(recorder("read_balance", &ran))
        .tool(countersign::tool::tool(of_db, |running| async move { Ok(running.arguments().clone()) }))
        .build()
        .unwrap();
    agent.run("drop it").await.unwrap();
    assert_eq!(*offered.lock().unwrap(), ["read_balance"]);
    assert_eq!(*ran.lock().unwrap(), [""; 0]);
    let known = stage.gate.store().calls(Default::default()).await.unwrap();
    assert_eq!(known[0].refusal.as_ref().unwrap().reason.as_deref(), Some("never"));
}

/// What people do is done where they are, and says so.
#[tokio::test]
async fn a_remote_gate_decides_nothing() {
    let stage = Stage::over(Arc::new(MemoryStore::new()), POLICY).await;
    let gate = remote(&stage, &stage.url).await.gate();
    let ran = Ran::default();
    let held = gate.submit(&recorder("transfer_money", &ran), Proposal::new("transfer_money", "{}").session("s")).await;
    let hold = held.unwrap().open_hold().cloned().unwrap();
    let yes = countersign::Decision::new(Who::person("ann"), "test", hold.digest, countersign::Answer::approve());
    assert!(matches!(gate.decide(hold.id, yes).await, Err(GateError::Remote(_))));
    assert!(matches!(gate.set_policy(Policy::allow_all()).await, Err(GateError::Remote(_))));
    assert!(matches!(gate.halt(None, "op", None).await, Err(GateError::Remote(_))));
    assert!(gate.store().grants().await.is_err());
    // An approver in the agent's own process would be the agent deciding for itself.
    let scope = countersign::gate::Scope::new().approver(|_| async { Ok(countersign::Answer::approve()) });
    let own =
        gate.scoped(&scope).submit(&recorder("transfer_money", &ran), Proposal::new("transfer_money", "{}")).await;
    assert!(matches!(own, Err(GateError::Remote(_))));
    // What waits can be withdrawn, one's own alone.
    assert_eq!(gate.cancel_all(Default::default()).await.unwrap(), 1);
    assert_eq!(stage.gate.store().calls(Default::default()).await.unwrap()[0].state, CallState::Cancelled);
}
