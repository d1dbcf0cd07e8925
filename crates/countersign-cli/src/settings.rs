//! Finds the configuration: `--config`, else the user's own file, else a trusted one in the working folder.
//!
//! Beside the user's own file a trusted one in the working folder only tightens: its policy joins by strictness, and
//! nothing else in it counts.

use std::env::VarError;
use std::path::{Path, PathBuf};

use clap::Args;
use countersign::config::Config;
use countersign::policy::PolicyErrors;
use countersign::{Policy, limits, signer};
use countersign_api::client::Client;
use countersign_api::remote::Remote;

use crate::diagnostics;
use crate::fault::Fault;
use crate::home::{CONFIG_NAME, Home};
use crate::out;
use crate::trusted::{Trust, Trusted};

/// Where to look for configuration and store.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Place {
    /// Configuration file [default: countersign.yml in your config folder, else a trusted one in this folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Store: memory:, sqlite:PATH or postgres://… [default: the configuration's, else SQLite in your data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// A store here, or a server somewhere.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Reach {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Ask the server at this address instead of a store; its token is read from COUNTERSIGN_TOKEN
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    pub(crate) url: Option<String>,
}

impl Reach {
    /// The client of the server, if one is to be asked.
    pub(crate) fn client(&self) -> Result<Option<Client>, Fault> {
        let Some(url) = &self.url else { return Ok(None) };
        Ok(Some(Client::new(url, &token("approver")?)?))
    }
}

/// The server that COUNTERSIGN_URL names, if it names one, and its gate: it judges, and people decide there.
pub(crate) fn remote_gate() -> Result<Option<(String, Remote)>, Fault> {
    let Some(url) = remote_url()? else { return Ok(None) };
    let remote = Remote::new(&url, &token("agent")?)?;
    Ok(Some((
        url,
        match remote_key()? {
            Some(key) => remote.signed_by(key),
            None => remote,
        },
    )))
}

/// The key of that server, as COUNTERSIGN_SERVER_KEY pins it: nothing runs without a receipt signed by it.
fn remote_key() -> Result<Option<String>, Fault> {
    let key = named("COUNTERSIGN_SERVER_KEY")?;
    match key.as_deref().is_none_or(signer::is_key) {
        true => Ok(key),
        // SECURITY: a pin that cannot be read is never no pin.
        false => Err(Fault::usage("COUNTERSIGN_SERVER_KEY is no public key: expected 32 bytes as base64")
            .next("whoever runs the server finds its own at /v1/keys")),
    }
}

/// A client of that server, as the agent that COUNTERSIGN_TOKEN names.
pub(crate) fn remote_client() -> Result<Option<Client>, Fault> {
    remote_url()?.map(|url| Ok(Client::new(&url, &token("agent")?)?)).transpose()
}

/// The server that COUNTERSIGN_URL names.
pub(crate) fn remote_url() -> Result<Option<String>, Fault> {
    named("COUNTERSIGN_URL")
}

/// What a variable of the environment says, if anything.
fn named(variable: &str) -> Result<Option<String>, Fault> {
    match std::env::var(variable) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Fault::usage(format!("{variable} cannot be read"))),
    }
}

fn token(role: &str) -> Result<String, Fault> {
    // The first HTTP client wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let token = std::env::var("COUNTERSIGN_TOKEN").map_err(|_| {
        Fault::usage("a server wants a token, and COUNTERSIGN_TOKEN has none")
            .next(format!("`countersign token create --role {role} --name NAME` makes one"))
    })?;
    Ok(token.trim().to_owned())
}

/// What was found: the configuration, and the file it came from.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What the file says; the defaults where there is none.
    pub(crate) config: Config,
    /// The file; none where there is none.
    pub(crate) file: Option<Found>,
}

/// A configuration file, and one in the working folder that may tighten it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) path: PathBuf,
    in_working_folder: bool,
    /// A file in the working folder whose policy joins this one's.
    beside: Option<PathBuf>,
}

/// What rules of the working folder's file are called by, beside the user's own.
const FOLDER: &str = "folder";

impl Settings {
    /// Finds and reads the configuration.
    pub(crate) fn load(place: &Place, home: &Home) -> Result<Settings, Fault> {
        let Some(found) = Found::find(place, home)? else {
            return Ok(Settings { config: Config::default(), file: None });
        };
        let config = found.read(home)?;
        Ok(Settings { config, file: Some(found) })
    }

    /// The address of the store: as asked for, as configured, or in the user's data folder.
    pub(crate) fn store(&self, place: &Place, home: &Home) -> Result<String, Fault> {
        match (&place.store, &self.config.store) {
            (Some(store), _) => Ok(store.clone()),
            (None, Some(store)) => Ok(self.beside_file(store)),
            (None, None) => default_store(home),
        }
    }

