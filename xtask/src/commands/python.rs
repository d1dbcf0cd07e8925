//! Python programs that tests need: exact versions, each set in a folder of its own under `target`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::setup;
use crate::cargo;

const HOW_TO_GET_PYTHON: &str =
    "Python 3.10 or later with venv and pip is needed for the tests: `apt-get install python3-venv`";

/// Makes sure of Python and of the packages that a file of requirements names.
pub(crate) fn packages(what: &str, folder: &Path, wanted: &Path) -> Result<()> {
    let stamp = folder.join("installed.txt");
    let text = fs::read_to_string(wanted).with_context(|| format!("cannot read {}", wanted.display()))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == text) {
        eprintln!("{what}: found in {}", folder.display());
        return Ok(());
    }
    if !makes_folders() {
        setup::install("Python", "python3-venv")?;
    }
    quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder)).context(HOW_TO_GET_PYTHON)?;
    let mut pip = Command::new(program(folder, "python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"]);
    let installed = quiet(pip.arg(wanted));
    installed.with_context(|| format!("{what} cannot be installed: is the package index in reach?"))?;
    fs::write(&stamp, text).with_context(|| format!("cannot write {}", stamp.display()))
}

/// A program in such a folder.
pub(crate) fn program(folder: &Path, name: &str) -> PathBuf {
    folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
}

fn makes_folders() -> bool {
    let arguments = ["-c", "import ensurepip, venv"].map(OsStr::new);
    Command::new("python3").args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Runs a command whose output is talk.
fn quiet(command: &mut Command) -> Result<()> {
    cargo::run(command.stdin(Stdio::null()).stdout(std::io::stderr()))
}
