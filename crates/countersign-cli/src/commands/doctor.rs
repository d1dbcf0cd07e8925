//! `countersign doctor`.

use crate::commands::Form;
use crate::doctor::{self, Finding, Health, Level};
use crate::fault::Fault;
use crate::out;
use crate::settings::Reach;

/// Look whether everything is in order, and say what to do where it is not
///
/// Checks configuration, policy, data folder, signing key, store, listen address and browser; with --url a server and
/// your token there. Changes nothing. Exit code 1 if anything fails.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The least isolation of agents that will do: L1 (same user) or L2 (another user or a container); run it as the
    /// agents' user
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    minimum: Option<Level>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign doctor
  countersign doctor --json | jq '.[] | select(.health != "ok")'
  sudo -u agent countersign doctor --minimum L2
  countersign doctor --url http://127.0.0.1:7117"#;

/// Looks at everything.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let findings = doctor::look(&args.reach, args.minimum).await?;
    match form {
        Form::Json => out::json(&findings)?,
        Form::Text => findings.iter().try_for_each(print)?,
    }
    match findings.iter().filter(|finding| finding.health == Health::Fail).count() {
        0 => Ok(()),
        1 => Err(Fault::failed("1 check failed")),
        failed => Err(Fault::failed(format!("{failed} checks failed"))),
    }
}

fn print(finding: &Finding) -> std::io::Result<()> {
    let style = match finding.health {
        Health::Ok => out::GOOD,
        Health::Warn => out::WAIT,
        Health::Fail => out::BAD,
    };
    let health = out::paint(style, format_args!("{:<4}", finding.health));
    let says = finding.says.replace('\n', "\n                       ");
    out::data(format_args!("{health}  {:<15}  {says}", finding.check))?;
    match &finding.next {
        Some(next) => out::data(format_args!("{:<21}  {}", "", out::paint(out::DIM, format_args!("→ {next}")))),
        None => Ok(()),
    }
}
