//! A run that outlives its process: it pauses at a hold, somebody decides meanwhile, and a new process goes on.

use anyhow::{Context as _, Result};
use countersign::{Answer, Definition, Gate, Hold, Json, Policy, Who, tool};
use countersign_agent::Agent;
use countersign_agent::model::{Scripted, Turn};
use tokio::sync::mpsc::UnboundedReceiver;

/// Everything a process builds when it starts. Nothing but the database connects one process to the next.
async fn start(url: &str) -> Result<(Agent, UnboundedReceiver<Hold>)> {
    let store = countersign_store::connect(url).await?;
    let (gate, holds) = Gate::builder().policy(Policy::ask_all()).store(store).channel();
    let publish = Definition::new("publish_report", "Puts the yearly report on the public web site.");
    let publish = tool::tool(publish, |_| async { Ok(Json::string("published")) });
    let model = Scripted::new([Turn::new("").call("publish_report", r#"{"year":2025}"#), Turn::new("It is out.")]);
    let agent = Agent::builder("press", model).gate(gate.build()?).tool(publish).build()?;
    Ok((agent, holds))
}

/// Three processes on one SQLite file: one pauses, one decides, one goes on.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("countersign.db").display());

    let (first, mut holds) = start(&url).await?;
    let run = first.session("report-2025").spawn("Publish the report");
    let hold = holds.recv().await.context("the run ended without a question")?;
    crate::show(&hold);
    run.park();
    drop(first);
    println!("the first process is gone");

    let (second, _) = start(&url).await?;
    second.gate().decide(hold.id, hold.decision(Who::person("ann"), "terminal", Answer::approve())).await?;
    drop(second);
    println!("ann approved in the second process");

    let (third, _) = start(&url).await?;
    let reply = third.resume("report-2025").await?;
    println!("in the third process the agent said: {}", reply.text);
    assert_eq!((&*reply.text, reply.turns), ("It is out.", 2));
    assert_eq!(crate::read_by_model(&third.session("report-2025")).await?, ["published"]);
    assert_eq!(third.resume("report-2025").await?, reply, "what is done is done");
    Ok(())
}
