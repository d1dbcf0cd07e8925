//! Finds sessions that have something to do, and drives so many of them at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use countersign::event::{Event, EventName};
use futures::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::driver::Drive;
use super::key::Key;
use super::ticket::{self, Ticket};
use super::{Sessions, ended};
use crate::limits;
use crate::problem::Answer;
use crate::tail::{Live, Tail, Told};

/// Drives the sessions of one server.
pub(crate) struct Supervisor {
    sessions: Arc<Sessions>,
    tail: Tail,
    woken: mpsc::UnboundedReceiver<Key>,
    ending: watch::Receiver<bool>,
    /// Sessions that wait for their turn, each once.
    queue: VecDeque<Key>,
    queued: HashSet<Key>,
    driven: HashMap<Key, Driven>,
    drivers: JoinSet<Key>,
}

/// A session that is driven.
struct Driven {
    poked: Arc<Notify>,
    /// Something happened while it was driven, which its driver may not have seen.
    again: bool,
}

/// Which sessions to pick up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that nobody drives, parked ones too: what happened to them may have been missed.
    All,
    /// Those that are due.
    Due,
}

impl Supervisor {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        tail: Tail,
        woken: mpsc::UnboundedReceiver<Key>,
        ending: watch::Receiver<bool>,
    ) -> Supervisor {
        Supervisor {
            sessions,
            tail,
            woken,
            ending,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            driven: HashMap::new(),
            drivers: JoinSet::new(),
        }
    }

    /// Works until the server ends; then every run is parked where it can be gone on with.
    pub(crate) async fn run(mut self) {
        // A server without agents drives nothing, and leaves what others drive alone.
        if self.sessions.agents.is_empty() {
            return;
        }
        let mut live = self.tail.listen();
        self.pick_up(Which::All).await;
        let mut sweep = interval(limits::SESSIONS_SWEPT);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start_more();
            tokio::select! {
                () = ended(self.ending.clone()) => break,
                Some(key) = self.woken.recv() => self.wake(key),
                Some(ended) = self.drivers.join_next(), if !self.drivers.is_empty() => self.ended(ended.ok()),
                happened = next(&mut live) => match happened {
                    Some(event) => self.happened(&event).await,
                    None => self.pick_up(Which::All).await,
                },
                _ = sweep.tick() => self.pick_up(Which::Due).await,
            }
        }
        while self.drivers.join_next().await.is_some() {}
    }

    /// Something is to be done in a session.
    fn wake(&mut self, key: Key) {
        match self.driven.get_mut(&key) {
            Some(driven) => {
                driven.again = true;
                driven.poked.notify_one();
            }
            None if self.queued.insert(key.clone()) => self.queue.push_back(key),
            None => {}
        }
    }

    fn start_more(&mut self) {
        while self.drivers.len() < limits::SESSIONS_DRIVEN {
            let Some(key) = self.queue.pop_front() else { return };
            self.queued.remove(&key);
            let poked = Arc::new(Notify::new());
            self.driven.insert(key.clone(), Driven { poked: Arc::clone(&poked), again: false });
            let sessions = Arc::clone(&self.sessions);
            let drive = Drive { sessions, key: key.clone(), poked, ending: self.ending.clone() };
            self.drivers.spawn(async move {
                if AssertUnwindSafe(drive.go()).catch_unwind().await.is_err() {
                    tracing::error!(session = %key, "the driver of a session panicked");
                }
                key
            });
        }
    }

    fn ended(&mut self, key: Option<Key>) {
        let Some(key) = key else { return };
        if self.driven.remove(&key).is_some_and(|driven| driven.again) {
            self.wake(key);
        }
    }

    /// Something happened to a call: a session that waited for it goes on.
    async fn happened(&mut self, event: &Event) {
        if !may_wake(event.name) {
            return;
        }
        let Some(key) = Key::of(&event.chain) else { return };
        if let Some(driven) = self.driven.get_mut(&key) {
            // Its run hears of it by itself, unless it is being parked right now.
            driven.again = true;
            return;
        }
        match self.waits(&key).await {
            Ok(true) => self.wake(key),
            Ok(false) => {}
            Err(refused) => tracing::warn!(session = %key, problem = %refused.0, "a session could not be looked at"),
        }
    }

    async fn waits(&self, key: &Key) -> Answer<bool> {
        let Some((ticket, _)) = ticket::read(self.sessions.store(), key).await? else { return Ok(false) };
        Ok(ticket.is_waiting(&self.sessions.server, self.sessions.store().now().await?))
    }

    async fn pick_up(&mut self, which: Which) {
        if let Err(refused) = self.picked_up(which).await {
            tracing::warn!(problem = %refused.0, "sessions could not be looked through and will be looked at again");
        }
    }

    async fn picked_up(&mut self, which: Which) -> Answer<()> {
        let now = self.sessions.store().now().await?;
        let mut after: Option<Key> = None;
        loop {
            let page = ticket::page(self.sessions.store(), after.as_ref()).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key.clone());
            let server = &self.sessions.server;
            let wanted = |ticket: &Ticket| match which {
                Which::All => ticket.is_waiting(server, now),
                Which::Due => ticket.is_due(server, now),
            };
            let found: Vec<Key> = page.into_iter().filter(wanted).map(|ticket| ticket.key).collect();
            for key in found.into_iter().filter(|key| !self.driven.contains_key(key)).collect::<Vec<_>>() {
                self.wake(key);
            }
        }
    }
}

/// The next event; none where some were missed.
async fn next(live: &mut Live) -> Option<Arc<Told>> {
    match live.events.recv().await {
        Ok(event) => Some(event),
        Err(RecvError::Lagged(_)) => None,
        // The tail is gone with the server: its end is on the way.
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

/// Whether a run may have waited for this.
fn may_wake(name: EventName) -> bool {
    match name {
        EventName::HoldDecided
        | EventName::HoldReleased
        | EventName::HoldExpired
        | EventName::HoldCancelled
        | EventName::HoldSuperseded
        | EventName::CallRefused
        | EventName::CallSucceeded
        | EventName::CallFailed
        | EventName::CallAnswered
        | EventName::CallCancelled
        | EventName::CallLapsed
        | EventName::CallInDoubt
        | EventName::CallResolved => true,
        EventName::CallSubmitted
        | EventName::CallAllowed
        | EventName::CallClaimed
        | EventName::HoldOpened
        | EventName::GrantMade
        | EventName::GrantRevoked
        | EventName::PolicyLoaded
        | EventName::PolicyRejected
        | EventName::HaltSet
        | EventName::HaltLifted
        | EventName::AccessRefused
        | EventName::AccessChanged
        | EventName::ToolPinned
        | EventName::ToolChanged
        | EventName::ToolAccepted
        | EventName::CheckpointSigned => false,
    }
}
