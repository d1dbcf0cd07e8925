//! The processes that the gateway is measured with: a server, a bare hop in front of it, and the gateway itself.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::serve::ListenerExt as _;
use clap::ValueEnum;
use countersign::memory::MemoryStore;
use countersign::{Gate, Limits, Policy, Store};
use countersign_mcp::gateway::face::Face;
use countersign_mcp::gateway::{Address, Gateway, Identity, Upstream, stdio};
use countersign_server::Server;
use rmcp::ServerHandler;
use rmcp::service::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::runtime::Runtime;

use super::line::listening;
use super::servers::{Echo, Hop};

/// What this program is, when a bench starts it as a part of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A server with one tool, which gives back its text.
    Server,
    /// A bare rmcp client and server back to back in front of it.
    Hop,
    /// The gateway in front of it, everything allowed, in memory.
    Gateway,
    /// The same with SQLite.
    GatewayOnDisk,
    /// The gateway, everything asked.
    AskingGateway,
    /// The server, over HTTP.
    HttpServer,
    /// The hop, over HTTP on both sides.
    HttpHop,
    /// The gateway in memory, over HTTP on both sides.
    HttpGateway,
    /// The gateway in memory, over HTTP to the client and pipes to the server.
    BridgingGateway,
    /// The hop on one thread.
    HopOnOneThread,
}

/// As many workers as the command would have on the smallest machine that we measure on.
pub(super) fn runtime() -> Result<Runtime> {
    // The first HTTP client wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl Peer {
    /// On pipes the command has one client, and serves it on one thread.
    fn runtime(self) -> Result<Runtime> {
        match self {
            Peer::Gateway | Peer::GatewayOnDisk | Peer::AskingGateway | Peer::HopOnOneThread => {
                Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
            }
            _ => runtime(),
        }
    }

    pub(super) fn is_http(self) -> bool {
        matches!(self, Peer::HttpServer | Peer::HttpHop | Peer::HttpGateway | Peer::BridgingGateway)
    }

    /// The words that start it.
    pub(super) fn words(self) -> Result<Vec<String>> {
        let value = self.to_possible_value().context("a peer without a name")?;
        let this = std::env::current_exe().context("this program cannot find itself")?;
        let this = this.to_str().context("this program is somewhere without a name")?;
        Ok([this, "mcp", "--peer", value.get_name()].map(str::to_owned).to_vec())
    }

    /// What starts it.
    pub(super) fn command(self) -> Result<Command> {
        let words = self.words()?;
        let (program, rest) = words.split_first().context("no words")?;
        let mut command = Command::new(program);
        command.args(rest);
        Ok(command)
    }

    /// Serves until its input ends.
    pub(crate) fn run(self) -> Result<()> {
        self.runtime()?.block_on(async {
            match self {
                Peer::Server => serve(Echo).await,
                Peer::Hop | Peer::HopOnOneThread => serve(Hop::before(Peer::Server).await?).await,
                Peer::Gateway => gateway(Arc::new(MemoryStore::new()), Policy::allow_all()).await,
                Peer::AskingGateway => gateway(Arc::new(MemoryStore::new()), Policy::ask_all()).await,
                Peer::GatewayOnDisk => {
                    gateway(countersign_store::connect("sqlite:bench.db").await?, Policy::allow_all()).await
                }
                Peer::HttpServer => listen(Echo).await,
                Peer::HttpHop => listen(Hop::before(Peer::HttpServer).await?).await,
                Peer::HttpGateway => {
                    let (url, _server) = listening(Peer::HttpServer).await?;
                    let address = Address::new(&url, [])?;
                    http_gateway(move || Ok(Upstream::at(address.clone()))).await
                }
                Peer::BridgingGateway => {
                    http_gateway(|| Upstream::spawn(Peer::Server.command().map_err(std::io::Error::other)?)).await
                }
            }
        })
    }
}

async fn serve(handler: impl ServerHandler) -> Result<()> {
    handler.serve(stdio()).await.context("the handshake failed")?.waiting().await?;
    Ok(())
}

async fn listen(handler: impl ServerHandler + Clone) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    tell(&format!("http://{}/mcp", listener.local_addr()?)).await?;
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(handler.clone()), sessions, StreamableHttpServerConfig::default());
    // Without it, small answers wait for one another.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let served = axum::serve(listener, axum::Router::new().nest_service("/mcp", service));
    tokio::select! {
        served = served => Ok(served?),
        () = input_ended() => Ok(()),
    }
}

/// Tells whoever started this process where it listens.
async fn tell(url: &str) -> Result<()> {
    let mut output = tokio::io::stdout();
    output.write_all(format!("{url}\n").as_bytes()).await?;
    Ok(output.flush().await?)
}

async fn input_ended() {
    // However it ends.
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}

/// A gateway whose bounds are in nobody's way, and its gate.
fn gate(store: Arc<dyn Store>, policy: Policy) -> Result<(Gateway, Gate)> {
    let limits = Limits {
        pending_per_session: 1_000_000,
        pending_per_agent: 1_000_000,
        pending_total: 1_000_000,
        ..Limits::default()
    };
    let gate = Gate::builder().policy(policy).store(store).limits(limits.clone()).decided_elsewhere().build()?;
    let gateway = Gateway::new(gate.clone(), "bench", Identity::of_command(["bench"])).limits(limits);
    Ok((gateway.wait(Duration::from_secs(600)), gate))
}

async fn gateway(store: Arc<dyn Store>, policy: Policy) -> Result<()> {
    let (gateway, _) = gate(store, policy)?;
    let upstream = Upstream::spawn(Peer::Server.command()?)?;
    let input = stdio::input(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = stdio::output(std::io::stdout().as_fd().try_clone_to_owned()?)?;
    gateway.serve((input, output), upstream, std::future::pending()).await?;
    Ok(())
}

async fn http_gateway(open: impl Fn() -> std::io::Result<Upstream> + Send + Sync + 'static) -> Result<()> {
    let (gateway, gate) = gate(Arc::new(MemoryStore::new()), Policy::allow_all())?;
    let face = Face::new(gateway, open).await?;
    let server = Server::gateway(face, gate).listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = server.open_to_this_machine().bind().await?;
    tell(&format!("{}/mcp", server.url())).await?;
    Ok(server.run(input_ended()).await?)
}
