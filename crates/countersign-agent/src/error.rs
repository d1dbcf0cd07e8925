//! Why a run gave no answer, and why an agent cannot be built.

use std::sync::Arc;
use std::time::Duration;

use countersign::store::StoreError;
use countersign::{CallId, GateError};

use crate::model::ModelError;
use crate::transcript::Stopped;

/// Why a run gave no answer. What was done until then is on the record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Somebody else drives the session right now.
    #[error("the session is driven by somebody else; nothing was written over")]
    Busy,
    /// There is no such session, or nothing was said in it.
    #[error("there is no session `{0}`")]
    NoSession(Arc<str>),
    /// The session belongs to another agent.
    #[error("the session belongs to the agent `{owner}`, not to `{agent}`")]
    OtherAgent {
        /// Whose it is.
        owner: Arc<str>,
        /// Who tried.
        agent: Arc<str>,
    },
    /// The model gave no answer. Resuming asks it again.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The gate or its store could not do its job. Resuming goes on.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A limit of the run was reached, and nobody extended it.
    #[error("the run reached its limit of {allowed} {limit}")]
    Limit {
        /// Which: `turns`, `tokens` or `micro_dollars`.
        limit: Arc<str>,
        /// How much there was.
        allowed: u64,
    },
    /// A hold expired whose rule ends the run.
    #[error("nobody decided about `{tool}` ({call}) in time, and its rule ends the run")]
    Expired {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: Arc<str>,
    },
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The run took too long.
    #[error("the run took longer than {0:?}")]
    TimedOut(Duration),
    /// What was said or named cannot be used.
    #[error("{0}")]
    BadInput(String),
    /// What is written down cannot be read. Nothing it says is believed.
    #[error("the transcript cannot be read: {0}")]
    Damaged(String),
    /// A part of the run ended without a word.
    #[error("a part of the run was lost: {0}")]
    Lost(String),
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        RunError::Gate(GateError::Store(error))
    }
}

impl RunError {
    /// Whether this ends the run for good, and with which words; else resuming goes on.
    pub(crate) fn stops(&self) -> Option<Stopped> {
        match self {
            RunError::Cancelled => Some(Stopped::Cancelled),
            RunError::TimedOut(_) => Some(Stopped::TimedOut),
            RunError::Expired { call, tool } => Some(Stopped::Expired { call: *call, tool: Arc::clone(tool) }),
            RunError::Limit { limit, allowed } => Some(Stopped::Limit { limit: Arc::clone(limit), allowed: *allowed }),
            RunError::Busy
            | RunError::NoSession(_)
            | RunError::OtherAgent { .. }
            | RunError::Model(_)
            | RunError::Gate(_)
            | RunError::BadInput(_)
            | RunError::Damaged(_)
            | RunError::Lost(_) => None,
        }
    }

    /// The error of a run that had been ended before.
    pub(crate) fn stopped(why: Stopped, timeout: Option<Duration>) -> RunError {
        match why {
            Stopped::Cancelled => RunError::Cancelled,
            Stopped::TimedOut => RunError::TimedOut(timeout.unwrap_or_default()),
            Stopped::Expired { call, tool } => RunError::Expired { call, tool },
            Stopped::Limit { limit, allowed } => RunError::Limit { limit, allowed },
        }
    }
}

/// Why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Nothing would judge its calls.
    #[error("the agent `{0}` has no gate")]
    NoGate(Arc<str>),
    /// An agent it works with stands behind another gate, whose rules would be lost.
    #[error("the agent `{0}` stands behind another gate than the agent that would call it")]
    OtherGate(Arc<str>),
    /// A name that rules, paths or models cannot carry.
    #[error("`{0}` is no name for an agent: letters, digits, `_`, `-` and `.`, at most 48 of them")]
    BadName(Arc<str>),
    /// Two agents of one name in a team.
    #[error("two agents are called `{0}`")]
    TwoAgents(Arc<str>),
    /// An agent names another that is not in its team.
    #[error(
        "the agent `{agent}` names `{other}`, which is not in its team; agents that name others are built by `Team`"
    )]
    NoSuchAgent {
        /// The agent.
        agent: Arc<str>,
        /// The name.
        other: Arc<str>,
    },
    /// Two tools of one name.
    #[error("two tools are called `{0}`")]
    TwoTools(String),
    /// Too many tools.
    #[error("the agent has over {0} tools")]
    TooManyTools(usize),
    /// The policy cannot judge a tool.
    #[error(transparent)]
    Tool(#[from] GateError),
    /// A hold would outlive its run.
    #[error("holds may wait {approval:?}, which is not below the run's {run:?}")]
    ApprovalTimeout {
        /// How long a hold may wait.
        approval: Duration,
        /// How long a run may take.
        run: Duration,
    },
}
