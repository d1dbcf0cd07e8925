//! `countersign demo`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign::Gate;
use countersign::audit::{Report, VerifyOptions, verify_store};
use countersign::signer::Signer;
use countersign_api::wire;
use serde_json::json;

use crate::commands::{Form, audit};
use crate::demo::{
    Answering, Answers, CONFIG, Ended, FILES, Inbox, Pressed, Run, file_changes, print_calls, print_trail, tools,
};
use crate::fault::Fault;
use crate::home::{CONFIG_NAME, make_private_folder};
use crate::key;
use crate::out;
use crate::prompt;
use crate::settings::{read_config, read_policy};
use crate::signals::Signals;
use crate::watch::Watcher;

/// See it work: an agent edits files in a scratch folder, and you decide
///
/// Everything is real: the rules, the store, the file edits, the signed record. Only the model is scripted, so it
/// needs no key and no network. The agent makes seven calls; rules allow some, deny one, and ask you about the rest:
/// here, and in the browser by the link it prints. At the end it prints what happened and checks the record.
///
/// In a script or a pipe there is nobody to ask: give the answers in a file, one a line.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Take the answers from a file instead of asking
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Ask in this terminal alone
    #[arg(long)]
    no_server: bool,
    /// Where on this machine the inbox listens [default: 7117, or any other if that is taken]
    #[arg(long, value_name = "PORT", conflicts_with = "no_server")]
    port: Option<u16>,
    /// Keep the scratch folder, and say where it is
    #[arg(long)]
    keep: bool,
    /// Work in this folder, which must be new or empty, and keep it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = r#"Answers:
  approve
  deny REASON
  edit JSON                  # approve other arguments
  respond JSON               # do not run it; give the agent this as its result
  remember session|global    # approve, and allow the same call from now on

Examples:
  countersign demo
  countersign demo --keep
  countersign demo --no-server
  countersign demo --answers answers.txt --json"#;

/// Runs the demo.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let answering = match &args.answers {
        Some(path) => Answering::File(Answers::read(path)?),
        None if prompt::is_interactive() => Answering::Person,
        None => {
            return Err(Fault::usage("there is nobody to ask: input and output are not a terminal")
                .next("run it in a terminal, or give answers with `countersign demo --answers FILE`"));
        }
    };
    let scratch = Scratch::make(&args)?;
    let played = play(&scratch.path, answering, &args, form).await;
    if scratch.kept {
        out::say(format_args!("Kept: {}", out::safe_lines(&scratch.path.display().to_string())));
    }
    played
}

async fn play(folder: &Path, answering: Answering, args: &Args, form: Form) -> Result<(), Fault> {
    let work = folder.join("work");
    let signer = key::load(folder)?;
    let address = format!("sqlite:{}", folder.join("countersign.db").display());
    let (mut run, _watcher) = set_up(folder, &work, &address, Arc::clone(&signer), answering).await?;
    greet(folder, &address);
    let mut signals = Signals::listen()?;
    let inbox = match &run.answering {
        Answering::Person if !args.no_server => open_inbox(&run.gate, signer, args.port).await,
        Answering::Person | Answering::File(_) => None,
    };
    let ended = match &inbox {
        Some(inbox) if inbox.show(&mut signals).await? == Pressed::Stop => Ok(Ended::Stopped),
        _ => run.go(&mut signals).await,
    };
    run.gate.checkpoint().await?;
    let report = verify_store(&**run.gate.store(), &VerifyOptions::default()).await;
    let report = report.map_err(|problem| Fault::failed(format!("the record does not verify: {}", problem.what)))?;
    tell(&run, &work, &report, form).await?;
    if let Some(inbox) = inbox {
        if matches!(ended, Ok(Ended::Whole)) {
            inbox.linger(&mut signals).await?;
        }
        inbox.close().await;
    }
    match ended? {
        Ended::Whole => Ok(()),
        Ended::Stopped => Err(Fault::failed("stopped; what waited was withdrawn, and nothing more ran")),
    }
}

