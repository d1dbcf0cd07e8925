//! Tools that come with the agent: files, shell, web, and those that an operator describes in the configuration.
//!
//! Each is a [`Tool`] like any other: its body is reachable only with a permit. The tools that change something declare
//! that they want to be asked about.
//!
//! ```
//! use countersign_agent::tools::{self, Workspace};
//!
//! # let folder = std::env::temp_dir();
//! let workspace = Workspace::new(&folder)?.protect("countersign.yml").protect_database("countersign.db");
//! let names: Vec<_> = tools::builtin(&workspace).iter().map(|tool| tool.definition().tool.to_string()).collect();
//! assert!(names.contains(&"read_file".to_owned()));
//! # Ok::<(), tools::PathError>(())
//! ```

mod address;
mod bash;
mod clip;
mod custom;
mod fetch;
mod files;
mod http;
mod markup;
mod process;
mod user;
mod web_search;
mod workspace;

use std::sync::Arc;

use countersign::{Definition, Json, Tool, ToolError, Toolset};

pub use address::Checked;
pub use bash::Bash;
pub use custom::{CustomError, Made, from_config};
pub use fetch::{FetchUrl, Reach};
pub use files::{EditFile, ListFiles, ReadFile, SearchFiles, WriteFile};
pub use process::{Processes, Survivor, keep_status};
pub use user::{User, UserError};
pub use web_search::{WebSearch, WebSearchError};
pub use workspace::{PathError, Workspace};

/// The name of the toolset that comes with the agent.
pub const BUILTIN: &str = "builtin";

/// All tools that need no more than a workspace.
pub fn builtin(workspace: &Workspace) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFile::new(workspace)),
        Arc::new(WriteFile::new(workspace)),
        Arc::new(EditFile::new(workspace)),
        Arc::new(ListFiles::new(workspace)),
        Arc::new(SearchFiles::new(workspace)),
        Arc::new(Bash::new(workspace)),
        Arc::new(FetchUrl::new(Reach::Public)),
    ]
}

/// The toolset `builtin`: [`builtin`] and whatever is added to it.
#[derive(Clone)]
pub struct Builtin {
    tools: Vec<Arc<dyn Tool>>,
}

impl Builtin {
    /// The built-in tools for a workspace.
    pub fn new(workspace: &Workspace) -> Builtin {
        Builtin { tools: builtin(workspace) }
    }

    /// Adds a tool, or puts it in the place of the one with its name.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Builtin {
        let name = tool.definition().tool.clone();
        self.tools.retain(|earlier| earlier.definition().tool != name);
        self.tools.push(tool);
        self
    }
}

impl Toolset for Builtin {
    fn name(&self) -> Arc<str> {
        BUILTIN.into()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }
}

/// A definition of ours.
fn define(name: &str, description: &str, hint: &str, schema: &serde_json::Value) -> Definition {
    let mut definition =
        Definition::new(name, description).with_schema(schema).expect("a schema of ours has no twin keys");
    definition.hint = Some(hint.into());
    definition.toolset = Some(BUILTIN.into());
    definition
}

/// A result of ours.
fn answer(value: &serde_json::Value) -> Result<Json, ToolError> {
    Json::of(value).map_err(|error| ToolError::Failed(format!("the result cannot be told: {error}")))
}

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        ToolError::Failed(error.to_string())
    }
}
