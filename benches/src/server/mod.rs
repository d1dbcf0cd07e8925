//! Figures of the server, each beside the same work done bare in the same run: a bare axum handler, the library alone.

mod calls;
mod crowd;
mod cycle;
mod holds;
mod http;
mod poll;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use countersign::{Gate, Limits, Policy, Store};
use countersign_api::wire::{NewToken, Role};
use countersign_server::{Server, tokens};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::figure::Figure;
use http::Http;

pub(crate) use crowd::stand as crowd;

/// A group of figures: its name, and what measures it.
type Group = (&'static str, fn() -> Result<Vec<Figure>>);

/// The holds first: only a heap that nobody used yet grows by what they take.
const GROUPS: [Group; 5] = [
    ("holds", holds::figures),
    ("calls", calls::figures),
    ("cycle", cycle::figures),
    ("poll", poll::figures),
    ("stream", stream::figures),
];

/// Measures the groups whose name begins with a text.
pub(crate) fn figures(only: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (_, measure) in GROUPS.iter().filter(|(name, _)| name.starts_with(only)) {
        figures.extend(measure()?);
    }
    Ok(figures)
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Bounds that are in nobody's way: what is measured is the work, not the waiting.
fn limits() -> Limits {
    let most = 1_000_000;
    Limits {
        pending_per_session: most,
        pending_per_agent: most,
        pending_total: most,
        submits_per_second: most as u32,
        ..Limits::default()
    }
}

/// Asks about everything but `free`.
fn gate(store: Arc<dyn Store>) -> Result<Gate> {
    let policy = Policy::from_yaml(
        "rules: [{ id: free, allow: free }, { id: others, ask: '*', except: [free], expires_after: never }]",
    );
    let policy = policy.map_err(|errors| anyhow::anyhow!("{errors}"))?;
    Ok(Gate::builder().policy(policy).store(store).limits(limits()).decided_elsewhere().build()?)
}

/// A server on a gate, in this process, until it is ended.
struct Serving {
    gate: Gate,
    address: SocketAddr,
    end: oneshot::Sender<()>,
    running: JoinHandle<std::io::Result<()>>,
}

impl Serving {
    async fn start(gate: Gate) -> Result<Serving> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::builder(gate.clone()).limits(limits()).listen(listen).bind().await?;
        let address = server.address();
        let (end, ended) = oneshot::channel();
        let running = tokio::spawn(server.run(async move {
            let _ = ended.await;
        }));
        Ok(Serving { gate, address, end, running })
    }

    /// A connection with a credential of its own: rates bind credentials.
    async fn connect(&self, role: Role, name: &str) -> Result<Http> {
        Http::connect(self.address, &self.token(role, name).await?).await
    }

    async fn token(&self, role: Role, name: &str) -> Result<String> {
        let new = NewToken { role, name: name.to_owned(), expires_after: None, r#for: None };
        Ok(tokens::create(&**self.gate.store(), new, "os:bench").await?.token)
    }

    async fn end(self) -> Result<()> {
        let _ = self.end.send(());
        Ok(self.running.await??)
    }
}

/// The value below which so many of a hundred lie.
fn percentile(mut values: Vec<f64>, hundredths: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() * hundredths / 100).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// A figure with a goal of its own and no baseline.
fn alone(name: &str, unit: &str, value: f64, most: f64) -> Figure {
    Figure {
        figure: name.to_owned(),
        value,
        unit: unit.to_owned(),
        baseline: None,
        ratio: None,
        goal: Some(format!("<= {most} {unit}")),
        met: Some(value <= most),
    }
}
