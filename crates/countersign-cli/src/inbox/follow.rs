//! Keeps the list true: follows a server's events or a store's bell, and lists anew whenever something happened.

use std::time::Duration;

use countersign_api::client::{Client, ClientError, Told};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::source::{Listing, Source};
use crate::desk::Desk;
use crate::fault::Fault;

/// How often a local store is looked at, whether or not its bell rang: expiry rings none by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long events are gathered before the list is read again, so that a storm of them costs a few readings.
const GATHER: Duration = Duration::from_millis(150);
/// How long to wait before a lost server is tried again: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// What follows from following.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// These holds wait.
    Listed(Listing),
    /// They cannot be read now.
    Lost(Link),
}

/// The way to the holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// What is shown is true.
    Live,
    /// It is tried again; what is shown may be old. Says why, safe to draw.
    Lost(String),
    /// The credential does not count any more. Says why, safe to draw.
    Refused(String),
}

/// Follows until nobody listens any more, or the credential ends.
pub(crate) async fn follow(source: Source, news: UnboundedSender<News>) {
    match &source {
        Source::Local(desk) => local(desk, &source, &news).await,
        Source::Server(client) => server(client, &source, &news).await,
    }
    // Nobody is told that there is nothing to tell: whoever listens keeps what it has.
    news.closed().await;
}

async fn local(desk: &Desk, source: &Source, news: &UnboundedSender<News>) {
    while !news.is_closed() {
        let rung = desk.store().bell().listen_any();
        let swept = desk.gate.sweep().await;
        let told = match swept.map_err(Fault::from) {
            Ok(_) => listed(source).await,
            Err(fault) => News::Lost(Link::Lost(on_one_line(&fault))),
        };
        let _ = news.send(told);
        let _ = timeout(LOOK_EVERY, rung).await;
    }
}

async fn server(client: &Client, source: &Source, news: &UnboundedSender<News>) {
    let mut pause = RETRY.0;
    while !news.is_closed() {
        match listen(client, source, news, &mut pause).await {
            Ok(()) => {
                let _ = news.send(News::Lost(Link::Lost("the server ended the connection".to_owned())));
            }
            Err(error) => {
                let refused = matches!(&error, ClientError::Refused(problem) if matches!(problem.status, 401 | 403));
                let words = on_one_line(&Fault::from(error));
                let link = if refused { Link::Refused(words) } else { Link::Lost(words) };
                let _ = news.send(News::Lost(link));
                if refused {
                    // Trying again would only count as guessing.
                    return;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// Listens to one stream to its end. The list is read after the stream began, so nothing falls between the two.
async fn listen(
    client: &Client,
    source: &Source,
    news: &UnboundedSender<News>,
    pause: &mut Duration,
) -> Result<(), ClientError> {
    let mut events = client.events(None).await?;
    while !news.is_closed() {
        match events.next().await? {
            None | Some(Told::Resync) => return Ok(()),
            // What waits is in the list.
            Some(Told::Event(_)) => continue,
            Some(_) => break,
        }
    }
    *pause = RETRY.0;
    loop {
        let _ = news.send(listed(source).await);
        match events.next().await? {
            None | Some(Told::Resync) => return Ok(()),
            Some(_) => {}
        }
        // More of the same storm changes nothing: one reading sees all of it.
        let gathered = timeout(GATHER, async {
            while let Some(told) = events.next().await? {
                if matches!(told, Told::Resync) {
                    break;
                }
            }
            Ok::<_, ClientError>(())
        });
        match gathered.await {
            Err(_) => {}
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => return Err(error),
        }
        if news.is_closed() {
            return Ok(());
        }
    }
}

async fn listed(source: &Source) -> News {
    match source.list().await {
        Ok(listing) => News::Listed(listing),
        Err(fault) => News::Lost(Link::Lost(on_one_line(&fault))),
    }
}

/// What went wrong, on one line and safe to draw.
pub(super) fn on_one_line(fault: &Fault) -> String {
    fault.to_string().replace("\n next: ", "; ").replace('\n', " ")
}