    /// A relative SQLite path is relative to the file that names it.
    fn beside_file(&self, store: &str) -> String {
        let folder = self.file.as_ref().and_then(|found| found.path.parent());
        match (store.strip_prefix("sqlite:"), folder) {
            (Some(path), Some(folder)) => format!("sqlite:{}", folder.join(path).display()),
            _ => store.to_owned(),
        }
    }
}

/// SQLite in the user's data folder.
pub(crate) fn default_store(home: &Home) -> Result<String, Fault> {
    Ok(format!("sqlite:{}", home.data_folder()?.join("countersign.db").display()))
}

impl Found {
    fn find(place: &Place, home: &Home) -> Result<Option<Found>, Fault> {
        if let Some(path) = &place.config {
            return Ok(Some(Found { path: path.clone(), in_working_folder: false, beside: None }));
        }
        let here = accepted_here(home)?;
        match home.config_file().filter(|path| path.exists()) {
            Some(path) => {
                let same = |here: &PathBuf| path.canonicalize().is_ok_and(|path| path == *here);
                let beside = here.filter(|here| !same(here));
                Ok(Some(Found { path, in_working_folder: false, beside }))
            }
            None => Ok(here.map(|path| Found { path, in_working_folder: true, beside: None })),
        }
    }

    /// Reads the file, once, and believes it only if it may be believed.
    pub(crate) fn read(&self, home: &Home) -> Result<Config, Fault> {
        let mut config = if self.in_working_folder {
            read_trusted(&self.path, home)?
        } else {
            parse(&self.path, &read_bytes(&self.path)?)?
        };
        if let Some(beside) = &self.beside {
            config.policy = config.policy.tightened_by(FOLDER, read_trusted(beside, home)?.policy);
        }
        Ok(config)
    }

    /// Every file that [`Found::read`] reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&*self.path).chain(self.beside.as_deref())
    }
}

/// The working folder's file, if the user accepted it once.
fn accepted_here(home: &Home) -> Result<Option<PathBuf>, Fault> {
    let path = std::env::current_dir()?.canonicalize()?.join(CONFIG_NAME);
    if !path.exists() {
        return Ok(None);
    }
    // SECURITY: an agent can write here. A file nobody accepted is not read; it cannot even be wrong.
    match Trusted::load(home)?.check(&path, &read_bytes(&path)?) {
        Trust::Yes | Trust::Changed => Ok(Some(path)),
        Trust::Never => {
            out::warn(format_args!(
                "{CONFIG_NAME} in this folder is not trusted and was not read; `countersign trust` accepts it"
            ));
            Ok(None)
        }
    }
}

/// SECURITY: a file that changed since is not passed over: an agent could drop what it tightens by writing to it.
fn read_trusted(path: &Path, home: &Home) -> Result<Config, Fault> {
    let bytes = read_bytes(path)?;
    if Trusted::load(home)?.check(path, &bytes) != Trust::Yes {
        let what = format!("`{}` has changed since it was trusted, and is not loaded", path.display());
        return Err(Fault::refused(what).next("read the file, then run `countersign trust` to accept it as it is"));
    }
    parse(path, &bytes)
}

/// Reads a configuration file that the user named.
pub(crate) fn read_config(path: &Path) -> Result<Config, Fault> {
    parse(path, &read_bytes(path)?)
}

/// Reads the policy of a file that the user named: a whole configuration, or the `policy:` section alone.
pub(crate) fn read_policy(path: &Path) -> Result<Policy, Fault> {
    read_config(path).map(|config| config.policy)
}

/// Reads a file that is not larger than a configuration may be.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    let named = |error: std::io::Error| {
        let exit = Fault::usage(format!("cannot read `{}`: {error}", path.display()));
        exit.next("check the path and your permission to read it")
    };
    let length = std::fs::metadata(path).map_err(named)?.len();
    if length > limits::POLICY_BYTES as u64 {
        let what = format!("`{}` has {length} bytes, over the limit of {}", path.display(), limits::POLICY_BYTES);
        return Err(Fault::usage(what));
    }
    std::fs::read(path).map_err(named)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Config, Fault> {
    try_parse(path, bytes)?.map_err(|errors| diagnostics::fault(&errors))
}

/// Reads a configuration, keeping what is wrong with its text apart from not being able to read it.
pub(crate) fn try_parse(path: &Path, bytes: &[u8]) -> Result<Result<Config, PolicyErrors>, Fault> {
    let name = path.display().to_string();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Fault::failed(format!("`{name}` is not UTF-8 text: the byte at {} is not", error.valid_up_to()))
    })?;
    Ok(Config::from_yaml(&name, text, &|variable| std::env::var(variable).ok()))
}
