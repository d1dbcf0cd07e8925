//! A real MCP client over HTTP, as a user's would be.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ContentBlock, GetTaskParams, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;

use super::{Era, McpUser};

/// A client that is connected.
pub struct McpClient {
    service: RunningService<RoleClient, McpUser>,
}

impl McpClient {
    /// Connects to an address, with a bearer token. [`Era::Every`] speaks the newest revision.
    pub async fn http(url: &str, token: &str, era: Era) -> Result<McpClient> {
        McpClient::of(McpUser::default(), url, token, era).await
    }

    /// The same, with somebody who can be asked.
    pub async fn of(user: McpUser, url: &str, token: &str, era: Era) -> Result<McpClient> {
        // The first HTTP client wants it; a second try finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = StreamableHttpClientTransportConfig::with_uri(Arc::<str>::from(url)).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        let lifecycle = match era {
            Era::Every => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: None,
            },
            Era::Handshake => ClientLifecycleMode::Initialize,
            Era::Newer => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        };
        let service = user.serve_with_lifecycle(transport, lifecycle).await.context("the client cannot connect")?;
        Ok(McpClient { service })
    }

    /// The revision that was agreed on.
    pub fn version(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.to_string())
    }

    /// The names of the server's tools.
    pub async fn tools(&self) -> Result<Vec<String>> {
        let tools = self.service.list_all_tools().await?;
        Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
    }

    /// Calls a tool that becomes a task; the task's name.
    pub async fn begin(&self, tool: &str, arguments: Value) -> Result<String> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.service.call_tool_once(params).await? {
            CallToolResponse::Task(begun) => Ok(begun.task.task_id),
            other => bail!("it is no task: {other:?}"),
        }
    }

    /// How a task stands, as its messages say.
    pub async fn task(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.service.get_task(GetTaskParams::new(name)).await?)?)
    }

    /// Wants a task to end.
    pub async fn cancel(&self, name: &str) -> Result<()> {
        Ok(self.service.cancel_task(CancelTaskParams::new(name)).await?)
    }

    /// Whether the server says that it makes tasks of calls.
    pub fn may_get_tasks(&self) -> bool {
        self.service.peer_info().is_some_and(|info| info.capabilities.supports_tasks())
    }

    /// Calls a tool and sees it through all rounds: whether the result is an error, and its text.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<(bool, String)> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = self.service.call_tool(params).await?;
        let texts = result.content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.as_str());
        Ok((result.is_error == Some(true), texts.collect::<Vec<_>>().join("|")))
    }
}
