//! From a decision to whoever waits for it, with many holds waiting.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use countersign::Call;
use countersign::memory::MemoryStore;
use countersign_api::wire::Role;
use futures::future::try_join_all;
use serde_json::json;

use super::http::Http;
use super::{Serving, alone, gate, percentile, runtime};
use crate::core::memory::{submit, write_file};
use crate::figure::Figure;

const HOLDS: usize = 10_000;
/// Requests that wait, spread over some credentials so that none is over its rate.
const WAITING: usize = 1_000;
const AGENTS: usize = 10;
const APPROVERS: usize = 4;

pub(super) fn figures() -> Result<Vec<Figure>> {
    runtime()?.block_on(async {
        let serving = Serving::start(gate(Arc::new(MemoryStore::new()))?).await?;
        let calls = open(&serving).await?;
        let mut tokens = Vec::new();
        for index in 0..AGENTS {
            tokens.push(serving.token(Role::Auditor, &format!("waiter-{index}")).await?);
        }
        let waiting = calls.iter().take(WAITING).zip(tokens.iter().cycle());
        let mut waiting = try_join_all(waiting.map(|(call, token)| wait(&serving, call, token))).await?;
        let mut deciders = Vec::new();
        for index in 0..APPROVERS {
            deciders.push(serving.connect(Role::Approver, &format!("ann-{index}")).await?);
        }
        let mut times = Vec::with_capacity(WAITING);
        for (index, (call, http)) in calls.iter().zip(&mut waiting).enumerate() {
            let decider = deciders.get_mut(index % APPROVERS).context("nobody decides")?;
            times.push(decided(decider, call, http).await? * 1e3);
        }
        drop((waiting, deciders));
        serving.end().await?;
        let name = "decision to long-poll answer, p99, 10,000 holds waiting";
        Ok(vec![alone(name, "ms", percentile(times, 99), 10.0)])
    })
}

async fn open(serving: &Serving) -> Result<Vec<Arc<Call>>> {
    let tool = write_file();
    let mut calls = Vec::with_capacity(HOLDS);
    for index in 0..HOLDS {
        calls.push(submit(&serving.gate, &tool, &Arc::from(format!("session-{}", index % 100))).await?);
    }
    Ok(calls)
}

async fn wait(serving: &Serving, call: &Call, token: &str) -> Result<Http> {
    let mut http = Http::connect(serving.address, token).await?;
    http.begin_get(&format!("/v1/calls/{}?wait=60", call.id)).await?;
    Ok(http)
}

/// Seconds from sending a decision to the answer of whoever waits.
async fn decided(decider: &mut Http, call: &Call, waiting: &mut Http) -> Result<f64> {
    let hold = call.open_hold().context("no hold")?;
    let body = json!({ "answer": "approve", "digest": hold.digest }).to_string();
    let path = format!("/v1/holds/{}/decisions", hold.id);
    let begin = Instant::now();
    let (decided, answered) = tokio::join!(decider.post(&path, &body), waiting.answer());
    let seconds = begin.elapsed().as_secs_f64();
    decided?;
    anyhow::ensure!(String::from_utf8_lossy(&answered?).contains("approved"), "the wait ended too early");
    Ok(seconds)
}
