//! `read_file`: reads lines of a text file.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::Repeat;
use countersign::place::Places;
use countersign::{Definition, Json, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::json;

use super::{Wanted, places, read_text, shown_line, spot};
use crate::limits;
use crate::tools::{Workspace, answer, define};

/// Reads lines of a text file in the workspace.
pub struct ReadFile {
    definition: Arc<Definition>,
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Input {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl ReadFile {
    /// Reads files of this workspace.
    pub fn new(workspace: &Workspace) -> ReadFile {
        ReadFile { definition: Arc::new(definition()), workspace: workspace.clone() }
    }
}

fn definition() -> Definition {
    let description = "Reads a text file of the workspace and returns its lines, from `offset` on. The result says \
        how many lines the file has and whether there are more; read on with a higher `offset`. Binary files are \
        refused.";
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string", "minLength": 1,
                "description": "The file, relative to the workspace folder.",
            },
            "offset": {
                "type": "integer", "minimum": 1, "default": 1,
                "description": "The first line to return, counted from 1.",
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": limits::READ_LINES, "default": limits::READ_LINES,
                "description": "How many lines to return at most.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let mut definition = define("read_file", description, "Read a file", &schema);
    definition.repeat = Repeat::ReadOnly;
    definition
}

/// The lines asked for, as many as fit in one result.
fn page(text: &str, input: &Input) -> serde_json::Value {
    let first = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(limits::READ_LINES).min(limits::READ_LINES);
    let mut content = String::new();
    let mut count = 0;
    for line in text.split_inclusive('\n').skip(first - 1).take(limit) {
        let line = shown_line(line);
        if content.len() + line.len() > limits::RESULT_BYTES {
            break;
        }
        content.push_str(&line);
        content.push('\n');
        count += 1;
    }
    let total = text.split_inclusive('\n').count();
    let last = first - 1 + count;
    json!({ "content": content, "first_line": first, "last_line": last, "total_lines": total, "more": last < total })
}

#[async_trait]
impl Tool for ReadFile {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        places(&self.workspace, arguments, Wanted::File).await
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let input: Input = running.input()?;
        let (spot, workspace) = (spot(&running, &input.path), self.workspace.clone());
        self.workspace
            .blocking(move || {
                let place = workspace.place(spot)?;
                let (file, stat) = place.open_existing()?;
                answer(&page(&read_text(file, &stat, &place.path)?, &input))
            })
            .await
    }
}
