//! `search_files`: finds lines by a regular expression.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::Repeat;
use countersign::place::Places;
use countersign::{Definition, Json, Running, Tool, ToolError};
use regex::{Regex, RegexBuilder};
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::json;

use super::visit::{Found, Glob, Visit};
use super::{HERE, Wanted, is_binary, places, read_within, shown_line, spot};
use crate::limits;
use crate::tools::workspace::Spot;
use crate::tools::{Workspace, answer, define};

/// Finds lines in the files of the workspace.
pub struct SearchFiles {
    definition: Arc<Definition>,
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
}

impl SearchFiles {
    /// Searches files of this workspace.
    pub fn new(workspace: &Workspace) -> SearchFiles {
        SearchFiles { definition: Arc::new(definition()), workspace: workspace.clone() }
    }
}

fn definition() -> Definition {
    let description = "Finds the lines that match a regular expression in the text files below a folder of the \
        workspace. Returns each as `path:line: text`. Binary and very large files, and what is in `.git`, are passed \
        over.";
    let schema = json!({
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string", "minLength": 1, "maxLength": limits::PATTERN_BYTES,
                "description": "The regular expression, in Rust's syntax: no look-around and no back-references.",
            },
            "path": {
                "type": "string", "minLength": 1, "default": ".",
                "description": "The folder to search, relative to the workspace folder.",
            },
            "glob": {
                "type": "string", "minLength": 1, "maxLength": limits::PATTERN_BYTES,
                "description": "Search only files that match, such as `*.rs` (by name) or `src/**/*.rs` (by path).",
            },
            "ignore_case": {
                "type": "boolean", "default": false,
                "description": "Whether upper and lower case count as the same.",
            },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let mut definition = define("search_files", description, "Search files", &schema);
    definition.repeat = Repeat::ReadOnly;
    definition
}

/// A search under way.
struct Search<'w> {
    workspace: &'w Workspace,
    regex: Regex,
    glob: Option<Glob>,
    lines: Vec<String>,
    bytes: usize,
    read: u64,
    passed_over: usize,
}

impl Search<'_> {
    fn see(&mut self, found: &Found<'_>) -> ControlFlow<()> {
        let wanted = found.kind == FileType::RegularFile && self.glob.as_ref().is_none_or(|glob| glob.is_match(found));
        if !wanted {
            return ControlFlow::Continue(());
        }
        let Some(text) = self.text(found) else {
            self.passed_over += 1;
            return ControlFlow::Continue(());
        };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| self.regex.is_match(line)) {
            let line = format!("{}:{}: {}", found.path, number + 1, shown_line(line));
            self.bytes += line.len();
            if self.lines.len() >= limits::SEARCH_LINES || self.bytes > limits::RESULT_BYTES {
                return ControlFlow::Break(());
            }
            self.lines.push(line);
        }
        if self.read > limits::SEARCH_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn text(&mut self, found: &Found<'_>) -> Option<String> {
        let (file, _) = self.workspace.open_in(found.folder, found.name)?;
        let bytes = read_within(file, limits::SEARCH_FILE_BYTES).ok()??;
        self.read += bytes.len() as u64;
        if is_binary(&bytes) { None } else { String::from_utf8(bytes).ok() }
    }
}

fn search(workspace: &Workspace, spot: Spot, input: &Input) -> Result<Json, ToolError> {
    let regex = RegexBuilder::new(&input.pattern)
        .case_insensitive(input.ignore_case)
        .size_limit(limits::PATTERN_COMPILED_BYTES)
        .dfa_size_limit(limits::PATTERN_COMPILED_BYTES)
        .build()
        .map_err(|error| ToolError::Failed(format!("the pattern cannot be used: {error}")))?;
    let glob = input.glob.as_deref().map(Glob::new).transpose()?;
    let folder = workspace.folder(spot)?;
    let mut search = Search { workspace, regex, glob, lines: Vec::new(), bytes: 0, read: 0, passed_over: 0 };
    let mut visit = Visit::new(workspace, limits::WALK_DEPTH);
    visit.all(&folder, &mut |found| search.see(found));
    answer(&json!({ "lines": search.lines, "more": visit.is_cut, "files_passed_over": search.passed_over }))
}

#[async_trait]
impl Tool for SearchFiles {
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
        self.workspace.blocking(move || search(&workspace, spot, &input)).await
    }
}
