//! The one writer: a thread that owns the connection and commits many operations with one sync.
//!
//! It takes the first job that waits, then whatever else waits already, and runs them in one transaction. Nobody hears
//! an answer before the commit returned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign::apply::apply;
use countersign::bell::Bell;
use countersign::id::CallId;
use countersign::store::{Applied, Expect, Failure, Op, StoreError};
use countersign::time::Clock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::cache::Cache;
use super::records;
use super::state::{Batch, News};

/// How many operations one commit may carry.
const BATCH: usize = 256;
/// How long a commit waits for those who were just answered and are about to ask again: far less than a sync takes.
const GATHER_FOR: Duration = Duration::from_micros(300);
/// How long nobody may come before it waits no longer.
const GATHER_QUIET: Duration = Duration::from_micros(60);

/// Something to write.
pub(super) enum Work {
    Run(Op),
    PutRecord { namespace: String, key: String, value: Vec<u8>, expect: Expect, life: Option<Duration> },
    DeleteRecord { namespace: String, key: String, expect: Expect },
}

/// What was written.
pub(super) enum Done {
    Applied(Box<Applied>),
    /// A record's version after the write.
    Version(u64),
}

type Answer = Result<Done, Failure>;

/// Something to write, and whom to tell.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What the writer shares with the rest of its store.
pub(super) struct Shared {
    pub(super) bell: Bell<CallId>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) commits: AtomicU64,
    /// Ranges of events this process wrote and already rang for; the watcher passes them over.
    pub(super) own: Mutex<Vec<(i64, i64)>>,
}

/// Ranges kept for the watcher. Beyond that it rings once too often, which harms nobody.
const OWN_RANGES: usize = 1024;

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) jobs: Receiver<Job>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Cache,
}

/// How operations are kept apart within one transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Not at all: the first fault ends the transaction.
    Quick,
    /// Each has its savepoint: a fault costs only the operation that has it.
    Savepoints,
}

impl Writer {
    /// Works until the store is dropped and no job is left.
    pub(super) fn work(mut self) {
        let mut last = 0;
        while let Ok(first) = self.jobs.recv() {
            let mut batch = Vec::with_capacity(16);
            batch.push(first);
            batch.extend(self.jobs.try_iter().take(BATCH - 1));
            if last > 1 {
                self.gather(&mut batch);
            }
            last = batch.len();
            self.commit(batch);
        }
    }

    /// Waits a moment for more: one sync for many is cheaper than one for each. Ends as soon as nobody comes.
    fn gather(&self, batch: &mut Vec<Job>) {
        let until = Instant::now() + GATHER_FOR;
        while batch.len() < BATCH {
            let left = until.saturating_duration_since(Instant::now()).min(GATHER_QUIET);
            let Ok(job) = self.jobs.recv_timeout(left) else { return };
            batch.push(job);
            batch.extend(self.jobs.try_iter().take(BATCH - batch.len()));
        }
    }

    fn commit(&mut self, jobs: Vec<Job>) {
        let (works, callers): (Vec<Work>, Vec<_>) = jobs.into_iter().map(|job| (job.work, job.answer)).unzip();
        let mut written = self.transact(&works, Care::Quick);
        if let Err(Fault::OfOne) = written {
            written = self.transact(&works, Care::Savepoints);
        }
        match written {
            Ok((answers, news)) => {
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
                self.remember_own(&news);
                for (caller, answer) in callers.into_iter().zip(answers) {
                    // A caller that went away changes nothing: what it asked for is written.
                    let _ = caller.send(answer);
                }
                self.tell(&news);
            }
            Err(fault) => {
                let why = fault.to_string();
                tracing::error!(%why, "a transaction failed");
                for caller in callers {
                    let _ = caller.send(Err(StoreError::Failed(why.clone()).into()));
                }
            }
        }
    }

