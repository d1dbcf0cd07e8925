//! Watching a run as it happens, and deciding from what is seen.

use std::io::Write as _;

use anyhow::Result;
use countersign::{Answer, Definition, Gate, Json, Policy, Who, tool};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, RunEvent};

/// Prints what an agent says word by word, and answers its one question.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::ask_all()).decided_elsewhere().build()?;
    let deploy = Definition::new("deploy", "Puts the newest build on the public servers.");
    let deploy = tool::tool(deploy, |_| async { Ok(Json::string("version 7 is live")) });
    let model = Scripted::new([
        Turn::new("I will deploy the newest build.").call("deploy", r#"{"version":7}"#),
        Turn::new("Version 7 is live."),
    ]);
    let agent = Agent::builder("releaser", model).gate(gate.clone()).tool(deploy).build()?;

    let mut stream = agent.stream("Deploy it");
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text { text, .. } => {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            RunEvent::Turn { .. } => println!(),
            RunEvent::Held { hold } => {
                told.push("held");
                crate::show(&hold);
                gate.decide(hold.id, hold.decision(Who::person("ann"), "terminal", Answer::approve())).await?;
            }
            RunEvent::HoldClosed { state, .. } => {
                told.push("closed");
                println!("the hold is {}", state.as_str());
            }
            RunEvent::Ended { call } => {
                told.push("ended");
                println!("the call {}", call.state);
            }
            RunEvent::Done(reply) => {
                told.push("done");
                assert_eq!(&*reply.text, "Version 7 is live.");
            }
            // A reader that is too slow misses events, never the run: list the open holds then.
            RunEvent::Missed { events } => println!("missed {events} events"),
            _ => {}
        }
    }
    assert_eq!(told, ["held", "closed", "ended", "done"]);
    Ok(())
}
