//! Watching a run: a bounded feed of events, and a tail of the session's durable log for holds and calls.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use countersign::call::Path;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::{CallFilter, EventFilter};
use countersign::{Gate, GateError, Hold, HoldId};
use futures::stream::{BoxStream, Stream, StreamExt as _};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::RunError;
use crate::event::RunEvent;
use crate::limits;
use crate::session::Reply;
use crate::stillness::Stillness;

/// A run in a task of its own. Awaiting it gives the reply; dropping it lets the run go on.
pub struct RunHandle {
    session: Arc<str>,
    cancel: CancellationToken,
    stillness: Arc<Stillness>,
    task: JoinHandle<Result<Reply, RunError>>,
}

impl RunHandle {
    pub(crate) fn new(
        session: Arc<str>,
        cancel: CancellationToken,
        stillness: Arc<Stillness>,
        task: JoinHandle<Result<Reply, RunError>>,
    ) -> RunHandle {
        RunHandle { session, cancel, stillness, task }
    }

    /// The session it runs in.
    pub fn session(&self) -> &Arc<str> {
        &self.session
    }

    /// Ends the run: its holds are withdrawn, running tools are left in doubt. Awaiting gives [`RunError::Cancelled`].
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Stops driving the run without ending it. Its holds stay, and resuming the session goes on.
    pub fn park(self) {
        self.task.abort();
    }

    /// Parks the run if it only waits: for people, or for the session's client. Says whether it does.
    pub fn park_if_waiting(&self) -> bool {
        let waits = self.stillness.close_if_still();
        if waits {
            self.task.abort();
        }
        waits
    }

    /// Parks the run at the next moment in which no tool of it runs and no model answers; after this time, anyway.
    pub async fn park_when_still(self, within: Duration) {
        let _ = tokio::time::timeout(within, self.stillness.close()).await;
        self.task.abort();
    }
}

impl Future for RunHandle {
    type Output = Result<Reply, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = std::task::ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready(ended.unwrap_or_else(|error| Err(RunError::Lost(error.to_string()))))
    }
}

/// The events of a run, as they happen. Dropping it lets the run go on.
pub struct RunStream {
    events: BoxStream<'static, RunEvent>,
    handle: RunHandle,
}

impl RunStream {
    pub(crate) fn new(receiver: broadcast::Receiver<RunEvent>, handle: RunHandle) -> RunStream {
        let events = futures::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(RecvError::Lagged(events)) => Some((RunEvent::Missed { events }, receiver)),
                Err(RecvError::Closed) => None,
            }
        });
        RunStream { events: events.boxed(), handle }
    }

    /// The next event; none after the last.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.events.next().await
    }

    /// The session it runs in.
    pub fn session(&self) -> &Arc<str> {
        self.handle.session()
    }

    /// Ends the run, as [`RunHandle::cancel`] does.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Stops driving the run without ending it, as [`RunHandle::park`] does.
    pub fn park(self) {
        self.handle.park();
    }

    /// Parks the run if it only waits, as [`RunHandle::park_if_waiting`] does.
    pub fn park_if_waiting(&self) -> bool {
        self.handle.park_if_waiting()
    }

    /// Parks the run when nothing of it is being done, as [`RunHandle::park_when_still`] does.
    pub async fn park_when_still(self, within: Duration) {
        self.handle.park_when_still(within).await;
    }

    /// Lets the rest of the events go and waits for the reply.
    pub async fn reply(self) -> Result<Reply, RunError> {
        self.handle.await
    }
}

impl Stream for RunStream {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.events.poll_next_unpin(context)
    }
}

/// Where a run tells what happens. A reader that is slow or gone never holds the run up.
#[derive(Clone)]
pub(crate) struct Feed {
    events: broadcast::Sender<RunEvent>,
    /// The tail that tells of holds and calls beside the run.
    tail: Option<mpsc::UnboundedSender<oneshot::Sender<()>>>,
}

impl Feed {
    pub(crate) fn new() -> (Feed, broadcast::Receiver<RunEvent>) {
        let (events, receiver) = broadcast::channel(limits::EVENTS_BEHIND);
        (Feed { events, tail: None }, receiver)
    }

    pub(crate) fn tell(&self, event: RunEvent) {
        // Nobody reads any more: the run goes on all the same.
        let _ = self.events.send(event);
    }

    /// Waits until everything that is in the log by now has been told, so that an answer never overtakes the calls it
    /// is about.
    pub(crate) async fn catch_up(&self) {
        let Some(tail) = &self.tail else { return };
        let (sender, caught_up) = oneshot::channel();
        // A tail that is gone tells nothing more, and there is nothing to wait for.
        if tail.send(sender).is_ok() {
            let _ = caught_up.await;
        }
    }
}

