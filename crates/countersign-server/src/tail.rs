//! The one tail of the event log in this process. Every stream reads from it, so a thousand readers cost one query.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::{EventFilter, Store, StoreError};
use countersign::{Gate, limits as core_limits};
use countersign_api::wire;
use tokio::sync::broadcast;

use crate::auth::changes;
use crate::limits;
use crate::metrics::LogCounts;

/// How long to wait after the store failed.
const RETRY: Duration = Duration::from_secs(1);
/// Events that are read at once.
const PAGE: usize = limits::BEHIND / 4;

/// Hands every event to whoever listens.
#[derive(Clone)]
pub(crate) struct Tail {
    events: broadcast::Sender<Arc<Told>>,
    /// The last event that was handed out, or where the log ended when the tail began.
    at: Arc<Mutex<Cursor>>,
    heard: Arc<Heard>,
}

/// When the log was last read to its end.
struct Heard {
    began: Instant,
    /// Milliseconds after the beginning; none until it happened once.
    millis: AtomicU64,
}

impl Heard {
    const NEVER: u64 = u64::MAX;

    fn note(&self, looked: Instant) {
        let millis = looked.duration_since(self.began).as_millis();
        self.millis.store(u64::try_from(millis).unwrap_or(Heard::NEVER), Ordering::Release);
    }

    fn within(&self, span: Duration) -> bool {
        match self.millis.load(Ordering::Acquire) {
            Heard::NEVER => false,
            millis => self.began.elapsed() < Duration::from_millis(millis) + span,
        }
    }
}

/// An event, and what readers of server-sent events get of it: written once for all of them.
#[derive(Debug)]
pub(crate) struct Told {
    event: Event,
    frame: OnceLock<Option<Bytes>>,
}

impl Told {
    /// The event as a frame with its place in the stream; none where it cannot be told.
    pub(crate) fn frame(&self) -> Option<Bytes> {
        let write = || Some(self.written(&format!("id: {}\n", self.event.cursor))?.into());
        self.frame.get_or_init(write).clone()
    }

    /// The same without a place.
    pub(crate) fn frame_out_of_order(&self) -> Option<Bytes> {
        self.written("").map(Bytes::from)
    }

    fn written(&self, place: &str) -> Option<String> {
        let text = wire::Event::try_from(&self.event).and_then(|told| serde_json::to_string(&told)).ok()?;
        // SECURITY: a line end would begin a line of the frame's own. JSON as we write it has none.
        let whole = !text.contains(['\n', '\r']);
        whole.then(|| format!("event: {}\n{place}data: {text}\n\n", self.event.name.as_str()))
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Told {
        Told { event, frame: OnceLock::new() }
    }
}

impl Deref for Told {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// A place in the log, and everything after it.
pub(crate) struct Live {
    /// Where the tail stood when listening began.
    pub(crate) from: Cursor,
    /// What came since. Lagging means that events were missed.
    pub(crate) events: broadcast::Receiver<Arc<Told>>,
}

impl Tail {
    /// Begins at the end of the log and follows it for as long as somebody holds the tail.
    pub(crate) async fn begin(gate: Gate, counts: Arc<LogCounts>) -> Result<Tail, StoreError> {
        let from = end_of_log(&**gate.store()).await?;
        let (events, _) = broadcast::channel(limits::BEHIND);
        let heard = Heard { began: Instant::now(), millis: AtomicU64::new(Heard::NEVER) };
        let tail = Tail { events, at: Arc::new(Mutex::new(from)), heard: Arc::new(heard) };
        let follower = Follower { gate, cursor: from, counts, tail: tail.downgrade() };
        tokio::spawn(follower.run());
        Ok(tail)
    }

    /// Whether what other servers did has been heard: the log was read to its end a moment ago.
    pub(crate) fn hears(&self) -> bool {
        self.heard.within(limits::HEARS_WITHIN)
    }

    fn downgrade(&self) -> Followed {
        Followed { events: self.events.downgrade(), at: Arc::downgrade(&self.at), heard: Arc::downgrade(&self.heard) }
    }

