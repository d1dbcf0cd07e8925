//! The commands, one file each.

mod approve;
mod audit;
mod completions;
mod demo;
mod deny;
mod doubts;
mod gateway;
mod grants;
mod halt;
mod holds;
mod policy;
mod resume;
mod run;
mod serve;
mod token;
mod tools;
mod trust;

use clap::{Parser, Subcommand};

pub(crate) use audit::print as print_events;
pub(crate) use holds::open_holds;
pub(crate) use run::Args as RunArgs;
pub(crate) use serve::{page, sign_in_link};

use crate::fault::Fault;

/// Puts a human hand on an AI agent's dangerous tool calls.
///
/// An agent proposes a call; a rule or a person countersigns it; only then does it run, with exactly the bytes that
/// were shown, at most once, and every step is on the record.
///
/// New here? Run `countersign demo`: an agent edits files in a scratch folder, and you decide.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, max_term_width = 100, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Print data as JSON, for programs to read
    #[arg(long, global = true, display_order = 100)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 not reachable, 130 stopped with Ctrl-C.
Data goes to stdout, talk to stderr. NO_COLOR and output that is no terminal are respected.";

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Serve(serve::Args),
    Gateway(gateway::Args),
    Holds(holds::Args),
    Approve(approve::Args),
    Deny(deny::Args),
    Grants(grants::Args),
    Doubts(doubts::Args),
    Halt(halt::Args),
    Resume(resume::Args),
    Token(token::Args),
    Policy(policy::Args),
    Tools(tools::Args),
    Trust(trust::Args),
    Audit(audit::Args),
    Completions(completions::Args),
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Runs the command that was asked for.
pub(crate) async fn run(cli: Cli) -> Result<(), Fault> {
    let form = if cli.json { Form::Json } else { Form::Text };
    match cli.command {
        Command::Demo(args) => demo::run(args, form).await,
        Command::Run(args) => run::run(args, form).await,
        Command::Serve(args) => serve::run(args, form).await,
        Command::Gateway(args) => gateway::run(args, form).await,
        Command::Token(args) => token::run(args, form).await,
        Command::Holds(args) => holds::run(args, form).await,
        Command::Approve(args) => approve::run(args, form).await,
        Command::Deny(args) => deny::run(args, form).await,
        Command::Grants(args) => grants::run(args, form).await,
        Command::Doubts(args) => doubts::run(args, form).await,
        Command::Halt(args) => halt::run(args, form).await,
        Command::Resume(args) => resume::run(args, form).await,
        Command::Policy(args) => policy::run(args, form).await,
        Command::Tools(args) => tools::run(args, form),
        Command::Trust(args) => trust::run(args, form),
        Command::Audit(args) => audit::run(args, form).await,
        Command::Completions(args) => completions::run(args),
    }
}
