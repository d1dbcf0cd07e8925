//! `countersign audit`.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use countersign::audit::{
    ExportError, ExportOptions, OfStore, Problem, Report, VerifyOptions, export, export_log, verify, verify_log,
};
use countersign::event::{Cursor, Event, EventName};
use countersign::show::escape;
use countersign::store::EventFilter;
use countersign::{Store, limits};
use countersign_api::client::Client;
use serde_json::json;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::progress::{Counted, Progress};
use crate::settings::Reach;

use remote::Remote;

mod remote;

/// Read the record, check it, export it
///
/// Every step of every call is an event, hashed over the one before it and signed. What is not there did not happen.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = r#"Examples:
  countersign audit                                  # the log of the store
  countersign audit log --session s1
  countersign audit export > log.jsonl               # everything needed to check it elsewhere
  countersign audit verify log.jsonl --key BASE64    # offline; without a file, the store itself
  countersign audit export --url http://127.0.0.1:7117 > log.jsonl    # what a server keeps; wants an auditor's token"#;

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the events, oldest first
    Log(LogArgs),
    /// Check a log to its end; exit code 1 with the first bad event and why
    Verify(VerifyArgs),
    /// Write the log as JSON lines that need nothing else to be checked
    Export(ExportArgs),
}

#[derive(Debug, clap::Args)]
struct LogArgs {
    /// Only this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
struct ExportArgs {
    /// Only this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// An export; `-` is stdin; without it the store or the server is checked
    #[arg(conflicts_with = "url")]
    file: Option<PathBuf>,
    /// A public key that must have signed; several with several --key
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

/// Reads, checks or exports.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        None => log(args.log, form).await,
        Some(Command::Log(args)) => log(args, form).await,
        Some(Command::Verify(args)) => check(args, form).await,
        Some(Command::Export(args)) => write(args).await,
    }
}

async fn log(args: LogArgs, form: Form) -> Result<(), Fault> {
    let session = args.session.as_deref();
    let progress = Progress::beside_output();
    let mut printed = 0;
    let mut page = |events: &[Event]| -> Result<(), Fault> {
        if events.is_empty() {
            return Ok(());
        }
        match form {
            // The body is printed as the bytes that are hashed.
            Form::Json => events.iter().try_for_each(|event| out::data(&event.body))?,
            Form::Text => print_page(events, printed == 0, out::columns())?,
        }
        printed += events.len();
        progress.add(events.len());
        Ok(())
    };
    match args.reach.client()? {
        Some(client) => remote::pages(&client, session, &mut page).await?,
        None => pages(Desk::open_to_look(&args.reach.place, Care::Rescue).await?.store(), session, &mut page).await?,
    }
    drop(progress);
    if printed == 0 && form == Form::Text {
        out::say("The record is empty.");
    }
    Ok(())
}

/// Hands on the events of a store, oldest first, a page at a time: a log may be larger than memory.
async fn pages(
    store: &Arc<dyn Store>,
    session: Option<&str>,
    hand_on: &mut (dyn FnMut(&[Event]) -> Result<(), Fault> + Send),
) -> Result<(), Fault> {
    let session = session.map(Arc::from);
    let filter = EventFilter { session, limit: Some(limits::PAGE_ROWS), ..EventFilter::default() };
    let mut after = Cursor::default();
    loop {
        let page = store.events(after, filter.clone()).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.cursor;
        hand_on(&page)?;
    }
}

/// All events of a store, oldest first, where there are few.
pub(crate) async fn events(store: &Arc<dyn Store>) -> Result<Vec<Event>, Fault> {
    let mut events = Vec::new();
    let mut keep = |page: &[Event]| {
        events.extend_from_slice(page);
        Ok(())
    };
    pages(store, None, &mut keep).await?;
    Ok(events)
}

/// Prints events as a table.
pub(crate) fn print(events: &[Event], room: usize) -> Result<(), Fault> {
    print_page(events, true, room)
}

/// Prints one page of a table; the first one has its head.
fn print_page(events: &[Event], first: bool, room: usize) -> Result<(), Fault> {
    let row = |event: &Event| {
        let at = event.at.to_string();
        let time = at.get(11..23).unwrap_or(&at).to_owned();
        vec![
            Cell::styled(out::DIM, &event.chain.0),
            Cell::styled(out::DIM, event.seq),
            Cell::styled(out::DIM, time),
            Cell::new(event.name),
            Cell::new(detail(event)),
        ]
    };
    let rows: Vec<Vec<Cell>> = events.iter().map(row).collect();
    let lines = out::table(&["chain", "#", "time", "event", "what"], &rows, room);
    for line in lines.into_iter().skip(usize::from(!first)) {
        out::data(line)?;
    }
    Ok(())
}

/// What an event says, in a few words: the members that tell most, in a fixed order.
fn detail(event: &Event) -> String {
    const TELLING: [&str; 16] = [
        "tool",
        "answer",
        "by",
        "rules",
        "reason",
        "kind",
        "grant",
        "as",
        "outcome",
        "arguments",
        "error",
        "agent",
        "owner",
        "policy",
        "problem",
        "key",
    ];
    let value = event.value();
    let is_submission = event.name == EventName::CallSubmitted;
    let word = |name: &str| {
        if is_submission && name == "policy" {
            return None;
        }
        let text = match value.get(name)? {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => return None,
            serde_json::Value::Array(items) => {
                let items: Vec<&str> = items.iter().filter_map(|item| item.as_str()).collect();
                items.join(",")
            }
            other => other.to_string(),
        };
        Some(if matches!(name, "tool" | "arguments") { text } else { format!("{name}={text}") })
    };
    let words: Vec<String> = TELLING.iter().filter_map(|name| word(name)).collect();
    words.join(" ")
}

