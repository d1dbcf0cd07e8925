//! An agent that hands the conversation over to another one; handing over is a call like any other.

use anyhow::{Context as _, Result};
use countersign::{Answer, Definition, Gate, Json, Policy, tool};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, Team};

const POLICY: &str = "
policy:
  otherwise: ask
  rules:
    - { id: to-billing, allow: 'agent:billing' }
    - { id: to-legal, deny: 'agent:legal', reason: Customers write to legal themselves }
agents:
  desk:
    policy:
      rules: [{ id: no-promises, deny: promise_discount, reason: The desk promises nothing }]
";

/// The desk may not go to legal, goes to billing, and its own rule still binds there.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::from_yaml(POLICY)?).approver(|hold| async move {
        crate::show(&hold);
        Ok(Answer::approve())
    });
    let gate = gate.build()?;
    let does = |name: &'static str, description: &'static str| {
        let does = move |_| async move { Ok(Json::string(&format!("{name} done"))) };
        tool::tool(Definition::new(name, description), does)
    };

    let model = Scripted::new([
        Turn::new("").call("refund", r#"{"order":7}"#).call("promise_discount", r#"{"percent":20}"#),
        Turn::new("You get your money back."),
    ]);
    let billing = Agent::builder("billing", model.playing("billing")).gate(gate.clone());
    let billing = billing.description("Refunds orders and explains invoices.");
    let billing = billing.tool(does("refund", "Pays the price of an order back, at once."));
    let billing =
        billing.tool(does("promise_discount", "Promises a customer a discount on the next order.")).build()?;
    let model = Scripted::new([Turn::new("Nothing is said here.")]);
    let legal = Agent::builder("legal", model).gate(gate.clone()).description("Answers questions of law.").build()?;

    let model = Scripted::new([
        Turn::new("").call("transfer_to_legal", r#"{"reason":"they threaten to sue"}"#),
        Turn::new("").call("transfer_to_billing", r#"{"reason":"a refund"}"#),
    ]);
    let desk = Agent::builder("desk", model.playing("desk")).gate(gate).handoff(billing).handoff(legal).build()?;
    let session = desk.new_session();
    let reply = session.run("I want my money back or I sue!").await?;
    println!("{} said: {}", reply.agent, reply.text);

    assert_eq!((&*reply.agent, &*reply.text), ("billing", "You get your money back."));
    let read = crate::read_by_model(&session).await?;
    let reasons = ["Customers write to legal themselves", "", "refund done", "The desk promises nothing"];
    assert_eq!(read.len(), reasons.len());
    for (read, reason) in read.iter().zip(reasons) {
        assert!(read.contains(reason), "{read}");
    }
    there_and_back().await
}

/// Two agents that hand over to each other are built together.
async fn there_and_back() -> Result<()> {
    let gate = Gate::builder().policy(Policy::allow_all()).build()?;
    let model = Scripted::new([
        Turn::new("").call("transfer_to_support", r#"{"reason":"it does not start"}"#),
        Turn::new("Then you want a new one."),
    ]);
    let sales = Agent::builder("sales", model.playing("sales")).gate(gate.clone()).handoff_to("support");
    let model = Scripted::new([Turn::new("").call("transfer_to_sales", r#"{"reason":"it is broken"}"#)]);
    let support = Agent::builder("support", model.playing("support")).gate(gate).handoff_to("sales");
    let agent = Team::of([sales, support])?.agent("sales").context("sales is in the team")?;
    let reply = agent.run("My machine does not start.").await?;
    println!("{} said: {}", reply.agent, reply.text);
    assert_eq!((&*reply.agent, &*reply.text), ("sales", "Then you want a new one."));
    Ok(())
}
