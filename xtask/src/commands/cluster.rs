//! `cargo xtask cluster`.

use anyhow::Result;
use clap::Args;

use super::setup;
use crate::cargo::{cargo, run};
use crate::metadata::Metadata;

/// Kills nodes and database of a cluster under load and looks for lost, unapproved, doubled and unended work.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// How often to kill one of them.
    #[arg(long)]
    kills: u64,
    /// Repeats an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints one JSON object instead of sentences.
    #[arg(long)]
    json: bool,
}

impl Cluster {
    pub(crate) fn run(&self) -> Result<()> {
        run(&mut cargo(["build", "--quiet", "-p", "countersign-cli", "--bin", "countersign"]))?;
        let program = Metadata::read()?.target_directory.join("debug").join("countersign");
        let mut cluster = cargo(["run", "--quiet", "-p", "countersign-testkit", "--bin", "cluster-supervisor", "--"]);
        cluster.args(["--kills", &self.kills.to_string()]).arg("--program").arg(program);
        if let Some(seed) = self.seed {
            cluster.args(["--seed", &seed.to_string()]);
        }
        run(cluster.args(self.json.then_some("--json")).env(setup::BINDIR, setup::postgres()?))
    }
}
