//! Submit, decide, claim and report over HTTP on SQLite, against the library doing the same.

use std::time::Instant;

use anyhow::{Context as _, Result};
use countersign_api::wire::Role;
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Http;
use super::{Serving, gate, runtime};
use crate::core::sqlite::cycles_per_second;
use crate::core::{Goal, compared};
use crate::figure::Figure;

const SESSIONS: usize = 64;
const CYCLES: usize = 30;
const ROUNDS: usize = 3;

/// An agent and an approver of one session.
struct Pair {
    agent: Http,
    approver: Http,
    session: String,
}

pub(super) fn figures() -> Result<Vec<Figure>> {
    let runtime = runtime()?;
    let (ours, library) = (TempDir::new()?, TempDir::new()?);
    let open = |folder: &TempDir| {
        let url = format!("sqlite:{}", folder.path().join("bench.db").display());
        gate(runtime.block_on(countersign_store::connect(&url))?)
    };
    let (served, alone) = (open(&ours)?, open(&library)?);
    let serving = runtime.block_on(Serving::start(served))?;
    let mut pairs = runtime.block_on(try_join_all((0..SESSIONS).map(|index| pair(&serving, index))))?;
    let mut best = (0.0, f64::MAX);
    for _ in 0..ROUNDS {
        let ours = runtime.block_on(rate(&mut pairs))?;
        let library = cycles_per_second(&runtime, &alone, SESSIONS * CYCLES)?;
        if ours / library > best.0 / best.1 {
            best = (ours, library);
        }
    }
    runtime.block_on(serving.end())?;
    let name = "durable cycles over HTTP on SQLite, 64 sessions, over the library's own";
    Ok(vec![compared(name, "1/s", best.0, best.1, Goal::AtLeast(0.6))])
}

async fn pair(serving: &Serving, index: usize) -> Result<Pair> {
    let agent = serving.connect(Role::Agent, &format!("agent-{index}")).await?;
    let approver = serving.connect(Role::Approver, &format!("ann-{index}")).await?;
    Ok(Pair { agent, approver, session: format!("session-{index}") })
}

/// Cycles a second over all sessions, each a task of its own, as the library's are.
async fn rate(pairs: &mut Vec<Pair>) -> Result<f64> {
    let count = pairs.len() * CYCLES;
    let begin = Instant::now();
    let sessions = pairs.drain(..).map(|mut pair| {
        tokio::spawn(async move {
            for _ in 0..CYCLES {
                cycle(&mut pair).await?;
            }
            anyhow::Ok(pair)
        })
    });
    for session in join_all(sessions).await {
        pairs.push(session??);
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

async fn cycle(pair: &mut Pair) -> Result<()> {
    let arguments = json!({ "path": "notes/today.md", "text": "buy milk and bread" });
    let new = json!({ "session": pair.session, "tool": "write_file", "arguments": arguments });
    let call = pair.agent.post_json("/v1/calls", &new.to_string()).await?;
    let (id, hold) = (text(&call, "/id")?, text(&call, "/holds/0/id")?);
    let decision = json!({ "answer": "approve", "digest": text(&call, "/holds/0/digest")? });
    pair.approver.post(&format!("/v1/holds/{hold}/decisions"), &decision.to_string()).await?;
    let claimed = pair.agent.post_json(&format!("/v1/calls/{id}/claim"), "{}").await?;
    let fence = claimed.get("fence").context("no fence")?;
    let outcome = json!({ "outcome": "succeeded", "output": "done", "fence": fence });
    pair.agent.post(&format!("/v1/calls/{id}/outcome"), &outcome.to_string()).await?;
    Ok(())
}

fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer} in {value}"))
}
