//! `countersign gateway`.

mod doctor;
mod install;
mod notes;
mod status;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use countersign::config::McpServerConfig;
use countersign::show::escape;
use countersign::{Gate, Policy, Store};
use countersign_api::wire::Span;
use countersign_mcp::gateway::face::Face;
use countersign_mcp::gateway::{self, Ended, Gateway, Pinned, stdio};
use countersign_server::{Server, Tls};
use serde_json::json;

use crate::commands::Form;
use crate::desk::{Care, Desk, begin_gate};
use crate::fault::Fault;
use crate::home::Home;
use crate::key;
use crate::link;
use crate::out;
use crate::person::person;
use crate::prompt;
use crate::settings::{Place, Settings, read_bytes, remote_gate};
use crate::signals::Signals;
use crate::upstream::Way;
use crate::watch::Watcher;
use notes::Notes;

/// Put the gate in front of an MCP server: a drop-in for its command in any client's configuration
///
/// Every tool call is judged by your policy before the server gets it; where the policy asks, it waits for you in
/// `countersign holds`. Everything else passes unchanged. Standard output carries the protocol only. With COUNTERSIGN_URL
/// and an agent's token in COUNTERSIGN_TOKEN, the server there judges and holds, and its people decide; a client that can
/// offer links is given one to what waits; with the server's public key in COUNTERSIGN_SERVER_KEY, nothing runs that is not
/// signed by it. With `in_client: allow` in the policy, the client's own form may decide.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server's name in rules, as in `allow: "NAME/read_*"` [default: the `mcp_servers` entry with this command,
    /// else the command's base name]
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// How long a held call keeps its client waiting before it is told to call again [default: 50s]
    #[arg(long, value_name = "TIME")]
    wait: Option<Span>,
    /// How long the server may take to answer a call [default: 15m]
    #[arg(long, value_name = "TIME")]
    run_limit: Option<Span>,
    /// Pass methods that no revision of MCP has; what the server does by them is not judged
    #[arg(long)]
    pass_unknown: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    door: Door,
    /// The server's address, in place of a command; its headers are those of the `mcp_servers` entry with this `url`
    #[arg(long, value_name = "URL", conflicts_with = "words")]
    upstream: Option<String>,
    /// The server's command
    #[arg(last = true, required_unless_present = "upstream", value_name = "CMD")]
    words: Vec<OsString>,
}

/// Where clients over HTTP come in.
#[derive(Debug, clap::Args)]
struct Door {
    /// Serve clients over HTTP, at /mcp of this address, in place of one on standard input and output
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// A further name, with port, by which clients reach the gateway
    #[arg(long, value_name = "NAME:PORT", requires = "listen")]
    host: Vec<String>,
    /// The certificate chain (PEM); addresses beyond this machine need one
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let everybody on this machine in without a token (`countersign token create --role agent`)
    #[arg(long, requires = "listen")]
    no_token: bool,
}

const EXAMPLES: &str = r#"Examples:
  countersign gateway -- npx -y @modelcontextprotocol/server-filesystem .
  countersign gateway --server files -- npx -y @modelcontextprotocol/server-filesystem .
  countersign gateway --listen 127.0.0.1:7118 -- npx -y @modelcontextprotocol/server-filesystem .
  countersign gateway --server notes --upstream https://notes.example.com/mcp
  countersign gateway install claude-code            # put it in front of every server that a client starts
  countersign gateway doctor                         # which servers there are, and what would be asked
  countersign gateway accept files                   # what has changed on the server since you first used it

In a client's configuration, `"command": "npx", "args": ["-y", "some-server"]` becomes
`"command": "countersign", "args": ["gateway", "--", "npx", "-y", "some-server"]`."#;

#[derive(Debug, Subcommand)]
enum Command {
    Install(install::Args),
    Doctor(doctor::Args),
    StatusServer(status::Args),
    Accept(AcceptArgs),
}

/// Accept tools whose definition has changed, after you have seen the difference
///
/// A tool that is not what it was when you first used it is refused until then, whatever the rules say. In a script, say
/// what you have seen: `--digest` is the digest that is shown with the difference, and nothing else is accepted.
#[derive(Debug, clap::Args)]
struct AcceptArgs {
    /// The server's name
    server: String,
    /// One tool [default: all that changed]
    tool: Option<String>,
    /// The digest of what you have seen; without it the difference is shown and you are asked
    #[arg(long, value_name = "DIGEST", requires = "tool")]
    digest: Option<String>,
    #[command(flatten)]
    place: Place,
}

impl Args {
    /// Whether there will be one client, on pipes.
    pub(crate) fn is_on_pipes(&self) -> bool {
        self.command.is_none() && self.door.listen.is_none()
    }
}

