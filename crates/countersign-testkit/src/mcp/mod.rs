//! A small MCP server with tools that behave and tools that do not. It speaks every revision, over pipes or HTTP.
//!
//! What it remembers lies in a folder, so that tests can look at it and a restart does not forget.

mod client;
mod conformance;
mod tools;
mod user;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, ServiceExt as _, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use client::McpClient;
pub use conformance::ConformanceFixture;
pub use rmcp::model::ClientCapabilities;
pub use user::McpUser;

/// Names what a process of the fixture is to do: `stdio FOLDER`, and after that `handshake` for the older era.
pub const VARIABLE: &str = "COUNTERSIGN_MCP_FIXTURE";

/// Tools on one page of its listing.
const PAGE: usize = 4;

/// Which revisions of the protocol it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// All of them.
    Every,
    /// Those that begin with a handshake.
    Handshake,
    /// Those that do not.
    Newer,
}

/// The server.
#[derive(Clone)]
pub struct McpFixture {
    folder: PathBuf,
    era: Era,
    changes: Arc<watch::Sender<u64>>,
    sessions: Arc<LocalSessionManager>,
}

impl McpFixture {
    /// A server that remembers in this folder.
    pub fn new(folder: impl Into<PathBuf>, era: Era) -> McpFixture {
        McpFixture { folder: folder.into(), era, changes: Arc::new(watch::channel(0).0), sessions: Arc::default() }
    }

    /// Reads what [`VARIABLE`] or a command line says.
    pub fn from_words(words: &str) -> Result<McpFixture> {
        match words.split_whitespace().collect::<Vec<_>>()[..] {
            ["stdio", folder] => Ok(McpFixture::new(folder, Era::Every)),
            ["stdio", folder, "handshake"] => Ok(McpFixture::new(folder, Era::Handshake)),
            _ => bail!("usage: mcp-fixture stdio FOLDER [handshake]"),
        }
    }

    /// Serves standard input and output until they end.
    pub async fn serve_stdio(self) -> Result<()> {
        self.serve(stdio()).await.context("the handshake failed")?.waiting().await?;
        Ok(())
    }

    /// Serves streamable HTTP for as long as it is polled. The address is that of the listener, path `/mcp`.
    pub async fn serve_http(self, listener: TcpListener) -> Result<()> {
        let sessions = Arc::clone(&self.sessions);
        serve_http(listener, sessions, move || Ok(self.clone())).await
    }

    /// Forgets every session it has over HTTP, as a restart would.
    pub async fn forget_sessions(&self) {
        self.sessions.sessions.write().await.clear();
    }
}

/// Serves a server that `make` makes, at `/mcp` of the listener's address.
async fn serve_http<S: ServerHandler>(
    listener: TcpListener,
    sessions: Arc<LocalSessionManager>,
    make: impl Fn() -> std::io::Result<S> + Send + Sync + 'static,
) -> Result<()> {
    let service = StreamableHttpService::new(make, sessions, StreamableHttpServerConfig::default());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

impl ServerHandler for McpFixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            Era::Every => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            Era::Handshake => Cow::Owned(vec![ProtocolVersion::V_2025_11_25]),
            Era::Newer => Cow::Owned(vec![ProtocolVersion::V_2026_07_28]),
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor).unwrap_or_default();
        let from = cursor.parse().unwrap_or(0);
        let all = tools::listed(&self.folder);
        let next = from + PAGE;
        let next_cursor = (next < all.len()).then(|| next.to_string());
        let tools = all.into_iter().skip(from).take(PAGE).collect();
        Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(tools) })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let (result, changed) = tools::run(&self.folder, &request.name, &arguments).await?;
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
            // Whoever listens without a handshake is told by `listen`; an older client hears it here.
            let _ = context.peer.notify_tool_list_changed().await;
        }
        Ok(result.into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
