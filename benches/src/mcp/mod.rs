//! Figures of the MCP gateway. Everything runs as in life: client, gateway and server are processes of their own, and
//! beside the gateway stands a bare rmcp hop that does the same work without judging or recording anything.

mod line;
mod peers;
mod proxies;
mod servers;

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::{Result, bail};
use tokio::runtime::Runtime;

pub(crate) use peers::Peer;

use crate::core::{Goal, compared};
use crate::figure::Figure;
use crate::process;
use line::{Line, echo};

/// Calls of one measurement: so many that the system's clock, which counts hundredths of a second, tells them apart.
const CALLS: usize = 160 * IN_FLIGHT;
/// The same over HTTP, where each takes longer.
const HTTP_CALLS: usize = 40 * IN_FLIGHT;
const IN_FLIGHT: usize = 64;
/// Calls that wait at once.
const HELD: usize = 2_000;
/// Measurements of each way, in turn, so that all meet the same machine.
const ROUNDS: usize = 3;

/// A group of figures: its name, and what measures it.
type Group = (&'static str, fn(&Runtime) -> Result<Vec<Figure>>);

const GROUPS: [Group; 4] = [("stdio", on_pipes), ("http", over_http), ("held", held), ("proxies", beside_proxies)];

/// Measures the groups whose name begins with a text.
pub(crate) fn figures(only: &str) -> Result<Vec<Figure>> {
    let runtime = peers::runtime()?;
    let mut figures = Vec::new();
    for (_, measure) in GROUPS.iter().filter(|(name, _)| name.starts_with(only)) {
        figures.extend(measure(&runtime)?);
    }
    Ok(figures)
}

/// What one measurement found.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Microseconds of processor time that the process next to the client took for a call.
    cpu: f64,
    /// Calls a second.
    rate: f64,
}

impl Measured {
    const NOTHING: Measured = Measured { cpu: f64::INFINITY, rate: 0.0 };

    /// The better of each.
    fn or(self, other: Measured) -> Measured {
        Measured { cpu: self.cpu.min(other.cpu), rate: self.rate.max(other.rate) }
    }
}

/// The best of each way.
fn best<const N: usize>(runtime: &Runtime, ways: [(Peer, usize); N]) -> Result<[Measured; N]> {
    let mut best = [Measured::NOTHING; N];
    for round in 1..=ROUNDS {
        say(&format!("round {round} of {ROUNDS}"))?;
        for ((peer, in_flight), best) in ways.into_iter().zip(&mut best) {
            let now = runtime.block_on(async {
                let calls = if peer.is_http() { HTTP_CALLS } else { CALLS };
                measured(Line::to(peer).await?, in_flight, calls).await
            })?;
            *best = best.or(now);
        }
    }
    Ok(best)
}

async fn measured(line: Line, in_flight: usize, calls: usize) -> Result<Measured> {
    let pid = line.pid()?;
    // The first calls find nothing listed and nothing warm.
    line.run(in_flight, calls / 10).await?;
    let (before, begin) = (process::cpu(pid)?, Instant::now());
    line.run(in_flight, calls).await?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), process::cpu(pid)? - before);
    line.client.cancel().await?;
    Ok(Measured { cpu: cpu / calls as f64, rate: calls as f64 / seconds })
}

/// Tells whoever waits; figures go elsewhere.
fn say(words: &str) -> Result<()> {
    Ok(writeln!(io::stderr(), "{words}")?)
}

fn on_pipes(runtime: &Runtime) -> Result<Vec<Figure>> {
    let ways = [
        (Peer::Server, 1),
        (Peer::Hop, 1),
        (Peer::HopOnOneThread, 1),
        (Peer::Gateway, 1),
        (Peer::Hop, IN_FLIGHT),
        (Peer::HopOnOneThread, IN_FLIGHT),
        (Peer::Gateway, IN_FLIGHT),
        (Peer::GatewayOnDisk, IN_FLIGHT),
    ];
    let [direct, hop, lone_hop, ours, many_hop, many_lone_hop, many_ours, durable] = best(runtime, ways)?;
    // Whichever way of running it is the better one.
    let (hop, many_hop) = (hop.or(lone_hop), many_hop.or(many_lone_hop));
    Ok(vec![
        beside("stdio: one at a time, rmcp hop over direct", hop.rate, direct.rate),
        beside("stdio: one at a time, gateway over direct", ours.rate, direct.rate),
        compared("stdio: CPU a call, gateway over rmcp hop", "us", ours.cpu, hop.cpu, Goal::AtMost(0.8)),
        rates("stdio: 64 in flight, gateway over rmcp hop", many_ours, many_hop, 1.0),
        rates("stdio: 64 in flight, SQLite over memory", durable, many_ours, 0.5),
    ])
}