    /// Runs all of it in one transaction. On a fault nothing is written.
    fn transact(&mut self, works: &[Work], care: Care) -> Result<(Vec<Answer>, News), Fault> {
        run_cached(&self.connection, "BEGIN IMMEDIATE")?;
        let written = self.run_all(works, care).and_then(|written| {
            run_cached(&self.connection, "COMMIT")?;
            Ok(written)
        });
        if written.is_err() {
            self.cache.forget();
            if !self.connection.is_autocommit() {
                // Should even this fail, the next `BEGIN` does too, and nothing is acknowledged.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
        }
        written
    }

    fn run_all(&mut self, works: &[Work], care: Care) -> Result<(Vec<Answer>, News), Fault> {
        self.cache.check(&self.connection)?;
        let mut batch = Batch::new(&self.connection, &mut self.cache);
        let mut answers = Vec::with_capacity(works.len());
        let clock = &*self.shared.clock;
        for work in works {
            answers.push(match care {
                Care::Quick => run(work, &mut batch, clock)?,
                Care::Savepoints => run_apart(work, &mut batch, clock)?,
            });
        }
        match batch.flush() {
            Ok(()) => Ok((answers, batch.news)),
            Err(error) => Err(Fault::OfAll(error.to_string())),
        }
    }

    fn remember_own(&self, news: &News) {
        let Some((first, last)) = news.events else { return };
        let mut own = self.shared.own.lock().unwrap_or_else(PoisonError::into_inner);
        match own.last_mut() {
            Some(range) if range.1 + 1 == first => range.1 = last,
            _ => own.push((first, last)),
        }
        if own.len() > OWN_RANGES {
            own.remove(0);
        }
    }

    fn tell(&self, news: &News) {
        let bell = &self.shared.bell;
        if news.all {
            return bell.ring_all();
        }
        for call in &news.calls {
            bell.ring(*call);
        }
        if news.any && news.calls.is_empty() {
            bell.ring_any();
        }
    }
}

/// Why a transaction came to nothing.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// One operation met something it could not read, or panicked; the others may be fine.
    #[error("an operation failed")]
    OfOne,
    #[error("{0}")]
    OfAll(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::OfAll(error.to_string())
    }
}

fn run_cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

/// Runs one operation. A rejection is an answer; what was written before it stays.
fn run(work: &Work, batch: &mut Batch<'_>, clock: &dyn Clock) -> Result<Answer, Fault> {
    match attempt(work, batch, clock) {
        Err(Failure::Store(error)) => match batch.broken.take() {
            Some(why) => Err(Fault::OfAll(why)),
            None => {
                tracing::warn!(%error, "an operation failed");
                Err(Fault::OfOne)
            }
        },
        answer => Ok(answer),
    }
}

/// Runs one operation behind a savepoint: its own fault takes back its own writes, and no more.
fn run_apart(work: &Work, batch: &mut Batch<'_>, clock: &dyn Clock) -> Result<Answer, Fault> {
    let news = batch.news.clone();
    run_cached(batch.connection, "SAVEPOINT op")?;
    let answer = match attempt(work, batch, clock) {
        Err(Failure::Store(error)) => Err(Failure::Store(error)),
        answer => match batch.flush() {
            Ok(()) => answer,
            Err(error) => Err(error.into()),
        },
    };
    if let Some(why) = batch.broken.take() {
        return Err(Fault::OfAll(why));
    }
    if let Err(Failure::Store(_)) = &answer {
        run_cached(batch.connection, "ROLLBACK TO op")?;
        batch.forget();
        batch.news = news;
    }
    run_cached(batch.connection, "RELEASE op")?;
    Ok(answer)
}

fn attempt(work: &Work, batch: &mut Batch<'_>, clock: &dyn Clock) -> Answer {
    // A panic may leave the batch's memory half changed; both callers throw it away with the writes.
    let attempted = catch_unwind(AssertUnwindSafe(|| {
        batch.now = clock.now();
        match work {
            Work::Run(op) => apply(op, batch).map(|applied| Done::Applied(Box::new(applied))),
            Work::PutRecord { namespace, key, value, expect, life } => {
                records::put(batch, namespace, key, value, *expect, *life).map(Done::Version)
            }
            Work::DeleteRecord { namespace, key, expect } => {
                records::delete(batch, namespace, key, *expect).map(|()| Done::Version(0))
            }
        }
    }));
    attempted.unwrap_or_else(|_| Err(StoreError::Failed("an operation panicked".into()).into()))
}
