//! A tool that runs elsewhere, as its agent describes it.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::Declared;
use countersign::place::Places;
use countersign::{Definition, Json, Running, Tool, ToolError, ToolId};
use countersign_api::wire;

/// A tool that runs elsewhere. It is judged here and never run here.
pub(super) struct Elsewhere {
    definition: Arc<Definition>,
    declared: Declared,
    places: Places,
}

impl Elsewhere {
    /// The tool as it is described, and where it says that its arguments point.
    pub(super) fn new(tool: ToolId, definition: wire::Definition, places: Places) -> Elsewhere {
        let declared = definition.declared;
        Elsewhere { definition: Arc::new(definition.of(tool)), declared, places }
    }
}

#[async_trait]
impl Tool for Elsewhere {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(self.declared)
    }

    async fn places(&self, _arguments: &Json) -> Result<Places, String> {
        Ok(self.places.clone())
    }

    async fn run(&self, _running: Running) -> Result<Json, ToolError> {
        Err(ToolError::NoAnswer("this tool runs where its agent is".to_owned()))
    }
}
