//! `countersign serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use countersign::redact::Redactor;
use countersign::store::Op;
use countersign::{Gate, Policy, Store};
use countersign_mcp::gateway::Gateway;
use countersign_mcp::gateway::face::Face;
use countersign_server::people::PeopleError;
use countersign_server::{Server, StartError, Tls, Ui};
use serde_json::json;

use crate::agents::{self, LocalTools};
use crate::browser;
use crate::commands::Form;
use crate::desk::begin_gate;
use crate::fault::Fault;
use crate::home::Home;
use crate::key;
use crate::link;
use crate::out;
use crate::person::person;
use crate::prompt::is_interactive;
use crate::settings::{Place, Settings, read_bytes};
use crate::signals::Signals;
use crate::upstream::Way;
use crate::watch::Watcher;

/// Serve the approval inbox: agents send their calls, people decide in the browser
///
/// Prints a link that signs you in, once and for ten minutes; `countersign token link` makes another. On a terminal with
/// a screen it opens your browser, too. Agents need a token: `countersign token create`. Agents of the configuration run
/// here, and clients talk to them over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to listen [default: the configuration's `listen`, else 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// A further name, with port, by which browsers and agents reach the server
    #[arg(long, value_name = "NAME:PORT")]
    host: Vec<String>,
    /// The certificate chain (PEM); addresses beyond this machine need one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Do not run the configuration's agents
    #[arg(long)]
    no_agents: bool,
    /// Let agents' tools run programs and touch files as the user of this server: they could read its store and its keys
    #[arg(long, conflicts_with = "no_agents")]
    dangerously_run_tools_as_server: bool,
    /// Do not open the browser
    #[arg(long)]
    no_open: bool,
}

const EXAMPLES: &str = r#"Examples:
  countersign serve
  countersign serve --listen 127.0.0.1:0 --store sqlite:team.db
  countersign serve --listen 10.0.0.5:7117 --host approvals.example.com:7117 --tls-cert cert.pem --tls-key key.pem

Ctrl-C or SIGTERM ends it: open requests finish, nothing new is taken."#;

/// Serves until told to end.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    // TLS wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = Home::from_env();
    let settings = Settings::load(&args.place, &home)?;
    let address_of_store = settings.store(&args.place, &home)?;
    let store = countersign_store::connect(&address_of_store).await?;
    if address_of_store.starts_with("postgres") {
        agree_on_policy(&*store, &settings.config.policy).await?;
    }
    let signer = key::load(&home.data_folder()?)?;
    let gate =
        begin_gate(Arc::clone(&store), &settings).await?.decided_elsewhere().signer(Arc::clone(&signer)).build()?;
    let _watcher = Watcher::of(&settings, &home, &gate, |words| out::say(words)).await?;

    let local_tools = local_tools(&args, &settings)?;
    if local_tools == LocalTools::AsServer {
        out::warn("tools run as the user of this server: they can read its store and its keys, and decide for people");
    }
    let agents = match args.no_agents {
        true => Vec::new(),
        false => agents::served(&settings, &home, &address_of_store, &gate, local_tools).await?,
    };
    // Where people decide is known once there is an address, and no call comes before.
    let url = Arc::new(OnceLock::new());
    let faces = offered(&settings, &gate, local_tools, &url).await?;
    let redact = &settings.config.redact;
    let redactor = Redactor::new(&redact.keys, &redact.values).map_err(Fault::failed)?.and_standard();
    let builder = Server::builder(gate).signer(signer).redactor(redactor).ui(page()).agents(agents).mcp(faces);
    let mut builder = builder.limits(settings.config.limits.clone()).notify(settings.config.notify.clone());
    if local_tools == LocalTools::AsServer {
        builder = builder.tools_as_server(&*person().id);
    }
    if let Some(address) = address(&args, &settings)? {
        builder = builder.listen(address);
    }
    for host in &args.host {
        builder = builder.host(host);
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        builder = builder.tls(Tls::from_pem(&read_bytes(certificate)?, &read_bytes(key)?).map_err(Fault::usage)?);
    }
    let server = builder.bind().await?;
    url.get_or_init(|| server.url().to_owned());
    // Before anybody knows that it runs, and may end it.
    let mut signals = Signals::listen()?;
    let link = link::for_me(&*store, server.url()).await?;
    greet(server.url(), &link, form)?;
    if !args.no_open && form == Form::Text && is_interactive() && browser::has_screen() {
        open_browser(&*store, server.url(), &home).await?;
    }
    server.run(async move { signals.any().await }).await?;
    out::say("The server has ended.");
    Ok(())
}

