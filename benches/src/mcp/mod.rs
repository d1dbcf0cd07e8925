//! Figures of the MCP gateway over pipes. Everything runs as in life: client, gateway and server are processes of their
//! own, and beside the gateway stands a bare rmcp hop that does the same work without judging or recording anything.

mod peers;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt as _};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;

pub(crate) use peers::Peer;

use crate::core::{Goal, compared};
use crate::figure::Figure;

/// Calls of one measurement.
const CALLS: usize = 4_000;
const IN_FLIGHT: usize = 64;
/// Calls that wait at once.
const HELD: usize = 2_000;
/// Measurements of each way, in turn, so that all meet the same machine.
const ROUNDS: usize = 3;

/// Measures the groups whose name begins with a text.
pub(crate) fn figures(only: &str) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Vec::new();
    if "stdio".starts_with(only) {
        figures.extend(calls(&runtime)?);
    }
    if "held".starts_with(only) {
        figures.push(runtime.block_on(held())?);
    }
    Ok(figures)
}

/// What one measurement found.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Microseconds of processor time that the middle process took for a call.
    cpu: f64,
    /// Calls a second.
    rate: f64,
}

fn calls(runtime: &Runtime) -> Result<Vec<Figure>> {
    let best = |peer: Peer, in_flight: usize| -> Result<Measured> {
        let mut best: Option<Measured> = None;
        for _ in 0..ROUNDS {
            let now = runtime.block_on(measured(peer, in_flight))?;
            let before = best.get_or_insert(now);
            *before = Measured { cpu: before.cpu.min(now.cpu), rate: before.rate.max(now.rate) };
        }
        best.context("no round")
    };
    let (direct, hop, ours) = (best(Peer::Server, 1)?, best(Peer::Hop, 1)?, best(Peer::Gateway, 1)?);
    let (many_hop, many_ours) = (best(Peer::Hop, IN_FLIGHT)?, best(Peer::Gateway, IN_FLIGHT)?);
    let durable = best(Peer::GatewayOnDisk, IN_FLIGHT)?;
    let plain = |name: &str, value: f64| Figure {
        figure: name.to_owned(),
        value,
        unit: "calls/s".to_owned(),
        baseline: Some(direct.rate),
        ratio: Some(value / direct.rate),
        goal: None,
        met: None,
    };
    Ok(vec![
        plain("one at a time through an rmcp hop, over direct", hop.rate),
        plain("one at a time through the gateway, over direct", ours.rate),
        compared("CPU a call, gateway over rmcp hop", "us", ours.cpu, hop.cpu, Goal::AtMost(0.8)),
        compared("64 in flight, gateway over rmcp hop", "calls/s", many_ours.rate, many_hop.rate, Goal::AtLeast(1.0)),
        compared("64 in flight, SQLite over memory", "calls/s", durable.rate, many_ours.rate, Goal::AtLeast(0.5)),
    ])
}

/// A client, and the process that it talks to.
struct Line {
    client: RunningService<RoleClient, ()>,
    child: Child,
    _folder: tempfile::TempDir,
}

async fn connect(peer: Peer) -> Result<Line> {
    let folder = tempfile::tempdir()?;
    let mut child = Command::new(this_program()?)
        .arg("mcp")
        .args(["--peer", peer.name()])
        .current_dir(folder.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pipes = (child.stdout.take().context("no output")?, child.stdin.take().context("no input")?);
    let client = ().serve(pipes).await.context("the handshake failed")?;
    Ok(Line { client, child, _folder: folder })
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("this program cannot find itself")
}

fn echo(text: String) -> Result<CallToolRequestParams> {
    let arguments = serde_json::json!({ "text": text });
    let arguments = arguments.as_object().cloned().context("an object")?;
    Ok(CallToolRequestParams::new("echo").with_arguments(arguments))
}

async fn measured(peer: Peer, in_flight: usize) -> Result<Measured> {
    let line = connect(peer).await?;
    let pid = line.child.id().context("it has ended")?;
    // The first calls find nothing listed and nothing warm.
    run(&line, in_flight, CALLS / 10).await?;
    let (before, begin) = (cpu_ticks(pid)?, Instant::now());
    run(&line, in_flight, CALLS).await?;
    let (seconds, ticks) = (begin.elapsed().as_secs_f64(), cpu_ticks(pid)? - before);
    line.client.cancel().await?;
    Ok(Measured { cpu: ticks * TICK_MICROSECONDS / CALLS as f64, rate: CALLS as f64 / seconds })
}

async fn run(line: &Line, in_flight: usize, calls: usize) -> Result<()> {
    let caller = |caller: usize| async move {
        for call in 0..calls / in_flight {
            let result = line.client.call_tool(echo(format!("call {call} of {caller}"))?).await?;
            anyhow::ensure!(result.is_error != Some(true), "a call was refused: {result:?}");
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..in_flight).map(caller)).await.map(drop)
}

/// How many bytes of the gateway's process a call takes that waits for a person.
async fn held() -> Result<Figure> {
    const MOST: f64 = 8.0 * 1024.0;
    let line = connect(Peer::AskingGateway).await?;
    let pid = line.child.id().context("it has ended")?;
    line.client.list_all_tools().await?;
    let before = resident(pid)?;
    let mut waiting = Vec::with_capacity(HELD);
    for call in 0..HELD {
        let (peer, params) = (line.client.peer().clone(), echo(format!("held {call}"))?);
        waiting.push(tokio::spawn(async move { peer.call_tool_once(params).await.map(drop) }));
    }
    let now = settled(pid).await?;
    if waiting.iter().any(tokio::task::JoinHandle::is_finished) {
        bail!("a call did not wait");
    }
    let bytes = now.saturating_sub(before) as f64 / HELD as f64;
    Ok(compared("memory of a held call, over 8 KiB", "bytes", bytes, MOST, Goal::AtMost(1.0)))
}

/// The resident memory of a process once it has stopped to work.
async fn settled(pid: u32) -> Result<u64> {
    let mut before = -1.0;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let now = cpu_ticks(pid)?;
        if now - before <= 1.0 {
            return resident(pid);
        }
        before = now;
    }
}

/// A clock tick of Linux, which is a hundredth of a second on every system that we measure on.
const TICK_MICROSECONDS: f64 = 10_000.0;

/// Processor time of a process alone, its children left out, in ticks.
fn cpu_ticks(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace()).context("no stat")?;
    fields.skip(11).take(2).map(|field| field.parse::<f64>().context("no number")).sum()
}

fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}
