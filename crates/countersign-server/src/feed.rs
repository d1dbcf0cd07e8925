//! What one reader gets of the tail: what they missed, then what happens, and only what they may see.

use std::collections::VecDeque;
use std::sync::Arc;

use countersign::call::Chain;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::{CallFilter, EventFilter, Store, StoreError};
use countersign::{CallId, HoldId, limits as core_limits};
use countersign_api::wire::Role;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::app::App;
use crate::auth::Principal;
use crate::limits;
use crate::tail::{Live, Told};

/// Events that are taken before it is looked whether the stream must end.
const IN_A_ROW: usize = 32;

/// Something for a reader.
#[derive(Debug)]
pub(crate) enum Item {
    /// A hold that waits, as it was opened. It has no place in the stream.
    Waiting(Arc<Told>),
    /// Everything there was has been sent.
    Ready(Cursor),
    /// Something happened.
    Event(Arc<Told>),
    /// Events were missed, or the store failed: begin anew.
    Resync,
}

/// One reader's stream.
pub(crate) struct Feed {
    app: App,
    principal: Arc<Principal>,
    stage: Stage,
    live: Option<Live>,
    queue: VecDeque<Item>,
    /// An event of which it is not known yet whether the reader may see it.
    heard: Option<Arc<Told>>,
    /// What a halt keeps from an agent until it is lifted.
    withheld: VecDeque<Arc<Told>>,
    /// Looks for events since it was last looked whether the stream must end.
    in_a_row: usize,
    tick: Interval,
}

/// What a reader gets of an event.
enum Sight {
    /// It is told.
    Shown,
    /// It is told when the halt is lifted.
    Withheld,
    /// Nothing.
    Hidden,
}

enum Stage {
    /// Sends the holds that wait, after this call.
    Waiting(Option<CallId>),
    /// Looks whether a reader's place is one of this log.
    Check(Cursor),
    /// Sends what happened since.
    History(Cursor),
    /// Sends what happens after this.
    Live(Cursor),
    /// Ended.
    Done,
}

