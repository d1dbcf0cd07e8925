//! `countersign halt`.

use countersign_api::wire;
use serde_json::json;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out;
use crate::person::person;
use crate::settings::Reach;

/// Stop every agent at once, or one of them
///
/// Nothing is claimed while halted: calls that wait go on waiting, calls that run finish, and nothing new begins.
/// `countersign resume` lets them go on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this agent, and those it hands work to
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign halt --reason "Strange transfers"
  countersign halt --agent banker"#;

/// Halts.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.reach.client()? {
        Some(client) => {
            client.halt(&wire::Halt { agent: args.agent.clone(), reason: args.reason.clone() }).await?;
        }
        None => {
            let desk = Desk::open_to_act(&args.reach.place, Care::Rescue).await?;
            desk.gate.halt(args.agent.as_deref(), &person().id, args.reason.as_deref()).await?;
            desk.sign().await;
        }
    }
    let whom = args.agent.as_deref().map_or("every agent".to_owned(), |agent| format!("agent `{agent}`"));
    match form {
        Form::Json => out::json(&json!({ "halted": true, "agent": args.agent, "reason": args.reason }))?,
        Form::Text => out::data(format_args!("halted: {}", countersign::show::escape(&whom)))?,
    }
    out::say("`countersign resume` lets calls go on.");
    Ok(())
}
