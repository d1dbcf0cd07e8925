//! Figures of the agent runtime beside adk-rs doing the same work: a scripted model in the process, one trivial tool,
//! approved at once by whoever drives the run, on the same thread. The rival is another program (`benches/adk`), whose
//! figures come in a file.

mod sessions;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use countersign::memory::MemoryStore;
use countersign::tool::{FnTool, tool};
use countersign::{Answer, Definition, Gate, Hold, Policy, Store, Who};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::{Agent, RunEvent};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::core::{Goal, compared, nanoseconds_each};
use crate::figure::Figure;
use crate::process;

/// Words of one streamed answer: fewer than a stream keeps for a slow reader, so that none is lost.
const WORDS: usize = 900;

/// Calls of one sample by the processor's clock, enough for its ticks to tell a microsecond.
const CALLS: u32 = 10_000;
/// Calls of a long conversation.
const MANY: u32 = 50;
/// Conversations that go on side by side, as on a server.
const CROWD: u32 = 64;

/// What the rival took, by the name of the figure, in microseconds.
type Baselines = HashMap<String, f64>;

/// A group of figures: its name, and what measures it.
type Group = (&'static str, fn(&Runtime, &Baselines) -> Result<Vec<Figure>>);

const GROUPS: [Group; 4] =
    [("memory", in_memory), ("sqlite", on_sqlite), ("stream", streaming), ("sessions", sessions::figures)];

/// Measures the groups whose name begins with a text, against what a file says the rival took.
pub(crate) fn figures(only: &str, baseline: Option<&Path>) -> Result<Vec<Figure>> {
    let baselines = baseline.map_or_else(|| Ok(Baselines::new()), read)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Vec::new();
    for (_, measure) in GROUPS.iter().filter(|(name, _)| name.starts_with(only)) {
        figures.extend(measure(&runtime, &baselines)?);
    }
    Ok(figures)
}

#[derive(Deserialize)]
struct Line {
    figure: String,
    value: f64,
}

fn read(path: &Path) -> Result<Baselines> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(|line| serde_json::from_str(line).map(|Line { figure, value }| (figure, value)));
    Ok(lines.collect::<Result<_, _>>()?)
}

/// A figure beside the rival's. Without one there is nothing to reach.
fn beside(name: &str, value: f64, rival: Option<&f64>, most: f64) -> Figure {
    match rival {
        Some(rival) => compared(name, "us", value, *rival, Goal::AtMost(most)),
        None => bare(name, value, "us"),
    }
}

fn bare(name: &str, value: f64, unit: &str) -> Figure {
    let (figure, unit) = (name.to_owned(), unit.to_owned());
    Figure { figure, value, unit, baseline: None, ratio: None, goal: None, met: None }
}

fn write_file() -> FnTool {
    let definition = Definition::new("write_file", "Writes a text to a file.");
    tool(definition, |running| async move { Ok(running.arguments().clone()) })
}

/// Calls the tool so often, then says that it is done.
fn model(calls: u32) -> Scripted {
    let arguments = r#"{"path":"notes/today.md","text":"buy milk and bread"}"#;
    let turns = (0..calls).map(|_| Turn::new("").call("write_file", arguments));
    Scripted::new(turns.chain([Turn::new("Done.")]))
}

/// An agent, and the holds of its calls.
struct Bed {
    agent: Agent,
    holds: UnboundedReceiver<Hold>,
    calls: u32,
}

impl Bed {
    fn new(store: Arc<dyn Store>, policy: Policy, calls: u32) -> Result<Bed> {
        let (builder, holds) = Gate::builder().policy(policy).store(store).without_sweeper().channel();
        let agent = Agent::builder("bench", model(calls)).gate(builder.build()?).tool(write_file()).build()?;
        Ok(Bed { agent, holds, calls })
    }

    /// One conversation, from what the user says to the model's last word, with every hold approved as it opens.
    async fn converse(&mut self) -> Result<()> {
        let run = self.agent.run("Write it down");
        tokio::pin!(run);
        let reply = loop {
            tokio::select! {
                biased;
                reply = &mut run => break reply?,
                Some(hold) = self.holds.recv() => {
                    let decision = hold.decision(Who::person("ann"), "bench", Answer::approve());
                    self.agent.gate().decide(hold.id, decision).await?;
                }
            }
        };
        ensure!(&*reply.text == "Done.", "the agent said `{}`", reply.text);
        Ok(())
    }

    /// A crowd of conversations side by side, with somebody for each hold who approves it as it opens.
    async fn converse_side_by_side(&mut self) -> Result<()> {
        let mut runs = JoinSet::new();
        for _ in 0..CROWD {
            let agent = self.agent.clone();
            runs.spawn(async move { agent.run("Write it down").await });
        }
        let mut decisions = JoinSet::new();
        while !runs.is_empty() {
            tokio::select! {
                Some(reply) = runs.join_next() => {
                    let reply = reply??;
                    ensure!(&*reply.text == "Done.", "the agent said `{}`", reply.text);
                }
                Some(hold) = self.holds.recv() => {
                    let gate = self.agent.gate().clone();
                    decisions.spawn(async move {
                        let decision = hold.decision(Who::person("ann"), "bench", Answer::approve());
                        gate.decide(hold.id, decision).await
                    });
                }
                Some(decided) = decisions.join_next() => drop(decided??),
            }
        }
        Ok(())
    }

    /// The best of several samples, in microseconds a call, by a clock that counts seconds.
    fn measure(mut self, runtime: &Runtime, calls: u32, clock: impl Fn() -> Result<f64>) -> Result<f64> {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let begin = clock()?;
            for _ in 0..calls / self.calls {
                runtime.block_on(self.converse())?;
            }
            best = best.min((clock()? - begin) / f64::from(calls));
        }
        Ok(best * 1e6)
    }
}

