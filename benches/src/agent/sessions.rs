//! Paused sessions: they wait in the store alone, so they take no memory, and resuming one does not feel the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use countersign::{Answer, Gate, Hold, Limits, Policy, Who};
use countersign_agent::{Agent, RunHandle};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Baselines, model, open, write_file};
use crate::core::memory::resident;
use crate::core::{Goal, compared};
use crate::figure::Figure;

const FEW: usize = 10_000;
const MANY: usize = 100_000;
/// Runs on their way to their hold at once, so that the store can put several into one commit.
const CALLERS: usize = 64;
/// Sessions that are resumed at each size.
const RESUMED: usize = 50;

pub(super) fn figures(runtime: &Runtime, _: &Baselines) -> Result<Vec<Figure>> {
    runtime.block_on(async {
        let folder = TempDir::new()?;
        let mut bed = Bed::open(&folder).await?;
        bed.pause(FEW).await?;
        let few = bed.measure().await?;
        bed.pause(MANY - FEW).await?;
        let many = bed.measure().await?;
        let memory = "resident memory with 100,000 paused sessions on SQLite, over 10,000";
        let resume = "resuming one of 100,000 paused sessions on SQLite, over one of 10,000";
        Ok(vec![
            compared(memory, "bytes", many.bytes, few.bytes, Goal::AtMost(1.1)),
            compared(resume, "us", many.microseconds, few.microseconds, Goal::AtMost(1.5)),
        ])
    })
}

struct Size {
    bytes: f64,
    microseconds: f64,
}

struct Bed {
    agent: Agent,
    holds: UnboundedReceiver<Hold>,
    begun: usize,
    /// The holds that opened last, to be decided.
    last: Vec<Hold>,
}

impl Bed {
    async fn open(folder: &TempDir) -> Result<Bed> {
        let limits = Limits { pending_per_agent: 1_000_000, pending_total: 1_000_000, ..Limits::default() };
        let builder = Gate::builder().policy(Policy::ask_all()).store(open(folder).await?).limits(limits);
        let (builder, holds) = builder.without_sweeper().channel();
        let agent = Agent::builder("bench", model(1)).gate(builder.build()?).tool(write_file()).build()?;
        Ok(Bed { agent, holds, begun: 0, last: Vec::new() })
    }

    /// Begins so many sessions and leaves each at its hold.
    async fn pause(&mut self, count: usize) -> Result<()> {
        let mut running: HashMap<Arc<str>, RunHandle> = HashMap::new();
        let mut left = count;
        self.last.clear();
        while left > 0 || !running.is_empty() {
            while left > 0 && running.len() < CALLERS {
                let run = self.agent.session(format!("session-{}", self.begun)).spawn("Write it down");
                running.insert(Arc::clone(run.session()), run);
                self.begun += 1;
                left -= 1;
            }
            let hold = self.holds.recv().await.context("the gate is gone")?;
            let session = hold.call.facts.path.session.as_ref().context("a hold without a session")?;
            running.remove(session).context("a hold of no run")?.park();
            if left == 0 && self.last.len() < RESUMED {
                self.last.push(hold);
            }
        }
        Ok(())
    }

    /// Resident memory now, and the median time to decide about a session and bring it to its end.
    async fn measure(&mut self) -> Result<Size> {
        let bytes = resident()? as f64;
        let mut times = Vec::new();
        for hold in std::mem::take(&mut self.last) {
            let session = hold.call.facts.path.session.clone().context("a hold without a session")?;
            let begin = Instant::now();
            let decision = hold.decision(Who::person("ann"), "bench", Answer::approve());
            self.agent.gate().decide(hold.id, decision).await?;
            let reply = self.agent.resume(session).await?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(&*reply.text == "Done.", "the agent said `{}`", reply.text);
        }
        times.sort_by(f64::total_cmp);
        let microseconds = *times.get(times.len() / 2).context("nothing was resumed")?;
        Ok(Size { bytes, microseconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paused_sessions_wait_and_can_be_resumed() {
        let folder = TempDir::new().unwrap();
        let mut bed = Bed::open(&folder).await.unwrap();
        bed.pause(70).await.unwrap();
        assert_eq!(bed.last.len(), RESUMED);
        bed.measure().await.unwrap();
    }
}
