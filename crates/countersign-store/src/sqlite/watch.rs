//! Hears what other processes commit: while somebody listens, `PRAGMA data_version` is polled.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use countersign::event::EventName;
use rusqlite::Connection;

use super::migrate::open_reader;
use super::rows;
use super::writer::Shared;

/// Between two looks while somebody listens.
const POLL: Duration = Duration::from_millis(12);
/// Between two looks while nobody does.
const IDLE: Duration = Duration::from_secs(1);
/// For how long after somebody took the bell in hand it is looked at as if they listened.
const GRACE: Duration = Duration::from_secs(2);
/// More news than this is not told one by one.
const MOST: i64 = 1_000;

/// The thread that looks.
pub(super) struct Watcher {
    thread: Option<JoinHandle<()>>,
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Signals {
    stop: AtomicBool,
    /// Somebody may be about to listen.
    soon: AtomicBool,
}

impl Watcher {
    pub(super) fn start(path: &Path, shared: Arc<Shared>) -> std::io::Result<Watcher> {
        let signals = Arc::new(Signals::default());
        let connection = open_reader(path).map_err(std::io::Error::other)?;
        let seen = last_event(&connection).map_err(std::io::Error::other)?;
        let watch = Watch { connection, shared, signals: Arc::clone(&signals), version: None, seen };
        let thread = std::thread::Builder::new().name("countersign-watch".into()).spawn(move || watch.work())?;
        Ok(Watcher { thread: Some(thread), signals })
    }

    /// Somebody took the bell in hand: be awake by the time they listen.
    pub(super) fn wake(&self) {
        if !self.signals.soon.swap(true, Ordering::AcqRel) {
            self.thread.as_ref().map(JoinHandle::thread).map(Thread::unpark);
        }
    }

    pub(super) fn stop(&mut self) {
        self.signals.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // Dropping a store may be the last act of a task this very thread woke.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    connection: Connection,
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    version: Option<i64>,
    /// The last event that was told or needs no telling.
    seen: i64,
}

impl Watch {
    fn work(mut self) {
        let mut awake_until = Instant::now();
        while !self.signals.stop.load(Ordering::Acquire) {
            let now = Instant::now();
            if self.signals.soon.swap(false, Ordering::AcqRel) || self.shared.bell.has_listeners() {
                awake_until = now + GRACE;
            }
            if now >= awake_until {
                std::thread::park_timeout(IDLE);
                continue;
            }
            if let Err(error) = self.look() {
                tracing::warn!(%error, "cannot see what other processes wrote");
                // Whoever waits looks for themselves.
                self.shared.bell.ring_all();
            }
            std::thread::park_timeout(POLL);
        }
    }

    /// Rings for what others wrote since the last look.
    fn look(&mut self) -> rusqlite::Result<()> {
        let version: i64 = self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(());
        }
        let last = last_event(&self.connection)?;
        for (first, last) in self.foreign(last) {
            self.tell(first, last)?;
        }
        self.seen = last;
        self.version = Some(version);
        Ok(())
    }

    /// The ranges after the last look that this process did not write.
    fn foreign(&self, last: i64) -> Vec<(i64, i64)> {
        let mut own = self.shared.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut foreign = Vec::new();
        let mut next = self.seen + 1;
        for (first, end) in own.iter().copied().filter(|(first, end)| *end > self.seen && *first <= last) {
            if next < first {
                foreign.push((next, first - 1));
            }
            next = next.max(end + 1);
        }
        if next <= last {
            foreign.push((next, last));
        }
        own.retain(|(_, end)| *end > last);
        foreign
    }

    fn tell(&self, first: i64, last: i64) -> rusqlite::Result<()> {
        let bell = &self.shared.bell;
        if last - first >= MOST {
            bell.ring_all();
            return Ok(());
        }
        let mut statement =
            self.connection.prepare_cached("SELECT name, call FROM events WHERE id BETWEEN ?1 AND ?2 ORDER BY id")?;
        let mut events = statement.query([first, last])?;
        while let Some(event) = events.next()? {
            let (name, call): (String, Option<Vec<u8>>) = (event.get(0)?, event.get(1)?);
            match call.map(|bytes| rows::call_id(&bytes)) {
                Some(Ok(call)) => bell.ring(call),
                None if !concerns_all(&name) => bell.ring_any(),
                None | Some(Err(_)) => bell.ring_all(),
            }
        }
        Ok(())
    }
}

/// Whether an event without a call may concern any of them.
fn concerns_all(name: &str) -> bool {
    let names = [EventName::HaltSet, EventName::HaltLifted, EventName::PolicyLoaded];
    names.iter().any(|known| known.as_str() == name)
}

fn last_event(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT coalesce(max(id), 0) FROM events")?.query_row([], |row| row.get(0))
}
