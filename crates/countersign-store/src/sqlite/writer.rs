//! The one writer: a thread that owns the connection and commits many operations with one sync.
//!
//! It runs whatever waits in one transaction, and whatever comes while it does: those it answered last have a moment to
//! come back. Nobody hears an answer before the commit returned.

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
/// How long a commit waits for those who were just answered and are about to ask again: about what a sync takes.
const GATHER_FOR: Duration = Duration::from_millis(1);
/// How long nobody may come before it waits no longer.
const GATHER_QUIET: Duration = Duration::from_micros(100);

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
        let (mut waiting, mut expected) = (Vec::new(), 0);
        loop {
            if waiting.is_empty() {
                let Ok(first) = self.jobs.recv() else { return };
                waiting.push(first);
            }
            let answered;
            (answered, waiting) = self.commit(waiting, expected);
            expected = answered + waiting.len();
        }
    }

    /// Writes all of it, and what comes meanwhile. Returns how many were answered, and who came too late for it.
    fn commit(&mut self, mut jobs: Vec<Job>, expected: usize) -> (usize, Vec<Job>) {
        let mut written = self.transact(&mut jobs, expected, Care::Quick);
        if let Err(Fault::OfOne) = written {
            written = self.transact(&mut jobs, 0, Care::Savepoints);
        }
        // Before anybody is answered, so that none of them is among these.
        let late = self.jobs.try_iter().take(BATCH).collect();
        let count = jobs.len();
        match written {
            Ok((answers, news)) => {
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
                self.remember_own(&news);
                for (job, answer) in jobs.into_iter().zip(answers) {
                    // A caller that went away changes nothing: what it asked for is written.
                    let _ = job.answer.send(answer);
                }
                self.tell(&news);
            }
            Err(fault) => {
                let why = fault.to_string();
                tracing::error!(%why, "a transaction failed");
                for job in jobs {
                    let _ = job.answer.send(Err(StoreError::Failed(why.clone()).into()));
                }
            }
        }
        (count, late)
    }

    /// Runs all of it in one transaction, and who joins is added. On a fault nothing is written.
    fn transact(&mut self, jobs: &mut Vec<Job>, expected: usize, care: Care) -> Result<(Vec<Answer>, News), Fault> {
        run_cached(&self.connection, "BEGIN IMMEDIATE")?;
        let written = self.run_all(jobs, expected, care).and_then(|written| {
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

    fn run_all(&mut self, jobs: &mut Vec<Job>, expected: usize, care: Care) -> Result<(Vec<Answer>, News), Fault> {
        self.cache.check(&self.connection)?;
        let mut batch = Batch::new(&self.connection, &mut self.cache);
        let mut answers = Vec::with_capacity(jobs.len().max(expected));
        let clock = &*self.shared.clock;
        let until = Instant::now() + GATHER_FOR;
        loop {
            let Some(job) = jobs.get(answers.len()) else {
                let Some(job) = next(&self.jobs, expected.saturating_sub(jobs.len()), until) else { break };
                jobs.push(job);
                continue;
            };
            answers.push(match care {
                Care::Quick => run(&job.work, &mut batch, clock)?,
                Care::Savepoints => run_apart(&job.work, &mut batch, clock)?,
            });
            if answers.len() == BATCH {
                break;
            }
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

/// Who joins a transaction: whoever is there, or comes within a moment if more are expected. One sync for many is cheaper
/// than one for each.
fn next(jobs: &Receiver<Job>, expected: usize, until: Instant) -> Option<Job> {
    match jobs.try_recv() {
        Err(_) if expected > 0 => {
            jobs.recv_timeout(until.saturating_duration_since(Instant::now()).min(GATHER_QUIET)).ok()
        }
        job => job.ok(),
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
