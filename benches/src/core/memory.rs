//! The gate in memory: one gated round trip, and a hundred thousand holds.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use countersign::call::{CallState, Outcome};
use countersign::event::{Cursor, Event};
use countersign::memory::MemoryStore;
use countersign::store::EventFilter;
use countersign::tool::{FnTool, tool};
use countersign::{
    Answer, Call, CallId, Claimed, Decision, Definition, Gate, Limits, Policy, Proposal, Tool as _, Who,
};
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::{Goal, compared, nanoseconds_each};
use crate::figure::Figure;

const ARGUMENTS: &str = r#"{"path":"notes/today.md","text":"buy milk and bread"}"#;

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // First: only a heap that nobody used yet grows by what the holds take.
    let [bytes, linear] = holds(&runtime)?;
    Ok(vec![round_trip(&runtime)?, bytes, linear])
}

pub(crate) fn write_file() -> FnTool {
    let definition = Definition::new("write_file", "Writes a text to a file.");
    tool(definition, |running| async move { Ok(running.arguments().clone()) })
}

pub(crate) fn gate(store: Arc<dyn countersign::Store>) -> Result<Gate> {
    let limits = Limits {
        pending_per_session: 1_000_000,
        pending_per_agent: 1_000_000,
        pending_total: 1_000_000,
        ..Limits::default()
    };
    let builder = Gate::builder().policy(Policy::ask_all()).store(store).limits(limits).without_sweeper();
    Ok(builder.decided_elsewhere().build()?)
}

/// Submits, decides, claims and finishes one call.
pub(crate) async fn cycle(gate: &Gate, tool: &FnTool, session: &Arc<str>, ann: &Who) -> Result<()> {
    let call = submit(gate, tool, session).await?;
    decide(gate, &call, ann).await?;
    let id = call.id;
    let definition = tool.definition().digest();
    let Claimed::Permit(permit) = gate.claim(id, Some(definition)).await? else { bail!("the claim was refused") };
    let running = permit.start();
    let outcome = Outcome::Succeeded { output: running.arguments().clone() };
    gate.finish(id, running.fence(), outcome).await?;
    Ok(())
}

pub(crate) async fn submit(gate: &Gate, tool: &FnTool, session: &Arc<str>) -> Result<Arc<Call>> {
    let proposal = Proposal::new("write_file", ARGUMENTS).session(Arc::clone(session));
    let call = gate.submit(tool, proposal).await?;
    anyhow::ensure!(call.state == CallState::Pending, "the call is {}", call.state);
    Ok(call)
}

pub(crate) async fn decide(gate: &Gate, call: &Call, ann: &Who) -> Result<()> {
    let hold = call.open_hold().context("no hold")?;
    gate.decide(hold.id, Decision::new(ann.clone(), "bench", hold.digest, Answer::approve())).await?;
    Ok(())
}

/// Rounds of the gate and of the floor in turn.
const ROUNDS: usize = 5;

/// The median of a few rounds. The first finds the heap empty and pays for its growth, which is the process's and not
/// the gate's; later ones, and every floor, find memory that an earlier round gave back.
fn round_trip(runtime: &Runtime) -> Result<Figure> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push((gated(runtime)?, floor(runtime)));
    }
    rounds.sort_by(|(ours, floor), (others, their_floor)| (ours / floor).total_cmp(&(others / their_floor)));
    let (ours, floor) = rounds.swap_remove(ROUNDS / 2);
    Ok(compared("gated round trip in memory", "ns", ours, floor, Goal::AtMost(10.0)))
}

fn gated(runtime: &Runtime) -> Result<f64> {
    let gate = gate(Arc::new(MemoryStore::new()))?;
    let tool = write_file();
    let session: Arc<str> = "s1".into();
    let ann = Who::person("ann");
    let mut failed = None;
    let ours = nanoseconds_each(5_000, || {
        if let Err(error) = runtime.block_on(cycle(&gate, &tool, &session, &ann)) {
            failed = Some(error);
        }
    });
    failed.map_or(Ok(ours), Err)
}

/// The least any gate must do: keep the call, wake the waiter, hash the arguments.
fn floor(runtime: &Runtime) -> f64 {
    let mut calls: HashMap<CallId, String> = HashMap::new();
    nanoseconds_each(5_000, || {
        runtime.block_on(async {
            calls.insert(CallId::new(), ARGUMENTS.to_owned());
            let (sender, receiver) = oneshot::channel::<()>();
            let waiter = tokio::spawn(receiver);
            tokio::task::yield_now().await;
            let _ = sender.send(());
            let _ = waiter.await;
            black_box(Sha256::digest(ARGUMENTS.as_bytes()));
        });
    })
}

/// Opens and resolves many holds: how much each takes, and whether time grows with their number only.
fn holds(runtime: &Runtime) -> Result<[Figure; 2]> {
    let fresh = seconds_each(runtime, 100_000)?;
    let few = seconds_each(runtime, 10_000)?;
    let many = seconds_each(runtime, 100_000)?;
    let bytes = Figure {
        figure: "a pending hold in memory, of 100,000".to_owned(),
        value: fresh.bytes,
        unit: "bytes".to_owned(),
        baseline: Some(2048.0),
        ratio: Some(fresh.bytes / 2048.0),
        goal: Some("ratio <= 1".to_owned()),
        met: Some(fresh.bytes <= 2048.0),
    };
    let name = "open and resolve a hold, of 100,000 over 10,000";
    Ok([bytes, compared(name, "ns", many.seconds * 1e9, few.seconds * 1e9, Goal::AtMost(1.5))])
}

struct Each {
    seconds: f64,
    bytes: f64,
}

fn seconds_each(runtime: &Runtime, count: u32) -> Result<Each> {
    let gate = gate(Arc::new(MemoryStore::new()))?;
    let tool = write_file();
    let ann = Who::person("ann");
    runtime.block_on(async {
        let before = resident()?;
        let begin = Instant::now();
        let mut ids = Vec::with_capacity(count as usize);
        for index in 0..count {
            let session: Arc<str> = format!("session-{}", index % 1_000).into();
            ids.push(submit(&gate, &tool, &session).await?.id);
        }
        let opened = begin.elapsed();
        let held = resident()?.saturating_sub(before).saturating_sub(log_bytes(&gate).await?);
        let begin = Instant::now();
        for id in ids {
            decide(&gate, &*gate.get(id).await?, &ann).await?;
        }
        let seconds = (opened + begin.elapsed()).as_secs_f64() / f64::from(count);
        Ok(Each { seconds, bytes: held as f64 / f64::from(count) })
    })
}

/// What the event log takes: its rows, and each body with the allocator's and the counter's overhead.
async fn log_bytes(gate: &Gate) -> Result<usize> {
    let mut after = Cursor::default();
    let mut bytes = 0;
    loop {
        let filter = EventFilter { limit: Some(1_000), ..EventFilter::default() };
        let events = gate.store().events(after, filter).await?;
        let Some(last) = events.last() else { return Ok(bytes) };
        after = last.cursor;
        bytes += events.iter().map(|event| size_of::<Event>() + event.body.len() + 32).sum::<usize>();
    }
}

/// Bytes this process has in memory.
pub(crate) fn resident() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split(' ').nth(1).context("statm has no second field")?.parse()?;
    Ok(pages * 4096)
}
