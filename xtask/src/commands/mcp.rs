//! Real MCP servers and clients that the gateway is tested with: exact versions, in folders under `target`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::python;
use crate::cargo::{self, root};
use crate::metadata::Metadata;

/// Makes sure of the locked packages of both languages.
///
/// The inspector's page is not used, so `package.json` puts a package of nothing in the place of its bundler, which would
/// bring a program for every platform along.
pub(crate) fn packages() -> Result<()> {
    let target = Metadata::read()?.target_directory.join("xtask");
    node_packages(&target.join("mcp"))?;
    python::packages("The Python MCP client", &target.join("mcp-python"), &parts().join("requirements.txt"))
}

fn node_packages(folder: &std::path::Path) -> Result<()> {
    let stamp = folder.join("installed.json");
    let read = |name: &str| fs::read(parts().join(name)).with_context(|| format!("cannot read the parts' {name}"));
    let (package, lock) = (read("package.json")?, read("package-lock.json")?);
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        eprintln!("MCP servers and clients: found in {}", folder.display());
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("package.json"), package)?;
    fs::write(folder.join("package-lock.json"), &lock)?;
    let mut npm = Command::new("npm");
    // None of them needs a script to be installed, so none is run.
    npm.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    cargo::run(npm.stdin(Stdio::null()).stdout(std::io::stderr()))?;
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}

fn parts() -> PathBuf {
    root().join("crates").join("countersign-cli").join("tests").join("parts")
}
