//! `countersign gateway doctor`.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum as _;
use countersign::call::Declared;
use countersign::place::Places;
use countersign::show::escape;
use countersign::verdict::Effect;
use countersign::{Facts, Json, Path as Whence, Policy, ToolId};
use countersign_mcp::gateway::{self, Identity, Pinned};
use serde::Serialize;

use crate::clients::{self, Client, ClientFile, Server, Way, Whose};
use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::home::Home;
use crate::out::{self, Cell};
use crate::settings::{Place, Settings};

/// List the servers of your clients, their tools as first seen, and what your policy says about each
///
/// Looks at the files of all known clients, yours and those of the project in this folder. A tool is judged as if it were
/// called without arguments; `countersign policy explain` judges one call exactly.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"Examples:
  countersign gateway doctor
  countersign gateway doctor --json | jq '.tools[] | select(.effect == "allow")'"#;

/// Everything that was found.
#[derive(Serialize)]
struct Findings {
    clients: Vec<Found>,
    /// The servers of our own configuration, which agents run with here use.
    configured: Vec<Configured>,
    tools: Vec<Tool>,
}

/// A client's file.
#[derive(Serialize)]
struct Found {
    client: Client,
    file: PathBuf,
    servers: Vec<Known>,
    /// Why it cannot be read.
    error: Option<String>,
}

/// A server of our own configuration.
#[derive(Serialize)]
struct Configured {
    name: Arc<str>,
    command: Option<Vec<String>>,
    url: Option<String>,
}

/// A server of a client.
#[derive(Serialize)]
struct Known {
    name: String,
    project: Option<String>,
    way: &'static str,
    /// Its name in rules, once it is behind the gateway.
    server: Option<String>,
    command: Option<Vec<String>>,
    note: Option<String>,
}

/// A tool of a server that the gateway has seen.
#[derive(Serialize)]
struct Tool {
    server: String,
    tool: String,
    /// It is not what was accepted, and refused until it is.
    changed: bool,
    effect: Effect,
    rules: Vec<Arc<str>>,
    hidden: bool,
    /// Other servers with a tool whose name is or looks the same: a model may take one for the other.
    also_on: Vec<String>,
}

/// Looks and tells.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_look(&args.place, Care::Rescue).await?;
    let pinned = gateway::pinned_tools(&**desk.store()).await?;
    let at = desk.store().now().await?;
    let policy = desk.gate.policy();
    let mut looks: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for tool in &pinned {
        looks.entry(tool.look()).or_default().insert(tool.server_in_rules());
    }
    let tools = pinned.iter().map(|pinned| judged(&policy, pinned, &looks, at)).collect();
    let findings = Findings { clients: look(&pinned), configured: configured(&args.place), tools };
    match form {
        Form::Json => Ok(out::json(&findings)?),
        Form::Text => print(&findings),
    }
}

fn judged(policy: &Policy, pinned: &Pinned, looks: &HashMap<String, BTreeSet<&str>>, at: countersign::Time) -> Tool {
    let others = looks.get(&pinned.look()).into_iter().flatten();
    let also_on = others.filter(|server| **server != pinned.server_in_rules()).map(|server| (*server).to_owned());
    let facts = Facts {
        tool: ToolId::on(pinned.server_in_rules(), pinned.tool.as_str()),
        toolset: None,
        arguments: Json::empty(),
        path: Whence::default(),
        declared: Declared::Nothing,
        annotations: pinned.definition().field("annotations"),
        places: Places::default(),
        at,
    };
    let verdict = policy.judge(&facts);
    Tool {
        server: pinned.server.clone(),
        tool: pinned.tool.clone(),
        changed: pinned.is_quarantined(),
        effect: if pinned.is_quarantined() { Effect::Deny } else { verdict.effect },
        rules: verdict.because().iter().map(|because| Arc::clone(&because.rule)).collect(),
        hidden: policy.hides(&facts.tool),
        also_on: also_on.collect(),
    }
}

/// A configuration that cannot be read was complained about when the store was opened.
fn configured(place: &Place) -> Vec<Configured> {
    let settings = Settings::load(place, &Home::from_env()).map(|settings| settings.config.mcp_servers);
    let servers = settings.unwrap_or_default().into_iter();
    let described = servers.map(|server| Configured {
        command: server.command.map(|command| std::iter::once(command).chain(server.args).collect()),
        name: server.name,
        url: server.url,
    });
    described.collect()
}

fn look(pinned: &[Pinned]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for client in Client::value_variants() {
        for whose in [Whose::User, Whose::Project] {
            let Some(path) = client.file(whose) else { continue };
            found.extend(look_at(*client, &path, pinned));
        }
    }
    found
}

