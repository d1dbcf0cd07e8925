//! `cargo xtask kill`.

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::setup;
use crate::cargo::{cargo, run};

/// Kills a working process again and again and looks for lost decisions, unapproved runs and double runs.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// How often to kill it.
    #[arg(long)]
    count: u64,
    /// The store it works on.
    #[arg(long)]
    store: Store,
    /// Repeats an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints one JSON object instead of sentences.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    Sqlite,
    Postgres,
}

impl Kill {
    pub(crate) fn run(&self) -> Result<()> {
        let mut kill = cargo(["run", "--quiet", "-p", "countersign-testkit", "--bin", "kill-supervisor", "--"]);
        kill.args(["--count", &self.count.to_string()]);
        match self.store {
            Store::Sqlite => kill.args(["--store", "sqlite"]),
            Store::Postgres => kill.args(["--store", "postgres"]).env(setup::BINDIR, setup::postgres()?),
        };
        if let Some(seed) = self.seed {
            kill.args(["--seed", &seed.to_string()]);
        }
        run(kill.args(self.json.then_some("--json")))
    }
}
