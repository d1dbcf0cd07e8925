//! `edit_file`: replaces one text in a file by another.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::Declared;
use countersign::place::Places;
use countersign::{Definition, Json, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::json;

use super::save::replace;
use super::shown::{Shown, sha256};
use super::{Wanted, places, read_text, spot};
use crate::limits;
use crate::tools::workspace::{Place, Spot};
use crate::tools::{Workspace, answer, define};

/// Replaces a text in a file of the workspace.
///
/// An approver sees old and new text as a difference, where it applies and how often; the run checks that it still does.
pub struct EditFile {
    definition: Arc<Definition>,
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Input {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    all: bool,
}

impl EditFile {
    /// Edits files of this workspace.
    pub fn new(workspace: &Workspace) -> EditFile {
        EditFile { definition: Arc::new(definition()), workspace: workspace.clone() }
    }
}

fn definition() -> Definition {
    let description = "Replaces a text in a file of the workspace by another. `old_text` must occur in the file \
        exactly as given, white space included, and only once unless `all` is true: take in as many lines around the \
        change as make it unique. Read the file first.";
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string", "minLength": 1,
                "description": "The file, relative to the workspace folder.",
            },
            "old_text": { "type": "string", "minLength": 1, "description": "The text to replace." },
            "new_text": { "type": "string", "description": "What to put in its place. Empty to delete the old text." },
            "all": {
                "type": "boolean", "default": false,
                "description": "Whether to replace every occurrence of the old text, not only a single one.",
            },
        },
        "required": ["path", "old_text", "new_text"],
        "additionalProperties": false,
    });
    define("edit_file", description, "Edit a file", &schema)
}

/// Where the old text stands in the file, or why the edit does not apply.
fn check(text: &str, input: &Input, place: &Place) -> Result<(usize, usize), ToolError> {
    let path = place.path.display();
    if input.old_text == input.new_text {
        return Err(ToolError::Failed("the old text and the new one are the same".to_owned()));
    }
    let mut found = text.match_indices(&input.old_text);
    let Some((at, _)) = found.next() else {
        return Err(ToolError::Failed(format!("the old text does not occur in `{path}`; read the file again")));
    };
    let matches = 1 + found.count();
    if matches > 1 && !input.all {
        let text = format!("the old text occurs {matches} times in `{path}`; give more of it, or set `all`");
        return Err(ToolError::Failed(text));
    }
    let line = 1 + text.get(..at).unwrap_or_default().matches('\n').count();
    Ok((matches, line))
}

fn edit(workspace: &Workspace, spot: Spot, input: &Input, shown: &Shown) -> Result<Json, ToolError> {
    let place = workspace.place(spot)?;
    shown.check_file(&place.path)?;
    let (file, stat) = place.open_existing()?;
    let old = read_text(file, &stat, &place.path)?;
    let (matches, line) = check(&old, input, &place)?;
    if shown.matches.is_some_and(|shown| shown != matches) {
        let text = format!("`{}` changed after it was approved; read it and try again", place.path.display());
        return Err(ToolError::Failed(text));
    }
    let grown = old.len().saturating_add(matches.saturating_mul(input.new_text.len()));
    if u64::try_from(grown).map_or(true, |grown| grown > limits::FILE_BYTES) {
        return Err(ToolError::Failed("the file would become too large".to_owned()));
    }
    let new = old.replace(&input.old_text, &input.new_text);
    still(&place, &old)?;
    let failed = |error| ToolError::Failed(format!("`{}` cannot be written: {error}", place.path.display()));
    replace(&place, new.as_bytes(), Some(&stat)).map_err(failed)?;
    answer(&json!({ "path": input.path, "replaced": matches, "first_line": line }))
}

/// Looks once more, right before the change. Other programs take no lock, so a moment remains in which theirs is lost.
fn still(place: &Place, old: &str) -> Result<(), ToolError> {
    let (file, stat) = place.open_existing()?;
    match sha256(read_text(file, &stat, &place.path)?.as_bytes()) == sha256(old.as_bytes()) {
        true => Ok(()),
        false => Err(ToolError::Failed("somebody else changes the file; read it and try again".to_owned())),
    }
}

fn preview(workspace: &Workspace, input: &Input) -> Result<Shown, ToolError> {
    let place = workspace.place(input.path.as_str())?;
    let (file, stat) = place.open_existing()?;
    let (matches, line) = check(&read_text(file, &stat, &place.path)?, input, &place)?;
    Ok(Shown { matches: Some(matches), first_line: Some(line), ..Shown::of(&place.path) })
}

#[async_trait]
impl Tool for EditFile {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Ask)
    }

    async fn preview(&self, arguments: &Json) -> Option<Json> {
        let (input, workspace) = (arguments.read().ok()?, self.workspace.clone());
        let shown = self.workspace.blocking(move || preview(&workspace, &input)).await;
        let shown = shown.unwrap_or_else(|error| Shown { note: Some(error.to_string()), ..Shown::default() });
        shown.to_json()
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        places(&self.workspace, arguments, Wanted::File).await
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let (input, shown): (Input, Shown) = (running.input()?, Shown::to_approver(&running));
        let (spot, workspace) = (spot(&running, &input.path), self.workspace.clone());
        self.workspace.blocking(move || edit(&workspace, spot, &input, &shown)).await
    }
}
