//! Whoever sits at a client: what their client can do, and what they say when they are asked.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;

/// A person at a client. They give every question the same answer.
#[derive(Clone, Default)]
pub struct McpUser {
    capabilities: ClientCapabilities,
    says: Option<Value>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl McpUser {
    /// Somebody whose client has these capabilities, and who fills forms like this and opens every link. Without anything
    /// to fill in they close what they are shown.
    pub fn new(capabilities: ClientCapabilities, says: Option<Value>) -> McpUser {
        McpUser { capabilities, says, asked: Arc::default() }
    }

    /// What they were asked: the words of forms, and the addresses of links.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, asked: String, content: Option<Value>) -> ElicitResult {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        match (&self.says, content) {
            (None, _) => ElicitResult::new(ElicitationAction::Cancel),
            (Some(_), None) => ElicitResult::new(ElicitationAction::Accept),
            (Some(_), Some(content)) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
        }
    }
}

impl ClientHandler for McpUser {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.capabilities = self.capabilities.clone();
        config
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(match request {
            ElicitRequestParams::FormElicitationParams { message, .. } => self.answer(message, self.says.clone()),
            ElicitRequestParams::UrlElicitationParams { url, .. } => self.answer(url, None),
            _ => ElicitResult::new(ElicitationAction::Decline),
        })
    }
}
