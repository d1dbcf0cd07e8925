//! `cargo xtask`: set-up, checks, tests and benches. Not shipped, and depends on none of the crates it looks after.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talking on the terminal is what this program does")]

mod cargo;
mod commands;
mod counts;
mod metadata;
mod report;
mod rules;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Looks after the house around the code.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Setup(commands::setup::Setup),
    Check(commands::check::Check),
    Test(commands::test::Test),
    Api(commands::api::Api),
    Bench(commands::bench::Bench),
    Kill(commands::kill::Kill),
    Cluster(commands::cluster::Cluster),
}

fn main() -> ExitCode {
    match run(&Xtask::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Setup(setup) => setup.run()?,
        Command::Check(check) => check.run()?,
        Command::Test(test) => return test.run(),
        Command::Api(api) => api.run()?,
        Command::Bench(bench) => bench.run()?,
        Command::Kill(kill) => kill.run()?,
        Command::Cluster(cluster) => cluster.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
