//! `countersign tools`.

use std::sync::Arc;

use clap::Subcommand;
use countersign::call::ToolId;
use countersign::config::Config;
use countersign::{Definition, Gate, Toolset as _};
use countersign_agent::config::all_tools;
use countersign_agent::lint::{Finding, lint};
use futures::future::join_all;
use serde::Serialize;
use serde_json::json;

use crate::agents::{base, workspace};
use crate::commands::Form;
use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::servers::{connect_one, tell_left_out};
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
/// anything. Looks at the built-in tools, those of the configuration, and those of its MCP servers, which are started or
/// connected to for it; ends with 1 if one under `tools:` has findings, or a server could not be asked.
#[derive(Debug, clap::Args)]
struct LintArgs {
    /// Leave the tools of MCP servers out
    #[arg(long)]
    no_servers: bool,
    #[command(flatten)]
    place: Place,
}

/// Does what was asked for.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Lint(args) => run_lint(&args, form).await,
    }
}

/// A finding, and where what it is about stands in the configuration.
#[derive(Serialize)]
struct Placed {
    #[serde(flatten)]
    finding: Finding,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    at: Option<At>,
}

/// A place in the configuration.
#[derive(Serialize)]
struct At {
    file: String,
    line: usize,
    column: usize,
}

async fn run_lint(args: &LintArgs, form: Form) -> Result<(), Fault> {
    let home = Home::from_env();
    let settings = Settings::load(&args.place, &home)?;
    let workspace = workspace(&settings, &home, "memory:")?;
    let own = all_tools(&settings.config, &base(&settings)?, &workspace, None);
    let own = own.map_err(|error| Fault::usage(error).next("correct it under `tools:` in the configuration"))?;
    let mut all: Vec<Arc<Definition>> = own.iter().map(|made| made.definition()).collect();
    let unasked = match args.no_servers {
        true => None,
        false => add_servers(&settings, &mut all).await?,
    };
    let found: Vec<Placed> = all.iter().flat_map(|definition| lint(definition)).map(|f| placed(f, &settings)).collect();
    let is_own = |placed: &&Placed| placed.at.is_some() && placed.finding.tool.server.is_none();
    let yours = found.iter().filter(is_own).count();
    tell(form, all.len(), &found)?;
    match (unasked, yours) {
        (Some(fault), _) => Err(fault),
        (None, 0) => Ok(()),
        (None, count) => Err(Fault::failed(format!("the model would trip over {count} things in your tools"))),
    }
}

/// Adds what the MCP servers of the configuration offer. Hands back why one could not be asked, if so.
async fn add_servers(settings: &Settings, all: &mut Vec<Arc<Definition>>) -> Result<Option<Fault>, Fault> {
    // The first HTTP client wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = base(settings)?;
    // Nothing is called, and what is accepted here is accepted nowhere else.
    let gate = Gate::builder().policy(countersign::Policy::deny_all()).decided_elsewhere().build()?;
    let servers = &settings.config.mcp_servers;
    let connected = join_all(servers.iter().map(|server| connect_one(server, &base, &gate, None))).await;
    let mut unasked = None;
    for toolset in connected {
        match toolset {
            Ok(toolset) => {
                tell_left_out(&toolset);
                all.extend(toolset.tools().iter().map(|tool| tool.definition()));
            }
            Err(fault) => unasked = Some(fault),
        }
    }
    Ok(unasked)
}

fn tell(form: Form, tools: usize, found: &[Placed]) -> Result<(), Fault> {
    if form == Form::Json {
        return Ok(out::json(&json!({"tools": tools, "findings": found}))?);
    }
    for Placed { finding, at } in found {
        let at = at.as_ref().map(|at| format!("{}:{}:{}: ", at.file, at.line, at.column));
        out::data(out::safe_lines(&format!("{}{finding}", at.unwrap_or_default())))?;
    }
    out::say(format_args!("{tools} tools, {} findings", found.len()));
    Ok(())
}

fn placed(finding: Finding, settings: &Settings) -> Placed {
    let at = place_of(&finding.tool, &settings.config).zip(settings.file.as_ref());
    let at = at.map(|((line, column), found)| At { file: found.path.display().to_string(), line, column });
    Placed { finding, at }
}

/// Where a tool stands, or the server that offers it.
fn place_of(tool: &ToolId, config: &Config) -> Option<(usize, usize)> {
    match &tool.server {
        None => config.tools.iter().find(|own| own.name == tool.name).map(|own| own.at),
        Some(server) => config.mcp_servers.iter().find(|own| own.name == *server).map(|own| own.at),
    }
}
