//! The demo's tools: real edits of real files, all inside one folder.

use std::fs;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use countersign::call::Repeat;
use countersign::place::{Place, Places};
use countersign::tool::{FnTool, tool};
use countersign::{Definition, Json, Running, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::Fault;

/// The tools over one folder.
pub(crate) fn tools(folder: &Path) -> Result<Vec<Arc<FnTool>>, Fault> {
    let folder: Arc<Path> = folder.into();
    let path = json!({ "type": "string", "description": "The file, relative to the folder." });
    let text = |what: &str| json!({ "type": "string", "description": what });
    Ok(vec![
        make(
            &folder,
            define("read_file", "Reads a text file.", json!({ "path": path }), Repeat::ReadOnly)?,
            |folder, input| Box::pin(async move { read(&folder, &input.input()?) }),
        ),
        make(
            &folder,
            define(
                "write_file",
                "Makes a new text file. Fails if there is one.",
                json!({ "path": path, "content": text("The text of the file.") }),
                Repeat::AtMostOnce,
            )?,
            |folder, input| Box::pin(async move { write(&folder, &input.input()?) }),
        ),
        make(
            &folder,
            define(
                "edit_file",
                "Replaces one passage of a text file by another.",
                json!({
                    "path": path,
                    "old_text": text("The passage as it is. It must be there exactly once."),
                    "new_text": text("The passage as it shall be."),
                }),
                Repeat::AtMostOnce,
            )?,
            |folder, input| Box::pin(async move { edit(&folder, &input.input()?) }),
        ),
        make(
            &folder,
            define(
                "append_line",
                "Adds a line to the end of a text file.",
                json!({ "path": path, "line": text("The line, without its break.") }),
                Repeat::AtMostOnce,
            )?,
            |folder, input| Box::pin(async move { append(&folder, &input.input()?) }),
        ),
        make(
            &folder,
            define(
                "delete_file",
                "Deletes a file, after asking with what would be lost.",
                json!({ "path": path }),
                Repeat::AtMostOnce,
            )?,
            |folder, running| Box::pin(async move { delete(&folder, &running).await }),
        ),
    ])
}

type Body = fn(Arc<Path>, Running) -> futures::future::BoxFuture<'static, Result<Json, ToolError>>;

fn make(folder: &Arc<Path>, definition: Definition, body: Body) -> Arc<FnTool> {
    let (folder, home) = (Arc::clone(folder), Arc::clone(folder));
    let tool = tool(definition, move |running| body(Arc::clone(&folder), running));
    Arc::new(tool.resolves(move |arguments| {
        let named: Named = arguments.read().map_err(|error| error.to_string())?;
        let path = inside(&home, &named.path).map_err(|error| error.to_string())?;
        let path = path.to_str().ok_or("the path is no text")?;
        Ok(Places::one("path", Place::File(path.to_owned())))
    }))
}

fn define(name: &str, description: &str, properties: Value, repeat: Repeat) -> Result<Definition, Fault> {
    let required: Vec<&String> = properties.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    let schema =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let mut definition = Definition::new(name, description).with_schema(&schema).map_err(Fault::failed)?;
    definition.repeat = repeat;
    Ok(definition)
}

#[derive(Deserialize)]
struct Named {
    path: String,
}

#[derive(Deserialize)]
struct NewFile {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Edit {
    path: String,
    old_text: String,
    new_text: String,
}

#[derive(Deserialize)]
struct NewLine {
    path: String,
    line: String,
}

fn read(folder: &Path, input: &Named) -> Result<Json, ToolError> {
    Ok(Json::string(&fs::read_to_string(inside(folder, &input.path)?).map_err(failed)?))
}

fn write(folder: &Path, input: &NewFile) -> Result<Json, ToolError> {
    let path = inside(folder, &input.path)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(input.content.as_bytes()).map_err(failed)?;
    Ok(Json::string(&format!("wrote {} bytes", input.content.len())))
}

fn edit(folder: &Path, input: &Edit) -> Result<Json, ToolError> {
    let path = inside(folder, &input.path)?;
    let text = fs::read_to_string(&path).map_err(failed)?;
    if text.matches(&input.old_text).count() != 1 {
        return Err(ToolError::Failed("the passage is not there exactly once".into()));
    }
    fs::write(path, text.replacen(&input.old_text, &input.new_text, 1)).map_err(failed)?;
    Ok(Json::string("replaced one passage"))
}

fn append(folder: &Path, input: &NewLine) -> Result<Json, ToolError> {
    let path = inside(folder, &input.path)?;
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
    writeln!(file, "{}", input.line).map_err(failed)?;
    Ok(Json::string("added a line"))
}

/// Asks in mid-run: only here does anybody know what would be lost.
async fn delete(folder: &Path, running: &Running) -> Result<Json, ToolError> {
    let input: Named = running.input()?;
    let path = inside(folder, &input.path)?;
    let text = fs::read_to_string(&path).map_err(failed)?;
    let lost = json!({
        "path": input.path,
        "bytes": text.len(),
        "lines": text.lines().count(),
        "last_line": text.lines().last().unwrap_or_default(),
    });
    running.confirm("This cannot be undone. Delete the file?", &lost).await?;
    fs::remove_file(path).map_err(failed)?;
    Ok(Json::string("deleted"))
}

/// A path inside the folder, with its links followed: no way up, no way out by a link.
fn inside(folder: &Path, path: &str) -> Result<PathBuf, ToolError> {
    let outside = || ToolError::Failed(format!("`{path}` is not a file in the folder"));
    let relative = Path::new(path);
    let plain = relative.components().all(|component| matches!(component, Component::Normal(_)));
    if path.is_empty() || !plain {
        return Err(outside());
    }
    let full = folder.join(relative);
    let parent = full.parent().and_then(|parent| parent.canonicalize().ok()).ok_or_else(outside)?;
    let name = full.file_name().ok_or_else(outside)?;
    let is_link = fs::symlink_metadata(&full).is_ok_and(|found| found.is_symlink());
    let home = folder.canonicalize().map_err(failed)?;
    match parent.starts_with(home) && !is_link {
        true => Ok(parent.join(name)),
        false => Err(outside()),
    }
}

fn failed(error: std::io::Error) -> ToolError {
    ToolError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(inside(folder.path(), "a.txt").is_ok());
        for path in ["", "../a", "/etc/passwd", "a/../../b", "./a", "no/such/folder"] {
            assert!(inside(folder.path(), path).is_err(), "{path}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
            assert!(inside(folder.path(), "out/passwd").is_err());
            assert!(inside(folder.path(), "link").is_err());
        }
    }
}
