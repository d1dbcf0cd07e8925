//! The one writer: a thread that owns the connection and gathers many operations in one commit.
//!
//! While one commit is brought to disk it runs what comes into the next transaction, and commits that as soon as the disk
//! is free again: so a disk that is slow makes commits larger, never the queue longer. See [`sync`](super::sync) for who
//! is told, and when.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign::apply::apply;
use countersign::bell::Bell;
use countersign::id::CallId;
use countersign::store::{Applied, Expect, Failure, Op, StoreError};
use countersign::time::Clock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::cache::Cache;
use super::checkpoint::Nudge;
use super::records;
use super::state::{Batch, News};
use super::sync::{Bundle, Progress, Shore, lost};

/// How many operations one commit may carry.
const BATCH: usize = 256;

/// What comes to the writer.
pub(super) enum Message {
    Job(Job),
    /// The last commit is on disk, or never will be.
    Synced,
    /// Nobody will ask for anything any more.
    Close,
}

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

pub(super) type Answer = Result<Done, Failure>;

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
    pub(super) progress: Progress,
}

/// Ranges kept for the watcher. Beyond that it rings once too often, which harms nobody.
const OWN_RANGES: usize = 1024;

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) queue: Queue,
    pub(super) syncer: Sender<Bundle>,
    pub(super) shore: Arc<Shore>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Cache,
    pub(super) nudge: Nudge,
}

/// Whoever waits to be written, and whether the disk is free.
pub(super) struct Queue {
    messages: Receiver<Message>,
    waiting: VecDeque<Job>,
    syncing: bool,
    /// How many more may join the transaction since the disk is free.
    last: usize,
    closed: bool,
}

impl Queue {
    pub(super) fn new(messages: Receiver<Message>) -> Queue {
        Queue { messages, waiting: VecDeque::new(), syncing: false, last: 0, closed: false }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Job(job) => self.waiting.push_back(job),
            Message::Synced => self.syncing = false,
            Message::Close => self.closed = true,
        }
    }

    fn take_next(&mut self) {
        match self.messages.recv() {
            Ok(message) => self.take(message),
            Err(_) => (self.closed, self.syncing) = (true, false),
        }
    }

    /// Waits for the first of a transaction; none when there will be no more.
    fn first(&mut self) -> Option<Job> {
        while self.waiting.is_empty() && !self.closed {
            self.take_next();
        }
        self.take_all();
        self.last = self.waiting.len().saturating_sub(1);
        self.waiting.pop_front()
    }

    /// Who joins a transaction: whoever comes while the disk is busy, and whoever is there when it is free. Those who
    /// come then were answered just now, and will be the next transaction.
    fn next(&mut self) -> Option<Job> {
        while self.syncing && self.waiting.is_empty() {
            self.take_next();
            if !self.syncing {
                self.take_all();
                self.last = self.waiting.len();
            }
        }
        if !self.syncing {
            self.last = self.last.checked_sub(1)?;
        }
        self.waiting.pop_front()
    }

    fn take_all(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
    }

    /// Whether nobody else waits.
    fn is_idle(&mut self) -> bool {
        self.take_all();
        self.waiting.is_empty()
    }

    /// Waits until the disk is free.
    fn free(&mut self) {
        while self.syncing {
            self.take_next();
        }
    }
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
        while let Some(first) = self.queue.first() {
            self.commit(vec![first]);
        }
    }

    /// Writes all of it, and what comes meanwhile.
    fn commit(&mut self, mut jobs: Vec<Job>) {
        let mut written = self.transact(&mut jobs, Care::Quick);
        if let Err(Fault::OfOne) = written {
            written = self.transact(&mut jobs, Care::Savepoints);
        }
        match written {
            Ok((number, answers, news)) => {
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
                self.remember_own(&news);
                self.nudge.committed(jobs.len());
                self.hand_over(Bundle { number, jobs, answers, news });
            }
            Err(fault) => {
                let why = fault.to_string();
                tracing::error!(%why, "a transaction failed");
                for job in jobs {
                    let _ = job.answer.send(Err(StoreError::Failed(why.clone()).into()));
                }
            }
        }
    }

    fn hand_over(&mut self, bundle: Bundle) {
        if bundle.jobs.len() == 1 && self.queue.is_idle() {
            self.shore.land(bundle);
            return self.nudge.alone(&self.connection);
        }
        // A syncer that is gone has dropped who waits for it, and they hear that.
        self.queue.syncing = self.syncer.send(bundle).is_ok();
    }

    /// Runs all of it in one transaction, and who joins is added. Returns the number of the commit, the answers and the
    /// news. On a fault nothing is written.
    fn transact(&mut self, jobs: &mut Vec<Job>, care: Care) -> Result<(u64, Vec<Answer>, News), Fault> {
        run_cached(&self.connection, "BEGIN IMMEDIATE")?;
        let written = self.run_all(jobs, care).and_then(|(answers, news)| {
            self.queue.free();
            if self.shared.progress.has_failed() {
                return Err(Fault::OfAll(lost().to_string()));
            }
            Ok((self.end()?, answers, news))
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

    /// Commits, and returns the number of the commit.
    fn end(&mut self) -> Result<u64, Fault> {
        let number = self.shared.progress.begin();
        let ended = run_cached(&self.connection, "COMMIT");
        if let Err(error) = ended {
            // Nobody asked for it, but readers wait for its number.
            self.hand_over(Bundle { number, jobs: Vec::new(), answers: Vec::new(), news: News::default() });
            return Err(error.into());
        }
        Ok(number)
    }

    fn run_all(&mut self, jobs: &mut Vec<Job>, care: Care) -> Result<(Vec<Answer>, News), Fault> {
        self.cache.check(&self.connection)?;
        let mut batch = Batch::new(&self.connection, &mut self.cache);
        let mut answers = Vec::with_capacity(jobs.len());
        let clock = &*self.shared.clock;
        while answers.len() < BATCH {
            let Some(job) = jobs.get(answers.len()) else {
                let Some(job) = self.queue.next() else { break };
                jobs.push(job);
                continue;
            };
            answers.push(match care {
                Care::Quick => run(&job.work, &mut batch, clock)?,
                Care::Savepoints => run_apart(&job.work, &mut batch, clock)?,
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
            Work::Run(op) => run_op(op, batch).map(|applied| Done::Applied(Box::new(applied))),
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

/// A rejection, too, may have let time pass for a call.
fn run_op(op: &Op, batch: &mut Batch<'_>) -> Result<Applied, Failure> {
    let applied = apply(op, batch);
    if !matches!(applied, Err(Failure::Store(_))) {
        batch.settle()?;
    }
    applied
}