/// Serves one client on standard input and output, or many over HTTP, or accepts changes.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Some(Command::Install(args)) => install::run(args, form),
        Some(Command::Doctor(args)) => doctor::run(args, form).await,
        Some(Command::StatusServer(args)) => status::run(args).await,
        Some(Command::Accept(args)) => accept(args, form).await,
        None => serve(args, form).await,
    }
}

async fn serve(args: Args, form: Form) -> Result<(), Fault> {
    let home = Home::from_env();
    let settings = Settings::load(&args.place, &home)?;
    let words: Vec<String> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let entries = &settings.config.mcp_servers;
    let entry = entries.iter().find(|entry| is_entry(entry, &args, &words));
    let server = server_name(&args, entry)?;
    let way = match &args.upstream {
        Some(url) => Way::address(url, entry)?,
        None => Way::command(args.words, entry),
    };
    let store = countersign_store::connect(&settings.store(&args.place, &home)?).await?;
    let (app, gate) = match remote_gate()? {
        Some((url, remote)) => (Some(url), remote.records(Arc::clone(&store)).gate()),
        None => (None, local_gate(Arc::clone(&store), &settings, &home).await?),
    };
    let notes = Notes::begin()?;
    let _watcher = match &app {
        Some(_) => None,
        None => follow(&settings, &home, &gate, &notes).await,
    };
    let taken = notes.clone();
    let mut gateway = Gateway::new(gate.clone(), server, way.identity())
        .limits(settings.config.limits.clone())
        .operator(person().id)
        .links(move |hold| app.as_deref().map(|url| link::to_hold(url, hold)))
        .notes(move |note| taken.take(note));
    if let Some(Span(wait)) = args.wait {
        gateway = gateway.wait(wait);
    }
    if let Some(Span(run_limit)) = args.run_limit {
        gateway = gateway.run_within(run_limit);
    }
    if args.pass_unknown {
        gateway = gateway.pass_unknown();
    }
    let served = match args.door.listen {
        Some(address) => listen(args.door, address, gateway, way, &door_gate(&gate, store)?, form).await,
        None => on_pipes(gateway, &way).await,
    };
    notes.told().await;
    if let Err(error) = gate.checkpoint().await {
        out::warn(format_args!("the record could not be signed: {}", out::safe_lines(&error.to_string())));
    }
    served
}

/// Follows the policy's file. Where that cannot be, the gateway serves all the same, by the policy it began with.
async fn follow(settings: &Settings, home: &Home, gate: &Gate, notes: &Notes) -> Option<Watcher> {
    let taken = notes.clone();
    match Watcher::of(settings, home, gate, move |words| taken.take(words)).await {
        Ok(watcher) => watcher,
        Err(fault) => {
            notes.take(&format!("warning: changes of the policy count only after a restart: {fault}"));
            None
        }
    }
}

