//! The `countersign` command: commands, prompts and the demo.
//!
//! The only crate that reads arguments, environment and terminal, and the only one that ends a process. It wires the
//! library up and shows what comes of it; the library decides.

mod agents;
mod browser;
mod clients;
mod commands;
mod demo;
mod desk;
mod diagnostics;
mod doctor;
mod fault;
mod home;
mod inbox;
mod key;
mod link;
mod log;
mod offer;
mod out;
mod person;
mod progress;
mod prompt;
mod run;
mod servers;
mod settings;
mod signals;
mod trusted;
mod upstream;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::Cli;
use crate::fault::Fault;
use crate::log::Log;

/// Stack of every thread that may judge: conditions are compiled by recursive code.
const STACK: usize = 16 << 20;

fn main() -> ExitCode {
    let cli = match commands::run_kept(Cli::parse()) {
        Ok(code) => return code,
        Err(cli) => *cli,
    };
    // The main thread's stack is the system's choice, so the work is done on one of our own.
    let worker = std::thread::Builder::new().name("countersign".into()).stack_size(STACK).spawn(move || work(cli));
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(fault))) if fault.is_broken_pipe() => ExitCode::SUCCESS,
        Ok(Ok(Err(fault))) => {
            report(&fault);
            fault.exit.into()
        }
        // The panic has told about itself.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => {
            report(&Fault::from(error).context("cannot start a thread"));
            ExitCode::FAILURE
        }
    }
}

fn work(cli: Cli) -> Result<(), Fault> {
    let mut builder = match cli.is_for_one() {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.thread_stack_size(STACK).enable_all().build()?;
    let log = Log::begin(&cli.log, cli.kind(), runtime.handle())?;
    let done = runtime.block_on(async {
        let done = commands::run(cli).await;
        // Tasks of this runtime send what is left.
        let _ = tokio::task::spawn_blocking(|| log.end()).await;
        done
    });
    // A tool or prompt that does not end by itself must not keep us.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    done
}

fn report(fault: &Fault) {
    for detail in &fault.details {
        out::say(detail);
    }
    out::say(format_args!("{} {fault}", out::paint(out::BAD, "error:")));
}
