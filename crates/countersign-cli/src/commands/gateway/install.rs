//! `countersign gateway install`.

use std::path::{Path, PathBuf};

use countersign::show::escape;
use serde_json::{Value, json};

use crate::clients::{self, Change, Client, ClientFile, Rewritten, Sections, Server, Starter, Way, Whose};
use crate::commands::Form;
use crate::fault::Fault;
use crate::out;
use crate::prompt;
use crate::settings::Place;

/// Put the gateway in front of every server that a client starts: rewrites the client's own configuration
///
/// Shows what changes, asks, and keeps a backup beside the file. Only the commands change; comments and everything else
/// stay as they are. Servers that the client reaches at an address are listed and left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The client
    client: Client,
    /// The configuration of the project in this folder, which others may share, instead of your own
    #[arg(long, conflicts_with = "file")]
    project: bool,
    /// Another file of the same form
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Take the gateway away again
    #[arg(long)]
    undo: bool,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Change it without being asked
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"Examples:
  countersign gateway install claude-code
  countersign gateway install cursor --project --dry-run
  countersign gateway install vscode --config ~/work/countersign.yml   # each server is judged by this file
  countersign gateway install claude-code --undo

Restart the client afterwards. --config and --store become options of each gateway."#;

/// Rewrites the file.
pub(crate) fn run(args: Args, form: Form) -> Result<(), Fault> {
    let path = path(&args)?;
    let file = ClientFile::read(&path)?.ok_or_else(|| {
        Fault::usage(format!("there is no `{}`", path.display()))
            .next("add a server in the client first, or name its file with --file")
    })?;
    let sections = args.client.sections();
    let broken = |why: String| {
        Fault::failed(format!("`{}` was left alone: {}", file.path().display(), escape(&why)))
            .next("mend the file first")
    };
    let rewritten = match args.undo {
        true => undone(&file, sections, &starter(&args.place)?),
        false => clients::install(file.text(), sections, &starter(&args.place)?),
    };
    let rewritten = rewritten.map_err(broken)?;
    let others = clients::servers(file.text(), sections).map_err(broken)?;
    show(file.path(), &rewritten.changes, &others);
    let is_done = !rewritten.changes.is_empty() && !args.dry_run && (args.yes || agreed(rewritten.changes.len())?);
    let backup = match is_done {
        true => {
            let backup = file.back_up()?;
            file.replace(&rewritten.text)?;
            Some(backup)
        }
        false => None,
    };
    report(&args, &file, &rewritten, backup.as_deref(), form)
}

/// The file as it was before it was installed, if nothing else changed since; else without the gateway.
fn undone(file: &ClientFile, sections: Sections, starter: &Starter) -> Result<Rewritten, String> {
    let undone = clients::undo(file.text(), sections)?;
    let is_its = |backup: &String| {
        clients::install(backup, sections, starter).is_ok_and(|installed| installed.text == file.text())
    };
    match file.backups().find(is_its) {
        Some(text) if !undone.changes.is_empty() => Ok(Rewritten { text, ..undone }),
        _ => Ok(undone),
    }
}

fn path(args: &Args) -> Result<PathBuf, Fault> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    let whose = if args.project { Whose::Project } else { Whose::User };
    args.client.file(whose).ok_or_else(|| {
        Fault::usage(format!("{} keeps no such file that is known here", args.client.name()))
            .next("name the file with --file")
    })
}

/// Our own program, by its path: clients with a window have another PATH than a shell.
fn starter(place: &Place) -> Result<Starter, Fault> {
    let program = std::env::current_exe()?;
    let absolute = |path: &Path| std::path::absolute(path).map(|path| path.display().to_string());
    let mut options = Vec::new();
    if let Some(config) = &place.config {
        options.extend(["--config".to_owned(), absolute(config)?]);
    }
    if let Some(store) = &place.store {
        let store = match store.strip_prefix("sqlite:") {
            Some(path) => format!("sqlite:{}", absolute(Path::new(path))?),
            None => store.clone(),
        };
        options.extend(["--store".to_owned(), store]);
    }
    Ok(Starter { program: program.display().to_string(), options })
}

/// Shows on standard error what changes and what does not. No member but the command is shown: others hold secrets.
fn show(file: &Path, changes: &[Change], servers: &[Server]) {
    out::say(out::paint(out::BOLD, out::safe_lines(&file.display().to_string())));
    for change in changes {
        out::say(format_args!("  {}", title(&change.name, change.project.as_deref())));
        out::say(out::paint(out::BAD, format_args!("  - {}", line(&change.before))));
        out::say(out::paint(out::GOOD, format_args!("  + {}", line(&change.after))));
    }
    let changes =
        |server: &&Server| changes.iter().any(|change| change.name == server.name && change.project == server.project);
    for server in servers.iter().filter(|server| !changes(server)) {
        let title = title(&server.name, server.project.as_deref());
        match &server.way {
            Way::Direct(_) => {}
            Way::Gateway { .. } => out::say(out::paint(out::DIM, format_args!("  {title}: through the gateway"))),
            Way::Remote(_) => {
                out::say(out::paint(out::WAIT, format_args!("  {title}: at an address, so not behind the gateway")));
            }
            Way::Unknown(why) => {
                out::say(out::paint(
                    out::WAIT,
                    format_args!("  {title}: left alone, so not behind the gateway: {why}"),
                ));
            }
        }
    }
}

fn title(name: &str, project: Option<&str>) -> String {
    match project {
        Some(project) => format!("{} (in {})", escape(name), escape(project)),
        None => escape(name),
    }
}

fn line(words: &[String]) -> String {
    let quoted = |word: &String| match word.is_empty() || word.contains([' ', '"', '\'', '\\']) {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => word.clone(),
    };
    out::safe_lines(&words.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

fn agreed(count: usize) -> Result<bool, Fault> {
    prompt::agreed(&format!("Change {count}?"), "look at the change above, then run it again with --yes")
}

fn report(
    args: &Args,
    file: &ClientFile,
    rewritten: &Rewritten,
    backup: Option<&Path>,
    form: Form,
) -> Result<(), Fault> {
    if form == Form::Json {
        let change = |change: &Change| -> Value {
            json!({ "name": change.name, "project": change.project, "server": change.known_as,
                "before": change.before, "after": change.after })
        };
        let changes: Vec<Value> = rewritten.changes.iter().map(change).collect();
        let (path, done) = (file.path(), backup.is_some());
        return Ok(out::json(&json!({ "client": args.client, "file": path, "done": done, "backup": backup,
            "changes": changes }))?);
    }
    let Some(backup) = backup else {
        let nothing = if rewritten.changes.is_empty() { "There is nothing to change." } else { "Nothing was changed." };
        out::say(nothing);
        return Ok(());
    };
    for change in &rewritten.changes {
        let title = title(&change.name, change.project.as_deref());
        match args.undo {
            true => out::data(format_args!("{title}: no longer through the gateway"))?,
            false => {
                out::data(format_args!("{title}: through the gateway, as `{}` in rules", escape(&change.known_as)))?;
            }
        }
    }
    out::say(format_args!("Restart {}. The file as it was: {}", args.client.name(), backup.display()));
    Ok(())
}
