//! How a command fails: what, what to do next, and the exit code scripts rely on.

use std::fmt;
use std::process::ExitCode;

use countersign::GateError;
use countersign::gate::BuildError;
use countersign::store::{Failure, StoreError};
use countersign::transition::Rejection;
use countersign_agent::config::ConfigError;
use countersign_agent::model::ModelError;
use countersign_agent::{AgentError, RunError};
use countersign_api::client::ClientError;
use countersign_store::ConnectError;
use countersign_store::postgres::ConnectError as Postgres;

/// The exit codes besides 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was tried and did not work.
    Failed,
    /// The command, an option or an input file is wrong.
    Usage,
    /// The rules say no: denied, expired, closed, not trusted.
    Refused,
    /// A store or server cannot be reached.
    Unreachable,
    /// The person stopped it.
    Interrupted,
}

impl Exit {
    /// The number of it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Unreachable => 4,
            // What shells say of a program that Ctrl-C ended.
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error with its exit code and, where there is one, the next step.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) exit: Exit,
    error: anyhow::Error,
    next: Option<String>,
    /// Safe texts that come before the error: one for each problem of a file.
    pub(crate) details: Vec<String>,
}

impl Fault {
    /// It was tried and did not work.
    pub(crate) fn failed(what: impl fmt::Display) -> Fault {
        Fault::new(Exit::Failed, what)
    }

    /// The command or its input is wrong.
    pub(crate) fn usage(what: impl fmt::Display) -> Fault {
        Fault::new(Exit::Usage, what)
    }

    /// The rules say no.
    pub(crate) fn refused(what: impl fmt::Display) -> Fault {
        Fault::new(Exit::Refused, what)
    }

    /// A store or server cannot be reached.
    pub(crate) fn unreachable(what: impl fmt::Display) -> Fault {
        Fault::new(Exit::Unreachable, what)
    }

    /// The person stopped it.
    pub(crate) fn interrupted(what: impl fmt::Display) -> Fault {
        Fault::new(Exit::Interrupted, what)
    }

    /// Several problems, each already safe to print.
    pub(crate) fn listed(details: Vec<String>, what: impl fmt::Display) -> Fault {
        Fault { details, ..Fault::failed(what) }
    }

    fn new(exit: Exit, what: impl fmt::Display) -> Fault {
        Fault { exit, error: anyhow::anyhow!("{what}"), next: None, details: Vec::new() }
    }

    /// Adds what to do next.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Fault {
        self.next = Some(next.into());
        self
    }

    /// Puts what was being done before what went wrong.
    pub(crate) fn context(mut self, doing: impl fmt::Display) -> Fault {
        self.error = anyhow::anyhow!("{doing}: {:#}", self.error);
        self
    }

    /// Everything there is to say, details included.
    pub(crate) fn whole(&self) -> String {
        let details = self.details.iter().map(|detail| format!("{detail}\n"));
        details.chain(std::iter::once(self.to_string())).collect()
    }

    /// Whether whoever read our output went away. Nothing is wrong with us then.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let io = self.error.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// What went wrong, and what to do next, safe to print.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::out::safe_lines(&format!("{:#}", self.error)))?;
        match &self.next {
            Some(next) => write!(f, "\n next: {}", crate::out::safe_lines(next)),
            None => Ok(()),
        }
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Fault {
        Fault { exit: Exit::Failed, error, next: None, details: Vec::new() }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::from(anyhow::Error::new(error))
    }
}

