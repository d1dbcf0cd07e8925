//! `cargo xtask setup`.

// A build of the testkit would be a long wait for a few lines, and xtask depends on none of our crates.
#[path = "../../../crates/countersign-testkit/src/bindir.rs"]
#[allow(unreachable_pub, reason = "public in the crate the file belongs to")]
mod bindir;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;

use super::{api, mcp, web};
use crate::cargo::run;

/// The variable that tells tests where PostgreSQL's programs are.
pub(crate) const BINDIR: &str = bindir::VARIABLE;

/// Finds what the tests need, or installs it where that is possible.
#[derive(Debug, Args)]
pub(crate) struct Setup {}

impl Setup {
    pub(crate) fn run(&self) -> Result<()> {
        postgres()?;
        web::packages()?;
        web::chromium()?;
        api::packages()?;
        mcp::packages()?;
        Ok(())
    }
}

/// The folder of PostgreSQL's programs. Installs Debian's package when it is missing, we are root and there is `apt-get`.
pub(crate) fn postgres() -> Result<PathBuf> {
    if let Some(folder) = bindir::find() {
        eprintln!("PostgreSQL: found in {}", folder.display());
        return Ok(folder);
    }
    if std::env::var_os(BINDIR).is_none() {
        install("PostgreSQL", "postgresql")?;
    }
    let folder = bindir::find().context(bindir::HOW_TO_GET_IT)?;
    eprintln!("PostgreSQL: installed in {}", folder.display());
    Ok(folder)
}

/// Installs one of Debian's packages, where we may.
pub(crate) fn install(what: &str, package: &str) -> Result<()> {
    if is_root() && has_apt() {
        eprintln!("{what}: not found, installing it with apt-get");
        run(&mut apt(&["update"]))?;
        run(&mut apt(&["install", "-y", "--no-install-recommends", package]))?;
    }
    Ok(())
}

fn apt(arguments: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    // What apt-get prints is talk, not data.
    apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(std::io::stderr());
    apt
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn has_apt() -> bool {
    Command::new("apt-get").arg("--version").output().is_ok_and(|output| output.status.success())
}
