//! The SQLite store: one file, one writer that syncs once for many, readers beside it, other processes welcome.

mod cache;
mod checkpoint;
mod events;
mod file;
mod listing;
mod migrate;
#[cfg(test)]
mod plans;
mod puts;
mod read;
mod records;
mod rows;
mod state;
mod sync;
mod watch;
mod writer;

use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use countersign::bell::Bell;
use countersign::call::{Call, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, Store, StoreError};
use countersign::time::{Clock, SystemClock, Time};
use rusqlite::Connection;

use crate::ConnectError;
use cache::Cache;
use checkpoint::Checkpointer;
pub(crate) use migrate::SCHEMA;
use read::Readers;
use sync::{Disk, Progress, Shore, Syncer};
use watch::Watcher;
use writer::{Done, Job, Message, Queue, Shared, Work, Writer};

/// Keeps everything in one SQLite file.
///
/// What it acknowledges is on disk. Several processes may open the same file; each hears what the others commit.
/// Dropping it finishes what was asked for, then closes the file.
pub struct SqliteStore {
    messages: Sender<Message>,
    /// The writer and the syncer, in the order they end, and the readers.
    threads: Vec<JoinHandle<()>>,
    watcher: Watcher,
    checkpointer: Checkpointer,
    readers: Readers,
    shared: Arc<Shared>,
}

impl SqliteStore {
    /// Opens a file, or makes it.
    pub async fn open(path: impl AsRef<FilePath>) -> Result<SqliteStore, ConnectError> {
        SqliteStore::open_with_clock(path, Arc::new(SystemClock)).await
    }

    /// Opens a file, or makes it, and asks this clock for the time.
    pub async fn open_with_clock(
        path: impl AsRef<FilePath>,
        clock: Arc<dyn Clock>,
    ) -> Result<SqliteStore, ConnectError> {
        let asked = path.as_ref().to_owned();
        let opening = tokio::task::spawn_blocking({
            let asked = asked.clone();
            move || SqliteStore::open_blocking(&asked, clock)
        });
        opening.await.map_err(|error| file::file(&asked, error))?
    }

    fn open_blocking(path: &FilePath, clock: Arc<dyn Clock>) -> Result<SqliteStore, ConnectError> {
        let path = file::prepare(path)?;
        let connection = migrate::open_writer(&path)?;
        clock.has_been(read::last_moment(&connection).map_err(|error| file::file(&path, error))?);
        let log = sync::open_log(&path).map_err(|error| file::file(&path, error))?;
        SqliteStore::start(&path, connection, clock, Box::new(log)).map_err(|error| file::file(&path, error))
    }

    fn start(
        path: &FilePath,
        connection: Connection,
        clock: Arc<dyn Clock>,
        disk: Box<dyn Disk>,
    ) -> std::io::Result<SqliteStore> {
        let (messages, queue) = channel();
        let (syncer, bundles) = channel();
        let (bell, commits, own) = (Bell::default(), AtomicU64::new(0), Mutex::default());
        let shared = Arc::new(Shared { bell, clock, commits, own, progress: Progress::default() });
        let watcher = Watcher::start(path, Arc::clone(&shared))?;
        let (checkpointer, nudge) = Checkpointer::start(path)?;
        let (queue, cache) = (Queue::new(queue), Cache::default());
        let shore = Shore::new(disk, Arc::clone(&shared));
        let writer =
            Writer { connection, queue, syncer, shore: Arc::clone(&shore), shared: Arc::clone(&shared), cache, nudge };
        let syncer = Syncer { shore, bundles, writer: messages.clone() };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let writer = thread("countersign-write").spawn(move || writer.work())?;
        let syncer = thread("countersign-sync").spawn(move || syncer.work())?;
        let (readers, reading) = Readers::start(path, Arc::clone(&shared))?;
        let threads = [writer, syncer].into_iter().chain(reading).collect();
        Ok(SqliteStore { messages, threads, watcher, checkpointer, readers, shared })
    }

    /// How many transactions this handle has committed. Many operations may share one.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    async fn write(&self, work: Work) -> Result<Done, Failure> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.messages.send(Message::Job(Job { work, answer })).map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.watcher.stop();
        self.checkpointer.stop();
        self.readers.close();
        let _ = self.messages.send(Message::Close);
        for thread in self.threads.drain(..) {
            // A task that the syncer woke may be the last to hold the store.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        match self.write(Work::Run(op)).await? {
            Done::Applied(applied) => Ok(*applied),
            Done::Version(_) => Err(StoreError::Closed.into()),
        }
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.shared.clock.now())
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        self.readers.read(move |connection| read::call(connection, id)).await
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.readers.read(move |connection| read::call_of_hold(connection, hold)).await
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        self.readers.read(move |connection| listing::calls(connection, &filter)).await
    }

    async fn holding(&self) -> Result<usize, StoreError> {
        self.readers.read(read::holding).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        let now = self.shared.clock.now();
        self.readers.read(move |connection| read::due(connection, now, limit)).await
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        self.readers.read(move |connection| read::grant(connection, id)).await
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        self.readers.read(move |connection| read::grants(connection, after, limit)).await
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        self.readers.read(move |connection| events::events(connection, after, &filter)).await
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        let path = path.clone();
        self.readers.read(move |connection| read::halted(connection, &path)).await
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        let holds = holds.to_vec();
        self.readers.read(move |connection: &_| events::openings(connection, &holds)).await
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        self.readers.read(read::policy).await
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        let (namespace, key, now) = (namespace.to_owned(), key.to_owned(), self.shared.clock.now());
        let read = move |connection: &_| records::get(connection, &namespace, &key, now).map_err(rows::failed);
        self.readers.read(read).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let (namespace, prefix, after) = (namespace.to_owned(), prefix.to_owned(), after.map(str::to_owned));
        let now = self.shared.clock.now();
        self.readers
            .read(move |connection| {
                let place = (namespace.as_str(), prefix.as_str());
                records::list(connection, place, after.as_deref(), limit, now).map_err(rows::failed)
            })
            .await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        let (namespace, key, value) = (namespace.to_owned(), key.to_owned(), value.to_vec());
        match self.write(Work::PutRecord { namespace, key, value, expect, life }).await? {
            Done::Version(version) => Ok(version),
            Done::Applied(_) => Err(StoreError::Closed.into()),
        }
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.write(Work::DeleteRecord { namespace, key, expect }).await?;
        Ok(())
    }

    fn bell(&self) -> &Bell<CallId> {
        self.watcher.wake();
        &self.shared.bell
    }

    fn is_shared(&self) -> bool {
        true
    }
}
