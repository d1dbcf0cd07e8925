//! Sets the scene: configuration, store, gate, workspace, model and agent.

use std::path::Path;
use std::sync::Arc;

use countersign::config::{Config, ModelConfig, ToolRun};
use countersign::{Gate, Store, Toolset};
use countersign_agent::config::{self, Client, Makings};
use countersign_agent::model::{Lines, Manual, Model, ModelError, Scripted};
use countersign_agent::{Agent, Listed, RunError};

use super::{Attended, Past, There, Typist};
use crate::agents::{base, model_of, processes, workspace};
use crate::commands::RunArgs;
use crate::desk::{begin_gate, must_be_there};
use crate::fault::Fault;
use crate::home::Home;
use crate::key;
use crate::out;
use crate::servers;
use crate::settings::{Place, Settings, read_bytes, remote_gate};
use crate::watch::Watcher;

/// Sessions read at once.
const PAGE: usize = 100;

/// Everything a run needs.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) gate: Gate,
    /// The server that judges and holds, where it is not the gate here.
    pub(crate) there: Option<There>,
    /// What is to be said, once it is known which words name an agent.
    pub(crate) prompt: Option<String>,
    home: Home,
    /// The address of the store.
    address: String,
    /// Puts changed rules in force while we run.
    _watcher: Option<Watcher>,
}

impl Scene {
    /// Opens the store and makes the agent.
    pub(crate) async fn open(args: &RunArgs, attended: Attended, typist: Typist) -> Result<Scene, Fault> {
        // The first HTTP client wants it; a second try finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = Home::from_env();
        let settings = Settings::load(&args.place, &home)?;
        let address = settings.store(&args.place, &home)?;
        if args.resume.is_some() {
            must_be_there(&address)?;
        }
        let store = countersign_store::connect(&address).await?;
        let (asked, prompt) = meant(args, &settings);
        let name = match &args.resume {
            Some(session) => find_session(&store, session).await?.agent.to_string(),
            None => config::agent_name(&settings.config, asked)?.to_owned(),
        };
        if args.resume.is_some() && asked.is_some_and(|asked| asked != name) {
            let what = format!("the session belongs to the agent `{name}`, not to `{}`", asked.unwrap_or_default());
            return Err(Fault::usage(what));
        }
        let there = There::from_env().await?;
        let (gate, _watcher) = match remote_gate()?.filter(|_| there.is_some()) {
            Some((_, remote)) => (remote.records(store).gate(), None),
            None => local_gate(store, &settings, &home, attended).await?,
        };
        let toolsets = servers::connect(&settings.config, &base(&settings)?, &[&name], &gate, None).await?;
        let backdrop =
            Backdrop { settings: &settings, home: &home, address: &address, gate: &gate, toolsets: &toolsets };
        let agent = make_agent(args, &backdrop, &name, typist)?;
        Ok(Scene { agent, gate, there, prompt, home, address, _watcher })
    }

    /// What was typed at a prompt of this name before.
    pub(crate) fn past(&self, name: &str) -> Past {
        Past::of(&self.home, &self.address, name)
    }
}

/// The gate of the configuration's rules and store, and what puts changed rules in force.
async fn local_gate(
    store: Arc<dyn Store>,
    settings: &Settings,
    home: &Home,
    attended: Attended,
) -> Result<(Gate, Option<Watcher>), Fault> {
    let gate = begin_gate(store, settings).await?.signer(key::load(&home.data_folder()?)?);
    let gate = match attended {
        Attended::Yes => gate.decided_elsewhere(),
        Attended::No => gate.unattended(),
    };
    let gate = gate.build()?;
    let watcher = Watcher::of(settings, home, &gate, |words| out::say(words)).await?;
    Ok((gate, watcher))
}

/// Which words name the agent and which are the prompt. Words with blanks between them name no agent.
fn meant<'a>(args: &'a RunArgs, settings: &Settings) -> (Option<&'a str>, Option<String>) {
    match (args.agent.as_deref(), &args.prompt) {
        (Some(words), None) if words.contains(char::is_whitespace) => (None, Some(words.to_owned())),
        (Some(words), None) if args.resume.is_some() && !names_agent(settings, words) => (None, Some(words.to_owned())),
        (agent, prompt) => (agent, prompt.clone()),
    }
}

fn names_agent(settings: &Settings, name: &str) -> bool {
    config::agent_name(&settings.config, Some(name)).is_ok()
}

/// What stands before an agent is made.
struct Backdrop<'a> {
    settings: &'a Settings,
    home: &'a Home,
    address: &'a str,
    gate: &'a Gate,
    toolsets: &'a [Arc<dyn Toolset>],
}

fn make_agent(args: &RunArgs, backdrop: &Backdrop<'_>, name: &str, typist: Typist) -> Result<Agent, Fault> {
    let Backdrop { settings, home, address, gate, toolsets } = *backdrop;
    let base = base(settings)?;
    let workspace = workspace(settings, home, address)?;
    let cast = Cast::of(args, &base, typist)?;
    refuse_uncounted(args, settings)?;
    let casting = |agent: &str, config: Option<&ModelConfig>| cast.model(agent, config);
    let processes = processes(home)?;
    let makings = Makings {
        config: &settings.config,
        base: &base,
        workspace: &workspace,
        gate,
        casting: &casting,
        client: Client::Absent,
        processes: Some(&processes),
        toolsets,
    };
    let agent = config::agent(makings, name)?;
    tell_clients(settings);
    Ok(agent)
}

