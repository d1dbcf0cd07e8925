//! The one tail of the event log in this process. Every stream reads from it, so a thousand readers cost one query.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use countersign::event::{Cursor, Event};
use countersign::store::{EventFilter, Store, StoreError};
use countersign::{Gate, limits as core_limits};
use countersign_api::wire;
use tokio::sync::broadcast;

use crate::limits;

/// How long to wait after the store failed.
const RETRY: Duration = Duration::from_secs(1);

/// Hands every event to whoever listens.
#[derive(Clone)]
pub(crate) struct Tail {
    events: broadcast::Sender<Arc<Told>>,
    /// The last event that was handed out, or where the log ended when the tail began.
    at: Arc<Mutex<Cursor>>,
}

/// An event, and its text for readers: written once for all of them.
#[derive(Debug)]
pub(crate) struct Told {
    event: Event,
    text: OnceLock<Option<String>>,
}

impl Told {
    /// The event as readers get it; none where it cannot be told.
    pub(crate) fn text(&self) -> Option<&str> {
        let write = || wire::Event::try_from(&self.event).and_then(|told| serde_json::to_string(&told)).ok();
        self.text.get_or_init(write).as_deref()
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Told {
        Told { event, text: OnceLock::new() }
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
    pub(crate) async fn begin(gate: Gate) -> Result<Tail, StoreError> {
        let from = end_of_log(&**gate.store()).await?;
        let (events, _) = broadcast::channel(limits::BEHIND);
        let tail = Tail { events, at: Arc::new(Mutex::new(from)) };
        let (sender, at) = (tail.events.downgrade(), Arc::downgrade(&tail.at));
        tokio::spawn(async move {
            let mut cursor = from;
            loop {
                let filter = EventFilter { limit: Some(limits::BEHIND / 4), ..EventFilter::default() };
                let next = gate.next_events(cursor, filter).await;
                let (Some(sender), Some(at)) = (sender.upgrade(), at.upgrade()) else { return };
                match next {
                    Ok(events) => {
                        for event in events {
                            cursor = event.cursor;
                            hand_out(&sender, &at, event);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the event log cannot be read and will be tried again");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        });
        Ok(tail)
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

fn hand_out(sender: &broadcast::Sender<Arc<Told>>, at: &Mutex<Cursor>, event: Event) {
    if let Ok(mut at) = at.lock() {
        *at = event.cursor;
        // Nobody listening is no failure.
        let _ = sender.send(Arc::new(Told::from(event)));
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