impl Feed {
    /// Begins: with what happened since a cursor, else with the holds that wait. Whoever begins it has a place for it.
    pub(crate) fn begin(app: App, principal: Arc<Principal>, after: Option<Cursor>) -> Feed {
        let mut tick = interval(limits::KEEP_ALIVE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (stage, live) = match after {
            Some(after) => (Stage::Check(after), None),
            // Listening begins before looking, so a hold that opens meanwhile is seen at least once.
            None => (Stage::Waiting(None), Some(app.tail.listen())),
        };
        Feed {
            app,
            principal,
            stage,
            live,
            queue: VecDeque::new(),
            heard: None,
            withheld: VecDeque::new(),
            in_a_row: 0,
            tick,
        }
    }

    /// The next item; none when the stream is over. Can be dropped at any moment: nothing is lost by it.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item);
            }
            let stepped = match self.stage {
                Stage::Done => return None,
                Stage::Waiting(after) => self.waiting(after).await,
                Stage::Check(after) => self.check(after).await,
                Stage::History(after) => self.history(after).await,
                Stage::Live(after) => self.live(after).await,
            };
            if let Err(error) = stepped {
                tracing::warn!(%error, "a stream could not go on");
                self.stage = Stage::Done;
                return Some(Item::Resync);
            }
        }
    }

    async fn waiting(&mut self, after: Option<CallId>) -> Result<(), StoreError> {
        let principal = self.principal.is_agent().then(|| Arc::clone(&self.principal.name));
        let limit = Some(core_limits::PAGE_ROWS);
        let filter = CallFilter { holding: true, principal, after, limit, ..CallFilter::default() };
        let calls = self.app.store().calls(filter).await?;
        let open: Vec<(CallId, HoldId)> =
            calls.iter().filter_map(|call| Some((call.id, call.open_hold()?.id))).collect();
        let opened = self.app.store().openings(&open).await?;
        // Only now, with nothing left to wait for: whoever stops listening in between begins this page again.
        self.queue.extend(opened.into_iter().map(|event| Item::Waiting(Arc::new(event.into()))));
        match calls.last() {
            Some(last) => self.stage = Stage::Waiting(Some(last.id)),
            None => self.ready(),
        }
        Ok(())
    }

    /// A place beyond the end, or of another log, would hide what happens before it is reached.
    async fn check(&mut self, after: Cursor) -> Result<(), StoreError> {
        if is_in_log(&**self.app.store(), after, EventFilter::default()).await? {
            self.stage = Stage::History(after);
        } else {
            self.stage = Stage::Done;
            self.queue.push_back(Item::Resync);
        }
        Ok(())
    }

    async fn history(&mut self, after: Cursor) -> Result<(), StoreError> {
        let filter = EventFilter { limit: Some(limits::BEHIND / 4), ..EventFilter::default() };
        let events = self.app.store().events(after, filter).await?;
        let last = events.last().map(|event| event.cursor);
        let mut seen = Vec::new();
        let mut withheld = Vec::new();
        for event in events {
            match self.sight(&event).await? {
                Sight::Shown => seen.push(Item::Event(Arc::new(event.into()))),
                Sight::Withheld => withheld.push(Arc::new(event.into())),
                Sight::Hidden => {}
            }
        }
        // Only now, with nothing left to wait for: whoever stops listening in between begins this page again.
        self.queue.extend(seen);
        self.withhold(withheld);
        let caught_up = self.live.as_ref().is_some_and(|live| after >= live.from);
        match last {
            Some(last) => self.stage = Stage::History(last),
            // First the long way without listening, then the rest of it while what is new already waits.
            None if self.live.is_none() => self.live = Some(self.app.tail.listen()),
            None if caught_up => {
                self.stage = Stage::Live(after);
                self.queue.push_back(Item::Ready(after));
            }
            None => self.ready(),
        }
        Ok(())
    }

    fn ready(&mut self) {
        let from = self.live.get_or_insert_with(|| self.app.tail.listen()).from;
        self.stage = Stage::Live(from);
        self.queue.push_back(Item::Ready(from));
    }

    async fn live(&mut self, after: Cursor) -> Result<(), StoreError> {
        if let Some(event) = self.heard.clone() {
            let sight = self.sight(&event).await?;
            let released = if event.name == EventName::HaltLifted { self.released().await? } else { Vec::new() };
            // Only now, with nothing left to wait for.
            self.queue.extend(released.into_iter().map(Item::Waiting));
            match sight {
                Sight::Shown => self.queue.push_back(Item::Event(event)),
                Sight::Withheld => self.withhold([event]),
                Sight::Hidden => {}
            }
            self.heard = None;
            return Ok(());
        }
        let Some(live) = &mut self.live else {
            self.stage = Stage::Done;
            return Ok(());
        };
        let received = match at_once(&mut live.events, &mut self.in_a_row) {
            Some(received) => received,
            None => tokio::select! {
                received = live.events.recv() => received,
                _ = self.tick.tick() => {
                    // SECURITY: a credential that was revoked or ran out hears nothing more.
                    if !self.principal.still_holds(&self.app).await {
                        self.stage = Stage::Done;
                    }
                    return Ok(());
                }
                () = self.app.ended() => {
                    self.stage = Stage::Done;
                    return Ok(());
                }
            },
        };
        match received {
            Ok(event) if event.cursor <= after => {}
            Ok(event) => {
                self.stage = Stage::Live(event.cursor);
                self.heard = Some(event);
            }
            Err(RecvError::Lagged(_)) => {
                self.stage = Stage::Done;
                self.queue.push_back(Item::Resync);
            }
            Err(RecvError::Closed) => self.stage = Stage::Done,
        }
        Ok(())
    }

    /// Keeps for later what a halt withholds. Who is owed too much begins anew.
    fn withhold(&mut self, events: impl IntoIterator<Item = Arc<Told>>) {
        self.withheld.extend(events);
        if self.withheld.len() > limits::BEHIND {
            self.stage = Stage::Done;
            self.queue.push_back(Item::Resync);
        }
    }

    /// What no halt withholds any more.
    async fn released(&mut self) -> Result<Vec<Arc<Told>>, StoreError> {
        let (mut released, mut still) = (Vec::new(), VecDeque::new());
        for event in self.withheld.clone() {
            match self.is_withheld(&event).await? {
                true => still.push_back(event),
                false => released.push(event),
            }
        }
        self.withheld = still;
        Ok(released)
    }

    /// What the reader gets of an event now.
    async fn sight(&self, event: &Event) -> Result<Sight, StoreError> {
        match self.may_see(event).await? {
            false => Ok(Sight::Hidden),
            true if self.principal.is_agent() && self.is_withheld(event).await? => Ok(Sight::Withheld),
            true => Ok(Sight::Shown),
        }
    }

    /// Whether it tells a running tool of a yes that a halt keeps from being delivered.
    async fn is_withheld(&self, event: &Event) -> Result<bool, StoreError> {
        let yes = event.name == EventName::HoldDecided && event.value().get("answer") == Some(&"approve".into());
        let (true, Some(call), Some(hold)) = (yes, event.call, event.hold) else { return Ok(false) };
        let Some(call) = self.app.store().call(call).await? else { return Ok(false) };
        let in_run = call.holds.iter().any(|row| row.id == hold && row.in_run());
        Ok(in_run && self.app.store().halted(&call.facts.path).await?)
    }

    /// An agent sees its own calls; approvers see calls, holds, grants, policy, halts and tools; the others see everything.
    async fn may_see(&self, event: &Event) -> Result<bool, StoreError> {
        if self.principal.has(&[Role::Operator, Role::Auditor]) {
            return Ok(true);
        }
        if self.principal.has(&[Role::Approver]) {
            let name = event.name.as_str();
            return Ok(["call.", "hold.", "grant.", "halt.", "policy.", "tool."]
                .iter()
                .any(|kind| name.starts_with(kind)));
        }
        let Some(call) = event.call else { return Ok(false) };
        if event.chain != Chain::system() {
            let owner = event.chain.0.split_once('/').map(|(owner, _)| owner);
            return Ok(owner == Some(&*self.principal.name));
        }
        // Calls without a session share one chain: only the call itself says whose it is.
        let call = self.app.store().call(call).await?;
        Ok(call.is_some_and(|call| call.facts.path.principal == self.principal.name))
    }
}

