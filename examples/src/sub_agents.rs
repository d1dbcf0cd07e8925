//! Agents that give tasks to agents: a hold two levels down shows at the top, and is answered there by its id.

use anyhow::Result;
use countersign::{Answer, Definition, Gate, Json, Policy, Who, tool};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, RunEvent};

const POLICY: &str = "
otherwise: ask
rules:
  - { id: teamwork, allow: 'agent:*' }
";

/// The lead asks the builder, the builder asks the tester, and the tester wants to wipe a database.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::from_yaml(POLICY)?).decided_elsewhere().build()?;
    let wipe = Definition::new("wipe_database", "Deletes every row of the test database, for a fresh start.");
    let wipe = tool::tool(wipe, |_| async { Ok(Json::string("0 rows left")) });

    let model = Scripted::new([Turn::new("").call("wipe_database", "{}"), Turn::new("All tests pass.")]);
    let tester = Agent::builder("tester", model).gate(gate.clone()).tool(wipe).build()?;
    let model = Scripted::new([
        Turn::new("").call("ask_tester", r#"{"task":"Test the release."}"#),
        Turn::new("Built and tested."),
    ]);
    let builder = Agent::builder("builder", model).gate(gate.clone()).sub_agent(tester).build()?;
    let model = Scripted::new([
        Turn::new("").call("ask_builder", r#"{"task":"Build the release."}"#),
        Turn::new("The release is ready."),
    ]);
    let lead = Agent::builder("lead", model).gate(gate.clone()).sub_agent(builder).build()?;

    let mut stream = lead.stream("Make a release");
    let mut asked = 0;
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Held { hold } => {
                crate::show(&hold);
                asked += 1;
                let decision = hold.decision(Who::person("ann"), "terminal", Answer::approve());
                gate.decide(hold.id, decision).await?;
            }
            RunEvent::ChildEnded { place, text } => println!("{} answered: {text}", place.agents.join(" > ")),
            _ => {}
        }
    }
    let reply = stream.reply().await?;
    println!("the agent said: {}", reply.text);
    assert_eq!((asked, &*reply.text, reply.turns), (1, "The release is ready.", 6));
    Ok(())
}
