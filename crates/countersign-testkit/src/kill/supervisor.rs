//! Starts the worker, kills it, and starts it again.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign::testing::races::Dice;

use super::join::join;
use super::{Backend, Report, child};
use crate::{Durability, TestPostgres};

/// Every step a worker can die at, and how often it has to come by.
const STEPS: [(&str, u64); 12] = [
    ("submit", 1),
    ("submit", 3),
    ("decide", 1),
    ("claim", 1),
    ("claim", 3),
    ("ask", 1),
    ("renew", 1),
    ("finish", 1),
    ("cancel", 1),
    ("release", 1),
    ("close", 1),
    ("tick", 1),
];
/// A worker that does not die at its step by then never comes by it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Kills at every named step and `count` times at random, drains, and joins the records.
///
/// # Errors
///
/// When the worker, the store or the files fail in any way but the ones asked for.
pub async fn run(backend: Backend, count: u64, seed: u64) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let server = match backend {
        Backend::Sqlite => None,
        Backend::Postgres => Some(TestPostgres::start(Durability::Durable)?),
    };
    let database = server.as_ref().map(TestPostgres::create_database).transpose()?;
    let url = match &database {
        Some(database) => database.url().to_owned(),
        None => format!("sqlite:{}", folder.path().join("countersign.db").display()),
    };
    // The longest life before a random kill, in milliseconds: a few calls' worth.
    let longest = match backend {
        Backend::Sqlite => 80,
        Backend::Postgres => 200,
    };
    let mut dice = Dice::new(seed);
    let mut kills = 0;
    for (step, number) in STEPS {
        for side in ["before", "after"] {
            die_at(&url, folder.path(), &format!("{step}:{side}:{number}"), dice.roll(1 << 30) as u64)?;
            kills += 1;
        }
    }
    for _ in 0..count {
        let mut worker = start(&url, folder.path(), "work", dice.roll(1 << 30) as u64, None)?;
        std::thread::sleep(Duration::from_millis(dice.roll(longest) as u64));
        worker.kill()?;
        worker.wait()?;
        kills += 1;
    }
    let status = start(&url, folder.path(), "drain", 0, None)?.wait()?;
    ensure!(status.success(), "the last life could not bring everything to an end: {status}");
    join(&child::connect(&url).await?, folder.path(), seed, kills).await
}

/// Starts a worker and waits until it is at work.
fn start(url: &str, folder: &Path, life: &str, seed: u64, crash: Option<&str>) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", life, url]).arg(folder).arg(seed.to_string()).stdout(Stdio::piped());
    if let Some(crash) = crash {
        command.env("CRASH_AT", crash);
    }
    let mut child = command.spawn().context("the worker")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("the worker's output")?).read_line(&mut line)?;
    // A worker that dies while it opens the store says nothing; whoever waits for it sees how it ended.
    ensure!(line.is_empty() || line.trim() == "ready", "the worker said `{line}`");
    Ok(child)
}

/// Lets a worker die at a named step.
fn die_at(url: &str, folder: &Path, crash: &str, seed: u64) -> Result<()> {
    let mut worker = start(url, folder, "work", seed, Some(crash))?;
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = worker.try_wait()? {
            ensure!(!status.success(), "the worker ended by itself instead of dying at {crash}");
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            worker.kill()?;
            worker.wait()?;
            anyhow::bail!("the worker never came by {crash}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