/// Follows a session's durable log and tells of its holds and calls, children's at any depth too.
pub(crate) struct Tail {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
    asked: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

impl Tail {
    /// Begins where the log ends now; what is pending is told first.
    pub(crate) async fn start(gate: &Gate, path: &Path, feed: Feed) -> Result<Tail, GateError> {
        let mut reader = Reader {
            gate: gate.clone(),
            feed,
            filter: EventFilter { chain: Some(path.chain()), ..EventFilter::default() },
            cursor: Cursor::default(),
            shown: HashSet::new(),
        };
        reader.catch_up(path).await?;
        let stop = CancellationToken::new();
        let (asked, asking) = mpsc::unbounded_channel();
        let task = AbortOnDropHandle::new(tokio::spawn(reader.follow(asking, stop.clone())));
        Ok(Tail { stop, task, asked })
    }

    /// The feed of a run that keeps in step with this tail.
    pub(crate) fn in_step(&self, feed: &Feed) -> Feed {
        Feed { tail: Some(self.asked.clone()), ..feed.clone() }
    }

    /// Tells what is still unread, then ends.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

struct Reader {
    gate: Gate,
    feed: Feed,
    filter: EventFilter,
    cursor: Cursor,
    /// Holds that were told of and are still open.
    shown: HashSet<HoldId>,
}

impl Reader {
    async fn catch_up(&mut self, path: &Path) -> Result<(), GateError> {
        loop {
            let events = self.gate.store().events(self.cursor, self.filter.clone()).await?;
            let Some(last) = events.last() else { break };
            self.cursor = last.cursor;
        }
        let holding = CallFilter {
            holding: true,
            session: path.session.clone(),
            principal: Some(Arc::clone(&path.principal)),
            limit: Some(countersign::limits::PAGE_ROWS),
            ..CallFilter::default()
        };
        for call in self.gate.store().calls(holding).await? {
            let open = call.open_hold().and_then(|hold| Hold::of(&call, hold.id));
            self.held(open);
        }
        Ok(())
    }

    async fn follow(mut self, mut asking: mpsc::UnboundedReceiver<oneshot::Sender<()>>, stop: CancellationToken) {
        loop {
            let told = tokio::select! {
                read = self.gate.next_events(self.cursor, self.filter.clone()) => self.told(read).await,
                Some(waiting) = asking.recv() => {
                    let told = self.tell_all().await;
                    let _ = waiting.send(());
                    told
                }
                () = stop.cancelled() => break,
            };
            if told.is_err() {
                return;
            }
        }
        let _ = self.tell_all().await;
    }

    /// Tells everything that is in the log by now.
    async fn tell_all(&mut self) -> Result<(), GateError> {
        loop {
            let read = self.gate.store().events(self.cursor, self.filter.clone()).await;
            match read {
                Ok(events) if events.is_empty() => return Ok(()),
                read => self.told(read.map_err(GateError::from)).await?,
            }
        }
    }

    async fn told(&mut self, read: Result<Vec<Event>, GateError>) -> Result<(), GateError> {
        let told = async {
            for event in read? {
                self.tell(&event).await?;
                self.cursor = event.cursor;
            }
            Ok(())
        };
        told.await.inspect_err(|error: &GateError| {
            tracing::warn!(%error, "the log cannot be read; this run's stream tells no more of holds and calls");
        })
    }

    async fn tell(&mut self, event: &Event) -> Result<(), GateError> {
        let Some(id) = event.call else { return Ok(()) };
        let call = self.gate.get(id).await?;
        match event.name {
            EventName::CallSubmitted => self.feed.tell(RunEvent::Called { call }),
            EventName::HoldOpened => self.held(event.hold.and_then(|hold| Hold::of(&call, hold))),
            EventName::HoldDecided
            | EventName::HoldReleased
            | EventName::HoldExpired
            | EventName::HoldCancelled
            | EventName::HoldSuperseded => {
                let hold = call.holds.iter().find(|hold| Some(hold.id) == event.hold && !hold.is_pending());
                // One of several decisions closes a hold; the others are no news here.
                if let Some(hold) = hold.filter(|hold| self.shown.remove(&hold.id)) {
                    self.feed.tell(RunEvent::HoldClosed { hold: hold.id, call: call.id, state: hold.state });
                }
            }
            EventName::CallRefused
            | EventName::CallSucceeded
            | EventName::CallFailed
            | EventName::CallAnswered
            | EventName::CallCancelled
            | EventName::CallLapsed
            | EventName::CallInDoubt
            | EventName::CallResolved => self.feed.tell(RunEvent::Ended { call }),
            EventName::CallAllowed
            | EventName::CallClaimed
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
            | EventName::CheckpointSigned => {}
        }
        Ok(())
    }

    fn held(&mut self, hold: Option<Hold>) {
        if let Some(hold) = hold.filter(|hold| self.shown.insert(hold.id)) {
            self.feed.tell(RunEvent::Held { hold });
        }
    }
}