/// Lays out the files and the rules, and puts a gate over them that follows the rules as they change.
async fn set_up(
    folder: &Path,
    work: &Path,
    address: &str,
    signer: Arc<Signer>,
    answering: Answering,
) -> Result<(Run, Watcher), Fault> {
    make_private_folder(work)?;
    for (name, text) in FILES {
        std::fs::write(work.join(name), text)?;
    }
    let config_path = folder.join(CONFIG_NAME);
    std::fs::write(&config_path, CONFIG)?;
    let config = read_config(&config_path)?;
    let store = countersign_store::connect(address).await?;
    let tools = tools(work)?;
    let mut builder = Gate::builder().policy(config.policy).store(store).signer(signer).owner("demo");
    for tool in &tools {
        builder = builder.admits(tool.clone());
    }
    let (builder, holds) = builder.channel();
    let gate = builder.build()?;
    let watched = config_path.clone();
    let watcher =
        Watcher::start([&*config_path], gate.clone(), move || read_policy(&watched), |words| out::say(words))?;
    Ok((Run { gate, holds, tools, answering, calls: Vec::new() }, watcher))
}

/// Opens the inbox. Without one there is still the terminal.
async fn open_inbox(gate: &Gate, signer: Arc<Signer>, port: Option<u16>) -> Option<Inbox> {
    match Inbox::open(gate, signer, port).await {
        Ok(inbox) => Some(inbox),
        Err(fault) => {
            out::warn(format_args!("no inbox in the browser: {fault}"));
            None
        }
    }
}

fn greet(folder: &Path, address: &str) {
    let place = |text: String| out::safe_lines(&text);
    out::say(out::paint(out::BOLD, "An agent wants to tidy up a project. The rules and you decide what it may do."));
    out::say(format_args!("  files     {}", place(folder.join("work").display().to_string())));
    out::say(format_args!("  rules     {}", place(folder.join(CONFIG_NAME).display().to_string())));
    out::say(format_args!("  holds, in another terminal:  countersign holds --store {}", place(address.to_owned())));
}

async fn tell(run: &Run, work: &Path, report: &Report, form: Form) -> Result<(), Fault> {
    let events = audit::events(run.gate.store()).await?;
    let changes = file_changes(work)?;
    if form == Form::Json {
        let calls = run.calls.iter().map(|call| serde_json::to_value(wire::Call::from(&**call)));
        let calls = calls.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::new)?;
        let files: serde_json::Map<_, _> = changes.into_iter().map(|(name, what)| (name, json!(what))).collect();
        let value = json!({
            "calls": calls,
            "files": files,
            "events": report.events,
            "chains": report.chains.len(),
            "verified": true,
            "complete": report.complete,
            "keys": report.keys,
        });
        return Ok(out::json(&value)?);
    }
    out::data("")?;
    out::data(out::paint(out::BOLD, "What happened"))?;
    print_calls(&run.calls)?;
    out::data("")?;
    out::data(out::paint(out::BOLD, "The files now"))?;
    for (name, what) in changes {
        out::data(format_args!("{:<14} {what}", countersign::show::escape(&name)))?;
    }
    out::data("")?;
    out::data(out::paint(out::BOLD, "The record"))?;
    print_trail(&events)?;
    out::data("")?;
    audit::tell(report, Form::Text)
}

/// The folder the demo plays in.
struct Scratch {
    path: PathBuf,
    kept: bool,
    /// Removes the folder when the demo is over.
    _temporary: Option<tempfile::TempDir>,
}

impl Scratch {
    fn make(args: &Args) -> Result<Scratch, Fault> {
        if let Some(path) = &args.dir {
            let is_empty = std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
            if !is_empty {
                let what = format!("`{}` is not empty", path.display());
                return Err(Fault::usage(what).next("name a folder that is new or empty"));
            }
            make_private_folder(path)?;
            return Ok(Scratch { path: path.canonicalize()?, kept: true, _temporary: None });
        }
        let folder = tempfile::Builder::new().prefix("countersign-demo-").tempdir()?;
        if args.keep {
            return Ok(Scratch { path: folder.keep(), kept: true, _temporary: None });
        }
        Ok(Scratch { path: folder.path().to_owned(), kept: false, _temporary: Some(folder) })
    }
}
