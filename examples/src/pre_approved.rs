//! Safe calls pass by a rule, dangerous ones ask, and a yes may be remembered for exactly the same call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use countersign::approver::FnApprover;
use countersign::grant::Remember;
use countersign::{Answer, Definition, Gate, Hold, Json, Policy, Who, tool};
use countersign_agent::Agent;
use countersign_agent::model::{Scripted, Turn};

const POLICY: &str = "
otherwise: ask
rules:
  - { id: looking, allow: list_services, reason: It only looks }
  - { id: restarts, ask: restart_service, remember: session, reason: Users notice a restart }
";

/// The first restart is asked about, the same one again is not, another one is.
pub async fn run() -> Result<()> {
    let questions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&questions);
    let ann = FnApprover::new(Who::person("ann"), move |hold: Hold| {
        crate::show(&hold);
        counted.fetch_add(1, Ordering::Relaxed);
        // Exactly these arguments, in this session; a wider grant has to be asked for in so many words.
        async { Ok(Answer::Approve { arguments: None, payload: None, remember: Some(Remember::session()) }) }
    });
    let gate = Gate::builder().policy(Policy::from_yaml(POLICY)?).approver_as(ann).build()?;

    let list = Definition::new("list_services", "Lists all services with their states.");
    let restart = Definition::new("restart_service", "Stops a service and starts it again; takes a few seconds.");
    let again = |service: &str| Turn::new("").call("restart_service", format!(r#"{{"service":"{service}"}}"#));
    let looks = Turn::new("").call("list_services", "{}");
    let model = Scripted::new([looks, again("web"), again("web"), again("database"), Turn::new("All are up.")]);
    let agent = Agent::builder("operator", model)
        .gate(gate)
        .tool(tool::tool(list, |_| async { Ok(Json::string("web: down, database: down")) }))
        .tool(tool::tool(restart, |running| async move { Ok(running.arguments().clone()) }));
    let (reply, read) = crate::converse(&agent.build()?, "Get everything up again").await?;

    assert_eq!((&*reply, read.len()), ("All are up.", 4));
    assert_eq!(questions.load(Ordering::Relaxed), 2, "the second restart of `web` was covered by the grant");
    println!("4 calls, {} questions", questions.load(Ordering::Relaxed));
    Ok(())
}
