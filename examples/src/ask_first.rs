//! A tool that asks first: every call of it waits for somebody.

use anyhow::Result;
use countersign::{Answer, Gate, Policy, Running, ToolError};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Mail {
    /// The address it goes to, as in `bo@example.com`.
    to: String,
    /// What it says, as plain text.
    text: String,
}

async fn send_mail(mail: Mail, _running: Running) -> Result<String, ToolError> {
    Ok(format!("sent {} letters to {}", mail.text.len(), mail.to))
}

/// One mail is approved, the next is denied.
pub async fn run() -> Result<()> {
    let gate = Gate::builder()
        .policy(Policy::from_yaml("otherwise: declared")?)
        .approver(|hold| async move {
            crate::show(&hold);
            let arguments = hold.call.facts.arguments.as_str();
            Ok(if arguments.contains("bo@") { Answer::approve() } else { Answer::deny("Ann is on holiday") })
        })
        .build()?;
    let description = "Sends an e-mail at once and says how long it was. It cannot be taken back.";
    let mail = tool("send_mail", description, send_mail).asks_first().hint("Send an e-mail in your name");

    let model = Scripted::new([
        Turn::new("Bo first.").call("send_mail", r#"{"to":"bo@example.com","text":"lunch?"}"#),
        Turn::new("Now Ann.").call("send_mail", r#"{"to":"ann@example.com","text":"lunch?"}"#),
        Turn::new("Bo knows. Ann is away."),
    ]);
    let agent = Agent::builder("secretary", model).gate(gate).tool(mail).build()?;
    let (reply, read) = crate::converse(&agent, "Ask Bo and Ann for lunch").await?;

    assert_eq!(&*reply, "Bo knows. Ann is away.");
    let denied = "Not run. An approver denied this call. Reason: Ann is on holiday. Do not retry the same call.";
    assert_eq!(read, ["sent 6 letters to bo@example.com", denied]);
    Ok(())
}
