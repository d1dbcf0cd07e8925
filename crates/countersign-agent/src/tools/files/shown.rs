//! What an approver was shown of a file, and whether it still is so.

use std::path::Path;

use countersign::{Json, Running, ToolError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The preview of a change to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    /// Where the path leads, without links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// The text from before. Left out where there is none or it is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    /// What the file holds, as a hash; `none` where there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    /// How often the old text occurs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) matches: Option<usize>,
    /// On which line it occurs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_line: Option<usize>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Shown {
    pub(super) fn of(path: &Path) -> Shown {
        Shown { file: Some(path.display().to_string()), ..Shown::default() }
    }

    pub(super) fn to_json(&self) -> Option<Json> {
        Json::of(self).ok()
    }

    /// What the approver of this run was shown; nothing where nobody was asked.
    pub(super) fn to_approver(running: &Running) -> Shown {
        let hold = running.call().holds.iter().rev().find(|hold| !hold.in_run());
        let payload = hold.and_then(|hold| hold.payload.as_ref());
        payload.and_then(|payload| payload.read().ok()).unwrap_or_default()
    }

    /// Refuses a path that leads elsewhere than it did when it was shown.
    pub(super) fn check_file(&self, path: &Path) -> Result<(), ToolError> {
        let found = path.display().to_string();
        match &self.file {
            Some(file) if *file != found => {
                Err(ToolError::Failed(format!("the path led to `{file}` when it was approved and now to `{found}`")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a file that changed after it was shown.
    pub(super) fn check_content(&self, found: &str, path: &Path) -> Result<(), ToolError> {
        match &self.sha256 {
            Some(sha256) if sha256 != found => {
                let path = path.display();
                Err(ToolError::Failed(format!("`{path}` changed after it was approved; read it and try again")))
            }
            _ => Ok(()),
        }
    }
}

/// What stands for the content of a file that is not there.
pub(super) const NO_FILE: &str = "none";

/// A file's content, as a hash.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
