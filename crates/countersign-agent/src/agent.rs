//! An agent: a model with instructions and tools, behind a gate.

use std::sync::Arc;
use std::time::Duration;

use countersign::Gate;
use countersign::gate::Scope;
use countersign::refusal::Wording;
use uuid::Uuid;

use crate::builder::AgentBuilder;
use crate::error::RunError;
use crate::limits;
use crate::model::Model;
use crate::session::{Reply, Session};
use crate::stream::{RunHandle, RunStream};
use crate::team::Members;
use crate::toolbox::Toolbox;
use crate::turnstile::Turnstile;

/// How the calls of one turn run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// Each as soon as it may.
    #[default]
    Independent,
    /// None before every hold of the turn is closed.
    Barrier,
    /// One after another, one hold at a time.
    Sequential,
}

/// How much one run may take, its children included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Turns of models.
    pub turns: u64,
    /// Tokens read and written.
    pub tokens: Option<u64>,
    /// Cost, in millionths of a dollar.
    pub micro_dollars: Option<u64>,
    /// How often people may extend each limit, by as much again. With 0 nobody is asked.
    pub extensions: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { turns: limits::RUN_TURNS, tokens: None, micro_dollars: None, extensions: 0 }
    }
}

/// A model with instructions and tools, behind a gate. Cheap to clone; all clones are the same agent.
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
    /// Those it knows by name; empty where it has no team.
    pub(crate) team: Members,
}

pub(crate) struct Inner {
    pub(crate) name: Arc<str>,
    pub(crate) description: Option<Arc<str>>,
    pub(crate) instructions: Option<Arc<str>>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) gate: Gate,
    pub(crate) scope: Scope,
    pub(crate) tools: Toolbox,
    pub(crate) batch: Batch,
    pub(crate) limits: RunLimits,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) wording: Wording,
    pub(crate) has_client: bool,
    pub(crate) sessions: Turnstile,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({})", self.inner.name)
    }
}

impl Agent {
    /// Begins an agent.
    pub fn builder(name: impl Into<Arc<str>>, model: impl Model + 'static) -> AgentBuilder {
        AgentBuilder::new(name.into(), Arc::new(model))
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// The gate it stands behind.
    pub fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    /// How long one of its runs may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.inner.timeout
    }

    /// Answers in a session of its own, waiting for people where they are asked.
    ///
    /// Dropping the future leaves the run as a crash would: [`Agent::resume`] goes on with it.
    pub async fn run(&self, text: impl Into<Arc<str>>) -> Result<Reply, RunError> {
        Session::unwritten(self.clone(), new_name()).run(text).await
    }

    /// Answers in a session of its own, in a task of its own. Needs a tokio runtime.
    pub fn spawn(&self, text: impl Into<Arc<str>>) -> RunHandle {
        Session::unwritten(self.clone(), new_name()).spawn(text)
    }

    /// Answers in a session of its own and tells everything on the way. Needs a tokio runtime.
    pub fn stream(&self, text: impl Into<Arc<str>>) -> RunStream {
        Session::unwritten(self.clone(), new_name()).stream(text)
    }

    /// A conversation, begun or to be begun.
    pub fn session(&self, id: impl Into<Arc<str>>) -> Session {
        Session::new(self.clone(), id.into())
    }

    /// A conversation under a new name.
    pub fn new_session(&self) -> Session {
        Session::new(self.clone(), new_name())
    }

    /// Goes on with a session where it stopped. One that is done gives its reply again.
    pub async fn resume(&self, session: impl Into<Arc<str>>) -> Result<Reply, RunError> {
        self.session(session).resume().await
    }

    /// Goes on with a session where it stopped, and tells everything on the way; pending holds come first.
    pub fn resume_stream(&self, session: impl Into<Arc<str>>) -> RunStream {
        self.session(session).resume_stream()
    }
}

fn new_name() -> Arc<str> {
    format!("session_{}", Uuid::now_v7().simple()).into()
}