    /// Listens from here on.
    pub(crate) fn listen(&self) -> Live {
        // INVARIANT: an event is sent under the same lock that moves the place, so none falls between the two.
        match self.at.lock() {
            Ok(at) => Live { from: *at, events: self.events.subscribe() },
            Err(poisoned) => Live { from: *poisoned.into_inner(), events: self.events.subscribe() },
        }
    }
}

/// A tail for as long as somebody holds it.
struct Followed {
    events: broadcast::WeakSender<Arc<Told>>,
    at: Weak<Mutex<Cursor>>,
    heard: Weak<Heard>,
}

impl Followed {
    fn upgrade(&self) -> Option<Tail> {
        Some(Tail { events: self.events.upgrade()?, at: self.at.upgrade()?, heard: self.heard.upgrade()? })
    }
}

/// Reads the log on and on.
struct Follower {
    gate: Gate,
    cursor: Cursor,
    counts: Arc<LogCounts>,
    tail: Followed,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let (began, ring) = (Instant::now(), self.gate.store().bell().listen_any());
            let filter = EventFilter { limit: Some(PAGE), ..EventFilter::default() };
            let read = self.gate.store().events(self.cursor, filter).await;
            let Some(tail) = self.tail.upgrade() else { return };
            match read {
                Ok(events) if events.is_empty() => {
                    tail.heard.note(began);
                    drop(tail);
                    // A quiet log is read, too, now and then: whether it can be is what others rely on.
                    let _ = tokio::time::timeout(limits::LOG_LOOKED, ring).await;
                }
                Ok(events) => {
                    let is_all = events.len() < PAGE;
                    self.hand_out(&tail, events);
                    // Not before all of it was told: whoever relies on hearing has heard it.
                    if is_all {
                        tail.heard.note(began);
                    }
                    let awaited = tail.events.receiver_count() > 0;
                    drop(tail);
                    // A reading for each commit costs a busy server its share, where nobody reads along.
                    if is_all && !awaited {
                        tokio::time::sleep(limits::LOG_RESTS).await;
                    }
                }
                Err(error) => {
                    drop(tail);
                    tracing::warn!(%error, "the event log cannot be read and will be tried again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn hand_out(&mut self, tail: &Tail, events: Vec<Event>) {
        for event in events {
            self.cursor = event.cursor;
            self.counts.add(&event);
            if event.name == EventName::AccessChanged {
                changes::ring(&**self.gate.store());
            }
            if let Ok(mut at) = tail.at.lock() {
                *at = event.cursor;
                // Whoever begins to listen does so under this lock, after this event.
                if tail.events.receiver_count() > 0 {
                    let _ = tail.events.send(Arc::new(Told::from(event)));
                }
            }
        }
    }
}

/// Where the log ends now, found by doubling and halving: stores can only say what comes after a place.
pub(crate) async fn end_of_log(store: &dyn Store) -> Result<Cursor, StoreError> {
    let Some(first) = next_after(store, Cursor::default()).await? else { return Ok(Cursor::default()) };
    // A store counts in one part of the cursor; the other only orders what is equal in it.
    let by_major = first.major > 0;
    let place = |n: u64| if by_major { Cursor { major: n, minor: 0 } } else { Cursor { major: 0, minor: n } };
    let mut low = if by_major { first.major } else { first.minor };
    let mut high = low.saturating_mul(2);
    while next_after(store, place(high)).await?.is_some() {
        (low, high) = (high, high.saturating_mul(2));
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match next_after(store, place(middle)).await? {
            Some(_) => low = middle,
            None => high = middle,
        }
    }
    walk(store, place(low.saturating_sub(1))).await
}

async fn next_after(store: &dyn Store, cursor: Cursor) -> Result<Option<Cursor>, StoreError> {
    let filter = EventFilter { limit: Some(1), ..EventFilter::default() };
    Ok(store.events(cursor, filter).await?.first().map(|event| event.cursor))
}

/// Reads on to the end from a place near it.
async fn walk(store: &dyn Store, mut at: Cursor) -> Result<Cursor, StoreError> {
    loop {
        let filter = EventFilter { limit: Some(core_limits::PAGE_ROWS), ..EventFilter::default() };
        match store.events(at, filter).await?.last() {
            Some(last) => at = last.cursor,
            None => return Ok(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign::call::Chain;
    use countersign::event::{Draft, EventName};
    use countersign::memory::MemoryStore;
    use countersign::store::Op;

    use super::*;

    #[tokio::test]
    async fn the_end_of_the_log_is_found_wherever_it_is() {
        let store = MemoryStore::new();
        for count in 0..300 {
            let end = end_of_log(&store).await.unwrap();
            let all = store.events(Cursor::default(), EventFilter { limit: Some(1_000), ..Default::default() }).await;
            assert_eq!(all.unwrap().last().map(|event| event.cursor).unwrap_or_default(), end, "{count} events");
            let draft = Draft::new(EventName::AccessRefused);
            store.run(Op::Note { chain: Chain::system(), draft }).await.unwrap();
        }
    }
}
