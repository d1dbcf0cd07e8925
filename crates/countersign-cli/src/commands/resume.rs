//! `countersign resume`.

use serde_json::json;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out;
use crate::person::person;
use crate::settings::Reach;

/// Let agents go on after a halt
///
/// Lift a halt the way it was set: one for an agent with --agent, one for all without.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign resume
  countersign resume --agent banker"#;

/// Lifts a halt.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.reach.client()? {
        Some(client) => {
            client.resume(args.agent.as_deref()).await?;
        }
        None => {
            let desk = Desk::open_to_act(&args.reach.place, Care::Full).await?;
            desk.gate.lift(args.agent.as_deref(), &person().id).await?;
            desk.sign().await;
        }
    }
    let whom = args.agent.as_deref().map_or("every agent".to_owned(), |agent| format!("agent `{agent}`"));
    match form {
        Form::Json => out::json(&json!({ "halted": false, "agent": args.agent }))?,
        Form::Text => out::data(format_args!("resumed: {}", countersign::show::escape(&whom)))?,
    }
    Ok(())
}