async fn check(args: VerifyArgs, form: Form) -> Result<(), Fault> {
    let options = VerifyOptions { pinned: args.key.clone() };
    if let Some(client) = args.reach.client()? {
        let progress = Progress::of_events();
        let counted = Counted { log: Remote::new(client.clone()), progress: &progress };
        let checked = verify_log(&counted, &options).await;
        let checked = counted.log.unless_lost(checked)?;
        drop(progress);
        tell_strangers(&client, &checked).await?;
        return judged(checked, None, form);
    }
    let checked = match &args.file {
        Some(path) if path == Path::new("-") => verify(BufReader::new(io::stdin().lock()), &options),
        Some(path) => {
            let file =
                File::open(path).map_err(|error| Fault::usage(format!("cannot read `{}`: {error}", path.display())))?;
            let progress = Progress::of_bytes(file.metadata().map_or(0, |found| found.len()));
            verify(BufReader::new(progress.reading(file)), &options)
        }
        None => {
            let desk = Desk::open_to_look(&args.reach.place, Care::Rescue).await?;
            let progress = Progress::of_events();
            let log = OfStore(Arc::clone(desk.store()));
            verify_log(&Counted { log, progress: &progress }, &options).await
        }
    };
    judged(checked, args.file.as_deref(), form)
}

/// Says which keys signed that the server does not list as its own or its neighbours'.
async fn tell_strangers(client: &Client, checked: &Result<Report, Problem>) -> Result<(), Fault> {
    let Ok(report) = checked else { return Ok(()) };
    let listed = client.keys().await?.keys;
    for stranger in report.keys.iter().filter(|key| !listed.iter().any(|listed| listed.key == **key)) {
        out::warn(format_args!("signed by a key that the server does not list: {}", escape(stranger)));
    }
    Ok(())
}

fn judged(checked: Result<Report, Problem>, file: Option<&Path>, form: Form) -> Result<(), Fault> {
    match checked {
        Ok(report) => tell(&report, form),
        Err(problem) => Err(refuted(&problem, file, form)?),
    }
}

/// Says what a log proves. One without events proves nothing.
pub(crate) fn tell(report: &Report, form: Form) -> Result<(), Fault> {
    if form == Form::Json {
        let value = json!({
            "verified": report.events > 0,
            "events": report.events,
            "chains": report.chains.len(),
            "checkpoints": report.checkpoints,
            "keys": report.keys,
            "unsigned": report.unproven,
            "complete": report.complete,
            "open_calls": report.open_calls,
            "clock_steps": report.clock_steps_total,
        });
        return Ok(out::json(&value)?);
    }
    if report.events == 0 {
        return Ok(out::data("nothing is on record yet, so nothing was checked")?);
    }
    let by = match report.keys.is_empty() {
        true => "signed by nobody".to_owned(),
        false => format!("signed by {}", escape(&report.keys.join(", "))),
    };
    let verified = out::paint(out::GOOD, "verified:");
    out::data(format_args!("{verified} {} events, {} chains, {by}", report.events, report.chains.len()))?;
    if report.unproven > 0 {
        out::warn(format_args!("{} events at the end are under no signature yet", report.unproven));
    }
    if report.clock_steps_total > 0 {
        out::warn(format_args!("the clock went back {} times", report.clock_steps_total));
    }
    Ok(())
}

fn refuted(problem: &Problem, file: Option<&Path>, form: Form) -> Result<Fault, Fault> {
    if form == Form::Json {
        out::json(&json!({
            "verified": false,
            "line": problem.line,
            "chain": problem.chain,
            "seq": problem.seq,
            "problem": problem.what.to_string(),
        }))?;
    }
    let place = match (file, problem.line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", file.display()),
        (Some(file), None) => format!("{}: ", file.display()),
        (None, _) => String::new(),
    };
    let event = match (&problem.chain, problem.seq) {
        (Some(chain), Some(seq)) => format!("event {seq} of chain `{}`: ", chain.0),
        (Some(chain), None) => format!("chain `{}`: ", chain.0),
        (None, _) => String::new(),
    };
    let what = format!("{place}not verified: {event}{}", problem.what);
    Ok(Fault::failed(what).next(problem.what.next_step()))
}

async fn write(args: ExportArgs) -> Result<(), Fault> {
    let options = ExportOptions { session: args.session.as_deref().map(Arc::from) };
    let progress = Progress::beside_output();
    let mut stdout = progress.writing(io::BufWriter::new(io::stdout()));
    let exported = match args.reach.client()? {
        Some(client) => {
            let log = Remote::new(client);
            let exported = export_log(&log, &options, &mut stdout).await;
            log.unless_lost(exported)?
        }
        None => {
            let desk = Desk::open_to_look(&args.reach.place, Care::Full).await?;
            export(&**desk.store(), desk.signer.as_ref(), &options, &mut stdout).await
        }
    };
    let exported = exported.map_err(|error| match error {
        ExportError::Write(error) => Fault::from(error).context("cannot write the export"),
        error => Fault::failed(error),
    })?;
    stdout.flush()?;
    drop(stdout);
    drop(progress);
    out::say(format_args!("{} events; check them with `countersign audit verify FILE`", exported.events));
    Ok(())
}
