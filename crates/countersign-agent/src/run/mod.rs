//! The loop: what a thread's history says is to be done next, until nothing is.
//!
//! `ask the model → bring its calls to their ends → ask again`. Every step is written down before the next begins, and
//! every call goes through the gate under a name of its own place, so a step that is taken again after a restart is the
//! same step. The ends of calls are in the store with the calls; as an entry they are written along with the next one.

mod call;
mod calls;
mod cancel;
mod delegate;
mod limit;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use countersign::Gate;
use countersign::call::Path;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

pub(crate) use cancel::settle;
use limit::Meter;

use crate::agent::Agent;
use crate::error::RunError;
use crate::event::{Place, RunEvent};
use crate::model::Stop;
use crate::session::{MAIN, Reply};
use crate::stillness::Stillness;
use crate::stream::Feed;
use crate::transcript::{Entry, History, Next, SessionKey, Spent, Transcript};

/// What all threads of one run share.
pub(crate) struct Run {
    /// The agent the session was begun with.
    agent: Agent,
    /// Whose work it is: principal, requester and session.
    path: Path,
    session: SessionKey,
    feed: Option<Feed>,
    meter: Meter,
    stillness: Arc<Stillness>,
}

impl Run {
    pub(crate) fn new(
        agent: Agent,
        path: Path,
        session: SessionKey,
        feed: Option<Feed>,
        stillness: Arc<Stillness>,
    ) -> Arc<Run> {
        let meter = Meter::new(agent.inner.limits);
        Arc::new(Run { agent, path, session, feed, meter, stillness })
    }

    /// Tells whoever watches. Nothing is even built where nobody does.
    fn tell(&self, event: impl FnOnce() -> RunEvent) {
        if let Some(feed) = &self.feed {
            feed.tell(event());
        }
    }
}

/// One line of work: the session's own, or a child's.
pub(crate) struct Thread {
    run: Arc<Run>,
    /// The run's name within the session.
    run_name: Arc<str>,
    place: Arc<Place>,
    /// The agent that acts now, and the gate as it sees it.
    agent: Agent,
    gate: Gate,
    /// Agents that acted here before, whose children may still work.
    earlier_agents: Vec<Agent>,
    transcript: Transcript,
    /// What this thread and its children are in the middle of.
    stillness: Arc<Stillness>,
    /// Whether calls of the last turn may have been proposed before, by a driver that is gone.
    resumed: bool,
    /// Children that work in the background. Dropping the thread stops driving them.
    background: JoinSet<Result<delegate::Ended, RunError>>,
}

/// What a run begins with.
pub(crate) struct Spoken<'a> {
    /// What was said.
    pub(crate) text: Arc<str>,
    /// The sender's name for it.
    pub(crate) message: Option<Arc<str>>,
    /// Lists the session, where that is still to be done.
    pub(crate) listing: Option<BoxFuture<'a, Result<(), RunError>>>,
}

/// How a thread ended well.
pub(crate) struct Answer {
    text: Arc<str>,
    spent: Spent,
    stop: Stop,
}

impl Answer {
    /// The answer as another model reads it, which must not take a part for the whole.
    fn for_a_model(&self) -> Arc<str> {
        match self.stop.warning() {
            Some(warning) => format!("{} [{warning}]", self.text).into(),
            None => Arc::clone(&self.text),
        }
    }
}

impl Thread {
    /// The session's own thread.
    pub(crate) fn main(run: Arc<Run>, transcript: Transcript) -> Result<Thread, RunError> {
        let agent = run.agent.clone();
        let gate = agent.inner.gate.scoped(&agent.inner.scope);
        let place = Place { thread: MAIN.into(), agents: Arc::from([Arc::clone(agent.name())]) };
        let run_name = Arc::clone(&transcript.history.run);
        let stillness = Arc::clone(&run.stillness);
        Thread::at(run, run_name, place, agent, gate, transcript, stillness)
    }

    fn at(
        run: Arc<Run>,
        run_name: Arc<str>,
        place: Place,
        agent: Agent,
        gate: Gate,
        transcript: Transcript,
        stillness: Arc<Stillness>,
    ) -> Result<Thread, RunError> {
        let resumed = transcript.history.entries > 0;
        let place = Arc::new(place);
        let background = JoinSet::new();
        let earlier_agents = Vec::new();
        let mut thread =
            Thread { run, run_name, place, agent, gate, earlier_agents, transcript, stillness, resumed, background };
        for name in thread.transcript.history.handed.clone() {
            thread.hand_over(&name)?;
        }
        thread.run.meter.add(thread.transcript.history.spent);
        thread.go_on_with_children()?;
        Ok(thread)
    }

