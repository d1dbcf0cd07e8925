//! The commands, one file each.

mod approve;
mod audit;
mod completions;
mod demo;
mod deny;
mod doctor;
mod doubts;
mod gateway;
mod grants;
mod halt;
mod holds;
mod inbox;
mod keep_status;
mod notify;
mod policy;
mod resume;
mod run;
mod run_as;
mod serve;
mod token;
mod tools;
mod trust;
mod user;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use approve::find;
pub(crate) use audit::print as print_events;
pub(crate) use holds::open_holds;
pub(crate) use keep_status::NAME as KEEP_STATUS;
pub(crate) use run::Args as RunArgs;
pub(crate) use run_as::NAME as RUN_AS;
pub(crate) use serve::page;

use crate::fault::Fault;
use crate::log;

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
    #[command(flatten)]
    pub(crate) log: log::Args,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Whether it works for one peer, message by message, so that more threads would only hand things over.
    pub(crate) fn is_for_one(&self) -> bool {
        matches!(&self.command, Command::Gateway(args) if args.is_on_pipes())
    }

    /// What the command is to whoever reads its log.
    pub(crate) fn kind(&self) -> log::Kind {
        match self.command {
            Command::Serve(_) => log::Kind::Server,
            Command::Demo(_) | Command::Run(_) | Command::Inbox(_) => log::Kind::Screen,
            _ => log::Kind::Command,
        }
    }
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 not reachable, 130 stopped with Ctrl-C.
Data goes to stdout, talk to stderr. NO_COLOR and output that is no terminal are respected.";

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Serve(serve::Args),
    Inbox(inbox::Args),
    Gateway(gateway::Args),
    Holds(holds::Args),
    Approve(approve::Args),
    Deny(deny::Args),
    Grants(grants::Args),
    Doubts(doubts::Args),
    Halt(halt::Args),
    Resume(resume::Args),
    Token(token::Args),
    User(user::Args),
    Notify(notify::Args),
    Policy(policy::Args),
    Tools(tools::Args),
    Trust(trust::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    #[command(name = keep_status::NAME, hide = true)]
    KeepStatus(keep_status::Args),
    #[command(name = run_as::NAME, hide = true)]
    RunAs(run_as::Args),
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Does what this program started itself for, which needs no runtime and no settings; hands everything else back.
pub(crate) fn run_kept(cli: Cli) -> Result<ExitCode, Box<Cli>> {
    match cli.command {
        Command::KeepStatus(args) => Ok(keep_status::run(args)),
        Command::RunAs(args) => Ok(run_as::run(args)),
        command => Err(Box::new(Cli { command, ..cli })),
    }
}

/// Runs the command that was asked for.
pub(crate) async fn run(cli: Cli) -> Result<(), Fault> {
    let form = if cli.json { Form::Json } else { Form::Text };
    match cli.command {
        Command::Demo(args) => demo::run(args, form).await,
        Command::Run(args) => run::run(args, form).await,
        Command::Serve(args) => serve::run(args, form).await,
        Command::User(args) => user::run(args, form).await,
        Command::Gateway(args) => gateway::run(args, form).await,
        Command::Token(args) => token::run(args, form).await,
        Command::Inbox(args) => inbox::run(args, form).await,
        Command::Holds(args) => holds::run(args, form).await,
        Command::Approve(args) => approve::run(args, form).await,
        Command::Deny(args) => deny::run(args, form).await,
        Command::Grants(args) => grants::run(args, form).await,
        Command::Doubts(args) => doubts::run(args, form).await,
        Command::Halt(args) => halt::run(args, form).await,
        Command::Resume(args) => resume::run(args, form).await,
        Command::Notify(args) => notify::run(args, form).await,
        Command::Policy(args) => policy::run(args, form).await,
        Command::Tools(args) => tools::run(args, form).await,
        Command::Trust(args) => trust::run(args, form),
        Command::Audit(args) => audit::run(args, form).await,
        Command::Doctor(args) => doctor::run(args, form).await,
        Command::Completions(args) => completions::run(args),
        // Done before: see `run_kept`.
        Command::KeepStatus(_) | Command::RunAs(_) => Ok(()),
    }
}
