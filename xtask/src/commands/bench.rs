//! `cargo xtask bench`.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cargo::{cargo, run};

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
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        let suite = match self.suite {
            Suite::Core => "core",
        };
        let mut bench = cargo(["run", "--quiet", "--release", "-p", "countersign-benches", "--", suite]);
        bench.args(self.json.then_some("--json"));
        run(&mut bench)
    }
}
