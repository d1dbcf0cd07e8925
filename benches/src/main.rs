//! Measures Countersign and says whether each figure meets its goal: `cargo xtask bench core [--json]`.
//!
//! Exits with 1 when a goal is missed.

mod core;
mod figure;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::figure::Figure;

/// Measures the release build against its goals.
#[derive(Debug, Parser)]
struct Bench {
    /// What to measure.
    suite: Suite,
    /// Measures only the groups whose name begins so: judge, memory, sqlite, postgres.
    #[arg(long, default_value = "")]
    only: String,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// The gate and its stores.
    Core,
}

fn main() -> Result<ExitCode> {
    let bench = Bench::parse();
    let figures = match bench.suite {
        Suite::Core => core::figures(&bench.only)?,
    };
    let text = if bench.json { figure::json_lines(&figures)? } else { figure::table(&figures) };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if figures.iter().all(Figure::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
