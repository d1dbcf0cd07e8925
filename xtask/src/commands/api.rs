//! Tests of the API by its own description: schemathesis makes requests up from the OpenAPI document of a running server
//! and looks for answers that the document does not describe.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;

use super::python;
use crate::cargo::{self, root};
use crate::metadata::Metadata;

/// Requests made up for each operation, and the seed they are made from.
const EXAMPLES: &str = "20";
const SEED: &str = "7117";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// Streams have no end, and nothing of them is described as an answer; nor is what MCP servers say.
const STREAMS: &str = r"/(events|ws|mcp/\{server\})$";
/// Asks about some calls and allows others, so that every state is there.
const CONFIG: &str = "
policy: { rules: [{ id: reads, allow: 'read_*' }, { id: writes, ask: 'write_*' }] }
model: { provider: scripted, name: script.yml }
tools: [{ name: read_place, description: Where the user is., run: { client: true } }]
agents: { guide: { instructions: You know the way., tools: [read_place] } }
";
/// What the model of every session says: first it calls a tool that the client runs.
const SCRIPT: &str = "
turns:
  - calls: [{ tool: read_place, arguments: {} }]
  - text: You are in Ghent.
";
const ROLES: [&str; 4] = ["agent", "approver", "operator", "auditor"];

/// Tests the API of a running server by its own description; a step of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct Api {}

impl Api {
    pub(crate) fn run(&self) -> Result<()> {
        packages()?;
        cargo::run(&mut cargo::cargo(["build", "-p", "countersign-cli", "--all-features"]))?;
        run(&Metadata::read()?.target_directory.join("debug").join("countersign"))
    }
}

/// Makes sure of Python and of the locked packages, in a folder of their own under `target`.
pub(crate) fn packages() -> Result<()> {
    python::packages("schemathesis", &folder()?, &requirements())
}

/// Starts a server of its own and tests what it answers.
pub(crate) fn run(countersign: &Path) -> Result<()> {
    let home = Metadata::read()?.target_directory.join("xtask").join("api");
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot empty {}", home.display()))?;
    }
    fs::create_dir_all(&home)?;
    fs::write(home.join("countersign.yml"), CONFIG)?;
    fs::write(home.join("script.yml"), SCRIPT)?;
    let server = Server::start(countersign, &home)?;
    let mut tokens = serde_json::Map::new();
    for role in ROLES {
        tokens.insert(role.to_owned(), token(countersign, &home, role)?.into());
    }
    let mut test = Command::new(program("schemathesis")?);
    test.current_dir(&home)
        .args(["run", &format!("{}/openapi.json", server.url), "--phases", "coverage,fuzzing"])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--checks", CHECKS, "--exclude-path-regex", STREAMS])
        .args(["--request-timeout", "70", "--continue-on-failure", "--no-color", "--warnings", "off"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", root().join("xtask").join("schemathesis"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("COUNTERSIGN_URL", &server.url)
        .env("COUNTERSIGN_TOKENS", serde_json::Value::Object(tokens).to_string());
    cargo::run(&mut test)
}

/// A `countersign serve` with a store of its own.
struct Server {
    process: Child,
    url: String,
}

#[derive(Deserialize)]
struct Greeting {
    url: String,
}

impl Server {
    fn start(countersign: &Path, home: &Path) -> Result<Server> {
        let mut serve = at_home(countersign, home);
        serve.args(["serve", "--no-open", "--listen", "127.0.0.1:0", "--json"]).args(PLACE);
        let process = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let process = process.with_context(|| format!("cannot run {}", countersign.display()))?;
        let mut server = Server { process, url: String::new() };
        let mut line = String::new();
        let stdout = server.process.stdout.take().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let greeting: Greeting = serde_json::from_str(&line).context("the server did not start; see above")?;
        server.url = greeting.url;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const PLACE: [&str; 4] = ["--config", "countersign.yml", "--store", "sqlite:countersign.db"];

fn token(countersign: &Path, home: &Path, role: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Made {
        token: String,
    }
    let mut create = at_home(countersign, home);
    let made = create.args(["token", "create", "--role", role, "--name", role, "--json"]).args(PLACE).output()?;
    ensure!(made.status.success(), "no token for {role}: {}", String::from_utf8_lossy(&made.stderr));
    Ok(serde_json::from_slice::<Made>(&made.stdout)?.token)
}

/// The program, with nothing of the user's own.
fn at_home(countersign: &Path, home: &Path) -> Command {
    let mut command = Command::new(countersign);
    command.current_dir(home).env("HOME", home).env("XDG_DATA_HOME", home).env("XDG_CONFIG_HOME", home);
    command
}

fn folder() -> Result<PathBuf> {
    Ok(Metadata::read()?.target_directory.join("xtask").join("python"))
}

fn requirements() -> PathBuf {
    root().join("xtask").join("schemathesis").join("requirements.txt")
}

fn program(name: &str) -> Result<PathBuf> {
    Ok(python::program(&folder()?, name))
}