/// What is there already, without the cost of waiting. Now and then none: a flood must not keep a reader from being sent
/// away.
fn at_once(events: &mut broadcast::Receiver<Arc<Told>>, in_a_row: &mut usize) -> Option<Result<Arc<Told>, RecvError>> {
    if *in_a_row == IN_A_ROW {
        *in_a_row = 0;
        return None;
    }
    *in_a_row += 1;
    match events.try_recv() {
        Ok(event) => Some(Ok(event)),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Lagged(missed)) => Some(Err(RecvError::Lagged(missed))),
        Err(TryRecvError::Closed) => Some(Err(RecvError::Closed)),
    }
}

/// Whether a place is one of this log: its beginning, or that of an event that the filter lets through.
pub(crate) async fn is_in_log(store: &dyn Store, place: Cursor, filter: EventFilter) -> Result<bool, StoreError> {
    let before = match (place.major, place.minor) {
        (_, minor @ 1..) => Cursor { minor: minor - 1, ..place },
        (major @ 1.., 0) => Cursor { major: major - 1, minor: u64::from(u32::MAX) },
        (0, 0) => return Ok(true),
    };
    let found = store.events(before, EventFilter { limit: Some(1), ..filter }).await?;
    Ok(found.first().is_some_and(|event| event.cursor == place))
}
