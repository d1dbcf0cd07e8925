//! A small MCP server of our own: a model may look at the calls that were made through gateways, and at nothing else.
//!
//! It decides nothing and shows no arguments, so that one client learns nothing of what another one sent.

use std::sync::Arc;

use countersign::refusal::Wording;
use countersign::store::{CallFilter, StoreError};
use countersign::{Call, CallId, CallState, HoldId, Path, Store, limits as core_limits};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, ServiceExt as _};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{gateway, limits};

const LIST: &str = "list_pending_calls";
const STATUS: &str = "call_status";

/// The server. It reads one store.
#[derive(Clone)]
pub struct StatusServer {
    store: Arc<dyn Store>,
    /// How the sessions begin whose calls it shows.
    sessions: Arc<str>,
    /// Whose calls they must be.
    principal: Arc<str>,
}

/// Why it could not serve.
#[derive(Debug, thiserror::Error)]
#[error("the client does not speak MCP: {0}")]
pub struct ServeError(String);

impl StatusServer {
    /// Shows the calls that clients on pipes made through all gateways on this store. Calls that came with a token are
    /// their principal's, and nobody else's.
    pub fn new(store: Arc<dyn Store>) -> StatusServer {
        StatusServer { store, sessions: gateway::SESSIONS.into(), principal: Path::default().principal }
    }

    /// Shows only those of gateways in front of this server.
    #[must_use]
    pub fn only(mut self, server: &str) -> StatusServer {
        self.sessions = gateway::session_prefix(server).into();
        self
    }

    /// Serves one client until it leaves.
    pub async fn serve<R, W>(self, pipes: (R, W)) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let serving = Answers(self).serve(pipes).await.map_err(|error| ServeError(error.to_string()))?;
        serving.waiting().await.map_err(|error| ServeError(error.to_string()))?;
        Ok(())
    }

    fn is_own(&self, call: &Call) -> bool {
        let path = &call.facts.path;
        let is_here = path.session.as_ref().is_some_and(|session| session.starts_with(&*self.sessions));
        is_here && path.principal == self.principal
    }

    async fn pending(&self) -> Result<Value, StoreError> {
        let (principal, limit) = (Some(Arc::clone(&self.principal)), Some(core_limits::PAGE_ROWS));
        let mut filter = CallFilter { holding: true, principal, limit, ..CallFilter::default() };
        let mut listed = Vec::new();
        loop {
            let calls = self.store.calls(filter.clone()).await?;
            let Some(last) = calls.last() else { return Ok(json!({ "calls": listed, "more": false })) };
            filter.after = Some(last.id);
            for call in calls.iter().filter(|call| self.is_own(call)) {
                if listed.len() == limits::STATUS_CALLS {
                    return Ok(json!({ "calls": listed, "more": true }));
                }
                listed.push(told(call));
            }
        }
    }

    /// A call by its own id or that of one of its holds; none where it is nobody's here.
    async fn one(&self, id: &str) -> Result<Option<Value>, StoreError> {
        let call = match (id.parse::<CallId>(), id.parse::<HoldId>()) {
            (Ok(id), _) => self.store.call(id).await?,
            (_, Ok(id)) => self.store.call_of_hold(id).await?,
            (Err(_), Err(_)) => None,
        };
        Ok(call.filter(|call| self.is_own(call)).map(|call| told(&call)))
    }
}

/// What a model may know of a call.
fn told(call: &Call) -> Value {
    let hold = call.open_hold();
    let mut told = json!({
        "call": call.id,
        "tool": call.facts.tool.to_string(),
        "state": call.state.as_str(),
        "since": call.created_at,
        "hold": hold.map(|hold| hold.id),
        "expires_at": hold.and_then(|hold| hold.expires_at),
    });
    let words = match (&call.refusal, call.state) {
        (Some(refusal), _) => Wording::default().refusal(refusal),
        (None, CallState::Pending) => {
            "It waits for a person. Call the tool again with exactly the same arguments to go \
            on waiting."
                .to_owned()
        }
        (None, CallState::Approved) => "A person approved it. Call the tool again with exactly the same arguments to \
            run it."
            .to_owned(),
        (None, _) => return told,
    };
    if let Some(members) = told.as_object_mut() {
        members.insert("words".into(), words.into());
    }
    told
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, description: &'static str, schema: Value| {
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        Tool::new(name, description, schema).with_annotations(ToolAnnotations::new().read_only(true))
    };
    vec![
        tool(
            LIST,
            "Lists tool calls that wait for a person's approval. They cannot be approved from here.",
            json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        ),
        tool(
            STATUS,
            "Says how one tool call stands, by the id that was given when it began to wait.",
            json!({
                "type": "object",
                "properties": { "id": { "type": "string", "description": "hold_… or call_…" } },
                "required": ["id"],
                "additionalProperties": false,
            }),
        ),
    ]
}

/// The protocol's side of it.
struct Answers(StatusServer);

impl ServerHandler for Answers {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let failed = |error: StoreError| ErrorData::internal_error(error.to_string(), None);
        let id = request.arguments.as_ref().and_then(|arguments| arguments.get("id")).and_then(Value::as_str);
        let found = match (&*request.name, id) {
            (LIST, _) => Some(self.0.pending().await.map_err(failed)?),
            (STATUS, Some(id)) => self.0.one(id).await.map_err(failed)?,
            (STATUS, None) => return Err(ErrorData::invalid_params("`id` must be a string", None)),
            _ => return Err(ErrorData::invalid_params("there is no such tool", None)),
        };
        Ok(match found {
            Some(value) => CallToolResult::structured(value).into(),
            None => CallToolResult::error(vec![ContentBlock::text("There is no such call of yours.")]).into(),
        })
    }
}
