//! A client, and the process that it talks to.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::peers::Peer;
use super::proxies::{Proxy, listens};

/// A client of rmcp.
pub(super) type Client = RunningService<RoleClient, ()>;

/// A client, and the process that it talks to.
pub(super) struct Line {
    pub(super) client: Client,
    process: Process,
    _folder: tempfile::TempDir,
}

/// A peer that was started. It ends when its input does, so none outlives who started it.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    fn start(mut command: Command) -> Result<(Process, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("no output")?;
        let input = child.stdin.take();
        Ok((Process { child, input }, output))
    }
}

/// Starts a peer and shakes hands with it, in the way that it speaks.
pub(super) async fn reach(peer: Peer, folder: Option<&std::path::Path>) -> Result<(Client, Process)> {
    let mut command = peer.command()?;
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let (mut process, output) = Process::start(command)?;
    let client = match peer.is_http() {
        true => ().serve(post(&address(output).await?)).await,
        false => ().serve((output, process.input.take().context("no input")?)).await,
    };
    Ok((client.context("the handshake failed")?, process))
}

/// Starts a peer that listens; its address.
pub(super) async fn listening(peer: Peer) -> Result<(String, Process)> {
    let (process, output) = Process::start(peer.command()?)?;
    Ok((address(output).await?, process))
}

/// rmcp's own client opens a connection for each message, which would be measured along with whoever accepts it; others
/// keep theirs.
fn post(url: &str) -> StreamableHttpClientTransport<reqwest::Client> {
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    StreamableHttpClientTransport::with_client(reqwest::Client::new(), config)
}

async fn address(output: ChildStdout) -> Result<String> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).await?;
    ensure!(line.starts_with("http"), "the peer said `{line}`");
    Ok(line.trim_end().to_owned())
}

impl Line {
    pub(super) async fn to(peer: Peer) -> Result<Line> {
        let folder = tempfile::tempdir()?;
        let (client, process) = reach(peer, Some(folder.path())).await?;
        Ok(Line { client, process, _folder: folder })
    }

    pub(super) async fn through(proxy: &Proxy) -> Result<Line> {
        let folder = tempfile::tempdir()?;
        let (mut command, url) = proxy.command(folder.path()).await?;
        command.stderr(Stdio::null());
        // What it says must not fill a pipe that nobody reads.
        let (process, output) = Process::start(command)?;
        tokio::spawn(async move { tokio::io::copy(&mut { output }, &mut tokio::io::sink()).await });
        listens(&url).await?;
        let client = ().serve(post(&url)).await.context("the handshake failed")?;
        Ok(Line { client, process, _folder: folder })
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.process.child.id().context("it has ended")
    }

    /// Makes so many calls, so many of them at once.
    pub(super) async fn run(&self, in_flight: usize, calls: usize) -> Result<()> {
        let caller = |caller: usize| async move {
            for call in 0..calls / in_flight {
                let result = self.client.call_tool(echo(format!("call {call} of {caller}"))?).await?;
                ensure!(result.is_error != Some(true), "a call was refused: {result:?}");
            }
            anyhow::Ok(())
        };
        futures::future::try_join_all((0..in_flight).map(caller)).await.map(drop)
    }
}

/// A call of the only tool.
pub(super) fn echo(text: String) -> Result<CallToolRequestParams> {
    let arguments = serde_json::json!({ "text": text });
    let arguments = arguments.as_object().cloned().context("an object")?;
    Ok(CallToolRequestParams::new("echo").with_arguments(arguments))
}