    /// Drives the session's own thread: what was left open, then what is said now, then until it is done.
    pub(crate) async fn go(mut self, said: Option<Spoken<'_>>) -> Result<Reply, RunError> {
        let gone = self.go_on(said).await;
        self.when_still(gone).await
    }

    async fn go_on(&mut self, said: Option<Spoken<'_>>) -> Result<Reply, RunError> {
        if let Some(said) = said {
            self.close_what_is_open().await?;
            self.begin(said).await?;
        }
        let path = self.run.path.clone();
        let Answer { text, spent, stop } = self.drive().await?;
        Ok(Reply {
            text,
            session: path.session.unwrap_or_else(|| MAIN.into()),
            run: Arc::clone(&self.run_name),
            agent: Arc::clone(self.agent.name()),
            turns: spent.turns,
            usage: spent.usage,
            stop,
        })
    }

    /// The one path of a thread.
    async fn drive(&mut self) -> Result<Answer, RunError> {
        loop {
            match self.transcript.history.next() {
                Next::Ask => self.ask_model().await?,
                Next::Calls => self.end_calls().await?,
                Next::Await => self.await_child().await?,
                Next::Done => return Ok(self.answer()),
                Next::Stopped(why) => return Err(RunError::stopped(why, self.run.agent.inner.timeout)),
                Next::Nothing => return Err(RunError::NoSession(Arc::clone(&self.place.thread))),
            }
        }
    }

    /// Gives an error back once nothing of the thread is being done: a tool that is left in the middle is in doubt.
    async fn when_still<T>(&mut self, ended: Result<T, RunError>) -> Result<T, RunError> {
        if ended.is_err() {
            self.stillness.close().await;
            // Whoever reads the session meanwhile finds it whole. Whoever goes on with it would find the same again.
            let _ = self.transcript.flush().await;
        }
        ended
    }

    fn answer(&self) -> Answer {
        let history = &self.transcript.history;
        let text = history.said().map_or("", |said| said.text.as_str());
        Answer { text: text.into(), spent: history.spent, stop: history.stop }
    }

    /// What is said now waits until the calls of the last turn have ended and its children have answered.
    async fn close_what_is_open(&mut self) -> Result<(), RunError> {
        if self.transcript.history.next() == Next::Calls {
            self.end_calls().await?;
        }
        while !self.transcript.history.children.is_empty() {
            self.await_child().await?;
        }
        Ok(())
    }

    /// Begins a run: a user said something, or a parent gave a task.
    async fn begin(&mut self, said: Spoken<'_>) -> Result<(), RunError> {
        let Spoken { text, message, listing } = said;
        if &*self.place.thread == MAIN {
            self.run_name = format!("r{}", self.transcript.history.runs + 1).into();
            self.run.meter.reset();
        }
        let at = match self.run.agent.inner.timeout {
            Some(_) => Some(self.gate.store().now().await?),
            None => None,
        };
        self.resumed = false;
        let begun = self.transcript.append(Entry::User { text, run: Arc::clone(&self.run_name), at, message });
        match listing {
            // Side by side, so that one commit has both.
            Some(listing) => futures::try_join!(listing, begun).map(|_| ()),
            None => begun.await,
        }
    }

    /// Whose calls this thread makes.
    fn path(&self) -> Path {
        Path {
            run: Some(Arc::clone(&self.run_name)),
            thread: Some(Arc::clone(&self.place.thread)),
            agents: Arc::clone(&self.place.agents),
            ..self.run.path.clone()
        }
    }
}

/// How much of a run's time is left. Downtime counts: a restart never extends it.
pub(crate) async fn time_left(run: &Run, history: &History, begins: bool) -> Result<Option<Duration>, RunError> {
    let Some(timeout) = run.agent.inner.timeout else { return Ok(None) };
    let Some(began) = history.began.filter(|_| !begins) else { return Ok(Some(timeout)) };
    let now = run.agent.inner.gate.store().now().await?;
    Ok(Some(now.until(began.after(timeout))))
}

/// Waits until a run's time is up; for ever, where it has no end.
pub(crate) async fn out_of_time(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
