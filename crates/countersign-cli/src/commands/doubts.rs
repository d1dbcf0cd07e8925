//! `countersign doubts`.

use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use countersign::call::{Outcome, Resolution, ResolvedAs};
use countersign::store::CallFilter;
use countersign::{Call, CallId, CallState, Time, limits};
use countersign_api::wire;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::person::person;
use crate::settings::Reach;

/// List calls nobody knows the end of, and settle them
///
/// A call is in doubt when its tool began and never answered: a crash, a time-out, a lost connection. It is never
/// run again by itself. Find out what happened, then say so.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign doubts
  countersign doubts resolve call_0190… --as applied --reason "The bank shows the transfer""#;

#[derive(Debug, Subcommand)]
enum Command {
    /// List calls in doubt, oldest first
    List(ListArgs),
    /// Say what came of a call in doubt
    Resolve(ResolveArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
struct ResolveArgs {
    /// The call
    id: CallId,
    /// What you found out
    #[arg(long = "as", value_name = "WHAT")]
    found: FoundArg,
    /// How you know, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    reach: Reach,
}

/// What became of the call.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum FoundArg {
    /// It happened
    Applied,
    /// It did not happen
    NotApplied,
    /// Nobody will find out
    Abandoned,
}

/// Lists or settles.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        None => list(&args.reach, form).await,
        Some(Command::List(args)) => list(&args.reach, form).await,
        Some(Command::Resolve(args)) => resolve(args, form).await,
    }
}

async fn list(reach: &Reach, form: Form) -> Result<(), Fault> {
    let calls = match reach.client()? {
        Some(client) => client.doubts().await?,
        None => {
            let desk = Desk::open_to_look(&reach.place, Care::Rescue).await?;
            in_doubt(&desk).await?.iter().map(|call| wire::Call::from(&**call)).collect()
        }
    };
    if form == Form::Json {
        return Ok(out::json(&calls)?);
    }
    if calls.is_empty() {
        out::say("No call is in doubt.");
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = calls.iter().map(row).collect();
    for line in out::table(&["call", "since", "tool", "why", "arguments"], &rows, out::columns()) {
        out::data(line)?;
    }
    out::say("Find out what happened, then: countersign doubts resolve ID --as applied --reason TEXT");
    Ok(())
}

async fn in_doubt(desk: &Desk) -> Result<Vec<Arc<Call>>, Fault> {
    let mut filter =
        CallFilter { state: Some(CallState::InDoubt), limit: Some(limits::PAGE_ROWS), ..CallFilter::default() };
    let mut calls: Vec<Arc<Call>> = Vec::new();
    loop {
        let page = desk.store().calls(filter.clone()).await?;
        let Some(last) = page.last() else { return Ok(calls) };
        filter.after = Some(last.id);
        calls.extend(page);
    }
}

fn row(call: &wire::Call) -> Vec<Cell> {
    let server = call.server.as_deref().map(|server| format!("{server}/")).unwrap_or_default();
    let why = match &call.outcome {
        Some(Outcome::MayHaveApplied { why }) => why.as_str(),
        Some(Outcome::Succeeded { .. } | Outcome::Failed { .. }) | None => "no answer",
    };
    vec![
        Cell::styled(out::BOLD, call.id),
        Cell::new(call.updated_at),
        Cell::new(format_args!("{server}{}", call.tool)),
        Cell::styled(out::WAIT, out::fit(why, 40)),
        Cell::json(&call.arguments),
    ]
}

async fn resolve(args: ResolveArgs, form: Form) -> Result<(), Fault> {
    let reason = args.reason.trim();
    if reason.is_empty() || reason.len() > limits::NOTE_BYTES {
        return Err(Fault::usage(format!("--reason must have 1 to {} bytes", limits::NOTE_BYTES)));
    }
    let found = match args.found {
        FoundArg::Applied => ResolvedAs::Applied,
        FoundArg::NotApplied => ResolvedAs::NotApplied,
        FoundArg::Abandoned => ResolvedAs::Abandoned,
    };
    let reason = reason.to_owned();
    let call = match args.reach.client()? {
        Some(client) => client.resolve(args.id, &wire::Resolve { r#as: found, reason }).await?,
        None => {
            let desk = Desk::open_to_act(&args.reach.place, Care::Full).await?;
            let resolution = Resolution { r#as: found, reason, by: person().id, at: Time::default() };
            let call = desk.gate.resolve(args.id, resolution).await?;
            desk.sign().await;
            wire::Call::from(&*call)
        }
    };
    match form {
        Form::Json => out::json(&call)?,
        Form::Text => out::data(format_args!("{} is {}", call.id, call.state))?,
    }
    Ok(())
}
