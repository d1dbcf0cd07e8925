//! Events to a thousand readers, against bare axum streams of the same text; and ten thousand readers connected.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::get;
use countersign::Proposal;
use countersign::memory::MemoryStore;
use countersign_api::wire::Role;
use futures::future::try_join_all;
use futures::stream::unfold;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

use super::crowd::{self, CROWD};
use super::http::Http;
use super::{Serving, gate, runtime};
use crate::core::{Goal, compared};
use crate::figure::Figure;

const READERS: usize = 1_000;
/// Streams that one credential may have.
const PER_TOKEN: usize = 100;
/// Events of one burst: fewer than a reader may be behind.
const BURST: usize = 100;
const BURSTS: usize = 5;
/// What an allowed call tells: that it came, and that it may run.
const EVENTS_OF_A_CALL: usize = 2;

pub(super) fn figures() -> Result<Vec<Figure>> {
    runtime()?.block_on(async {
        let serving = Serving::start(gate(Arc::new(MemoryStore::new()))?).await?;
        let mut readers = readers(&serving).await?;
        let text = first_event(&serving, &mut readers).await?;
        let (bare, sender) = bare().await?;
        let mut bare = try_join_all((0..READERS).map(|_| begin(bare, "none"))).await?;
        let mut best = (0.0, f64::MAX);
        for _ in 0..BURSTS {
            let ours = fan_out(&mut readers, async || tell(&serving).await).await?;
            let send = async || {
                (0..BURST).for_each(|_| drop(sender.send(Arc::clone(&text))));
                Ok(())
            };
            let theirs = fan_out(&mut bare, send).await?;
            if ours / theirs > best.0 / best.1 {
                best = (ours, theirs);
            }
        }
        drop((readers, bare));
        let connected = crowd::gather(&serving).await?;
        serving.end().await?;
        let name = "events to 1,000 readers, over bare axum streams";
        Ok(vec![compared(name, "1/s", best.0, best.1, Goal::AtLeast(0.5)), connected_figure(connected)])
    })
}

fn connected_figure(connected: usize) -> Figure {
    let goal = Some(format!(">= {CROWD}"));
    let (figure, unit) = ("readers connected to one node".to_owned(), "readers".to_owned());
    let met = Some(connected >= CROWD);
    Figure { figure, value: connected as f64, unit, baseline: None, ratio: None, goal, met }
}

async fn readers(serving: &Serving) -> Result<Vec<Http>> {
    let mut readers = Vec::with_capacity(READERS);
    for index in 0..READERS / PER_TOKEN {
        let token = serving.token(Role::Auditor, &format!("reader-{index}")).await?;
        readers.extend(try_join_all((0..PER_TOKEN).map(|_| begin(serving.address, &token))).await?);
    }
    Ok(readers)
}

/// A stream, begun.
async fn begin(address: SocketAddr, token: &str) -> Result<Http> {
    let mut http = Http::connect(address, token).await?;
    http.begin_get("/v1/events").await?;
    http.begun().await?;
    Ok(http)
}

/// Lets a call happen that everybody hears of; the text of one of its events.
async fn first_event(serving: &Serving, readers: &mut [Http]) -> Result<Arc<str>> {
    serving.gate.submit_undefined(Proposal::new("free", "{}").session("s")).await?;
    // What each stream begins with is one piece more.
    let heard = try_join_all(readers.iter_mut().map(|reader| hear(reader, EVENTS_OF_A_CALL + 1))).await?;
    let heard = heard.into_iter().next().context("nobody heard anything")?;
    let last = heard.rsplit("data: ").next().and_then(|data| data.split('\n').next());
    Ok(last.context("no event")?.into())
}

async fn tell(serving: &Serving) -> Result<()> {
    for _ in 0..BURST / EVENTS_OF_A_CALL {
        serving.gate.submit_undefined(Proposal::new("free", "{}").session("s")).await?;
    }
    Ok(())
}

/// Events a second that arrive, over all readers.
async fn fan_out(readers: &mut [Http], tell: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
    let arrived = (readers.len() * BURST) as f64;
    let begin = Instant::now();
    let (told, heard) = tokio::join!(tell(), try_join_all(readers.iter_mut().map(|reader| hear(reader, BURST))));
    told?;
    heard?;
    Ok(arrived / begin.elapsed().as_secs_f64())
}

/// Reads until so many events came.
async fn hear(reader: &mut Http, events: usize) -> Result<String> {
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    let mark = b"data: ";
    let mut count = 0;
    while count < events {
        let from = heard.len().saturating_sub(mark.len() - 1);
        let read = reader.more(&mut buffer).await?;
        heard.extend_from_slice(buffer.get(..read).unwrap_or_default());
        count += heard.get(from..).unwrap_or_default().windows(mark.len()).filter(|window| window == mark).count();
    }
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

/// Streams of whatever text is sent.
async fn bare() -> Result<(SocketAddr, broadcast::Sender<Arc<str>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (sender, _) = broadcast::channel::<Arc<str>>(1_024);
    let events = sender.clone();
    let stream = move || {
        let told = unfold(events.subscribe(), async |mut events| {
            let text = events.recv().await.ok()?;
            Some((Ok::<_, Infallible>(Event::default().data(&*text)), events))
        });
        async { Sse::new(told) }
    };
    let router = Router::new().route("/v1/events", get(stream));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((address, sender))
}
