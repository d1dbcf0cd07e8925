//! `countersign policy`.

mod apply;
mod check;
mod explain;
mod schema;
mod test;

use clap::Subcommand;

use crate::commands::Form;
use crate::fault::Fault;

/// Check, explain, test and apply the rules
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  countersign policy check countersign.yml
  countersign policy explain --config countersign.yml --tool delete_file --arguments '{"path": "a.txt"}'
  countersign policy test calls.yml --config countersign.yml
  countersign policy apply countersign.yml --store postgres://…"#;

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Explain(explain::Args),
    Test(test::Args),
    Apply(apply::Args),
    Schema(schema::Args),
}

/// Runs the policy tool that was asked for.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Check(args) => check::run(args, form),
        Command::Explain(args) => explain::run(args, form).await,
        Command::Test(args) => test::run(args, form),
        Command::Apply(args) => apply::run(args, form).await,
        Command::Schema(args) => schema::run(&args),
    }
}
