//! The record that a server keeps, read page by page.

use std::sync::Mutex;

use async_trait::async_trait;
use countersign::Time;
use countersign::audit::Readable;
use countersign::event::{Cursor, Event};
use countersign::store::{EventFilter, StoreError};
use countersign_api::client::{Client, ClientError};
use countersign_api::wire;

use crate::fault::Fault;

/// A server's log.
pub(super) struct Remote {
    client: Client,
    /// Why the server could not be read, kept whole: a log only knows that it failed.
    lost: Mutex<Option<ClientError>>,
}

impl Remote {
    pub(super) fn new(client: Client) -> Remote {
        Remote { client, lost: Mutex::new(None) }
    }

    /// What came of reading the log, unless the server was not there to be read.
    pub(super) fn unless_lost<T>(self, came: T) -> Result<T, Fault> {
        match self.lost.into_inner() {
            Ok(Some(error)) => Err(error.into()),
            Ok(None) | Err(_) => Ok(came),
        }
    }

    fn failed(&self, error: ClientError) -> StoreError {
        let words = error.to_string();
        if let Ok(mut lost) = self.lost.lock() {
            *lost = Some(error);
        }
        StoreError::Failed(words)
    }
}

#[async_trait]
impl Readable for Remote {
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        let mut after = after.to_string();
        loop {
            let session = filter.session.as_deref().map(|session| ("session", session));
            let query: Vec<(&str, &str)> = [("limit", "1000"), ("after", &after)].into_iter().chain(session).collect();
            let page = self.client.audit(&query).await.map_err(|error| self.failed(error))?;
            let mut events = page.items.iter().map(read).collect::<Result<Vec<Event>, StoreError>>()?;
            events.retain(|event| filter.chain.as_ref().is_none_or(|chain| event.chain == *chain));
            match page.next {
                // Nothing of this chain on the page, but there is another.
                Some(next) if events.is_empty() && next != after => after = next,
                Some(_) | None => return Ok(events),
            }
        }
    }

    async fn now(&self) -> Result<Time, StoreError> {
        let me = self.client.me().await.map_err(|error| self.failed(error))?;
        Ok(Time(me.now.as_microsecond()))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

fn read(event: &wire::Event) -> Result<Event, StoreError> {
    event.to_event().map_err(|why| StoreError::Damaged { what: "event from the server", why })
}

/// Hands on the events that a server tells of, oldest first, a page at a time.
pub(super) async fn pages(
    client: &Client,
    session: Option<&str>,
    hand_on: &mut (dyn FnMut(&[Event]) -> Result<(), Fault> + Send),
) -> Result<(), Fault> {
    let page = |page: Vec<wire::Event>| -> Result<(), Fault> {
        let events = page.iter().map(|event| event.to_event().map_err(Fault::failed)).collect::<Result<Vec<_>, _>>()?;
        hand_on(&events)
    };
    client.audit_pages(session, page).await
}