fn in_memory(_: &Runtime, rival: &Baselines) -> Result<Vec<Figure>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let measure =
        |policy, calls| Bed::new(Arc::new(MemoryStore::new()), policy, calls)?.measure(&runtime, CALLS, cpu_seconds);
    let figure = |name: &str, value, key: &str| beside(name, value, rival.get(key), 0.125);
    let (ask, allow) = (Policy::ask_all, Policy::allow_all);
    Ok(vec![
        figure("CPU of a gated agent cycle in memory, over adk-rs", measure(ask(), 1)?, "gated"),
        figure("CPU of an ungated agent cycle in memory, over adk-rs", measure(allow(), 1)?, "ungated"),
        figure("the same gated, each of 50 calls of one run", measure(ask(), MANY)?, "gated of many"),
        figure("the same ungated, each of 50 calls of one run", measure(allow(), MANY)?, "ungated of many"),
    ])
}

fn on_sqlite(runtime: &Runtime, rival: &Baselines) -> Result<Vec<Figure>> {
    let begin = Instant::now();
    let measure = |calls, sample| {
        let folder = TempDir::new()?;
        let bed = Bed::new(runtime.block_on(open(&folder))?, Policy::ask_all(), calls)?;
        bed.measure(runtime, sample, || Ok(begin.elapsed().as_secs_f64()))
    };
    let figure = |name: &str, value, key: &str| beside(name, value, rival.get(key), 0.1);
    Ok(vec![
        figure("durable gated agent cycle on SQLite, over adk-rs", measure(1, 20)?, "durable"),
        figure("the same durable, each of 50 calls of one run", measure(MANY, MANY)?, "durable of many"),
        bare("durable gated agent cycle on SQLite, each of 64 runs side by side", side_by_side(runtime)?, "us"),
    ])
}

/// The best of several samples, in microseconds a call.
fn side_by_side(runtime: &Runtime) -> Result<f64> {
    let folder = TempDir::new()?;
    let mut bed = Bed::new(runtime.block_on(open(&folder))?, Policy::ask_all(), 1)?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        runtime.block_on(bed.converse_side_by_side())?;
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(CROWD));
    }
    Ok(best * 1e6)
}

async fn open(folder: &TempDir) -> Result<Arc<dyn Store>> {
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    Ok(countersign_store::connect(&url).await?)
}

/// What one word costs more when somebody watches: what a long answer takes beyond a short one, watched and not.
fn streaming(_: &Runtime, _: &Baselines) -> Result<Vec<Figure>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let extra = |watched| Ok::<f64, anyhow::Error>(answer(&runtime, WORDS, watched)? - answer(&runtime, 1, watched)?);
    let each = (extra(Watched::Yes)? - extra(Watched::No)?) / (WORDS - 1) as f64 / 1_000.0;
    let goal = (Some("value <= 2".to_owned()), Some(each <= 2.0));
    Ok(vec![Figure { goal: goal.0, met: goal.1, ..bare("streaming one word of an answer", each, "us") }])
}

#[derive(Clone, Copy)]
enum Watched {
    Yes,
    No,
}

/// Nanoseconds of a run whose only answer has so many words.
fn answer(runtime: &Runtime, words: usize, watched: Watched) -> Result<f64> {
    let gate = Gate::builder().policy(Policy::allow_all()).without_sweeper().build()?;
    let model = Scripted::new([Turn::new("word ".repeat(words))]);
    let agent = Agent::builder("bench", model).gate(gate).build()?;
    let mut failed = None;
    let each = nanoseconds_each(50, || {
        let ran = runtime.block_on(async {
            match watched {
                Watched::No => agent.run("Talk").await.map(|_| ()).map_err(Into::into),
                Watched::Yes => read_all(&agent, words).await,
            }
        });
        failed = ran.err().or(failed.take());
    });
    failed.map_or(Ok(each), Err)
}

async fn read_all(agent: &Agent, words: usize) -> Result<()> {
    let mut stream = agent.stream("Talk");
    let mut read = 0;
    while let Some(event) = stream.next().await {
        read += usize::from(matches!(event, RunEvent::Text { .. }));
    }
    ensure!(read == words, "{read} of {words} words were read");
    Ok(())
}

/// Processor time of this process, all threads together, in seconds.
fn cpu_seconds() -> Result<f64> {
    Ok(process::cpu(std::process::id())? / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work that is measured is the work that is meant: asked once, run once, two turns.
    #[tokio::test]
    async fn a_cycle_asks_once_and_runs_once() {
        let mut bed = Bed::new(Arc::new(MemoryStore::new()), Policy::ask_all(), 1).unwrap();
        bed.converse().await.unwrap();
        let events = bed.agent.gate().store().events(Default::default(), Default::default()).await.unwrap();
        let count = |name: &str| events.iter().filter(|event| event.name.as_str() == name).count();
        assert_eq!((count("hold.opened"), count("call.claimed"), count("call.succeeded")), (1, 1, 1));
        assert!(cpu_seconds().unwrap() >= 0.0);
    }

    #[test]
    fn without_a_rival_nothing_is_met_or_missed() {
        assert_eq!(beside("a", 1.0, None, 0.125).met, None);
        assert_eq!(beside("a", 1.0, Some(&8.0), 0.125).met, Some(true));
        assert_eq!(beside("a", 1.1, Some(&8.0), 0.125).met, Some(false));
    }
}