/// Refuses another provider's model where a limit is in dollars: the file has no price for it, so nothing would count.
fn refuse_uncounted(args: &RunArgs, settings: &Settings) -> Result<(), Fault> {
    let limited = settings.config.agents.iter().any(|agent| agent.limits.micro_dollars.is_some());
    let Some(name) = args.model.as_deref().filter(|_| limited) else { return Ok(()) };
    let unpriced = |model: ModelConfig| model.costs() && model.price.is_none();
    let uncounted = |config| chosen(name, config).is_ok_and(|chosen| chosen.is_some_and(unpriced));
    let own = settings.config.agents.iter().filter_map(|agent| agent.model.as_ref());
    let mut models = own.map(Some).chain([settings.config.model.as_ref()]);
    match models.any(uncounted) {
        false => Ok(()),
        true => Err(Fault::usage("a limit is in `dollars`, and there is no price for the model of --model")
            .next("configure that model under `model:` with its `price`, or take `dollars` out of `limits:`")),
    }
}

/// Says which tools cannot run here, before a model finds out.
fn tell_clients(settings: &Settings) {
    for tool in settings.config.tools.iter().filter(|tool| tool.run == ToolRun::Client) {
        let name = out::safe_lines(&tool.name);
        out::warn(format_args!("a client runs the tool `{name}`, and there is none here: its calls are refused"));
    }
}

/// Who plays the model.
enum Cast<'a> {
    Configured { name: Option<&'a str>, base: &'a Path, typist: Arc<Typist> },
    Manual(Arc<Typist>),
    Script(Scripted),
}

impl<'a> Cast<'a> {
    fn of(args: &'a RunArgs, base: &'a Path, typist: Typist) -> Result<Cast<'a>, Fault> {
        let typist = Arc::new(typist);
        if args.manual {
            return Ok(Cast::Manual(typist));
        }
        let Some(path) = &args.script else {
            return Ok(Cast::Configured { name: args.model.as_deref(), base, typist });
        };
        let bytes = read_bytes(path)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Cast::Script(Scripted::from_yaml(&path.display().to_string(), &text)?))
    }

    fn model(&self, agent: &str, config: Option<&ModelConfig>) -> Result<Arc<dyn Model>, ModelError> {
        match self {
            Cast::Manual(typist) => Ok(Arc::new(Manual::new(Arc::clone(typist) as Arc<dyn Lines>))),
            Cast::Script(script) => Ok(Arc::new(script.playing(agent))),
            Cast::Configured { name, base, typist } => {
                let config = name.map_or_else(|| Ok(config.cloned()), |name| chosen(name, config))?;
                let config = config.ok_or_else(|| ModelError::Settings("no model is configured".to_owned()))?;
                model_of(agent, &config, base, Some(Arc::clone(typist) as Arc<dyn Lines>))
            }
        }
    }
}

/// The model that `--model` means: `PROVIDER/NAME`, or a name at the configured provider.
///
/// SECURITY: another provider never gets the key of the configured one; it has its own, from the environment.
fn chosen(words: &str, config: Option<&ModelConfig>) -> Result<Option<ModelConfig>, ModelError> {
    // Places that speak a provider's language name their models with slashes of their own.
    let own_names = config.is_some_and(|config| config.provider == "openai-compatible");
    let split = words.split_once('/').filter(|_| !own_names);
    let named = split.and_then(|(provider, name)| Some((provider, name, key_variable(provider)?)));
    let renamed = |config: &ModelConfig, name: &str| {
        let mut config = config.clone();
        config.name = Some(name.to_owned());
        config
    };
    match (named, config) {
        (None, config) => Ok(config.map(|config| renamed(config, words))),
        (Some((provider, name, _)), Some(config)) if config.provider == provider => Ok(Some(renamed(config, name))),
        (Some((provider, name, variable)), _) => {
            let key = format!("${{{variable}}}");
            let said = serde_json::json!({ "model": { "provider": provider, "name": name, "api_key": key } });
            let read = Config::from_yaml("--model", &said.to_string(), &|name| std::env::var(name).ok());
            read.map(|config| config.model).map_err(|error| ModelError::Settings(error.to_string()))
        }
    }
}

/// The environment variable with the key of a provider that `--model` may name.
fn key_variable(provider: &str) -> Option<&'static str> {
    match provider {
        "anthropic" => Some("ANTHROPIC_API_KEY"),
        "openai" => Some("OPENAI_API_KEY"),
        "gemini" => Some("GEMINI_API_KEY"),
        _ => None,
    }
}

/// Finds a session of ours by its name.
pub(crate) async fn find_session(store: &Arc<dyn Store>, session: &str) -> Result<Listed, Fault> {
    let mut found = all_sessions(store).await?.into_iter().filter(|listed| &*listed.session == session);
    found.next().ok_or_else(|| RunError::NoSession(session.into()).into())
}

/// Every session of ours, by name.
pub(crate) async fn all_sessions(store: &Arc<dyn Store>) -> Result<Vec<Listed>, Fault> {
    let principal = countersign::Path::session("").principal;
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let after = all.last().map(|listed| Arc::clone(&listed.session));
        let page = countersign_agent::sessions(&**store, &principal, after.as_deref(), PAGE).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// The store that a place names, to look at what is in it. One that --store names must be there.
pub(crate) async fn open_store(place: &Place) -> Result<Arc<dyn Store>, Fault> {
    let home = Home::from_env();
    let address = Settings::load(place, &home)?.store(place, &home)?;
    if place.store.is_some() {
        must_be_there(&address)?;
    }
    Ok(countersign_store::connect(&address).await?)
}
