//! `cargo xtask check`.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::{cargo, root, run};
use crate::metadata::Metadata;
use crate::rules::{deploy, edges, licences, owners, source};

/// Checks format, crate edges, rules of absence, licences and lints.
#[derive(Debug, Args)]
pub(crate) struct Check {}

impl Check {
    pub(crate) fn run(&self) -> Result<()> {
        run(&mut cargo(["fmt", "--all", "--check"]))?;
        eprintln!("ok  format");
        let metadata = Metadata::read()?;
        let deny = licences::Deny::read(&root().join("deny.toml"))?;
        let files = source::files(&root())?;
        let complaints = [
            report("crate edges", edges::complaints(&metadata)),
            report("one crate for each foreign thing", owners::complaints(&metadata)),
            report("licences and banned crates", licences::complaints(&metadata, &deny)),
            report("rules of absence", source::complaints(&files)),
            report("what is deployed", deploy::complaints(&root())?),
        ];
        let count = complaints.iter().sum::<usize>();
        if count > 0 {
            bail!("{count} complaints of `cargo xtask check`, listed above");
        }
        let started = Instant::now();
        run(&mut cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
        eprintln!("ok  lints ({:.1} s)", started.elapsed().as_secs_f64());
        Ok(())
    }
}

fn report(rule: &str, complaints: Vec<String>) -> usize {
    eprintln!("{}  {rule}", if complaints.is_empty() { "ok" } else { "NO" });
    for complaint in &complaints {
        eprintln!("    {complaint}");
    }
    complaints.len()
}