impl From<BuildError> for Fault {
    fn from(error: BuildError) -> Fault {
        Fault::failed(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::failed(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault::from(GateError::from(failure))
    }
}

impl From<GateError> for Fault {
    fn from(error: GateError) -> Fault {
        let exit = match &error {
            GateError::Rejected(Rejection::NotFound(_)) => Exit::Failed,
            GateError::Rejected(_) => Exit::Refused,
            GateError::BadInput(_) | GateError::BadEdit(_) => Exit::Usage,
            GateError::Unreachable(_) => Exit::Unreachable,
            GateError::Refused(_) => Exit::Refused,
            _ => Exit::Failed,
        };
        let next = match &error {
            GateError::Rejected(Rejection::NotFound("hold")) => Some("`countersign holds` lists what waits"),
            GateError::Rejected(Rejection::NotFound("grant")) => Some("`countersign grants` lists them"),
            GateError::Rejected(Rejection::NotFound("call")) => Some("`countersign doubts list` lists those in doubt"),
            GateError::Rejected(Rejection::DigestMismatch) => {
                Some("look at the hold again: `countersign holds --json` has its digest")
            }
            GateError::Rejected(Rejection::Closed(_)) => Some("`countersign audit log` says who closed it"),
            _ => None,
        };
        Fault { next: next.map(str::to_owned), ..Fault::new(exit, error) }
    }
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Fault {
        let exit = match &error {
            ConnectError::Address(_) => Exit::Usage,
            ConnectError::Unsafe { .. } | ConnectError::Postgres(Postgres::Unsafe { .. }) => Exit::Refused,
            ConnectError::File { .. } => Exit::Unreachable,
            ConnectError::Postgres(Postgres::Database(_) | Postgres::Unreachable { .. }) => Exit::Unreachable,
            _ => Exit::Failed,
        };
        let next = match &error {
            ConnectError::Postgres(Postgres::Database(_) | Postgres::Unreachable { .. }) => {
                Some("check the address (postgres://USER@HOST:PORT/DATABASE), and that the server runs and lets you in")
            }
            _ => None,
        };
        Fault { next: next.map(str::to_owned), ..Fault::new(exit, error) }
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        let exit = match &error {
            ClientError::Address(..) => Exit::Usage,
            ClientError::Unreachable(_) => Exit::Unreachable,
            ClientError::Refused(problem) => match problem.status {
                400 | 413 | 415 | 422 => Exit::Usage,
                404 => Exit::Failed,
                401 | 403 | 409 | 410 => Exit::Refused,
                429 | 503 => Exit::Unreachable,
                _ => Exit::Failed,
            },
            _ => Exit::Failed,
        };
        let next = match &error {
            ClientError::Unreachable(_) => Some("`countersign serve` starts a server; check the address"),
            ClientError::Refused(problem) if problem.status == 401 => {
                Some("the token ended or was revoked; `countersign token create` makes another")
            }
            ClientError::Refused(problem) if problem.status == 404 => {
                Some("check the id, and that the address is the one of the server that has it")
            }
            _ => None,
        };
        Fault { next: next.map(str::to_owned), ..Fault::new(exit, error) }
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Fault {
        let exit = match &error {
            ModelError::Unreachable { .. } => Exit::Unreachable,
            ModelError::Settings(_) => Exit::Usage,
            _ => Exit::Failed,
        };
        Fault::new(exit, error)
    }
}

impl From<AgentError> for Fault {
    fn from(error: AgentError) -> Fault {
        Fault::new(Exit::Usage, error)
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Fault {
        let next = match &error {
            ConfigError::Model { .. } => {
                "put a `model:` section into the configuration, or play the model yourself with --manual"
            }
            ConfigError::SeveralAgents(_) | ConfigError::NoAgent { .. } => "name one: countersign run AGENT \"PROMPT\"",
            _ => "correct the configuration; `countersign policy check FILE` reads it",
        };
        Fault::new(Exit::Usage, error).next(next)
    }
}

impl From<countersign_mcp::ConnectError> for Fault {
    fn from(error: countersign_mcp::ConnectError) -> Fault {
        use countersign_mcp::ConnectError;
        let exit = match &error {
            ConnectError::Nowhere(_) | ConnectError::Settings { .. } | ConnectError::Start { .. } => Exit::Usage,
            _ => Exit::Unreachable,
        };
        Fault::new(exit, error).next("correct its entry under `mcp_servers:`, or take it out of the agent's")
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Fault {
        match error {
            RunError::Model(error) => {
                Fault::from(error).next("what was done is kept; `countersign run --resume SESSION` goes on")
            }
            RunError::Gate(error) => Fault::from(error),
            RunError::Cancelled => Fault::interrupted("stopped; what waited was withdrawn, and nothing more runs"),
            RunError::Expired { .. } => Fault::new(Exit::Refused, error),
            RunError::NoSession(_) => {
                Fault::new(Exit::Usage, error).next("`countersign run --list` lists the sessions")
            }
            RunError::BadInput(_) | RunError::OtherAgent { .. } => Fault::new(Exit::Usage, error),
            error => Fault::new(Exit::Failed, error),
        }
    }
}
