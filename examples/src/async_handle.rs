//! A run in the background: holds go to a channel, and are decided later by their ids.

use anyhow::{Context as _, Result};
use countersign::digest::CallDigest;
use countersign::{Answer, Decision, Definition, Gate, HoldId, Json, Policy, Who, tool};
use countersign_agent::Agent;
use countersign_agent::model::{Scripted, Turn};

/// What a button in a chat has to carry: which hold, and what its reader saw.
struct Button {
    hold: HoldId,
    digest: CallDigest,
}

/// Somebody presses the button, much later and knowing nothing of the run.
async fn press(gate: &Gate, button: Button) -> Result<()> {
    let decision = Decision::new(Who::person("ann"), "chat", button.digest, Answer::approve());
    gate.decide(button.hold, decision).await?;
    Ok(())
}

/// The run waits in a task of its own while its button waits in a chat.
pub async fn run() -> Result<()> {
    let (builder, mut holds) = Gate::builder().policy(Policy::ask_all()).channel();
    let gate = builder.build()?;
    let order = Definition::new("order_parts", "Orders spare parts from the supplier; they are paid on delivery.");
    let order = tool::tool(order, |_| async { Ok(Json::string("they come on Friday")) });
    let model =
        Scripted::new([Turn::new("").call("order_parts", r#"{"bolts":40}"#), Turn::new("Bolts come on Friday.")]);
    let agent = Agent::builder("buyer", model).gate(gate.clone()).tool(order).build()?;

    let run = agent.spawn("We are out of bolts");
    let hold = holds.recv().await.context("the gate is gone")?;
    crate::show(&hold);
    let button = Button { hold: hold.id, digest: hold.digest };

    // Another digest is another call: what was not seen cannot be approved.
    let forged = Button { hold: hold.id, digest: CallDigest::of(b"something else") };
    assert!(press(&gate, forged).await.is_err());

    press(&gate, button).await?;
    let reply = run.await?;
    println!("the agent said: {}", reply.text);
    assert_eq!(&*reply.text, "Bolts come on Friday.");
    Ok(())
}
