//! A whole toolset that asks first, though none of its tools says so itself.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use countersign::tool::asks_first;
use countersign::{Answer, Gate, Policy, Running, Tool, ToolError, Toolset};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    /// The title of the page, as it stands in the table of contents.
    title: String,
}

async fn publish(page: Page, _running: Running) -> Result<String, ToolError> {
    Ok(format!("`{}` is public", page.title))
}

async fn withdraw(page: Page, _running: Running) -> Result<String, ToolError> {
    Ok(format!("`{}` is hidden", page.title))
}

struct Wiki;

impl Toolset for Wiki {
    fn name(&self) -> Arc<str> {
        "wiki".into()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![
            Arc::new(tool("publish_page", "Shows a page of the wiki to everybody.", publish)),
            Arc::new(tool("withdraw_page", "Hides a page of the wiki from everybody but its authors.", withdraw)),
        ]
    }
}

/// Both tools are asked about.
pub async fn run() -> Result<()> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let gate = Gate::builder().policy(Policy::from_yaml("otherwise: declared")?).approver(move |hold| {
        crate::show(&hold);
        seen.lock().map(|mut seen| seen.push(hold.call.facts.tool.to_string())).ok();
        async { Ok(Answer::approve()) }
    });

    let model = Scripted::new([
        Turn::new("").call("publish_page", r#"{"title":"News"}"#),
        Turn::new("").call("withdraw_page", r#"{"title":"Old news"}"#),
        Turn::new("The wiki is up to date."),
    ]);
    let agent = Agent::builder("editor", model).gate(gate.build()?).toolset(asks_first(Wiki)).build()?;
    let (_, read) = crate::converse(&agent, "Bring the wiki up to date").await?;

    assert_eq!(*asked.lock().map_err(|error| anyhow::anyhow!("{error}"))?, ["publish_page", "withdraw_page"]);
    assert_eq!(read, ["`News` is public", "`Old news` is hidden"]);
    Ok(())
}
