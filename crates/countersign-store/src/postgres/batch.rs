//! Runs operations: many to a transaction, and each to its own answer.
//!
//! Operations queue while a batch is on its way, so the busier the node, the more of them share one commit.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use countersign::apply::apply;
use countersign::store::{Applied, Failure, Op, StoreError};
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::Node;
use super::load::{Plan, load};
use super::world::{Changed, World};
use super::write::write;
use crate::known::{Known, MOST};

/// Operations of one batch.
const BATCH: usize = 129;
/// Batches on their way at once.
const IN_FLIGHT: usize = 2;
/// How long a batch waits for those who were just answered and are about to ask again.
const GATHER_FOR: Duration = Duration::from_micros(500);
/// How often a batch that met another node's is tried.
const ATTEMPTS: u32 = 5;
/// How old the count of all waiting calls may be.
const RECOUNT_EVERY: Duration = Duration::from_secs(1);

type Answer = Result<Applied, Failure>;

/// An operation, and who waits for it.
pub(super) struct Job {
    pub(super) op: Arc<Op>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Why a batch did not happen.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing was written; the next attempt may succeed.
    Again(String),
    /// Nothing was written; the connection is gone or stuck, whatever the operations.
    Lost(String),
    /// Nothing was written, and trying again helps nobody: one of the operations is at fault.
    Spoilt(StoreError),
    /// Nothing was written; no connection is to be had.
    Down(String),
    /// The commit's answer is lost: it may have happened.
    Unknown(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Spoilt(error)
    }
}

/// For everything before the commit: the server undoes what it has not been told to commit.
impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        let text = error.to_string();
        match &error {
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Trouble::Down(text),
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Trouble::Lost(text)
            }
            sqlx::Error::Database(database) => match database.code().as_deref() {
                // An id that is taken stays taken.
                Some("23505")
                    if matches!(
                        database.constraint(),
                        Some("calls_pkey" | "requests_pkey" | "holds_pkey" | "grants_pkey")
                    ) =>
                {
                    Trouble::Spoilt(StoreError::Failed(text))
                }
                // Serialization, deadlock, a row that another node wrote first.
                Some("40001" | "40P01" | "23505") => Trouble::Again(text),
                // Shut down, restarted or cut off; or everybody waits for a lock.
                Some("57P01" | "57P02" | "57P03" | "25P03" | "55P03") => Trouble::Lost(text),
                Some(code) if code.starts_with("08") => Trouble::Lost(text),
                _ => Trouble::Spoilt(StoreError::Failed(text)),
            },
            _ => Trouble::Spoilt(StoreError::Failed(text)),
        }
    }
}

impl Trouble {
    /// SECURITY: only a server that says it rolled back did so. After anything else the commit may have happened, and
    /// a second attempt might do everything twice.
    fn at_commit(error: sqlx::Error) -> Trouble {
        match Trouble::from(error) {
            Trouble::Again(text) => Trouble::Again(text),
            Trouble::Spoilt(error) => Trouble::Unknown(error.to_string()),
            Trouble::Lost(text) | Trouble::Down(text) | Trouble::Unknown(text) => Trouble::Unknown(text),
        }
    }

    fn into_error(self) -> StoreError {
        match self {
            Trouble::Spoilt(error) => error,
            Trouble::Again(text) | Trouble::Lost(text) | Trouble::Down(text) => StoreError::Failed(text),
            Trouble::Unknown(text) => StoreError::Failed(format!("the commit was not confirmed: {text}")),
        }
    }

    fn text(&self) -> String {
        match self {
            Trouble::Spoilt(error) => error.to_string(),
            Trouble::Again(text) | Trouble::Lost(text) | Trouble::Down(text) | Trouble::Unknown(text) => text.clone(),
        }
    }
}

/// How many holds of each principal wait: counted at most once a second, plus what this node did since. Other nodes'
/// holds of the last second are not in it, nor are second holds of one running call, so the limits may be overrun by
/// that much.
#[derive(Debug, Default)]
pub(super) struct Counted {
    counts: std::sync::Mutex<Counts>,
    at: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<Arc<str>, i64>,
    in_all: i64,
}

impl Counts {
    fn add(&mut self, principal: &Arc<str>, by: i64) {
        *self.of.entry(Arc::clone(principal)).or_default() += by;
        self.in_all += by;
    }
}

impl Counted {
    async fn recount(&self, connection: &mut PgConnection) -> Result<(), Trouble> {
        let Ok(mut counted) = self.at.try_lock() else { return Ok(()) };
        if counted.is_some_and(|at| at.elapsed() < RECOUNT_EVERY) {
            return Ok(());
        }
        let query = sqlx::query("SELECT principal, count(*) FROM calls WHERE holding GROUP BY principal");
        let mut counts = Counts::default();
        for row in query.fetch_all(connection).await? {
            counts.add(&Arc::from(row.try_get::<&str, _>(0)?), row.try_get(1)?);
        }
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        *counted = Some(Instant::now());
        Ok(())
    }

    /// How many calls of a principal wait and how many in all, with changes that are not committed yet.
    pub(super) fn with(&self, changed: &HashMap<Arc<str>, i64>, principal: &str) -> (u64, u64) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |counts: &HashMap<Arc<str>, i64>| counts.get(principal).copied().unwrap_or(0);
        let in_all = counts.in_all + changed.values().sum::<i64>();
        (u64::try_from(of(&counts.of) + of(changed)).unwrap_or(0), u64::try_from(in_all).unwrap_or(0))
    }

    fn add(&self, changed: &HashMap<Arc<str>, i64>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (principal, by) in changed {
            counts.add(principal, *by);
        }
    }
}

