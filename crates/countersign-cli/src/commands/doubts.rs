//! `countersign doubts`.

use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use countersign::call::{Outcome, Resolution, ResolvedAs};
use countersign::store::{CallFilter, Op};
use countersign::transition::Rejection;
use countersign::{Call, CallId, CallState, GateError, Time, limits};

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::person::person;
use crate::settings::Place;
use crate::shapes;

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
    place: Place,
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
    place: Place,
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
    place: Place,
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
        None => list(&args.place, form).await,
        Some(Command::List(args)) => list(&args.place, form).await,
        Some(Command::Resolve(args)) => resolve(args, form).await,
    }
}

async fn list(place: &Place, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(place, Care::Rescue).await?;
    let mut filter =
        CallFilter { state: Some(CallState::InDoubt), limit: Some(limits::PAGE_ROWS), ..CallFilter::default() };
    let mut calls: Vec<Arc<Call>> = Vec::new();
    loop {
        let page = desk.store().calls(filter.clone()).await?;
        let Some(last) = page.last() else { break };
        filter.after = Some(last.id);
        calls.extend(page);
    }
    if form == Form::Json {
        return Ok(out::json(&calls.iter().map(|call| shapes::Call::of(call)).collect::<Vec<_>>())?);
    }
    if calls.is_empty() {
        out::say("No call is in doubt.");
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = calls.iter().map(|call| row(call)).collect();
    for line in out::table(&["call", "since", "tool", "why", "arguments"], &rows, out::columns()) {
        out::data(line)?;
    }
    out::say("Find out what happened, then: countersign doubts resolve ID --as applied --reason TEXT");
    Ok(())
}

fn row(call: &Call) -> Vec<Cell> {
    let why = match &call.outcome {
        Some(Outcome::MayHaveApplied { why }) => why.as_str(),
        Some(Outcome::Succeeded { .. } | Outcome::Failed { .. }) | None => "no answer",
    };
    vec![
        Cell::styled(out::BOLD, call.id),
        Cell::new(call.updated_at),
        Cell::new(&call.facts.tool),
        Cell::styled(out::WAIT, out::fit(why, 40)),
        Cell::json(call.shown_arguments()),
    ]
}

async fn resolve(args: ResolveArgs, form: Form) -> Result<(), Fault> {
    let reason = args.reason.trim();
    if reason.is_empty() || reason.len() > limits::NOTE_BYTES {
        return Err(Fault::usage(format!("--reason must have 1 to {} bytes", limits::NOTE_BYTES)));
    }
    let desk = Desk::open(&args.place, Care::Full).await?;
    let found = match args.found {
        FoundArg::Applied => ResolvedAs::Applied,
        FoundArg::NotApplied => ResolvedAs::NotApplied,
        FoundArg::Abandoned => ResolvedAs::Abandoned,
    };
    let by = person().id;
    let resolution = Resolution { r#as: found, reason: reason.to_owned(), by, at: Time::default() };
    let applied = desk.store().run(Op::Resolve { call: args.id, resolution }).await?;
    let call = applied.call.ok_or(GateError::Rejected(Rejection::NotFound("call")))?;
    desk.sign().await;
    match form {
        Form::Json => out::json(&shapes::Call::of(&call))?,
        Form::Text => out::data(format_args!("{} is {}", call.id, call.state))?,
    }
    Ok(())
}
