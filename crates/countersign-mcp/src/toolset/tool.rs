//! One tool of a server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::call::Declared;
use countersign::digest::DefinitionDigest;
use countersign::{Definition, Json, Running, Tool, ToolError};

use super::line::Line;

/// A tool of a server. There is one for each name, for as long as the toolset lives; its definition may change.
pub(super) struct McpTool {
    name: Arc<str>,
    definition: Mutex<Arc<Definition>>,
    declared: Declared,
    changed: AtomicBool,
    line: Arc<Line>,
}

impl McpTool {
    pub(super) fn new(definition: Definition, declared: Declared, line: &Arc<Line>) -> McpTool {
        McpTool {
            name: Arc::clone(&definition.tool.name),
            definition: Mutex::new(Arc::new(definition)),
            declared,
            changed: AtomicBool::new(false),
            line: Arc::clone(line),
        }
    }

    /// Takes over what the server says now. Returns the digest of what it said before, if that was something else.
    pub(super) fn redefine(&self, definition: Definition) -> Option<DefinitionDigest> {
        let mut now = self.definition.lock().unwrap_or_else(PoisonError::into_inner);
        let before = now.digest();
        if before == definition.digest() {
            return None;
        }
        // Before the new definition can be seen: whoever sees it must also see that it is not the first.
        self.changed.store(true, Ordering::Release);
        *now = Arc::new(definition);
        Some(before)
    }
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        // SECURITY: rules were written for the tool as it was. What became of it is a person's to look at.
        match self.changed.load(Ordering::Acquire) {
            true => Ok(Declared::MustAsk),
            false => Ok(self.declared.max(claimed(&self.definition()))),
        }
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        // SECURITY: the gate compares when it claims; the server may have said something else since.
        if running.call().definition != Some(self.definition().digest()) {
            return Err(ToolError::Failed("the tool's definition changed; it was not run".to_owned()));
        }
        self.line.call(&self.name, running.arguments()).await
    }
}

/// What the server's own words call for. They only raise: nothing it says makes a call go unasked.
pub(crate) fn claimed(definition: &Definition) -> Declared {
    let destructive = definition.annotations.as_ref().and_then(|claims| claims.field("destructiveHint"));
    match destructive.is_some_and(|claim| claim.as_str() == "true") {
        true => Declared::Ask,
        false => Declared::Nothing,
    }
}
