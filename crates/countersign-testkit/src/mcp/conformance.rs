//! A server with the names that the official conformance suite of the protocol asks for.
#![expect(deprecated, reason = "the suite of the older revisions sets a level of logging")]

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig,
    ServerNotification, ServerRequest, SetLevelRequestParams, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, ServiceExt as _};
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::serve_http;

/// A picture of one point, and a sound of no length.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

const TOOLS: [&str; 12] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_error_handling",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
];

/// The server.
#[derive(Clone, Copy, Debug)]
pub struct ConformanceFixture;

type Asked = RequestContext<RoleServer>;

impl ConformanceFixture {
    /// Serves standard input and output until they end.
    pub async fn serve_stdio(self) -> Result<()> {
        self.serve(stdio()).await.context("the handshake failed")?.waiting().await?;
        Ok(())
    }

    /// Serves streamable HTTP for as long as it is polled, at path `/mcp` of the listener's address.
    pub async fn serve_http(self, listener: TcpListener) -> Result<()> {
        serve_http(listener, Arc::default(), move || Ok(self)).await
    }
}

/// Results are written as they stand on the wire.
fn typed<T: DeserializeOwned>(json: Value) -> Result<T, ErrorData> {
    serde_json::from_value(json).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn tell(context: &Asked, method: &str, params: Value) -> Result<(), ErrorData> {
    let notification: ServerNotification = typed(json!({ "method": method, "params": params }))?;
    let sent = context.peer.send_notification(notification).await;
    sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn ask(context: &Asked, method: &str, params: Value) -> Result<String, ErrorData> {
    let request: ServerRequest = typed(json!({ "method": method, "params": params }))?;
    let answer = context.peer.send_request(request).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    serde_json::to_string(&answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn picture() -> Value {
    json!({ "type": "image", "data": PICTURE, "mimeType": "image/png" })
}

fn embedded(uri: &str, words: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": words } })
}

async fn content(name: &str, context: &Asked) -> Result<Vec<Value>, ErrorData> {
    Ok(match name {
        "test_simple_text" => vec![text("This is a simple text response for testing.")],
        "test_image_content" => vec![picture()],
        "test_audio_content" => vec![json!({ "type": "audio", "data": SOUND, "mimeType": "audio/wav" })],
        "test_embedded_resource" => vec![embedded("test://embedded-resource", "This is an embedded resource content.")],
        "test_multiple_content_types" => {
            vec![text("Multiple content types test:"), picture(), embedded("test://mixed-content-resource", "{}")]
        }
        "test_tool_with_logging" => {
            for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                tell(context, "notifications/message", json!({ "level": "info", "data": words })).await?;
            }
            vec![text("Tool with logging executed successfully")]
        }
        "test_tool_with_progress" => {
            let token = context.meta.get_progress_token();
            for progress in [0, 50, 100] {
                let params = json!({ "progressToken": token, "progress": progress, "total": 100 });
                tell(context, "notifications/progress", params).await?;
            }
            vec![text("Tool with progress executed successfully")]
        }
        "test_sampling" => {
            let message = json!({ "role": "user", "content": text("Test prompt for sampling") });
            let params = json!({ "messages": [message], "maxTokens": 100 });
            vec![text(&format!("LLM response: {}", ask(context, "sampling/createMessage", params).await?))]
        }
        name if name.starts_with("test_elicitation") => {
            let schema = json!({ "type": "object", "properties": fields(name) });
            let params = json!({ "message": "Please review and update the form fields", "requestedSchema": schema });
            vec![text(&format!("Elicitation completed: {}", ask(context, "elicitation/create", params).await?))]
        }
        _ => return Err(ErrorData::invalid_params("unknown tool", None)),
    })
}

/// What a form asks for: a value of each kind with its default, or a choice of each spelling there is.
fn fields(tool: &str) -> Value {
    let plain = ["option1", "option2", "option3"];
    let titled = ["One", "Two"].map(|title| json!({ "const": format!("value of {title}"), "title": title }));
    match tool {
        "test_elicitation_sep1330_enums" => json!({
            "untitledSingle": { "type": "string", "enum": plain },
            "titledSingle": { "type": "string", "oneOf": titled },
            "legacyEnum": { "type": "string", "enum": plain, "enumNames": ["One", "Two", "Three"] },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled } },
        }),
        _ => json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        }),
    }
}

impl ServerHandler for ConformanceFixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({ "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "logging": {} });
        ServerConfig::new(serde_json::from_value(capabilities).unwrap_or_default())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Asked) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Asked) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Asked) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Asked) -> Result<ListToolsResult, ErrorData> {
        let tool =
            |name: &&str| json!({ "name": name, "description": "For tests.", "inputSchema": { "type": "object" } });
        typed(json!({ "tools": TOOLS.iter().map(tool).collect::<Vec<_>>() }))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Asked) -> Result<CallToolResponse, ErrorData> {
        let result: CallToolResult = match &*request.name {
            "test_error_handling" => {
                let words = text("This tool intentionally returns an error for testing");
                typed(json!({ "content": [words], "isError": true }))?
            }
            name => typed(json!({ "content": content(name, &context).await? }))?,
        };
        Ok(result.into())
    }

    async fn list_prompts(&self, _: Option<PaginatedRequestParams>, _: Asked) -> Result<ListPromptsResult, ErrorData> {
        let argument = |name: &str| json!({ "name": name, "description": "For tests.", "required": true });
        typed(json!({ "prompts": [
            { "name": "test_simple_prompt", "description": "A simple prompt." },
            {
                "name": "test_prompt_with_arguments",
                "description": "A prompt with arguments.",
                "arguments": [argument("arg1"), argument("arg2")],
            },
            {
                "name": "test_prompt_with_embedded_resource",
                "description": "A prompt with a resource.",
                "arguments": [argument("resourceUri")],
            },
            { "name": "test_prompt_with_image", "description": "A prompt with a picture." },
        ] }))
    }

    async fn get_prompt(&self, request: GetPromptRequestParams, _: Asked) -> Result<GetPromptResponse, ErrorData> {
        let arguments = serde_json::to_value(&request.arguments).unwrap_or_default();
        let content = match request.name.as_str() {
            "test_simple_prompt" => text("This is a simple prompt for testing."),
            "test_prompt_with_arguments" => text(&format!("Prompt with arguments: {arguments}")),
            "test_prompt_with_embedded_resource" => {
                embedded("test://example", "Embedded resource content for testing.")
            }
            "test_prompt_with_image" => picture(),
            _ => return Err(ErrorData::invalid_params("unknown prompt", None)),
        };
        let result: GetPromptResult = typed(json!({ "messages": [{ "role": "user", "content": content }] }))?;
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Asked,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |name: &str| json!({ "uri": format!("test://{name}"), "name": name });
        let names = ["static-text", "static-binary", "watched-resource"];
        typed(json!({ "resources": names.map(resource) }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Asked,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        typed(json!({ "resourceTemplates": [{ "uriTemplate": "test://template/{id}/data", "name": "template" }] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Asked,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &request.uri;
        let contents = match uri.as_str() {
            "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PICTURE }),
            known if known.starts_with("test://") => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": format!("The content of {known}.") })
            }
            _ => return Err(ErrorData::invalid_params("unknown resource", None)),
        };
        let result: ReadResourceResult = typed(json!({ "contents": [contents] }))?;
        Ok(result.into())
    }
}
