//! A tool that asks while it runs: it looks first, and knows only then what to ask.

use anyhow::Result;
use countersign::{Answer, Gate, Policy, Running, ToolError};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct CleanUp {
    /// The folder to clean up, as in `tmp`.
    folder: String,
}

async fn clean_up(wish: CleanUp, running: Running) -> Result<String, ToolError> {
    // Looking changes nothing, so it may happen before anybody is asked.
    let found = if wish.folder == "tmp" { vec!["a.log", "b.log"] } else { vec!["thesis.tex"] };
    let hint = format!("Delete what is left over in {}", wish.folder);
    running.confirm(&hint, &serde_json::json!({ "files": found })).await?;
    Ok(format!("{} files are gone", found.len()))
}

/// Logs may go, the thesis stays.
pub async fn run() -> Result<()> {
    let gate = Gate::builder()
        .policy(Policy::from_yaml("rules: [{ id: cleaning, allow: clean_up }]")?)
        .approver(|hold| async move {
            crate::show(&hold);
            let files = hold.payload.as_ref().map(ToString::to_string).unwrap_or_default();
            Ok(if files.contains("thesis") { Answer::deny("not my thesis") } else { Answer::approve() })
        })
        .build()?;
    let description = "Deletes files that nobody needs any more from a folder and says how many.";
    let clean_up = tool("clean_up", description, clean_up);

    let model = Scripted::new([
        Turn::new("").call("clean_up", r#"{"folder":"tmp"}"#).call("clean_up", r#"{"folder":"work"}"#),
        Turn::new("tmp is clean, work is as it was."),
    ]);
    let agent = Agent::builder("janitor", model).gate(gate).tool(clean_up).build()?;
    let (_, read) = crate::converse(&agent, "Clean up").await?;

    let denied = "Not run. An approver denied this call. Reason: not my thesis. Do not retry the same call.";
    assert_eq!(read, ["2 files are gone", denied]);
    Ok(())
}
