//! The agents that a configuration describes: what `countersign run` and `countersign serve` make them of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign::Gate;
use countersign::config::{AgentConfig, ModelConfig};
use countersign_agent::Agent;
use countersign_agent::config::{self, Client, Makings};
use countersign_agent::model::{self, Lines, Model, ModelError, Sources};
use countersign_agent::tools::{Processes, Survivor, User, Workspace};

use crate::commands::KEEP_STATUS;
use crate::fault::Fault;
use crate::home::{CONFIG_NAME, Home};
use crate::out;
use crate::servers;
use crate::settings::{Settings, read_bytes};

/// Where programs that tools start are written down, in the data folder.
const PROCESSES: &str = "processes";

/// As whom tools run programs and touch files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalTools {
    /// As the user that the server runs as.
    AsServer,
    /// As another one.
    As(User),
    /// As nobody: an agent that has some stops the start.
    Refused,
}

impl LocalTools {
    /// The user that the configuration names, if it can be used.
    pub(crate) fn configured(settings: &Settings) -> Result<LocalTools, Fault> {
        let Some(name) = &settings.config.server.tools_as else { return Ok(LocalTools::Refused) };
        let user = User::find(name).and_then(|user| user.check().map(|()| user)).map_err(|error| {
            let what = format!("tools cannot run as `{}`, as `tools_as:` says: {error}", out::safe_lines(name));
            Fault::refused(what).next(
                "name an unprivileged user of this machine, and start the server as root (or with the capabilities \
                 SETUID, SETGID and KILL)",
            )
        })?;
        Ok(LocalTools::As(user))
    }

    /// The user that programs run as, where it is another one.
    pub(crate) fn user(self) -> Option<User> {
        match self {
            LocalTools::As(user) => Some(user),
            LocalTools::AsServer | LocalTools::Refused => None,
        }
    }
}

/// Every agent of the configuration, for a server whose clients talk to them.
///
/// SECURITY: whoever has the server's user has its store and its keys, so a tool that runs as that user could decide its
/// own holds. Such tools need somebody to say so.
pub(crate) async fn served(
    settings: &Settings,
    home: &Home,
    address: &str,
    gate: &Gate,
    local_tools: LocalTools,
) -> Result<Vec<Agent>, Fault> {
    if local_tools == LocalTools::Refused {
        refuse_local_tools(settings)?;
    }
    if settings.config.agents.is_empty() {
        return Ok(Vec::new());
    }
    let base = base(settings)?;
    let mut workspace = workspace(settings, home, address)?;
    if let Some(user) = local_tools.user() {
        let shut = |error| Fault::refused(format!("the user of `tools_as:` cannot work in this folder: {error}"));
        workspace = workspace.for_user(user).map_err(shut)?;
    }
    let processes = processes(home)?;
    let names: Vec<&str> = settings.config.agents.iter().map(|agent| &*agent.name).collect();
    let toolsets = servers::connect(&settings.config, &base, &names, gate, local_tools.user()).await?;
    let casting = |agent: &str, config: Option<&ModelConfig>| match config {
        Some(config) => model_of(agent, config, &base, None),
        None => Err(ModelError::Settings("no model is configured".to_owned())),
    };
    let makings = Makings {
        config: &settings.config,
        base: &base,
        workspace: &workspace,
        gate,
        casting: &casting,
        client: Client::Present,
        processes: Some(&processes),
        toolsets: &toolsets,
    };
    let make = |described: &AgentConfig| Ok(config::agent(makings, &described.name)?);
    settings.config.agents.iter().map(make).collect()
}

fn refuse_local_tools(settings: &Settings) -> Result<(), Fault> {
    for agent in &settings.config.agents {
        let tools = config::local_tools(&settings.config, agent);
        if !tools.is_empty() {
            let tools: Vec<String> = tools.iter().map(|tool| format!("`{}`", out::safe_lines(tool))).collect();
            let (name, tools) = (out::safe_lines(&agent.name), tools.join(", "));
            let what = format!(
                "the agent `{name}` has tools that would run as the server's own user, which owns the store and the \
                 keys: {tools}"
            );
            return Err(Fault::refused(what).next(
                "name a user for them with `server: { tools_as: NAME }`, give it `http:` or `client: true` tools \
                 instead, serve without agents with --no-agents, or accept the risk with \
                 --dangerously-run-tools-as-server",
            ));
        }
    }
    Ok(())
}

/// The list of programs that run, having said which of earlier runs still do.
pub(crate) fn processes(home: &Home) -> Result<Processes, Fault> {
    let processes = Processes::at(home.data_folder()?.join(PROCESSES))?;
    let processes = processes.kept_by(this_program()?, [KEEP_STATUS.into()]);
    tell_survivors(&processes)?;
    Ok(processes)
}

/// The program that this process runs, as it was started: on Linux also when its file was replaced meanwhile.
pub(crate) fn this_program() -> Result<PathBuf, Fault> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => Ok(std::env::current_exe()?),
    }
}

/// Says which programs of earlier runs still run. Whether to end them is the person's choice: what they did is in doubt.
fn tell_survivors(processes: &Processes) -> Result<(), Fault> {
    for Survivor { pid, call, tool } in processes.survivors()? {
        let tool = out::safe_lines(&tool);
        out::warn(format_args!("a program of an earlier run still runs: {tool}, process {pid}, for {call}"));
    }
    Ok(())
}

/// The folder that paths in the configuration start from.
pub(crate) fn base(settings: &Settings) -> Result<PathBuf, Fault> {
    let folder = settings.file.as_ref().and_then(|found| found.path.parent());
    match folder.filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => Ok(folder.to_owned()),
        None => Ok(std::env::current_dir()?),
    }
}

/// The working folder as tools see it: without the configuration, the store and the keys.
pub(crate) fn workspace(settings: &Settings, home: &Home, address: &str) -> Result<Workspace, Fault> {
    let here = std::env::current_dir()?;
    let unusable = |error| Fault::failed(format!("the working folder cannot be used: {error}"));
    let mut workspace = Workspace::new(&here).map_err(unusable)?.protect(CONFIG_NAME).protect(home.data_folder()?);
    if let Some(path) = home.config_file() {
        workspace = workspace.protect(path);
    }
    if let Some(found) = &settings.file {
        workspace = workspace.protect(here.join(&found.path));
    }
    match address.strip_prefix("sqlite:") {
        Some(path) => Ok(workspace.protect_database(path)),
        None => Ok(workspace),
    }
}

/// The model that a configuration describes. A script is read from beside it.
pub(crate) fn model_of(
    agent: &str,
    config: &ModelConfig,
    base: &Path,
    lines: Option<Arc<dyn Lines>>,
) -> Result<Arc<dyn Model>, ModelError> {
    let script = match (&*config.provider, &config.name) {
        ("scripted", Some(name)) => {
            let read = read_bytes(&base.join(name)).map_err(|fault| ModelError::Settings(fault.to_string()))?;
            Some(String::from_utf8_lossy(&read).into_owned())
        }
        _ => None,
    };
    model::from_config(config, Sources { agent, script: script.as_deref(), lines })
}
