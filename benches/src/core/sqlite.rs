//! The SQLite store against bare SQLite: the same number of commits, and the same number of rows.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use countersign::store::CallFilter;
use countersign::{Gate, Policy, Proposal, Who};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::memory::{cycle, gate, submit, write_file};
use super::{Goal, compared};
use crate::figure::Figure;

/// Rows one durable cycle writes: the call four times, its request, its hold, five events, its chain four times.
const ROWS_OF_A_CYCLE: usize = 15;
const CALLERS: usize = 64;
/// How often a figure is taken; one of them is the middle.
const PAIRS: usize = 5;

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    Ok(vec![one_caller(&runtime)?, many_callers(&runtime)?])
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn open(runtime: &Runtime, folder: &TempDir) -> Result<Gate> {
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    gate(runtime.block_on(countersign_store::connect(&url))?)
}

/// Bare SQLite with the same durability: rows of a call's size, so many to a commit. Returns commits a second.
fn bare_commits(folder: &Path, commits: usize, rows: usize) -> Result<f64> {
    let connection = Connection::open(folder.join("bare.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)")?;
    let body = "x".repeat(600);
    let begin = Instant::now();
    for _ in 0..commits {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..rows {
            connection.prepare_cached("INSERT INTO t (body) VALUES (?1)")?.execute([&body])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(commits as f64 / begin.elapsed().as_secs_f64())
}

/// Measures ours and bare in turn, so that both meet the same disk. Of all pairs, the middle one counts.
fn middle_pair(mut pair: impl FnMut() -> Result<(f64, f64)>) -> Result<(f64, f64)> {
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        pairs.push(pair()?);
    }
    pairs.sort_by(|(ours, bare), (others, others_bare)| (ours / bare).total_cmp(&(others / others_bare)));
    pairs.get(PAIRS / 2).copied().context("nothing was measured")
}

fn one_caller(runtime: &Runtime) -> Result<Figure> {
    let folder = TempDir::new()?;
    let gate = open(runtime, &folder)?;
    let (tool, ann, session) = (write_file(), Who::person("ann"), Arc::from("s1"));
    runtime.block_on(cycle(&gate, &tool, &session, &ann))?;
    let (ours, bare) = middle_pair(|| {
        let begin = Instant::now();
        for _ in 0..50 {
            runtime.block_on(cycle(&gate, &tool, &session, &ann))?;
        }
        Ok((50.0 / begin.elapsed().as_secs_f64(), bare_commits(folder.path(), 200, 1)? / 4.0))
    })?;
    Ok(compared("durable cycle on SQLite, 1 caller, over four bare commits", "1/s", ours, bare, Goal::AtLeast(0.8)))
}

fn many_callers(runtime: &Runtime) -> Result<Figure> {
    let folder = TempDir::new()?;
    let gate = open(runtime, &folder)?;
    let cycles = 3_000;
    // A full batch of ours holds one transition of each caller.
    let rows = CALLERS * ROWS_OF_A_CYCLE / 4;
    let (ours, bare) = middle_pair(|| {
        let ours = cycles_per_second(runtime, &gate, cycles)? * ROWS_OF_A_CYCLE as f64;
        let bare = bare_commits(folder.path(), cycles * ROWS_OF_A_CYCLE / rows, rows)? * rows as f64;
        Ok((ours, bare))
    })?;
    Ok(compared("rows of durable cycles on SQLite, 64 callers, over bare", "1/s", ours, bare, Goal::AtLeast(0.5)))
}

pub(crate) fn cycles_per_second(runtime: &Runtime, gate: &Gate, cycles: usize) -> Result<f64> {
    runtime.block_on(async {
        let begin = Instant::now();
        let callers = (0..CALLERS).map(|caller| {
            let gate = gate.clone();
            tokio::spawn(async move {
                let (tool, ann) = (write_file(), Who::person("ann"));
                let session = Arc::from(format!("session-{caller}"));
                for _ in 0..cycles / CALLERS {
                    cycle(&gate, &tool, &session, &ann).await?;
                }
                anyhow::Ok(())
            })
        });
        for caller in futures::future::join_all(callers).await {
            caller??;
        }
        Ok((cycles / CALLERS * CALLERS) as f64 / begin.elapsed().as_secs_f64())
    })
}

/// The first page of open holds must not feel how many calls ended before.
pub(crate) fn first_page() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let few = page_with(&runtime, 1_000)?;
    let many = page_with(&runtime, 1_000_000)?;
    Ok(vec![compared("first page of holds on SQLite, 1M old calls over 1k", "us", many, few, Goal::AtMost(1.5))])
}

fn page_with(runtime: &Runtime, old: usize) -> Result<f64> {
    let folder = TempDir::new()?;
    let gate = open(runtime, &folder)?;
    let policy = Policy::from_yaml("rules: [{ id: old, deny: old }]").map_err(|errors| anyhow::anyhow!("{errors}"))?;
    runtime.block_on(async {
        gate.set_policy(policy).await?;
        let callers = (0..CALLERS * 4).map(|caller| {
            let gate = gate.clone();
            tokio::spawn(async move {
                for _ in 0..old / (CALLERS * 4) {
                    let proposal = Proposal::new("old", "{}").session(format!("session-{caller}"));
                    gate.submit_undefined(proposal).await?;
                }
                anyhow::Ok(())
            })
        });
        for caller in futures::future::join_all(callers).await {
            caller??;
        }
        let tool = write_file();
        for index in 0..200 {
            submit(&gate, &tool, &Arc::from(format!("open-{}", index % 10))).await?;
        }
        let mut best = f64::MAX;
        for _ in 0..200 {
            let begin = Instant::now();
            let page = gate.store().calls(CallFilter { holding: true, ..CallFilter::default() }).await?;
            best = best.min(begin.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(page.len() == 100, "the page has {} holds", page.len());
        }
        Ok(best)
    })
}
