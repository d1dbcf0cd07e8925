//! The web app's own checks and tests, and the browser's: npm brings the tools, Chromium is the system's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::setup;
use crate::cargo::{root, run};

/// Where Chromium is usually found, and the variable that says otherwise.
const PLACES: &[&str] = &["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
pub(crate) const CHROMIUM: &str = "CHROMIUM";
const HOW_TO_GET_NODE: &str = "Node is needed for the web app: install Node 20.19 or later with npm, from nodejs.org or \
    your system's packages";
const HOW_TO_GET_CHROMIUM: &str = "Chromium is needed for the browser tests: `apt-get install chromium`, or set CHROMIUM \
    to the program";

/// `npm` with these arguments, in the folder of the web app.
pub(crate) fn npm<const N: usize>(arguments: [&str; N]) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(root().join("web")).args(arguments).stdin(Stdio::null());
    npm
}

/// Makes sure of npm and of the locked packages.
pub(crate) fn packages() -> Result<()> {
    let found = npm(["--version"]).output().is_ok_and(|output| output.status.success());
    found.then_some(()).context(HOW_TO_GET_NODE)?;
    run(npm(["ci", "--no-audit", "--no-fund"]).stdout(std::io::stderr()))
}

/// Finds Chromium. Installs Debian's package when it is missing, we are root and there is `apt-get`.
pub(crate) fn chromium() -> Result<PathBuf> {
    if let Some(found) = find_chromium() {
        eprintln!("Chromium: found at {}", found.display());
        return Ok(found);
    }
    setup::install("Chromium", "chromium")?;
    find_chromium().context(HOW_TO_GET_CHROMIUM)
}

fn find_chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(CHROMIUM) {
        return Some(PathBuf::from(named)).filter(|path| path.exists());
    }
    PLACES.iter().map(Path::new).find(|path| path.exists()).map(Path::to_owned)
}
