//! A server with one tool, and the least that passes calls on to it with rmcp.

use std::sync::Arc;

use anyhow::Result;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::line::{Client, Process, reach};
use super::peers::Peer;

fn capabilities() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

#[derive(Clone)]
pub(super) struct Echo;

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
pub(super) struct Hop {
    upstream: Arc<(Client, Process)>,
}

impl Hop {
    pub(super) async fn before(server: Peer) -> Result<Hop> {
        Ok(Hop { upstream: Arc::new(reach(server, None).await?) })
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
        self.upstream.0.list_tools(request).await.map_err(|error| failed(&error))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.upstream.0.call_tool_once(request).await.map_err(|error| failed(&error))
    }
}
