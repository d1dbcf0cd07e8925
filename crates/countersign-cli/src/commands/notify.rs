//! `countersign notify`.

use clap::Subcommand;
use countersign_api::wire::{Delivery, DeliveryState, TestedAll};
use countersign_server::notify::{self, KeyError, NotifyError};

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::home::Home;
use crate::out::{self, Cell};
use crate::settings::{Place, Settings};

/// Who is told what happens: test it, and see what arrived
///
/// Receivers stand under `notify:` in the configuration; a running server tells them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  countersign notify test
  countersign notify log --limit 20
  countersign notify secret                          # what webhooks without a `secret:` are signed with"#;

#[derive(Debug, Subcommand)]
enum Command {
    /// Send every receiver a test message; exit code 1 if one does not get it
    Test(TestArgs),
    /// List who was told what, newest first
    Log(LogArgs),
    /// Print the key that signs webhooks without a `secret:` of their own
    Secret(SecretArgs),
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Where people reach the server, for the link in the message
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7117")]
    url: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct LogArgs {
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct SecretArgs {
    #[command(flatten)]
    place: Place,
}

/// Tests, lists or prints.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Test(args) => test(args, form).await,
        Command::Log(args) => log(args, form).await,
        Command::Secret(args) => secret(args, form).await,
    }
}

async fn test(args: TestArgs, form: Form) -> Result<(), Fault> {
    // The first HTTP client wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = Settings::load(&args.place, &Home::from_env())?;
    if settings.config.notify.is_empty() {
        return Err(Fault::usage("nobody is told: the configuration has no `notify:`")
            .next("name somebody, as in `notify: [{ webhook: https://… }]`"));
    }
    let desk = Desk::open(&args.place, Care::Full).await?;
    let items = notify::test(&settings.config.notify, &**desk.store(), args.url.trim_end_matches('/')).await?;
    let missed = items.iter().filter(|tested| !tested.delivered).count();
    match form {
        Form::Json => out::json(&TestedAll { items })?,
        Form::Text => {
            for tested in items {
                let (style, word) = if tested.delivered { (out::GOOD, "arrived") } else { (out::BAD, "failed") };
                let why = tested.problem.map(|problem| format!(": {}", out::safe_lines(&problem))).unwrap_or_default();
                out::data(format_args!("{} {}{why}", out::paint(style, word), out::safe_lines(&tested.to)))?;
            }
        }
    }
    match missed {
        0 => Ok(()),
        missed => Err(Fault::failed(format!("{missed} of them did not get the message"))),
    }
}

async fn log(args: LogArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_look(&args.place, Care::Rescue).await?;
    let deliveries = notify::list(&**desk.store(), None, args.limit.into()).await?;
    if form == Form::Json {
        return Ok(out::json(&deliveries)?);
    }
    if deliveries.is_empty() {
        out::say("Nobody was told anything.");
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = deliveries.iter().map(row).collect();
    for line in out::table(&["delivery", "state", "event", "to", "when", "problem"], &rows, out::columns().max(120)) {
        out::data(line)?;
    }
    Ok(())
}

fn row(delivery: &Delivery) -> Vec<Cell> {
    let style = match delivery.state {
        DeliveryState::Delivered => out::GOOD,
        DeliveryState::Failed => out::BAD,
        DeliveryState::Pending | DeliveryState::Dropped => out::DIM,
    };
    let problem = delivery.last.as_ref().and_then(|last| last.problem.clone()).unwrap_or_default();
    vec![
        Cell::styled(out::BOLD, &delivery.id),
        Cell::styled(style, delivery.state.as_str()),
        Cell::new(&delivery.event),
        Cell::new(&delivery.to),
        Cell::new(delivery.at),
        Cell::new(problem),
    ]
}

async fn secret(args: SecretArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Full).await?;
    let secret = notify::signing_secret(&**desk.store()).await.map_err(NotifyError::from)?;
    match form {
        Form::Json => out::json(&serde_json::json!({ "secret": secret }))?,
        Form::Text => out::data(secret)?,
    }
    Ok(())
}

impl From<NotifyError> for Fault {
    fn from(error: NotifyError) -> Fault {
        match error {
            NotifyError::Key(KeyError::Store(error)) => Fault::from(error),
            NotifyError::Key(error) => Fault::failed(error),
            error => Fault::usage(error),
        }
    }
}
