//! Children: agents that work for another, each on a thread of its own, and hand-overs within a thread.
//!
//! A child begins with a call of its parent's that went through the gate, and its thread is named by that call. While
//! it works the parent's call has long ended, so no claim is held while people think.

use std::sync::Arc;

use countersign::{Call, CallId, Gate};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Answer, Run, Spoken, Thread};
use crate::agent::Agent;
use crate::error::RunError;
use crate::event::{Place, RunEvent};
use crate::stillness::Stillness;
use crate::transcript::{Entry, Next, Spent, Started, Transcript};

/// What a child takes from its parent.
pub(super) struct Parent {
    pub(super) run: Arc<Run>,
    pub(super) run_name: Arc<str>,
    pub(super) place: Arc<Place>,
    pub(super) gate: Gate,
    pub(super) stillness: Arc<Stillness>,
}

/// An agent at work for another.
pub(super) struct Child {
    parent: Parent,
    agent: Agent,
    thread: Arc<str>,
}

/// A background child's end.
pub(super) struct Ended {
    child: Started,
    text: Arc<str>,
    spent: Spent,
}

impl Parent {
    pub(super) fn child(self, agent: &Agent, call: CallId) -> Child {
        Child { parent: self, agent: agent.clone(), thread: call.to_string().into() }
    }
}

impl Child {
    /// Works until there is an answer, from wherever its history stands. The task comes with the call that began it.
    pub(super) fn work(self, task: Option<&Call>) -> BoxFuture<'static, Result<Answer, RunError>> {
        let task = task.map(task_of);
        async move {
            let mut thread = self.open().await?;
            if let (Next::Nothing, Some(task)) = (thread.transcript.history.next(), task) {
                thread.begin(Spoken { text: task, message: None, listing: None }).await?;
            }
            let run = Arc::clone(&thread.run);
            run.tell(|| RunEvent::ChildBegan { place: Arc::clone(&thread.place) });
            let driven = thread.drive().await;
            let answer = thread.when_still(driven).await?;
            run.tell(|| RunEvent::ChildEnded { place: Arc::clone(&thread.place), text: Arc::clone(&answer.text) });
            Ok(answer)
        }
        .boxed()
    }

    /// Begins its thread without working, so that the task is on record before the parent goes on.
    pub(super) async fn write_task_down(self, call: &Call) -> Result<(), RunError> {
        let Child { parent, thread, .. } = self;
        let mut transcript = Transcript::open(parent.gate.store(), &parent.run.session, &thread).await?;
        match transcript.history.next() {
            Next::Nothing => {
                transcript
                    .append(Entry::User { text: task_of(call), run: parent.run_name, at: None, message: None })
                    .await
            }
            _ => Ok(()),
        }
    }

    async fn open(self) -> Result<Thread, RunError> {
        let Child { parent, agent, thread } = self;
        let transcript = Transcript::open(parent.gate.store(), &parent.run.session, &thread).await?;
        let agents = parent.place.agents.iter().chain([agent.name()]).cloned().collect();
        let gate = parent.run.agent.inner.gate.asking_like(&parent.gate).scoped(&agent.inner.scope);
        let stillness = Stillness::part_of(&parent.stillness);
        Thread::at(parent.run, parent.run_name, Place { thread, agents }, agent, gate, transcript, stillness)
    }
}

/// The task as it was let through, which may be another than the model wrote.
fn task_of(call: &Call) -> Arc<str> {
    call.facts.arguments.field("task").map_or_else(|| "".into(), |task| super::call::text_of(&task))
}

impl Thread {
    /// The thread goes over to another agent. Whoever took part stays in the path, so their rules keep binding.
    pub(super) fn hand_over(&mut self, to: &str) -> Result<(), RunError> {
        let next = self.agent.inner.tools.handoff(to).and_then(|lead| self.agent.led_to(lead));
        let next = next.ok_or_else(|| RunError::Damaged(format!("`{}` hands over to no `{to}`", self.agent.name())))?;
        let others = self.place.agents.iter().filter(|agent| *agent != next.name());
        let agents = others.chain([next.name()]).cloned().collect();
        self.place = Arc::new(Place { thread: Arc::clone(&self.place.thread), agents });
        self.gate = self.run.agent.inner.gate.asking_like(&self.gate).scoped(&next.inner.scope);
        let before = std::mem::replace(&mut self.agent, next);
        if !self.earlier_agents.iter().any(|earlier| earlier.name() == before.name()) {
            self.earlier_agents.push(before);
        }
        Ok(())
    }

    /// Drives children again that worked when the driver before us was lost.
    pub(super) fn go_on_with_children(&mut self) -> Result<(), RunError> {
        for child in self.transcript.history.children.clone() {
            self.drive_in_background(child)?;
        }
        Ok(())
    }

    pub(super) fn drive_in_background(&mut self, child: Started) -> Result<(), RunError> {
        let unknown = || RunError::Damaged(format!("`{}` knows no agent `{}`", self.agent.name(), child.agent));
        let mut took_part = [&self.agent].into_iter().chain(&self.earlier_agents);
        let agent = took_part.find_map(|agent| agent.led_to(agent.inner.tools.background(&child.agent)?));
        let agent = agent.ok_or_else(unknown)?;
        let parent = Parent {
            run: Arc::clone(&self.run),
            run_name: Arc::clone(&self.run_name),
            place: Arc::clone(&self.place),
            gate: self.gate.clone(),
            stillness: Arc::clone(&self.stillness),
        };
        let work = Child { parent, agent, thread: Arc::clone(&child.thread) }.work(None);
        self.background.spawn(async move {
            let answer = work.await?;
            Ok(Ended { child, text: answer.for_a_model(), spent: answer.spent })
        });
        Ok(())
    }

    /// Waits for a background child and tells the model what it answered.
    pub(super) async fn await_child(&mut self) -> Result<(), RunError> {
        let ended = self.background.join_next().await;
        let ended = ended.ok_or_else(|| RunError::Lost("a background agent is gone".into()))?;
        let Ended { child, text, spent } = ended.map_err(|error| RunError::Lost(error.to_string()))??;
        let text = format!("[agent {} finished: {text}]", child.agent).into();
        self.transcript.append(Entry::Told { text, thread: child.thread, spent }).await
    }
}
