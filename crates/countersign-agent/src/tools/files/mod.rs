//! Tools for the files of a workspace.

mod edit;
mod list;
mod read;
mod save;
mod search;
mod shown;
mod visit;
mod write;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use countersign::place::{Place, Places};
use countersign::{Json, Running, ToolError};
use rustix::fs::Stat;

pub use edit::EditFile;
pub use list::ListFiles;
pub use read::ReadFile;
pub use search::SearchFiles;
pub use write::WriteFile;

use super::Workspace;
use super::workspace::{Resolved, Spot};
use crate::limits;

/// The argument that points to a file or a folder.
const PATH: &str = "path";

/// Where a call's `path` leads, for those who judge it: a file, or a folder with all that is in it.
async fn places(workspace: &Workspace, arguments: &Json, wanted: Wanted) -> Result<Places, String> {
    let path: Option<String> = arguments.field(PATH).and_then(|path| path.read().ok());
    let path = match (path, wanted) {
        (Some(path), _) => path,
        (None, Wanted::Folder) => HERE.to_owned(),
        (None, Wanted::File) => return Ok(Places::default()),
    };
    let held = workspace.clone();
    let resolved = workspace.blocking(move || Ok(held.resolve(&path)?)).await.map_err(|error| error.to_string())?;
    let place = match (resolved, wanted) {
        (Resolved::File(path), Wanted::File) => Place::File(as_text(path)?),
        (Resolved::Folder(path), Wanted::Folder) => Place::Folder(as_text(path)?),
        (Resolved::File(_) | Resolved::Folder(_), _) => return Ok(Places::default()),
    };
    Ok(Places::one(PATH, place))
}

/// The folder that is meant where none is named.
const HERE: &str = ".";

/// What a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    File,
    Folder,
}

fn as_text(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|_| "the path is no text".to_owned())
}

/// Where a run has to act: where its `path` led when it was judged.
fn spot(running: &Running, argument: &str) -> Spot {
    Spot::judged(running.place(PATH), argument)
}

/// Reads a whole file as text. Too large, binary or not UTF-8 is an error that says so.
fn read_text(file: File, stat: &Stat, path: &Path) -> Result<String, ToolError> {
    let shown = path.display();
    let too_large = || {
        let most = limits::FILE_BYTES / (1024 * 1024);
        ToolError::Failed(format!("`{shown}` is larger than {most} MiB"))
    };
    if u64::try_from(stat.st_size).is_ok_and(|size| size > limits::FILE_BYTES) {
        return Err(too_large());
    }
    let bytes = read_within(file, limits::FILE_BYTES)
        .map_err(|error| ToolError::Failed(format!("`{shown}` cannot be read: {error}")))?
        .ok_or_else(too_large)?;
    if is_binary(&bytes) {
        return Err(ToolError::Failed(format!("`{shown}` is a binary file of {} bytes", bytes.len())));
    }
    String::from_utf8(bytes).map_err(|_| ToolError::Failed(format!("`{shown}` is not UTF-8 text")))
}

/// Reads a file that may grow while it is read. None where it has more bytes than allowed.
fn read_within(file: File, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

/// A line as a result shows it: without its end, and not longer than allowed.
fn shown_line(line: &str) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    match super::clip::head(line, limits::RESULT_LINE_BYTES) {
        (line, 0) => line.to_owned(),
        (head, cut) => format!("{head}[… {cut} bytes left out]"),
    }
}
