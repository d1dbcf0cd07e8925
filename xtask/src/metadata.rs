//! What `cargo metadata` knows of the workspace and of everything it builds with.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::{cargo, line};

/// The workspace, all features on.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
}

/// One package, ours or not.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A package that another one names in its manifest.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "kind")]
    pub(crate) kind: Kind,
}

/// What a dependency is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Normal,
    Dev,
    Build,
}

impl Metadata {
    /// Asks cargo, for all platforms. Without a network it may know only the crates of this one; then it says so.
    pub(crate) fn read() -> Result<Metadata> {
        let mut all = cargo(["metadata", "--format-version", "1", "--all-features", "--locked"]);
        let mut output = all.output().context("cannot run `cargo metadata`")?;
        if !output.status.success() {
            output = all.args(["--filter-platform", &host()?]).stderr(Stdio::inherit()).output()?;
            ensure!(output.status.success(), "`{}` failed", line(&all));
            eprintln!("note: crates of other platforms cannot be fetched, so only those of this one are looked at");
        }
        serde_json::from_slice(&output.stdout).context("cannot read what `cargo metadata` prints")
    }

    /// The packages of the workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run `rustc`")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` names no host")
}

/// Cargo writes a normal dependency's kind as null.
fn kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
