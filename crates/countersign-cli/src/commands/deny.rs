//! `countersign deny`.

use countersign::{Answer, Hold, HoldId};
use countersign_api::wire::NewDecision;

use crate::commands::Form;
use crate::commands::approve::{find, report, report_local};
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::person::person;
use crate::settings::Reach;

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
    reach: Reach,
}

const EXAMPLES: &str = r#"Example:
  countersign deny hold_0190… --reason "Not on a Friday""#;

/// Denies.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    if let Some(client) = args.reach.client()? {
        let digest = client.hold(args.id).await?.hold.digest;
        let decided = client.decide(args.id, &NewDecision::deny(digest, args.reason)).await?;
        return report(&decided, form);
    }
    let desk = Desk::open_to_act(&args.reach.place, Care::Rescue).await?;
    let open: Hold = find(&desk, args.id).await?;
    let decision = open.decision(person(), "cli", Answer::Deny { reason: args.reason });
    let decided = desk.gate.decide(open.id, decision).await?;
    desk.sign().await;
    report_local(&decided, args.id, form)
}
