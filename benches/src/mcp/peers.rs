//! The processes that the gateway is measured with: a server, a bare hop in front of it, and the gateway itself.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use countersign::memory::MemoryStore;
use countersign::{Gate, Limits, Policy, Store};
use countersign_mcp::gateway::{Gateway, Identity, Upstream};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RunningService, ServiceExt as _};
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleClient, RoleServer, ServerHandler};
use tokio::process::Command;

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
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Server => "server",
            Peer::Hop => "hop",
            Peer::Gateway => "gateway",
            Peer::GatewayOnDisk => "gateway-on-disk",
            Peer::AskingGateway => "asking-gateway",
        }
    }

    /// Serves standard input and output until they end.
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            match self {
                Peer::Server => serve(Echo).await,
                Peer::Hop => serve(Hop::start().await?).await,
                Peer::Gateway => gateway(Arc::new(MemoryStore::new()), Policy::allow_all()).await,
                Peer::AskingGateway => gateway(Arc::new(MemoryStore::new()), Policy::ask_all()).await,
                Peer::GatewayOnDisk => {
                    gateway(countersign_store::connect("sqlite:bench.db").await?, Policy::allow_all()).await
                }
            }
        })
    }
}

fn server() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("mcp").args(["--peer", Peer::Server.name()]);
    Ok(command)
}

async fn serve(handler: impl ServerHandler) -> Result<()> {
    handler.serve(stdio()).await.context("the handshake failed")?.waiting().await?;
    Ok(())
}

async fn gateway(store: Arc<dyn Store>, policy: Policy) -> Result<()> {
    let limits = Limits { pending_per_session: 1_000_000, pending_total: 1_000_000, ..Limits::default() };
    let gate = Gate::builder().policy(policy).store(store).limits(limits.clone()).decided_elsewhere().build()?;
    let upstream = Upstream::spawn(server()?)?;
    let gateway = Gateway::new(gate, "bench", Identity::of_command(["bench"])).limits(limits);
    let gateway = gateway.wait(Duration::from_secs(600));
    gateway.serve((tokio::io::stdin(), tokio::io::stdout()), upstream, std::future::pending()).await?;
    Ok(())
}

fn capabilities() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

#[derive(Clone)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        capabilities()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = serde_json::json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "Gives back the text.", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = arguments.get("text").and_then(serde_json::Value::as_str).unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// The least that passes calls on with rmcp.
#[derive(Clone)]
struct Hop {
    upstream: Arc<RunningService<RoleClient, ()>>,
}

impl Hop {
    async fn start() -> Result<Hop> {
        let mut child = server()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = (child.stdout.take().context("no output")?, child.stdin.take().context("no input")?);
        let upstream = ().serve(pipes).await.context("the handshake failed")?;
        Ok(Hop { upstream: Arc::new(upstream) })
    }
}

fn failed(error: &rmcp::ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl ServerHandler for Hop {
    fn get_info(&self) -> ServerConfig {
        capabilities()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.upstream.list_tools(request).await.map_err(|error| failed(&error))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.upstream.call_tool_once(request).await.map_err(|error| failed(&error))
    }
}
