//! How the gateway reaches an MCP server: a command, or an address with the headers that the configuration has for it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use countersign::config::McpServerConfig;
use countersign::show::escape;
use countersign_agent::tools::User;
use countersign_mcp::gateway::{Address, Identity, Upstream};
use tokio::process::Command;

use crate::fault::Fault;
use crate::servers::{passed_on, run_as};

/// The way to a server; it can be taken as often as there are conversations.
pub(crate) enum Way {
    /// A command.
    Program(Program),
    /// An address.
    Address { url: String, address: Address },
}

/// A command and its surroundings.
pub(crate) struct Program {
    words: Vec<OsString>,
    env: Vec<(String, String)>,
    folder: Option<PathBuf>,
    /// What it gets of our environment; none means all but what is our own.
    passed_on: Option<Vec<(&'static str, String)>>,
}

impl Way {
    /// A command that stands in for the client's own: it gets the environment that the client gave us, but for what is
    /// meant for us.
    pub(crate) fn command(words: Vec<OsString>, entry: Option<&McpServerConfig>) -> Way {
        Way::Program(Program { words, env: env(entry), folder: None, passed_on: None })
    }

    /// An address. Its headers are the configuration's; what clients send us stays here.
    pub(crate) fn address(url: &str, entry: Option<&McpServerConfig>) -> Result<Way, Fault> {
        // The first HTTP client wants it; a second try finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let headers = entry.iter().flat_map(|entry| &entry.headers);
        let headers = headers.map(|(name, value)| (name.as_str(), value.reveal()));
        let address = Address::new(url, headers).map_err(|error| {
            Fault::usage(format!("the server cannot be reached: {error}")).next("give its address as https://HOST/PATH")
        })?;
        Ok(Way::Address { url: url.to_owned(), address })
    }

    /// The way to a server of the configuration. A command runs as `user`, if one is given, and gets only what programs
    /// need of our environment.
    pub(crate) fn entry(entry: &McpServerConfig, base: &Path, user: Option<User>) -> Result<Way, Fault> {
        let entry = &run_as(entry, user)?;
        match (&entry.command, &entry.url) {
            (Some(command), _) => {
                let words = std::iter::once(command).chain(&entry.args).map(OsString::from).collect();
                let passed_on = Some(passed_on(user).collect());
                let folder = entry.cwd.as_ref().map(|folder| base.join(folder));
                Ok(Way::Program(Program { words, env: env(Some(entry)), folder, passed_on }))
            }
            (None, Some(url)) => Way::address(url, Some(entry)),
            (None, None) => Err(Fault::usage(format!("`mcp_servers.{}` has neither command nor url", entry.name))),
        }
    }

    /// Which program or address answers under the server's name.
    pub(crate) fn identity(&self) -> Identity {
        match self {
            Way::Program(program) => {
                let words: Vec<String> = program.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                Identity::of_command(words.iter().map(String::as_str))
            }
            Way::Address { url, .. } => Identity::of_address(url),
        }
    }

    /// Takes the way once more.
    pub(crate) fn open(&self) -> io::Result<Upstream> {
        match self {
            Way::Program(program) => program.spawn(),
            Way::Address { address, .. } => Ok(Upstream::at(address.clone())),
        }
    }

    /// What cannot be started is told with what it is.
    pub(crate) fn fault(&self, error: &io::Error) -> Fault {
        match self {
            Way::Program(program) => {
                let words: Vec<_> = program.words.iter().map(|word| word.to_string_lossy()).collect();
                Fault::failed(format!("cannot start the server `{}`: {error}", escape(&words.join(" "))))
                    .next("check the command after `--`; it must be found on PATH or be a path")
            }
            Way::Address { .. } => Fault::failed(format!("cannot reach the server: {error}")),
        }
    }
}

impl Program {
    fn spawn(&self) -> io::Result<Upstream> {
        let (program, rest) = self.words.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(rest);
        if let Some(passed_on) = &self.passed_on {
            command.env_clear().envs(passed_on.iter().map(|(name, value)| (name, value)));
        }
        // SECURITY: our token, and where our store lies, are no business of a server that nobody trusts yet.
        for name in ours() {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Upstream::spawn(command)
    }
}

/// The names of the variables that are meant for us.
fn ours() -> impl Iterator<Item = OsString> {
    let is_ours = |name: &OsString| name.to_string_lossy().to_ascii_uppercase().starts_with("COUNTERSIGN_");
    std::env::vars_os().map(|(name, _)| name).filter(is_ours)
}

fn env(entry: Option<&McpServerConfig>) -> Vec<(String, String)> {
    let env = entry.iter().flat_map(|entry| &entry.env);
    env.map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
}
