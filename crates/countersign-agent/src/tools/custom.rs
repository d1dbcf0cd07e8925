//! Tools that an operator describes in the configuration: programs, HTTP requests, and tools that a client runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign::call::Repeat;
use countersign::config::{ToolConfig, ToolRun};
use countersign::json::{Bounds, IngestError};
use countersign::schema::SchemaError;
use countersign::{Definition, Json, Tool};

use super::process::Processes;
use super::user::User;
use super::web_search::WebSearchError;
use crate::limits;

mod command;
mod http;

/// What a configured tool becomes.
#[derive(Clone)]
pub enum Made {
    /// A tool that runs here.
    Tool(Arc<dyn Tool>),
    /// A tool that the session's client runs. Only its definition is known here.
    Client(Arc<Definition>),
}

impl Made {
    /// What the tool is.
    pub fn definition(&self) -> Arc<Definition> {
        match self {
            Made::Tool(tool) => tool.definition(),
            Made::Client(definition) => Arc::clone(definition),
        }
    }
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self {
            Made::Tool(_) => "here",
            Made::Client(_) => "at the client",
        };
        write!(f, "Made({}, runs {place})", self.definition().tool)
    }
}

/// Why a configured tool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CustomError {
    /// It has no command.
    #[error("tool `{0}` has an empty command")]
    NoCommand(Arc<str>),
    /// Its schema cannot be used.
    #[error("tool `{tool}` has a schema that cannot be used: {why}")]
    Schema {
        /// The tool.
        tool: Arc<str>,
        /// Why.
        why: SchemaError,
    },
    /// Its HTTP request is not well described.
    #[error("tool `{tool}` has an `http` that cannot be used: {why}")]
    Http {
        /// The tool.
        tool: Arc<str>,
        /// Why.
        why: String,
    },
    /// It may run for no time, or for too long.
    #[error("tool `{tool}` has a `timeout` that is not between 1 ms and {most:?}")]
    Timeout {
        /// The tool.
        tool: Arc<str>,
        /// The longest there is.
        most: Duration,
    },
    /// It runs in a way that this version does not know.
    #[error("tool `{0}` runs in a way that is not known here")]
    UnknownRun(Arc<str>),
    /// The search service cannot be used.
    #[error("`web_search` cannot be used: {0}")]
    WebSearch(#[from] WebSearchError),
}

/// Makes a tool of what an operator wrote. Commands start in `base`, the folder of the configuration file, and are
/// written down in `processes` while they run. They run as `user`, or as whoever runs this process.
pub fn from_config(
    config: &ToolConfig,
    base: &Path,
    processes: Option<&Processes>,
    user: Option<User>,
) -> Result<Made, CustomError> {
    let definition = definition(config)?;
    match &config.run {
        ToolRun::Client => Ok(Made::Client(Arc::new(definition))),
        ToolRun::Command(words) => match words.split_first() {
            Some((program, rest)) if !program.is_empty() => {
                let definition = Arc::new(verifiable(definition));
                let tool = command::CommandTool::new(definition, program.clone(), rest.to_vec(), base.to_owned());
                let time = within(config)?;
                Ok(Made::Tool(Arc::new(tool.within(time).run_by(user).noted_in(processes.cloned()))))
            }
            _ => Err(CustomError::NoCommand(Arc::clone(&config.name))),
        },
        ToolRun::Http(http) => {
            let tool = http::HttpTool::new(Arc::new(definition), http);
            let tool = tool.map_err(|why| CustomError::Http { tool: Arc::clone(&config.name), why })?;
            Ok(Made::Tool(Arc::new(tool)))
        }
        _ => Err(CustomError::UnknownRun(Arc::clone(&config.name))),
    }
}

/// How long a program may run, where the operator says so.
fn within(config: &ToolConfig) -> Result<Option<Duration>, CustomError> {
    match config.timeout {
        Some(time) if time.is_zero() || time > limits::COMMAND_TIME_MOST => {
            Err(CustomError::Timeout { tool: Arc::clone(&config.name), most: limits::COMMAND_TIME_MOST })
        }
        time => Ok(time),
    }
}

/// A program that may not run again can still have left how it ended.
fn verifiable(mut definition: Definition) -> Definition {
    if definition.repeat == Repeat::AtMostOnce {
        definition.repeat = Repeat::Verifiable;
    }
    definition
}

fn definition(config: &ToolConfig) -> Result<Definition, CustomError> {
    let description = config.description.clone().unwrap_or_default();
    let mut definition = Definition::new(Arc::clone(&config.name), description);
    definition.repeat = config.repeat;
    if let Some(schema) = &config.input_schema {
        definition.input_schema = schema.clone();
    }
    definition.schema().map_err(|why| CustomError::Schema { tool: Arc::clone(&config.name), why })?;
    Ok(definition)
}

/// What a tool answered: JSON where it is, else its text.
fn result_of(bytes: &[u8]) -> Json {
    let text = String::from_utf8_lossy(bytes);
    let bounds = Bounds { bytes: limits::COMMAND_RESULT_BYTES, ..Bounds::PAYLOAD };
    let read: Result<Json, IngestError> = Json::ingest(text.trim(), bounds);
    read.unwrap_or_else(|_| Json::string(&text))
}
