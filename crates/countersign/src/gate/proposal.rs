//! What an agent proposes.

use std::sync::Arc;

use crate::call::{Path, ToolId};
use crate::gate::GateError;
use crate::json::Json;
use crate::limits;

/// A call as an agent proposes it, before anything is checked.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Which tool.
    pub tool: ToolId,
    /// The arguments as the agent wrote them.
    pub arguments: String,
    /// Whose call it is.
    pub path: Path,
    /// The agent's name for this place in its run: the same again is the same call.
    pub key: Option<Arc<str>>,
    /// The model's call id. A label only.
    pub label: Option<Arc<str>>,
    /// The agent's or tool's words for whoever is asked. Untrusted.
    pub hint: Option<Arc<str>>,
    /// Something to look at. Untrusted.
    pub payload: Option<Json>,
}

impl Proposal {
    /// A call of a local tool, with its arguments as JSON text.
    pub fn new(tool: impl Into<Arc<str>>, arguments: impl Into<String>) -> Proposal {
        Proposal {
            tool: ToolId::local(tool),
            arguments: arguments.into(),
            path: Path::default(),
            key: None,
            label: None,
            hint: None,
            payload: None,
        }
    }

    /// Says in which session.
    #[must_use]
    pub fn session(mut self, session: impl Into<Arc<str>>) -> Proposal {
        self.path.session = Some(session.into());
        self
    }

    /// Says whose call it is and where it stands.
    #[must_use]
    pub fn path(mut self, path: Path) -> Proposal {
        self.path = path;
        self
    }

    /// Names the place in the run.
    #[must_use]
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Proposal {
        self.key = Some(key.into());
        self
    }

    /// Refuses names that are empty, too long or unfit for a chain, before anything is written.
    pub(crate) fn check_names(&self) -> Result<(), GateError> {
        let path = &self.path;
        let named = [
            ("tool", Some(&self.tool.name)),
            ("server", self.tool.server.as_ref()),
            ("principal", Some(&path.principal)),
            ("requester", path.requester.as_ref()),
            ("session", path.session.as_ref()),
            ("run", path.run.as_ref()),
            ("thread", path.thread.as_ref()),
            ("key", self.key.as_ref()),
        ];
        let agents = path.agents.iter().map(|agent| ("agent", Some(agent)));
        for (what, name) in named.into_iter().chain(agents) {
            let Some(name) = name else { continue };
            if name.trim().is_empty() || name.len() > limits::NAME_BYTES || name.contains('\0') {
                let most = limits::NAME_BYTES;
                let text = format!("the {what} must have 1 to {most} bytes, not be blank, and hold no zero byte");
                return Err(GateError::BadInput(text));
            }
        }
        if path.principal.contains('/') {
            return Err(GateError::BadInput("the principal must not contain `/`".into()));
        }
        if path.agents.len() > limits::AGENT_DEPTH {
            let most = limits::AGENT_DEPTH;
            return Err(GateError::BadInput(format!("more than {most} agents inside one another")));
        }
        self.check_notes()
    }

    /// The model's words are labels and notes: too long is refused, anything else is kept as it is.
    fn check_notes(&self) -> Result<(), GateError> {
        if self.label.as_ref().is_some_and(|label| label.len() > limits::NAME_BYTES) {
            return Err(GateError::BadInput(format!("the label has over {} bytes", limits::NAME_BYTES)));
        }
        if self.hint.as_ref().is_some_and(|hint| hint.len() > limits::NOTE_BYTES) {
            return Err(GateError::BadInput(format!("the hint has over {} bytes", limits::NOTE_BYTES)));
        }
        if self.payload.as_ref().is_some_and(|payload| payload.as_str().len() > limits::PAYLOAD_BYTES) {
            return Err(GateError::BadInput(format!("the payload has over {} bytes", limits::PAYLOAD_BYTES)));
        }
        Ok(())
    }
}