/// The first of several servers on one database says which policy all of them follow; the others follow it.
async fn agree_on_policy(store: &dyn Store, own: &Policy) -> Result<(), Fault> {
    if let Some(source) = own.source() {
        let (version, by) = (Arc::clone(own.version()), person().id);
        store.run(Op::OfferPolicy { version, source: source.into(), by }).await?;
    }
    if let Some((version, _)) = store.policy().await?.filter(|(version, _)| version != own.version()) {
        out::warn(format_args!(
            "the policy in force is the database's, {version}; this server's own is {} and does not count; \
             `countersign policy apply FILE` changes it for all",
            own.version()
        ));
    }
    Ok(())
}

/// The MCP servers of the configuration that clients reach at `/mcp/NAME`.
///
/// SECURITY: a program must not run as the user of this server, who has its store and its keys, unless told so.
async fn offered(
    settings: &Settings,
    gate: &Gate,
    local_tools: LocalTools,
    url: &Arc<OnceLock<String>>,
) -> Result<Vec<Face>, Fault> {
    let mut faces = Vec::new();
    for entry in &settings.config.mcp_servers {
        if entry.command.is_some() && local_tools == LocalTools::Refused {
            out::say(format_args!(
                "The MCP server `{}` is a program of this user and is not offered here.",
                entry.name
            ));
            continue;
        }
        let base = agents::base(settings)?;
        let identity = Way::entry(entry, &base, None)?.identity();
        let way = Way::entry(entry, &base, local_tools.user())?;
        let url = Arc::clone(url);
        let gateway = Gateway::new(gate.clone(), Arc::clone(&entry.name), identity)
            .limits(settings.config.limits.clone())
            .links(move |hold| url.get().map(|url| link::to_hold(url, hold)))
            .notes(|note| out::say(out::safe_lines(note)));
        faces.push(Face::new(gateway, move || way.open()).await?);
    }
    Ok(faces)
}

/// SECURITY: a flag in a unit file or a script that nobody reads must not be enough. Somebody at a terminal says it, or
/// the configuration says it, too.
fn local_tools(args: &Args, settings: &Settings) -> Result<LocalTools, Fault> {
    match args.dangerously_run_tools_as_server {
        true if is_interactive() || settings.config.server.dangerously_run_tools_as_server => Ok(LocalTools::AsServer),
        true => Err(Fault::refused("--dangerously-run-tools-as-server counts at a terminal only").next(
            "where nobody sits at one, say it in the configuration, too: \
             `server: { dangerously_run_tools_as_server: true }`",
        )),
        false => LocalTools::configured(settings),
    }
}

fn address(args: &Args, settings: &Settings) -> Result<Option<SocketAddr>, Fault> {
    let configured = settings.config.listen.as_deref().filter(|_| args.listen.is_none());
    match configured.map(str::parse) {
        None => Ok(args.listen),
        Some(Ok(address)) => Ok(Some(address)),
        Some(Err(_)) => Err(Fault::usage("`listen` in the configuration is not an address and a port")
            .next("write it as 127.0.0.1:7117")),
    }
}

/// Opens the browser with a link of its own, so that the printed one still works. That it cannot is no reason to end.
async fn open_browser(store: &dyn Store, url: &str, home: &Home) -> Result<(), Fault> {
    let link = link::for_me(store, url).await?;
    match browser::open(&link, &home.data_folder()?) {
        Ok(()) => out::say("Your browser opens; it signs in with a link of its own. `--no-open` keeps it closed."),
        Err(error) => out::warn(format_args!("the browser could not be opened: {error}")),
    }
    Ok(())
}

/// The web app.
pub(crate) fn page() -> Ui {
    Ui::new(|path| countersign_ui::asset(path).map(|asset| (asset.bytes, asset.mime)))
}

fn greet(url: &str, link: &str, form: Form) -> Result<(), Fault> {
    match form {
        Form::Json => out::json(&json!({ "url": url, "sign_in": link }))?,
        Form::Text => {
            out::say(format_args!("Countersign listens on {}", out::paint(out::BOLD, url)));
            out::say("Sign in with this link; it works once, within ten minutes:");
            out::data(link)?;
        }
    }
    Ok(())
}

impl From<PeopleError> for Fault {
    fn from(error: PeopleError) -> Fault {
        match error {
            PeopleError::Agent | PeopleError::BadName(_) => Fault::usage(error),
            PeopleError::Nobody(_) => Fault::failed(error).next("`countersign user list` lists who there is"),
            error => Fault::failed(error),
        }
    }
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Fault {
        match error {
            StartError::Listen(error) => Fault::refused(error),
            error => Fault::failed(error),
        }
    }
}