/// Takes operations from the queue until nobody can send any more.
pub(super) async fn serve(node: Arc<Node>, mut queue: mpsc::Receiver<Job>) {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut last = [0; IN_FLIGHT];
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        // An equal share of whoever asks: then one batch is on its way while the callers of the other think.
        let fair = last.iter().sum::<usize>().div_ceil(IN_FLIGHT);
        let most = match slots.available_permits() {
            0 => BATCH,
            free => queue.len().div_ceil(free + 1).clamp(fair.max(1), BATCH),
        };
        let mut jobs = Vec::with_capacity(most);
        if queue.recv_many(&mut jobs, most).await == 0 {
            return;
        }
        gather(&mut queue, &mut jobs, fair).await;
        last.rotate_right(1);
        last[0] = jobs.len();
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            node.run(jobs).await;
            drop(slot);
        });
    }
}

/// Waits a moment for a fair share: one commit for many is cheaper than one for each.
async fn gather(queue: &mut mpsc::Receiver<Job>, jobs: &mut Vec<Job>, fair: usize) {
    let until = tokio::time::Instant::now() + GATHER_FOR;
    while jobs.len() < fair {
        let room = fair - jobs.len();
        match tokio::time::timeout_at(until, queue.recv_many(jobs, room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

impl Node {
    /// Runs all of them in one transaction; where that cannot be, each in its own, so that one spoils no other.
    async fn run(&self, jobs: Vec<Job>) {
        let ops: Vec<Arc<Op>> = jobs.iter().map(|job| Arc::clone(&job.op)).collect();
        let trouble = match self.settle(&ops).await {
            Ok(answers) => return jobs.into_iter().zip(answers).for_each(|(job, answer)| tell(job, answer)),
            Err(trouble) => trouble,
        };
        tracing::warn!(operations = jobs.len(), trouble = trouble.text(), "a batch failed");
        match trouble {
            Trouble::Spoilt(_) | Trouble::Again(_) if jobs.len() > 1 => {
                for job in jobs {
                    let answer = self.settle(&[Arc::clone(&job.op)]).await;
                    let answer = answer.map_err(Trouble::into_error).map(|mut answers| answers.pop());
                    tell(job, answer.map_err(Failure::from).and_then(|answer| answer.unwrap_or(Err(lost()))));
                }
            }
            trouble => {
                let why = trouble.into_error();
                jobs.into_iter().for_each(|job| tell(job, Err(copy(&why).into())));
            }
        }
    }

    async fn settle(&self, ops: &[Arc<Op>]) -> Result<Vec<Answer>, Trouble> {
        let mut attempt = 1;
        loop {
            match self.transact(ops).await {
                Err(Trouble::Again(_) | Trouble::Lost(_)) if attempt < ATTEMPTS => {
                    tokio::time::sleep(Duration::from_millis(5) * 2_u32.pow(attempt)).await;
                    attempt += 1;
                }
                settled => return settled,
            }
        }
    }

    async fn transact(&self, ops: &[Arc<Op>]) -> Result<Vec<Answer>, Trouble> {
        let plan = Plan::of(ops);
        let mut connection = self.writers.acquire().await?;
        if plan.counts() {
            self.waiting.recount(&mut connection).await?;
        }
        let mut transaction = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await?;
        match self.inside(&mut transaction, plan, ops).await {
            Ok((answers, world)) => {
                transaction.commit().await.map_err(Trouble::at_commit)?;
                self.remember(&world);
                self.committed(&world.changed);
                Ok(answers)
            }
            Err(trouble) => {
                // Where even this fails, the server rolls back by itself once the connection is gone.
                let _ = transaction.rollback().await;
                Err(trouble)
            }
        }
    }

    async fn inside(
        &self,
        connection: &mut PgConnection,
        plan: Plan,
        ops: &[Arc<Op>],
    ) -> Result<(Vec<Answer>, World), Trouble> {
        let mut world = load(connection, plan, self).await?;
        world.waiting = Arc::clone(&self.waiting);
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            match caught(op, &mut world) {
                Err(Failure::Store(error)) => return Err(error.into()),
                answer => answers.push(answer),
            }
        }
        write(connection, &world, &self.name).await?;
        Ok((answers, world))
    }

    /// Keeps the calls that were written, now that they are committed.
    fn remember(&self, world: &World) {
        let mut known = self.known();
        if known.len() > MOST {
            *known = Known::default();
        }
        for call in world.changed.calls.keys().filter_map(|id| world.calls.get(id)?.as_ref().ok()) {
            known.keep((), call);
        }
    }

    fn committed(&self, changed: &Changed) {
        self.waiting.add(&changed.pending);
        if changed.all {
            return self.bell.ring_all();
        }
        if changed.rung.is_empty() && !changed.events.is_empty() {
            return self.bell.ring_any();
        }
        changed.rung.iter().for_each(|call| self.bell.ring(*call));
    }
}

/// A rule that panics spoils its own operation and no other.
fn caught(op: &Op, world: &mut World) -> Answer {
    catch_unwind(AssertUnwindSafe(|| apply(op, world)))
        .unwrap_or_else(|_| Err(StoreError::Failed("the operation panicked".into()).into()))
}

fn tell(job: Job, answer: Answer) {
    // Nobody waits for it any more: what was done stays done.
    let _ = job.answer.send(answer);
}

fn lost() -> Failure {
    StoreError::Failed("the operation has no answer".into()).into()
}

fn copy(error: &StoreError) -> StoreError {
    match error {
        StoreError::Damaged { what, why } => StoreError::Damaged { what, why: why.clone() },
        StoreError::Failed(text) => StoreError::Failed(text.clone()),
        StoreError::Closed => StoreError::Closed,
        other => StoreError::Failed(other.to_string()),
    }
}