fn over_http(runtime: &Runtime) -> Result<Vec<Figure>> {
    let ways = [
        (Peer::HttpServer, 1),
        (Peer::HttpHop, 1),
        (Peer::HttpGateway, 1),
        (Peer::HttpHop, IN_FLIGHT),
        (Peer::HttpGateway, IN_FLIGHT),
    ];
    let [direct, hop, ours, many_hop, many_ours] = best(runtime, ways)?;
    Ok(vec![
        beside("http: one at a time, rmcp hop over direct", hop.rate, direct.rate),
        beside("http: one at a time, gateway over direct", ours.rate, direct.rate),
        compared("http: CPU a call, gateway over rmcp hop", "us", ours.cpu, hop.cpu, Goal::AtMost(0.8)),
        rates("http: 64 in flight, gateway over rmcp hop", many_ours, many_hop, 1.0),
    ])
}

/// Ours beside proxies of other makers at the same work. Those that cannot run here are named, and left out.
fn beside_proxies(runtime: &Runtime) -> Result<Vec<Figure>> {
    let mut ours = Measured::NOTHING;
    let mut theirs: Vec<(String, Measured)> = Vec::new();
    for round in 1..=ROUNDS {
        say(&format!("round {round} of {ROUNDS}"))?;
        let line = runtime.block_on(Line::to(Peer::BridgingGateway))?;
        ours = ours.or(runtime.block_on(measured(line, 1, HTTP_CALLS))?);
        for proxy in &proxies::ALL {
            let now = runtime.block_on(async { measured(Line::through(proxy).await?, 1, HTTP_CALLS).await });
            match now {
                Ok(now) => theirs.push((proxy.name(), now)),
                Err(error) => say(&format!("{} could not run: {error:#}", proxy.name()))?,
            }
        }
    }
    let best_of = |name: &str| {
        theirs.iter().filter(|(other, _)| other == name).fold(Measured::NOTHING, |best, (_, now)| best.or(*now))
    };
    let names = proxies::ALL.iter().map(proxies::Proxy::name);
    let ran: Vec<_> = names.map(|name| (best_of(&name), name)).filter(|(best, _)| best.rate > 0.0).collect();
    let all = ran.iter().fold(Measured::NOTHING, |best, (now, _)| best.or(*now));
    let mut figures: Vec<Figure> = ran
        .iter()
        .map(|(now, name)| Figure {
            unit: "us".to_owned(),
            ..beside(&format!("proxies: CPU a call, gateway over {name}"), ours.cpu, now.cpu)
        })
        .collect();
    if !ran.is_empty() {
        let name = format!("proxies: CPU a call, gateway over the best of {}", ran.len());
        figures.push(compared(&name, "us", ours.cpu, all.cpu, Goal::AtMost(0.2)));
    }
    Ok(figures)
}

fn rates(name: &str, value: Measured, baseline: Measured, least: f64) -> Figure {
    compared(name, "calls/s", value.rate, baseline.rate, Goal::AtLeast(least))
}

/// Two rates beside each other, without a goal.
fn beside(name: &str, value: f64, baseline: f64) -> Figure {
    Figure {
        figure: name.to_owned(),
        value,
        unit: "calls/s".to_owned(),
        baseline: Some(baseline),
        ratio: Some(value / baseline),
        goal: None,
        met: None,
    }
}

/// How many bytes of the gateway's process a call takes that waits for a person.
fn held(runtime: &Runtime) -> Result<Vec<Figure>> {
    const MOST: f64 = 8.0 * 1024.0;
    let bytes = runtime.block_on(async {
        let line = Line::to(Peer::AskingGateway).await?;
        let pid = line.pid()?;
        line.client.list_all_tools().await?;
        let before = process::settled(pid).await?;
        let mut waiting = Vec::with_capacity(HELD);
        for call in 0..HELD {
            let (peer, params) = (line.client.peer().clone(), echo(format!("held {call}"))?);
            waiting.push(tokio::spawn(async move { peer.call_tool_once(params).await.map(drop) }));
        }
        let now = process::settled(pid).await?;
        if waiting.iter().any(tokio::task::JoinHandle::is_finished) {
            bail!("a call did not wait");
        }
        Ok(now.saturating_sub(before) as f64 / HELD as f64)
    })?;
    Ok(vec![compared("held: memory of a call, over 8 KiB", "bytes", bytes, MOST, Goal::AtMost(1.0))])
}
