//! Reads a log page by page, in the order in which it can be checked.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::audit::order::Order;
use crate::call::Chain;
use crate::event::{Cursor, Event};
use crate::limits;
use crate::store::{EventFilter, Store, StoreError};
use crate::time::Time;

/// How often the end of the log is read again for an event that others wait for, and how long apart.
///
/// On a store of many nodes a transaction that is still under way hides younger events for a moment.
const LOOK_AGAIN: u32 = 50;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A log that can be read: a store's own, or one that a server shows.
#[async_trait]
pub trait Readable: Send + Sync {
    /// Events after a place, in the log's order: a full page, or fewer at the end of the log.
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError>;
    /// The clock of the store.
    async fn now(&self) -> Result<Time, StoreError>;
    /// Whether others may write to it at the same time.
    fn is_shared(&self) -> bool;
}

/// The log of a store, borrowed or shared.
#[derive(Debug, Clone)]
pub struct OfStore<S>(pub S);

#[async_trait]
impl<S: Deref<Target: Store> + Send + Sync> Readable for OfStore<S> {
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        self.0.events(after, filter).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.0.now().await
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }
}

/// A log from its beginning to where it stood when the reading began, or a little later.
pub(super) struct Log<'a> {
    store: &'a dyn Readable,
    feeds: Vec<Feed>,
    order: Order<'a>,
    began: Time,
    looks_left: u32,
}

/// One filtered reading of the store.
struct Feed {
    filter: EventFilter,
    after: Cursor,
    page: VecDeque<Event>,
    ended: bool,
}

impl<'a> Log<'a> {
    /// Begins to read the log of one session with the chain `system`, or of all.
    pub(super) async fn begin(store: &'a dyn Readable, session: Option<&'a Arc<str>>) -> Result<Log<'a>, StoreError> {
        let filters = match session {
            None => vec![EventFilter::default()],
            // Checkpoints first, so that what they sign is read after them and is there.
            Some(session) => vec![
                EventFilter { chain: Some(Chain::system()), ..EventFilter::default() },
                EventFilter { session: Some(Arc::clone(session)), ..EventFilter::default() },
            ],
        };
        let began = store.now().await?;
        let order = Order::new(session.map(AsRef::as_ref));
        let feeds = filters.into_iter().map(Feed::new).collect();
        Ok(Log { store, feeds, order, began, looks_left: LOOK_AGAIN })
    }

    /// Begins to read the chain `system`, where checkpoints are.
    pub(super) async fn system(store: &'a dyn Readable) -> Result<Log<'a>, StoreError> {
        let mut log = Log::begin(store, None).await?;
        log.feeds = vec![Feed::new(EventFilter { chain: Some(Chain::system()), ..EventFilter::default() })];
        // Checkpoints need not wait here for what they sign.
        log.order.give_up();
        Ok(log)
    }

    /// The next event, or none at the end of the log.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        loop {
            if let Some(event) = self.order.next() {
                return Ok(Some(event));
            }
            if let Some(event) = self.read().await? {
                self.order.push(event);
                continue;
            }
            if !self.order.waits() {
                return Ok(None);
            }
            if self.looks_left == 0 {
                self.order.give_up();
                continue;
            }
            self.looks_left -= 1;
            if self.store.is_shared() {
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            }
            for feed in &mut self.feeds {
                feed.ended = false;
            }
        }
    }

    /// The next event of all feeds in the store's order.
    async fn read(&mut self) -> Result<Option<Event>, StoreError> {
        for feed in &mut self.feeds {
            feed.fill(self.store, self.began).await?;
        }
        let waiting = self.feeds.iter_mut().filter(|feed| !feed.page.is_empty());
        let oldest = waiting.min_by_key(|feed| feed.page.front().map(|event| event.cursor));
        Ok(oldest.and_then(|feed| feed.page.pop_front()))
    }
}

impl Feed {
    fn new(filter: EventFilter) -> Feed {
        let filter = EventFilter { limit: Some(limits::PAGE_ROWS), ..filter };
        Feed { filter, after: Cursor::default(), page: VecDeque::new(), ended: false }
    }

    async fn fill(&mut self, store: &dyn Readable, began: Time) -> Result<(), StoreError> {
        if !self.page.is_empty() || self.ended {
            return Ok(());
        }
        self.page = store.events(self.after, self.filter.clone()).await?.into();
        match self.page.back() {
            None => self.ended = true,
            Some(last) => {
                if last.cursor <= self.after {
                    let why = format!("the log was read after {} and went back to {}", self.after, last.cursor);
                    return Err(StoreError::Damaged { what: "cursor of an event", why });
                }
                self.after = last.cursor;
                // A busy log always has a few more; what happened after the reading began may wait for the next one.
                self.ended = self.page.len() < limits::PAGE_ROWS && last.at >= began;
            }
        }
        Ok(())
    }
}
