//! A tool that asks depending on its arguments: small amounts pass, large ones wait.

use anyhow::Result;
use countersign::{Answer, Gate, Policy, Running, ToolError};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Transfer {
    /// How much, in whole euros.
    euros: u64,
    /// Whose account gets it, by the owner's name.
    to: String,
}

async fn transfer_money(transfer: Transfer, _running: Running) -> Result<String, ToolError> {
    Ok(format!("{} euros went to {}", transfer.euros, transfer.to))
}

/// Fifty euros pass unasked, five thousand are asked about.
pub async fn run() -> Result<()> {
    let gate = Gate::builder()
        .policy(Policy::from_yaml("otherwise: declared")?)
        .approver(|hold| async move {
            crate::show(&hold);
            assert_eq!(
                hold.call.facts.arguments.as_str(),
                r#"{"euros":5000,"to":"bo"}"#,
                "only the large one is asked"
            );
            Ok(Answer::deny("at most 1000 a day"))
        })
        .build()?;
    let description = "Moves money from the house account to somebody else, at once.";
    let transfer = tool("transfer_money", description, transfer_money)
        .asks_when(|transfer: &Transfer| transfer.euros > 1_000)
        .hint("Move more than 1000 euros");

    let model = Scripted::new([
        Turn::new("")
            .call("transfer_money", r#"{"euros":50,"to":"bo"}"#)
            .call("transfer_money", r#"{"euros":5000,"to":"bo"}"#),
        Turn::new("Bo got 50 euros; 5000 are too much."),
    ]);
    let agent = Agent::builder("banker", model).gate(gate).tool(transfer).build()?;
    let (_, read) = crate::converse(&agent, "Pay Bo").await?;

    let denied = "Not run. An approver denied this call. Reason: at most 1000 a day. Do not retry the same call.";
    assert_eq!(read, ["50 euros went to bo", denied]);
    Ok(())
}
