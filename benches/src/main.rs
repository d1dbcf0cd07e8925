//! Measures Countersign and says whether each figure meets its goal: `cargo xtask bench core [--json]`,
//! `cargo xtask bench agent`, `cargo xtask bench server`, `cargo xtask bench mcp`.
//!
//! Exits with 1 when a goal is missed.

#[cfg(feature = "agent")]
mod agent;
mod core;
mod figure;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(any(feature = "agent", feature = "mcp"))]
mod process;
#[cfg(feature = "server")]
mod server;

use std::io::{self, Write};
#[cfg(feature = "agent")]
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::figure::Figure;

/// Measures the release build against its goals.
#[derive(Debug, Parser)]
struct Bench {
    /// What to measure.
    suite: Suite,
    /// Measures only the groups whose name begins so: judge, memory, sqlite, page, postgres; memory, sqlite, stream, sessions;
    /// holds, calls, cycle, poll, stream; stdio, http, held, proxies.
    #[arg(long, default_value = "")]
    only: String,
    /// What `benches/adk` printed; without it the agent's figures stand alone.
    #[cfg(feature = "agent")]
    #[arg(long)]
    baseline: Option<PathBuf>,
    /// Makes this process a part of the MCP bench.
    #[cfg(feature = "mcp")]
    #[arg(long, hide = true)]
    peer: Option<mcp::Peer>,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// The gate and its stores.
    Core,
    /// The agent runtime.
    #[cfg(feature = "agent")]
    Agent,
    /// The approval server.
    #[cfg(feature = "server")]
    Server,
    /// What the server's bench starts: readers that connect to the address in `--only`.
    #[cfg(feature = "server")]
    #[value(hide = true)]
    Crowd,
    /// The MCP gateway.
    #[cfg(feature = "mcp")]
    Mcp,
}

fn main() -> Result<ExitCode> {
    let bench = Bench::parse();
    #[cfg(feature = "mcp")]
    if let Some(peer) = bench.peer {
        peer.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let figures = match bench.suite {
        Suite::Core => core::figures(&bench.only)?,
        #[cfg(feature = "agent")]
        Suite::Agent => agent::figures(&bench.only, bench.baseline.as_deref())?,
        #[cfg(feature = "server")]
        Suite::Server => server::figures(&bench.only)?,
        #[cfg(feature = "server")]
        Suite::Crowd => return server::crowd(&bench.only).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "mcp")]
        Suite::Mcp => mcp::figures(&bench.only)?,
    };
    let text = if bench.json { figure::json_lines(&figures)? } else { figure::table(&figures) };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if figures.iter().all(Figure::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
