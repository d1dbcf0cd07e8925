//! Nobody answers: the model is told and goes on, or, where a rule says so, the run ends.

use std::time::Duration;

use anyhow::Result;
use countersign::{Definition, Gate, Json, Policy, tool};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, RunError};

const POLICY: &str = "
otherwise: ask
expires_after: 5m
rules:
  - { id: payments, ask: pay, on_expired: stop_run, reason: It moves money }
";

/// A post that nobody approves is left out; a payment that nobody approves ends the run.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::from_yaml(POLICY)?).decided_elsewhere().build()?;
    let agent = |model: Scripted| {
        let done = |_| async { Ok(Json::string("done")) };
        Agent::builder("assistant", model)
            .gate(gate.clone())
            .tool(tool::tool(Definition::new("post", "Writes a text on the public board."), done))
            .tool(tool::tool(Definition::new("pay", "Pays an invoice from the house account."), done))
            // Shorter than what the policy says, so that this program ends soon. It never makes a hold longer.
            .approval_timeout(Duration::from_millis(50))
            .build()
    };

    let posts = Scripted::new([Turn::new("").call("post", r#"{"text":"Hello"}"#), Turn::new("Then I post nothing.")]);
    let (reply, read) = crate::converse(&agent(posts)?, "Post a greeting").await?;
    assert_eq!(&*reply, "Then I post nothing.");
    assert_eq!(read, ["Not run. Nobody decided about this call in time. Do not retry the same call."]);

    let pays = Scripted::new([Turn::new("").call("pay", r#"{"invoice":12}"#), Turn::new("This is never said.")]);
    match agent(pays)?.run("Pay the invoice").await {
        Err(RunError::Expired { tool, .. }) => println!("the run ended: nobody decided about {tool} in time"),
        other => anyhow::bail!("the run should have ended: {other:?}"),
    }
    Ok(())
}
