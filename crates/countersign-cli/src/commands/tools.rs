//! `countersign tools`.

use clap::Subcommand;
use countersign_agent::config::all_tools;
use countersign_agent::lint::{Finding, lint};
use serde_json::json;

use crate::agents::{base, workspace};
use crate::commands::Form;
use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::settings::{Place, Settings};

/// Judge the tools that agents are given
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Lint(LintArgs),
}

/// Read tool definitions as the model would, and say what it would trip over
///
/// Missing or thin descriptions, undescribed parameters, parameters that need not be required, names that may mean
/// anything. Looks at the built-in tools and those of the configuration; ends with 1 if one of yours has findings.
#[derive(Debug, clap::Args)]
struct LintArgs {
    #[command(flatten)]
    place: Place,
}

/// Does what was asked for.
pub(crate) fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Lint(args) => run_lint(&args, form),
    }
}

fn run_lint(args: &LintArgs, form: Form) -> Result<(), Fault> {
    let home = Home::from_env();
    let settings = Settings::load(&args.place, &home)?;
    let workspace = workspace(&settings, &home, "memory:")?;
    let all = all_tools(&settings.config, &base(&settings)?, &workspace, None);
    let all = all.map_err(|error| Fault::usage(error).next("correct it under `tools:` in the configuration"))?;
    let found: Vec<Finding> = all.iter().flat_map(|made| lint(&made.definition())).collect();
    let configured = |finding: &&Finding| settings.config.tools.iter().any(|tool| tool.name == finding.tool.name);
    let yours = found.iter().filter(configured).count();
    match form {
        Form::Json => out::json(&json!({"tools": all.len(), "findings": found}))?,
        Form::Text => {
            for finding in &found {
                out::data(out::safe_lines(&finding.to_string()))?;
            }
            out::say(format_args!("{} tools, {} findings", all.len(), found.len()));
        }
    }
    match yours {
        0 => Ok(()),
        count => Err(Fault::failed(format!("the model would trip over {count} things in your tools"))),
    }
}
