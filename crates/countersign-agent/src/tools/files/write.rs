//! `write_file`: writes a whole file.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::{Call, Declared, Repeat};
use countersign::place::Places;
use countersign::tool::Verified;
use countersign::{Definition, Json, Running, Tool, ToolError};
use rustix::fs::Stat;
use serde::Deserialize;
use serde_json::json;

use super::save::replace;
use super::shown::{NO_FILE, Shown, sha256};
use super::{PATH, Wanted, is_binary, places, read_within, spot};
use crate::limits;
use crate::tools::workspace::{Place, Spot};
use crate::tools::{Workspace, answer, define};

/// Writes a whole file of the workspace, in one step.
///
/// An approver sees the difference to what is there; a file that changes after that is not overwritten.
pub struct WriteFile {
    definition: Arc<Definition>,
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Input {
    path: String,
    content: String,
    #[serde(default)]
    create_dirs: bool,
}

impl WriteFile {
    /// Writes files of this workspace.
    pub fn new(workspace: &Workspace) -> WriteFile {
        WriteFile { definition: Arc::new(definition()), workspace: workspace.clone() }
    }
}

fn definition() -> Definition {
    let description = "Writes a text file of the workspace: creates it, or replaces everything in it. To change a \
        part of a file use `edit_file`.";
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string", "minLength": 1,
                "description": "The file, relative to the workspace folder.",
            },
            "content": { "type": "string", "description": "The whole new text of the file." },
            "create_dirs": {
                "type": "boolean", "default": false,
                "description": "Whether to create the folders on the way that do not exist yet.",
            },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    });
    let mut definition = define("write_file", description, "Write a file", &schema);
    definition.repeat = Repeat::Verifiable;
    definition
}

/// A file as it is now.
struct Now {
    stat: Option<Stat>,
    bytes: Option<Vec<u8>>,
    sha256: String,
}

fn look(place: &Place) -> Result<Now, ToolError> {
    let Some((file, stat)) = place.open()? else {
        return Ok(Now { stat: None, bytes: None, sha256: NO_FILE.to_owned() });
    };
    let shown = place.path.display();
    let bytes = read_within(file, limits::FILE_BYTES)
        .map_err(|error| ToolError::Failed(format!("`{shown}` cannot be read: {error}")))?
        .ok_or_else(|| ToolError::Failed(format!("`{shown}` is too large to be replaced")))?;
    Ok(Now { stat: Some(stat), sha256: sha256(&bytes), bytes: Some(bytes) })
}

fn write(workspace: &Workspace, spot: Spot, input: &Input, shown: &Shown) -> Result<Json, ToolError> {
    let place = match input.create_dirs {
        true => workspace.place_with_folders(spot)?,
        false => workspace.place(spot)?,
    };
    shown.check_file(&place.path)?;
    let now = look(&place)?;
    shown.check_content(&now.sha256, &place.path)?;
    let failed = |error| ToolError::Failed(format!("`{}` cannot be written: {error}", place.path.display()));
    replace(&place, input.content.as_bytes(), now.stat.as_ref()).map_err(failed)?;
    written(input, now.stat.is_none())
}

fn written(input: &Input, created: bool) -> Result<Json, ToolError> {
    answer(&json!({ "path": input.path, "bytes": input.content.len(), "created": created }))
}

fn preview(workspace: &Workspace, input: &Input) -> Result<Shown, ToolError> {
    let place = match workspace.place(input.path.as_str()) {
        Ok(place) => place,
        Err(error) => return Ok(Shown { note: Some(error.to_string()), ..Shown::default() }),
    };
    let now = look(&place)?;
    let mut shown = Shown { sha256: Some(now.sha256), ..Shown::of(&place.path) };
    match now.bytes.filter(|bytes| !is_binary(bytes)).map(String::from_utf8) {
        None if now.stat.is_none() => shown.note = Some("the file does not exist yet".to_owned()),
        Some(Ok(text)) if text.len() <= limits::PREVIEW_BYTES => shown.before = Some(text),
        Some(Ok(text)) => shown.note = Some(format!("replaces a text of {} bytes, too long to compare", text.len())),
        None | Some(Err(_)) => shown.note = Some("replaces a binary file".to_owned()),
    }
    Ok(shown)
}

#[async_trait]
impl Tool for WriteFile {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Ask)
    }

    async fn preview(&self, arguments: &Json) -> Option<Json> {
        let (input, workspace) = (arguments.read().ok()?, self.workspace.clone());
        self.workspace.blocking(move || preview(&workspace, &input)).await.ok()?.to_json()
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        places(&self.workspace, arguments, Wanted::File).await
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let (input, shown): (Input, Shown) = (running.input()?, Shown::to_approver(&running));
        let (spot, workspace) = (spot(&running, &input.path), self.workspace.clone());
        self.workspace.blocking(move || write(&workspace, spot, &input, &shown)).await
    }

    async fn verify(&self, call: &Call) -> Verified {
        let Ok(input) = call.facts.arguments.read::<Input>() else { return Verified::Unknown };
        let workspace = self.workspace.clone();
        let spot = Spot::judged(call.facts.places.get(PATH), &input.path);
        let found = self.workspace.blocking(move || {
            let now = look(&workspace.place(spot)?)?;
            let is_ours = now.bytes.as_deref() == Some(input.content.as_bytes());
            // Another text may be what was there before, or what somebody wrote after us.
            if is_ours { written(&input, false).map(Verified::Applied) } else { Ok(Verified::Unknown) }
        });
        found.await.unwrap_or(Verified::Unknown)
    }
}
