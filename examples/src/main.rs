//! Runs the programs behind the guide: `cargo run -p countersign-examples -- ask_first`.
#![allow(clippy::print_stdout, reason = "telling a story on the terminal is what these programs do")]

use anyhow::{Context as _, Result};
use countersign_examples::EXAMPLES;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(wanted) = std::env::args().nth(1) else {
        println!("Say which of these to run:");
        EXAMPLES.iter().for_each(|(name, _)| println!("  {name}"));
        return Ok(());
    };
    let (_, run) = EXAMPLES.iter().find(|(name, _)| *name == wanted).context("there is no such example")?;
    run().await
}
