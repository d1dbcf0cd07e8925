//! Runs a program in place of a process that may die meanwhile, and writes down how it ended.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use serde::{Deserialize, Serialize};

use crate::tools::user::User;

/// What a shell says about a program that is not there.
const NOT_STARTED: i32 = 127;
/// What a shell adds to the signal that killed a program.
const SIGNALLED: i32 = 128;

/// Before the word that names whom to run the program as. No file is named so: theirs are absolute.
const AS: &str = "as=";

/// The word that tells the keeper whom to run its program as.
pub(super) fn as_word(user: User) -> String {
    format!("{AS}{}", user.to_word())
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It never began.
    NotStarted(String),
}

impl Status {
    pub(super) fn of(status: ExitStatus) -> Status {
        match (status.code(), status.signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, signal) => Status::Killed(signal.unwrap_or_default()),
        }
    }

    /// What was written down, if all of it was.
    pub(super) fn read(path: &Path) -> Option<Status> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn code(&self) -> i32 {
        match self {
            Status::Exited(code) => *code,
            Status::Killed(signal) => SIGNALLED + signal,
            Status::NotStarted(_) => NOT_STARTED,
        }
    }
}

/// Does the work of a keeper: see [`Processes::kept_by`](super::Processes::kept_by).
///
/// `words` are what [`Processes`](super::Processes) gave it: perhaps whom to run the program as, the file to write to, the
/// program, and the program's own words. Returns the code to exit with, at once: whoever started it waits for that.
pub fn keep_status(words: impl IntoIterator<Item = OsString>) -> io::Result<i32> {
    let mut words = words.into_iter().peekable();
    let user = words.peek().and_then(|word| Some(word.to_str()?.strip_prefix(AS)?.to_owned()));
    let user = user.map(|word| User::find(&word)).transpose().map_err(io::Error::other)?;
    if user.is_some() {
        words.next();
    }
    let (Some(file), Some(program)) = (words.next(), words.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file and a program are needed"));
    };
    let mut command = Command::new(program);
    user.into_iter().for_each(|user| user.apply(&mut command));
    let status = match command.args(words).status() {
        Ok(status) => Status::of(status),
        Err(error) => Status::NotStarted(error.to_string()),
    };
    write_synced(Path::new(&file), &serde_json::to_vec(&status)?)?;
    Ok(status.code())
}

/// Beside, then over the old one: dying in between must not cost what was written down before. On the disk when it
/// returns, name and all.
///
/// An entry and its status are written by two processes at once, so the name beside keeps the whole name.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keeper writes how a program ended while its starter still writes down that it runs.
    #[test]
    fn an_entry_and_its_status_are_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for name in ["one.json", "one.status"] {
                let path = folder.path().join(name);
                scope.spawn(move || {
                    for _ in 0..200 {
                        write_synced(&path, name.as_bytes()).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), name.as_bytes());
                    }
                });
            }
        });
    }
}
