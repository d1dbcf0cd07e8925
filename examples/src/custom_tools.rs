//! A tool that the client runs: in the browser, on the phone, wherever the agent is not.

use anyhow::{Context as _, Result};
use countersign::{Answer, Definition, Gate, Json, Policy, Who};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, RunEvent};

/// The agent asks where the user is; their phone answers, after they said yes.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::ask_all()).decided_elsewhere().build()?;
    let locate = Definition::new("locate_user", "Says in which town the user is right now, as their phone knows it.");
    let model = Scripted::new([Turn::new("").call("locate_user", "{}"), Turn::new("It rains in Ghent.")]);
    let agent = Agent::builder("weather", model).gate(gate.clone()).client_tool(locate).build()?;
    let session = agent.new_session();

    let mut stream = session.stream("Do I need an umbrella?");
    while let Some(event) = stream.next().await {
        let RunEvent::Held { hold } = event else { continue };
        crate::show(&hold);
        gate.decide(hold.id, hold.decision(Who::person("user"), "phone", Answer::approve())).await?;
        // From here on it is the phone: it takes what was approved, once, and gives one result.
        let waiting = session.client_calls().await?;
        let call = waiting.first().context("the client has nothing to run")?;
        let taken = session.take(call.id).await?;
        println!("the phone runs {} {}", taken.tool, taken.arguments);
        assert!(session.take(call.id).await.is_err(), "nobody can take it a second time");
        session.give(taken.id, taken.fence, Ok(Json::string("Ghent"))).await?;
    }
    let reply = stream.reply().await?;
    println!("the agent said: {}", reply.text);
    assert_eq!(&*reply.text, "It rains in Ghent.");
    assert_eq!(crate::read_by_model(&session).await?, ["Ghent"]);
    Ok(())
}
