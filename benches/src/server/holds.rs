//! A hundred thousand holds that wait: what each takes, how long the first page takes, how long a restart takes.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use countersign::Gate;
use countersign_api::wire::Role;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::http::Http;
use super::{Serving, alone, gate, percentile, runtime};
use crate::core::memory::{resident, submit, write_file};
use crate::core::{Goal, compared};
use crate::figure::Figure;

const MANY: usize = 100_000;
const FEW: usize = 1_000;
/// Callers that open holds side by side, so that they share commits.
const CALLERS: usize = 256;
const PAGES: usize = 500;
/// What a hold may take.
const BYTES: f64 = 4096.0;

pub(super) fn figures() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let folder = TempDir::new()?;
    let serving = runtime.block_on(Serving::start(open(&runtime, &folder)?))?;
    let before = resident()?;
    runtime.block_on(submit_all(&serving.gate, FEW))?;
    let few = runtime.block_on(first_page(&serving))?;
    runtime.block_on(submit_all(&serving.gate, MANY - FEW))?;
    let bytes = resident()?.saturating_sub(before) as f64 / MANY as f64;
    let many = runtime.block_on(first_page(&serving))?;
    runtime.block_on(serving.end())?;
    let begin = Instant::now();
    let serving = runtime.block_on(Serving::start(open(&runtime, &folder)?))?;
    runtime.block_on(ready(&serving))?;
    let restart = begin.elapsed().as_secs_f64();
    runtime.block_on(serving.end())?;
    Ok(vec![
        alone("a pending hold on a server with 100,000, resident", "bytes", bytes, BYTES),
        compared("first page of holds over HTTP, p99, 100,000 over 1,000", "us", many, few, Goal::AtMost(1.5)),
        alone("restart with 100,000 pending holds, until ready", "s", restart, 2.0),
    ])
}

fn open(runtime: &Runtime, folder: &TempDir) -> Result<Gate> {
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    gate(runtime.block_on(countersign_store::connect(&url))?)
}

async fn submit_all(gate: &Gate, count: usize) -> Result<()> {
    let callers = (0..CALLERS).map(|caller| {
        let gate = gate.clone();
        let share = count / CALLERS + usize::from(caller < count % CALLERS);
        tokio::spawn(async move {
            let (tool, session) = (write_file(), Arc::from(format!("session-{caller}")));
            for _ in 0..share {
                submit(&gate, &tool, &session).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in futures::future::join_all(callers).await {
        caller??;
    }
    Ok(())
}

/// Microseconds below which 99 of 100 first pages come.
async fn first_page(serving: &Serving) -> Result<f64> {
    let mut http = serving.connect(Role::Approver, "ann").await?;
    let mut times = Vec::with_capacity(PAGES);
    for _ in 0..PAGES {
        let begin = Instant::now();
        let page = http.get("/v1/holds").await?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        ensure!(page.len() > 10_000, "the page is empty");
    }
    Ok(percentile(times, 99))
}

async fn ready(serving: &Serving) -> Result<()> {
    Http::connect(serving.address, "none").await?.get("/readyz").await?;
    Ok(())
}