fn look_at(client: Client, path: &Path, pinned: &[Pinned]) -> Option<Found> {
    let (file, servers) = match ClientFile::read(path) {
        Ok(None) => return None,
        Ok(Some(file)) => (file.path().to_owned(), clients::servers(file.text(), client.sections())),
        Err(fault) => (path.to_owned(), Err(fault.to_string())),
    };
    let (servers, error) = match servers {
        Ok(servers) => (servers.into_iter().map(|server| known(server, pinned)).collect(), None),
        Err(why) => (Vec::new(), Some(why)),
    };
    Some(Found { client, file, servers, error })
}

fn known(server: Server, pinned: &[Pinned]) -> Known {
    let Server { name, project, way } = server;
    let (way, server, command, note) = match way {
        Way::Direct(words) => ("direct", None, Some(words), None),
        Way::Gateway { known_as, words } => {
            let identity = Identity::of_command(words.iter().map(String::as_str));
            let swapped = pinned.iter().any(|pinned| pinned.server == known_as && !pinned.is_of(&identity));
            let note = swapped.then(|| "another command was first seen under this name in rules".to_owned());
            ("gateway", Some(known_as), Some(words), note)
        }
        Way::Remote(_) => ("remote", None, None, None),
        Way::Unknown(why) => ("unknown", None, None, Some(why.to_owned())),
    };
    Known { name, project, way, server, command, note }
}

fn print(findings: &Findings) -> Result<(), Fault> {
    if findings.clients.is_empty() {
        out::say("No client's configuration was found.");
    }
    for found in &findings.clients {
        let file = out::safe_lines(&found.file.display().to_string());
        out::data(format_args!("{}  {file}", out::paint(out::BOLD, found.client.name())))?;
        if let Some(error) = &found.error {
            out::data(out::paint(out::BAD, format_args!("  cannot be read: {}", escape(error))))?;
        }
        table(&["  SERVER", "WAY", "COMMAND"], found.servers.iter().map(server_row).collect())?;
    }
    if !findings.configured.is_empty() {
        out::data(format_args!("{}  used by agents run here", out::paint(out::BOLD, "mcp_servers")))?;
        table(&["  SERVER", "WAY", "COMMAND"], findings.configured.iter().map(configured_row).collect())?;
    }
    if findings.tools.is_empty() {
        out::say("The gateway has not seen any tool yet.");
        return Ok(());
    }
    table(&["TOOL", "SAYS", "BECAUSE"], findings.tools.iter().map(tool_row).collect())
}

fn table(heads: &[&str], rows: Vec<Vec<Cell>>) -> Result<(), Fault> {
    for line in out::table(heads, &rows, out::columns()) {
        out::data(line)?;
    }
    Ok(())
}

fn configured_row(server: &Configured) -> Vec<Cell> {
    let what = server.command.as_ref().map(|words| words.join(" ")).or_else(|| server.url.clone());
    vec![Cell::new(format!("  {}", server.name)), Cell::new("the gate"), Cell::new(what.unwrap_or_default())]
}

fn server_row(server: &Known) -> Vec<Cell> {
    let (style, way) = match (server.way, &server.server) {
        ("gateway", Some(name)) => (out::GOOD, format!("gateway, as {name}")),
        (way, _) => (out::WAIT, format!("{way}, not behind the gateway")),
    };
    let command = server.command.as_ref().map(|words| words.join(" ")).unwrap_or_default();
    let what = match &server.note {
        Some(note) => format!("{note}: {command}"),
        None => command,
    };
    let name = match &server.project {
        Some(project) => format!("  {} (in {project})", server.name),
        None => format!("  {}", server.name),
    };
    vec![Cell::new(name), Cell::styled(style, way), Cell::new(what)]
}

fn tool_row(tool: &Tool) -> Vec<Cell> {
    let style = match tool.effect {
        Effect::Allow => out::GOOD,
        Effect::Ask => out::WAIT,
        Effect::Deny => out::BAD,
    };
    let because = match tool.changed {
        true => format!("it has changed: countersign gateway accept {} {}", tool.server, tool.tool),
        false => tool.rules.iter().map(|rule| &**rule).collect::<Vec<_>>().join(", "),
    };
    let because = match tool.also_on.is_empty() {
        true => because,
        false => format!("{because}; careful: there is one of this look on {}, too", tool.also_on.join(", ")),
    };
    let hidden = if tool.hidden { ", hidden" } else { "" };
    let says = format!("{}{hidden}", tool.effect.as_str());
    vec![Cell::new(format!("{}/{}", tool.server, tool.tool)), Cell::styled(style, says), Cell::new(because)]
}
