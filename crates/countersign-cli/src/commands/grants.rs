//! `countersign grants`.

use clap::Subcommand;
use countersign::GrantId;
use countersign::show::escape;
use countersign_api::wire::Grant;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::person::person;
use crate::settings::Reach;

/// List what was remembered, and revoke it
///
/// A grant is a remembered approval: it turns "ask" into "allow" for the calls it covers, never a "deny".
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

const EXAMPLES: &str = r#"Examples:
  countersign grants
  countersign grants --all --json
  countersign grants revoke grant_0190…"#;

#[derive(Debug, Subcommand)]
enum Command {
    /// List grants, newest last
    List(ListArgs),
    /// End a grant; it covers nothing from the next claim on
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Also those that ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    /// The grant
    id: GrantId,
    #[command(flatten)]
    reach: Reach,
}

/// Lists or revokes.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        None => list(args.list, form).await,
        Some(Command::List(args)) => list(args, form).await,
        Some(Command::Revoke(args)) => revoke(args, form).await,
    }
}

async fn list(args: ListArgs, form: Form) -> Result<(), Fault> {
    let grants = match args.reach.client()? {
        Some(client) => client.grants(args.all).await?,
        None => {
            let desk = Desk::open_to_look(&args.reach.place, Care::Rescue).await?;
            let now = desk.store().now().await?;
            let mut grants = desk.store().grants().await?;
            grants.retain(|grant| args.all || grant.is_live(now));
            grants.iter().map(|grant| Grant::of(grant, now)).collect()
        }
    };
    if form == Form::Json {
        return Ok(out::json(&grants)?);
    }
    if grants.is_empty() {
        out::say("Nothing is remembered.");
        return Ok(());
    }
    let row = |grant: &Grant| {
        let state = match (&grant.revoked_by, grant.live) {
            (Some(_), _) => Cell::styled(out::BAD, "revoked"),
            (None, true) => Cell::styled(out::GOOD, "live"),
            (None, false) => Cell::styled(out::DIM, "ended"),
        };
        vec![Cell::styled(out::BOLD, grant.id), state, Cell::new(&grant.made_by), Cell::new(&grant.rule)]
    };
    let rows: Vec<Vec<Cell>> = grants.iter().map(row).collect();
    for line in out::table(&["grant", "state", "made by", "rule"], &rows, out::columns().max(140)) {
        out::data(line)?;
    }
    Ok(())
}

async fn revoke(args: RevokeArgs, form: Form) -> Result<(), Fault> {
    let grant = match args.reach.client()? {
        Some(client) => client.revoke_grant(args.id).await?,
        None => {
            let desk = Desk::open_to_act(&args.reach.place, Care::Rescue).await?;
            let grant = desk.gate.revoke(args.id, person()).await?;
            desk.sign().await;
            Grant::of(&grant, grant.made_at)
        }
    };
    match form {
        Form::Json => out::json(&grant)?,
        Form::Text => out::data(format_args!("{} revoked: {}", grant.id, escape(&grant.rule)))?,
    }
    Ok(())
}
