//! What the server tells of our calls, kept for whoever follows a run.

use std::collections::VecDeque;

use countersign::call::Chain;
use countersign::event::{Cursor, Event};
use countersign::limits;
use countersign::store::{EventFilter, StoreError};
use tokio::sync::Mutex;

use super::backend::Server;
use crate::client::{Client, ClientError, Told};

/// Events that are kept. Whoever is further behind does not hear of the older ones.
const KEPT: usize = 4_096;

/// The end of the server's log, as far as our credential sees it.
#[derive(Default)]
pub(super) struct Log {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Event>,
    /// Up to where the log was read; none before it was looked at. What happened before that is nobody's news.
    at: Option<Cursor>,
}

impl Log {
    /// The events after a place, up to this moment.
    pub(super) async fn after(
        &self,
        server: &Server,
        after: Cursor,
        filter: &EventFilter,
    ) -> Result<Vec<Event>, StoreError> {
        let mut kept = self.kept.lock().await;
        let from = kept.at;
        let (news, _) = server.patience.ask(|| news(&server.client, from)).await;
        kept.take(news.map_err(|error| StoreError::Failed(error.to_string()))?);
        let most = filter.limit.unwrap_or(limits::PAGE_ROWS_DEFAULT).min(limits::PAGE_ROWS);
        let wanted = kept.events.iter().filter(|event| event.cursor > after && lets_through(filter, event));
        Ok(wanted.take(most).cloned().collect())
    }
}

impl Kept {
    fn take(&mut self, news: Kept) {
        self.at = news.at;
        self.events.extend(news.events);
        self.events.drain(..self.events.len().saturating_sub(KEPT));
    }
}

/// What happened since a place, and where the log ends now.
async fn news(client: &Client, from: Option<Cursor>) -> Result<Kept, ClientError> {
    let mut told = client.events(from.map(|at| at.to_string()).as_deref()).await?;
    let mut events = VecDeque::new();
    loop {
        match told.next().await? {
            // Without a place it begins with the holds that wait, which are listed elsewhere.
            Some(Told::Event(_)) if from.is_none() => {}
            Some(Told::Event(event)) => events.push_back(event.to_event().map_err(ClientError::Strange)?),
            Some(Told::Ready(cursor)) => {
                let at = cursor.parse().map_err(ClientError::Strange)?;
                return Ok(Kept { events, at: Some(at) });
            }
            // The place is not one of its log: what was missed nobody can tell any more.
            Some(Told::Resync) => return Ok(Kept::default()),
            None => return Err(ClientError::Strange("the stream of events ended too early".to_owned())),
        }
        if events.len() > KEPT {
            events.pop_front();
        }
    }
}

fn lets_through(filter: &EventFilter, event: &Event) -> bool {
    let of_call = filter.call.is_none_or(|call| event.call == Some(call));
    let of_session = filter.session.as_deref().is_none_or(|wanted| session(&event.chain) == Some(wanted));
    of_call && of_session && filter.chain.as_ref().is_none_or(|chain| session(chain) == session(&event.chain))
}

/// The session of a chain. Whose it is the server says, and it tells us of our own alone.
fn session(chain: &Chain) -> Option<&str> {
    chain.0.split_once('/').map(|(_, session)| session)
}
