//! `cargo xtask bench`.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::cargo::{cargo, line, root, run};

/// Measures the release build against what it must reach.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure.
    suite: Suite,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    Core,
    Agent,
    Server,
    Mcp,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        // Only what the suite needs is built.
        let (suite, feature, baseline) = match self.suite {
            Suite::Core => ("core", "postgres", None),
            Suite::Agent => ("agent", "agent", Some(adk()?)),
            Suite::Server => ("server", "server", None),
            Suite::Mcp => ("mcp", "mcp", None),
        };
        let mut bench = cargo(["run", "--quiet", "--release", "-p", "countersign-benches", "--no-default-features"]);
        bench.args(["--features", feature, "--", suite]).args(self.json.then_some("--json"));
        if let Some(baseline) = baseline {
            bench.arg("--baseline").arg(baseline);
        }
        run(&mut bench)
    }
}

/// Has adk-rs do the agent bench's work, alone on the machine, and keeps what it prints.
fn adk() -> Result<PathBuf> {
    let target = root().join("target").join("adk");
    let mut adk = cargo(["run", "--quiet", "--release", "--locked", "--manifest-path", "benches/adk/Cargo.toml"]);
    adk.arg("--target-dir").arg(&target).stderr(Stdio::inherit());
    let ran = adk.output().with_context(|| format!("cannot run `{}`", line(&adk)))?;
    ensure!(ran.status.success(), "`{}` failed ({})", line(&adk), ran.status);
    let kept = target.join("figures.jsonl");
    fs::write(&kept, ran.stdout).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(kept)
}
