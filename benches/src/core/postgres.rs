//! The PostgreSQL store against bare PostgreSQL, on a durable throw-away server of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use countersign::{Gate, Who};
use countersign_testkit::{Durability, TestPostgres};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::runtime::{Builder, Runtime};

use super::memory::{decide, gate, submit, write_file};
use super::sqlite::cycles_per_second;
use super::{Goal, compared};
use crate::figure::Figure;

const CALLERS: usize = 64;
/// Wake-ups that count, and those before them, for over a second: the first of everything opens connections.
const MEASURED: usize = 300;
const WARMING: usize = 400;

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = TestPostgres::start(Durability::Durable)?;
    Ok(vec![many_callers(&runtime, &server)?, wake_up(&runtime, &server)?])
}

fn open(runtime: &Runtime, url: &str) -> Result<Gate> {
    gate(runtime.block_on(countersign_store::connect(url))?)
}

fn many_callers(runtime: &Runtime, server: &TestPostgres) -> Result<Figure> {
    let database = server.create_database()?;
    let node = open(runtime, database.url())?;
    // Four transactions a cycle.
    let ours = cycles_per_second(runtime, &node, 2_048)? * 4.0;
    let bare = runtime.block_on(bare_commits(database.url(), 8_192))?;
    let name = "transactions of durable cycles on PostgreSQL, 64 callers, over bare commits";
    Ok(compared(name, "1/s", ours, bare, Goal::AtLeast(0.5)))
}

async fn bare_commits(url: &str, commits: usize) -> Result<f64> {
    let pool = PgPoolOptions::new().max_connections(CALLERS as u32).connect(url).await?;
    sqlx::query("CREATE TABLE bare (id BIGSERIAL PRIMARY KEY, body TEXT)").execute(&pool).await?;
    let begin = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let body = "x".repeat(600);
            let mut connection = pool.acquire().await?;
            for _ in 0..commits / CALLERS {
                sqlx::query("INSERT INTO bare (body) VALUES ($1)").bind(&body).execute(&mut *connection).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in futures::future::join_all(callers).await {
        caller??;
    }
    Ok((commits / CALLERS * CALLERS) as f64 / begin.elapsed().as_secs_f64())
}

/// From the acknowledged decision on one node to the waiter on another.
fn wake_up(runtime: &Runtime, server: &TestPostgres) -> Result<Figure> {
    let database = server.create_database()?;
    let (here, there) = (open(runtime, database.url())?, open(runtime, database.url())?);
    let ours = runtime.block_on(async {
        let (tool, ann) = (write_file(), Who::person("ann"));
        let mut delays = Vec::new();
        for index in 0..WARMING + MEASURED {
            let session = Arc::from(format!("s{}", index % 8));
            let call = submit(&here, &tool, &session).await?;
            let id = call.id;
            let waiting = {
                let there = there.clone();
                tokio::spawn(async move { there.wait(id).await.map(|_| Instant::now()) })
            };
            // The waiter must be waiting before the decision is made.
            while there.store().bell().listeners() == 0 {
                tokio::task::yield_now().await;
            }
            decide(&here, &call, &ann).await?;
            let acknowledged = Instant::now();
            delays.push(waiting.await??.saturating_duration_since(acknowledged));
        }
        anyhow::Ok(p99(delays))
    })?;
    let bare = runtime.block_on(bare_notify(database.url()))?;
    let micro = |duration: Duration| duration.as_secs_f64() * 1e6;
    let name = "decision to waiter on another PostgreSQL node, p99, over bare NOTIFY";
    Ok(compared(name, "us", micro(ours).max(1.0), micro(bare), Goal::AtMost(5.0)))
}

async fn bare_notify(url: &str) -> Result<Duration> {
    let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
    let mut listener = PgListener::connect(url).await?;
    listener.listen("bare").await?;
    let mut delays = Vec::new();
    for _ in 0..WARMING + MEASURED {
        let begin = Instant::now();
        sqlx::query("SELECT pg_notify('bare', 'x')").execute(&pool).await?;
        listener.try_recv().await?.context("the listener was cut")?;
        delays.push(begin.elapsed());
    }
    Ok(p99(delays))
}

fn p99(delays: Vec<Duration>) -> Duration {
    let mut delays: Vec<_> = delays.into_iter().skip(WARMING).collect();
    delays.sort_unstable();
    let at = delays.len() * 99 / 100;
    delays.get(at).or_else(|| delays.last()).copied().unwrap_or_default()
}
