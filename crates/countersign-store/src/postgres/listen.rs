//! Rings the bell for what other nodes did.
//!
//! Notifications carry ids only and may be lost with their connection. So, while somebody listens, the events
//! themselves are read once a second from where the last reading stopped: a lost notification costs a second, never a
//! wake-up. (As any tail, that reading stops before a transaction that is still open, anywhere on the server.)

use std::sync::Arc;
use std::time::Duration;

use countersign::event::EventName;
use countersign::store::StoreError;
use sqlx::postgres::PgListener;
use sqlx::{PgPool, Row};
use tokio::sync::Mutex;

use super::write::{CHANNEL, EVERYTHING};
use super::{Node, records, rows};

/// How often events are read while somebody listens.
const REREAD_EVERY: Duration = Duration::from_secs(1);
/// After how many readings records whose time is over are removed.
const SWEEP_AFTER: u32 = 60;
/// How long to wait before connecting again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// The transaction up to which events have been read; those before it are all closed.
#[derive(Default)]
pub(super) struct Reading {
    horizon: Mutex<Option<String>>,
}

/// Subscribes, before anything else is read.
pub(super) async fn subscribe(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Hears notifications for ever, and subscribes anew when the connection is lost.
pub(super) async fn hear(node: Arc<Node>, pool: PgPool, listener: PgListener) {
    let mut listener = Some(listener);
    while !pool.is_closed() {
        let Some(subscribed) = &mut listener else {
            tokio::time::sleep(RECONNECT_AFTER).await;
            listener = subscribe(&pool).await.inspect_err(|error| tracing::warn!(%error, "cannot listen")).ok();
            // Whatever was said meanwhile was not heard.
            node.bell.ring_all();
            continue;
        };
        match subscribed.try_recv().await {
            Ok(Some(notification)) => node.heard(notification.payload()),
            Ok(None) => node.bell.ring_all(),
            Err(error) => {
                tracing::warn!(%error, "the listening connection failed");
                listener = None;
            }
        }
    }
}

/// Reads new events once a second while somebody listens.
pub(super) async fn reread(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(REREAD_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 1_u32.. {
        ticks.tick().await;
        if let Err(error) = node.catch_up().await {
            tracing::warn!(%error, "cannot read new events");
        }
        if tick % SWEEP_AFTER == 0
            && let Err(error) = records::sweep(&node.readers, node.offset()).await
        {
            tracing::warn!(%error, "cannot remove old records");
        }
    }
}

const NEWS: &str = "
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon,
           ARRAY(SELECT DISTINCT name || ' ' || coalesce(call::text, '') FROM (
               SELECT name, call FROM events
               WHERE xid >= $1::xid8 AND xid < pg_snapshot_xmin(pg_current_snapshot())
               ORDER BY xid, id LIMIT 1001
           ) AS news) AS news";
const HORIZON: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon";
const MOST_NEWS: usize = 1_000;

impl Node {
    /// Rings for what a notification names, unless it is this node's own: that rang already.
    fn heard(&self, payload: &str) {
        let mut words = payload.split(' ');
        if words.next() == Some(&self.name) {
            return;
        }
        self.bell.ring_any();
        for word in words {
            match word.parse() {
                Ok(call) => self.bell.ring(call),
                Err(_) if word == EVERYTHING => self.bell.ring_all(),
                Err(error) => tracing::warn!(%error, "a notification names no call"),
            }
        }
    }

    /// Rings for every call with an event since the last reading.
    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        let mut horizon = self.reading.horizon.lock().await;
        let listened = self.bell.has_listeners();
        let Some(from) = horizon.as_ref().filter(|_| listened) else {
            let row = sqlx::query(HORIZON).fetch_one(&self.readers).await.map_err(rows::failed)?;
            *horizon = Some(row.try_get("horizon").map_err(rows::failed)?);
            return Ok(());
        };
        let row = sqlx::query(NEWS).bind(from).fetch_one(&self.readers).await.map_err(rows::failed)?;
        let news: Vec<String> = row.try_get("news").map_err(rows::failed)?;
        *horizon = Some(row.try_get("horizon").map_err(rows::failed)?);
        if news.len() > MOST_NEWS {
            self.bell.ring_all();
        } else {
            news.iter().for_each(|item| self.ring_for(item));
        }
        Ok(())
    }

    fn ring_for(&self, item: &str) {
        let (name, call) = item.split_once(' ').unwrap_or((item, ""));
        let call = format!("call_{}", call.replace('-', "")).parse();
        match (call, name.parse()) {
            (Ok(call), _) => self.bell.ring(call),
            (Err(_), Ok(EventName::HaltSet | EventName::HaltLifted | EventName::PolicyLoaded)) => self.bell.ring_all(),
            (Err(_), _) => self.bell.ring_any(),
        }
    }
}
