//! Proxies of other makers, which do the same work and judge nothing: HTTP to the client, pipes to the server.
//!
//! They are installed from their registries, in the versions named here, into a folder beside this program.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::peers::Peer;

/// How long one of them may take to be installed.
const INSTALL_WITHIN: Duration = Duration::from_secs(300);
/// How long one may take to listen.
const LISTEN_WITHIN: Duration = Duration::from_secs(30);

/// Where a proxy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registry {
    Npm,
    Pypi,
}

/// A proxy that others make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proxy {
    registry: Registry,
    package: &'static str,
    version: &'static str,
    /// How it is told to serve at a port what stands behind a command.
    words: fn(port: &str, server: &[String]) -> Vec<String>,
}

/// All that are measured.
pub(super) const ALL: [Proxy; 4] = [
    Proxy { registry: Registry::Npm, package: "mcp-proxy", version: "6.7.19", words: npm_mcp_proxy },
    Proxy { registry: Registry::Npm, package: "supergateway", version: "4.0.0", words: supergateway },
    Proxy { registry: Registry::Pypi, package: "mcp-proxy", version: "0.13.0", words: pypi_mcp_proxy },
    Proxy { registry: Registry::Pypi, package: "fastmcp", version: "4.1.2", words: fastmcp },
];

fn npm_mcp_proxy(port: &str, server: &[String]) -> Vec<String> {
    let own = ["--host", "127.0.0.1", "--server", "stream", "--port", port, "--"];
    own.into_iter().map(str::to_owned).chain(server.iter().cloned()).collect()
}

fn supergateway(port: &str, server: &[String]) -> Vec<String> {
    let own = ["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none", "--port", port, "--stdio"];
    own.into_iter().map(str::to_owned).chain([server.join(" ")]).collect()
}

fn pypi_mcp_proxy(port: &str, server: &[String]) -> Vec<String> {
    let own = ["--log-level", "ERROR", "--port", port, "--"];
    own.into_iter().map(str::to_owned).chain(server.iter().cloned()).collect()
}

/// The servers stand in a file, which is written where it starts.
fn fastmcp(port: &str, _: &[String]) -> Vec<String> {
    let own = ["run", CONFIG, "--no-banner", "--transport", "http", "--log-level", "ERROR", "--port", port];
    own.map(str::to_owned).to_vec()
}

/// The file that says where the server is, for the one that wants it so.
const CONFIG: &str = "servers.json";

impl Proxy {
    /// Its name, with its version and where it comes from.
    pub(super) fn name(&self) -> String {
        let registry = match self.registry {
            Registry::Npm => "npm",
            Registry::Pypi => "PyPI",
        };
        format!("{registry} {} {}", self.package, self.version)
    }

    /// What starts it in a folder, in front of the server, and where it will listen.
    pub(super) async fn command(&self, folder: &Path) -> Result<(Command, String)> {
        let program = self.installed().await?;
        let server: Vec<String> = Peer::Server.words()?;
        let (first, rest) = server.split_first().context("no server")?;
        let config = serde_json::json!({ "mcpServers": { "bench": { "command": first, "args": rest } } });
        std::fs::write(folder.join(CONFIG), config.to_string())?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let mut command = Command::new(program);
        command.args((self.words)(&port, &server)).current_dir(folder);
        Ok((command, format!("http://127.0.0.1:{port}/mcp")))
    }

    /// Its program, which is installed where it is not there yet.
    async fn installed(&self) -> Result<PathBuf> {
        let this = std::env::current_exe().context("this program cannot find itself")?;
        let beside = this.parent().context("this program is nowhere")?;
        let home = beside.join("proxies").join(self.name().replace(' ', "-").to_lowercase());
        let program = match self.registry {
            Registry::Npm => home.join("node_modules/.bin").join(self.package),
            Registry::Pypi => home.join("bin").join(self.package),
        };
        if !program.exists() {
            std::fs::create_dir_all(&home)?;
            match self.registry {
                Registry::Npm => {
                    let package = format!("{}@{}", self.package, self.version);
                    let own = ["install", "--no-audit", "--no-fund", "--ignore-scripts", &package, "--prefix"];
                    done(Command::new("npm").args(own).arg(&home)).await?;
                }
                Registry::Pypi => {
                    let package = format!("{}=={}", self.package, self.version);
                    done(Command::new("python3").args(["-m", "venv"]).arg(&home)).await?;
                    done(Command::new(home.join("bin/pip")).args(["install", "-q", &package])).await?;
                }
            }
        }
        ensure!(program.exists(), "its program is not where it should be");
        Ok(program)
    }
}

async fn done(command: &mut Command) -> Result<()> {
    let output = tokio::time::timeout(INSTALL_WITHIN, command.kill_on_drop(true).output()).await;
    let output = output.context("it took too long")?.context("it cannot be started")?;
    let last = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, last.lines().last().unwrap_or_default());
    Ok(())
}

/// Waits until somebody listens at an address.
pub(super) async fn listens(url: &str) -> Result<()> {
    let place = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let listening = async {
        while TcpStream::connect(place).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LISTEN_WITHIN, listening).await.context("it does not listen")
}
