//! `countersign deny`.

use countersign::{Answer, Hold, HoldId};

use crate::commands::Form;
use crate::commands::approve::{find, report};
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::person::person;
use crate::settings::Place;

/// Say no to a call that waits
///
/// The call does not run, and the agent reads your reason. A no needs no digest: it lets nothing run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The hold
    id: HoldId,
    /// Why, for the agent to read
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"Example:
  countersign deny hold_0190… --reason "Not on a Friday""#;

/// Denies.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Rescue).await?;
    let open: Hold = find(&desk, args.id).await?;
    let decision = open.decision(person(), "cli", Answer::Deny { reason: args.reason });
    let decided = desk.gate.decide(open.id, decision).await?;
    desk.sign().await;
    report(&decided, args.id, form)
}