/// Serves one client on standard input and output.
async fn on_pipes(gateway: Gateway, way: &Way) -> Result<(), Fault> {
    let upstream = way.open().map_err(|error| way.fault(&error))?;
    let mut signals = Signals::listen()?;
    let input = stdio::input(io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = stdio::output(io::stdout().as_fd().try_clone_to_owned()?)?;
    match gateway.serve((input, output), upstream, async move { signals.any().await }).await? {
        Ended::ClientLeft => Ok(()),
        Ended::ServerLeft(Some(status)) => Err(Fault::failed(format!("the server has ended ({status})"))
            .next("what it said about it stands above, marked with its name")),
        Ended::ServerLeft(None) => Err(Fault::failed("the server has ended the session")),
        Ended::ServerStopped(why) => Err(Fault::failed(format!("the server was stopped: {why}"))),
    }
}

async fn local_gate(store: Arc<dyn Store>, settings: &Settings, home: &Home) -> Result<Gate, Fault> {
    if !store.is_shared() {
        return Err(Fault::usage("nobody could decide: a store in memory is this process's own")
            .next("use a store on disk: `--store sqlite:PATH`, or `store:` in the configuration"));
    }
    let signer = key::load(&home.data_folder()?)?;
    Ok(begin_gate(store, settings).await?.decided_elsewhere().signer(signer).build()?)
}

/// The gate of the door, which knows who may come in: the store here has its clients' tokens, wherever calls are judged.
fn door_gate(gate: &Gate, store: Arc<dyn Store>) -> Result<Gate, Fault> {
    if !gate.is_remote() {
        return Ok(gate.clone());
    }
    Ok(Gate::builder().store(store).policy(Policy::deny_all()).decided_elsewhere().build()?)
}

/// Serves clients over HTTP, each with a connection of its own to the server.
async fn listen(
    door: Door,
    address: SocketAddr,
    gateway: Gateway,
    way: Way,
    gate: &Gate,
    form: Form,
) -> Result<(), Fault> {
    // TLS wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let face = Face::new(gateway, move || way.open()).await?;
    let mut builder = Server::gateway(face, gate.clone()).listen(address);
    for host in &door.host {
        builder = builder.host(host);
    }
    if let (Some(certificate), Some(key)) = (&door.tls_cert, &door.tls_key) {
        builder = builder.tls(Tls::from_pem(&read_bytes(certificate)?, &read_bytes(key)?).map_err(Fault::usage)?);
    }
    if door.no_token {
        builder = builder.open_to_this_machine();
    }
    let server = builder.bind().await?;
    // Before anybody knows that it runs, and may end it.
    let mut signals = Signals::listen()?;
    let url = format!("{}/mcp", server.url());
    if !door.no_token {
        out::say("Clients need a token: `countersign token create --role agent --name NAME`. The gateway listens on:");
    }
    match form {
        Form::Json => out::json(&json!({ "url": url }))?,
        Form::Text => out::data(&url)?,
    }
    server.run(async move { signals.any().await }).await?;
    Ok(())
}

fn is_entry(entry: &McpServerConfig, args: &Args, words: &[String]) -> bool {
    match (&args.server, &args.upstream) {
        (Some(name), _) => *entry.name == **name,
        (None, Some(url)) => entry.url.as_ref() == Some(url),
        (None, None) => entry.command.iter().chain(&entry.args).eq(words),
    }
}

fn server_name(args: &Args, entry: Option<&McpServerConfig>) -> Result<Arc<str>, Fault> {
    let base = || Some(Path::new(args.words.first()?).file_stem()?.to_string_lossy().into_owned());
    let name = args.server.clone().or_else(|| entry.map(|entry| entry.name.to_string())).or_else(base);
    let name = name.unwrap_or_default();
    // The same as a server's name in the configuration: rules must be able to mean it.
    let bad = |char: char| char.is_whitespace() || char.is_control() || "/:*?[]{}\\".contains(char);
    if name.is_empty() || name.len() > countersign::limits::NAME_BYTES || name.contains(bad) {
        return Err(Fault::usage(format!("`{}` cannot be the name of a server", escape(&name)))
            .next("give it one with `--server NAME`, without blanks and without any of / : * ? [ ] { } \\"));
    }
    Ok(name.into())
}

async fn accept(args: AcceptArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_act(&args.place, Care::Full).await?;
    let mut changes = gateway::changes(&**desk.store(), &args.server).await?;
    changes.retain(|change| args.tool.as_ref().is_none_or(|tool| change.tool == *tool));
    if changes.is_empty() {
        return Err(Fault::usage(format!("nothing on `{}` waits to be accepted", escape(&args.server)))
            .next("check the names of server and tool, and that --store or --config are the gateway's"));
    }
    changes.iter().for_each(show);
    let is_named = match &args.digest {
        Some(_) => true,
        None if !prompt::is_interactive() => {
            return Err(Fault::refused("without a terminal nobody can be asked, and --digest is required").next(
                "look at the difference above, then name one tool and its digest: `SERVER TOOL --digest cs1p:…`",
            ));
        }
        None => false,
    };
    if !is_named && !prompt::agreed(&format!("Accept {}?", changes.len()), "give --digest")? {
        out::say("Nothing was accepted.");
        return Ok(());
    }
    for change in &changes {
        let seal = args.digest.clone().unwrap_or_else(|| change.seal());
        let accepted = gateway::accept(&desk.gate, &args.server, &change.tool, &seal, &person()).await;
        accepted.map_err(|error| {
            Fault::refused(format!("{} was not accepted: {error}", escape(&change.tool))).next("look at it again")
        })?;
    }
    desk.sign().await;
    let tools: Vec<&str> = changes.iter().map(|change| change.tool.as_str()).collect();
    match form {
        Form::Json => out::json(&json!({ "server": args.server, "accepted": tools }))?,
        Form::Text => {
            for tool in tools {
                out::data(format_args!("{}/{}: accepted", escape(&args.server), escape(tool)))?;
            }
        }
    }
    Ok(())
}

/// Shows a change on standard error, so that data stays data.
fn show(change: &Pinned) {
    out::say(out::paint(out::BOLD, format_args!("{} has changed:", escape(&change.tool))));
    if change.is_other_server() {
        out::say(out::paint(out::WAIT, "  another command answers under this server's name"));
    }
    for line in change.difference().unwrap_or_default().lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => out::GOOD,
            Some(b'-') => out::BAD,
            _ => out::DIM,
        };
        out::say(out::paint(style, format_args!("  {line}")));
    }
    out::say(out::paint(out::DIM, format_args!("  digest {}", change.seal())));
}
