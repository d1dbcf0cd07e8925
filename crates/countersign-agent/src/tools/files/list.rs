//! `list_files`: names the files below a folder.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::Repeat;
use countersign::place::Places;
use countersign::{Definition, Json, Running, Tool, ToolError};
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::json;

use super::visit::{Glob, Visit};
use super::{HERE, Wanted, places, spot};
use crate::limits;
use crate::tools::workspace::Spot;
use crate::tools::{Workspace, answer, define};

/// Names the files below a folder of the workspace.
pub struct ListFiles {
    definition: Arc<Definition>,
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Input {
    path: Option<String>,
    glob: Option<String>,
    depth: Option<usize>,
}

impl ListFiles {
    /// Lists files of this workspace.
    pub fn new(workspace: &Workspace) -> ListFiles {
        ListFiles { definition: Arc::new(definition()), workspace: workspace.clone() }
    }
}

fn definition() -> Definition {
    let description = "Lists the files and folders below a folder of the workspace, as paths relative to that folder. \
        Folders end with `/`, links with `@` and are not followed. What is in `.git` is left out.";
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string", "minLength": 1, "default": ".",
                "description": "The folder to list, relative to the workspace folder.",
            },
            "glob": {
                "type": "string", "minLength": 1, "maxLength": limits::PATTERN_BYTES,
                "description": "List only what matches, such as `*.rs` (by name, anywhere) or `src/**/*.rs` (by path).",
            },
            "depth": {
                "type": "integer", "minimum": 1, "maximum": limits::WALK_DEPTH, "default": limits::WALK_DEPTH,
                "description": "How many levels of folders to enter; 1 lists the folder alone.",
            },
        },
        "additionalProperties": false,
    });
    let mut definition = define("list_files", description, "List files", &schema);
    definition.repeat = Repeat::ReadOnly;
    definition
}

fn list(workspace: &Workspace, spot: Spot, input: &Input) -> Result<Json, ToolError> {
    let folder = workspace.folder(spot)?;
    let glob = input.glob.as_deref().map(Glob::new).transpose()?;
    let mut visit = Visit::new(workspace, input.depth.unwrap_or(limits::WALK_DEPTH));
    let (mut files, mut bytes) = (Vec::new(), 0);
    visit.all(&folder, &mut |found| {
        if glob.as_ref().is_some_and(|glob| !glob.is_match(found)) {
            return ControlFlow::Continue(());
        }
        let mark = if found.kind == FileType::Symlink { "@" } else { "" };
        bytes += found.path.len() + 1;
        if files.len() >= limits::LIST_FILES || bytes > limits::RESULT_BYTES {
            return ControlFlow::Break(());
        }
        files.push(format!("{}{mark}", found.path));
        ControlFlow::Continue(())
    });
    answer(&json!({ "files": files, "more": visit.is_cut }))
}

#[async_trait]
impl Tool for ListFiles {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        places(&self.workspace, arguments, Wanted::Folder).await
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let input: Input = running.input()?;
        let spot = spot(&running, input.path.as_deref().unwrap_or(HERE));
        let workspace = self.workspace.clone();
        self.workspace.blocking(move || list(&workspace, spot, &input)).await
    }
}
