//! Reads: a few connections beside the writer, which see every commit and wait for none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use countersign::call::{Call, Path};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits;
use countersign::store::StoreError;
use countersign::time::Time;
use rusqlite::{Connection, OptionalExtension as _, Params, params};
use tokio::sync::oneshot;

use super::migrate::open_reader;
use super::rows::{self, failed};
use super::state::{OF_HOLD, OF_ID};
use super::writer::Shared;

pub(super) const DUE: &str = "SELECT id FROM calls WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
/// How many reads may go on at once.
const READERS: usize = 4;

/// The reading connections, each with a thread of its own: whatever else blocks threads in this process keeps no read
/// waiting.
pub(super) struct Readers {
    queue: Mutex<Option<Sender<Read>>>,
    shared: Arc<Shared>,
}

/// A read on its way to a thread: told why there is no connection, where there is none. False where it may be broken.
type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) -> bool + Send>;

impl Readers {
    /// Starts the threads; they end once this is closed.
    pub(super) fn start(path: &FilePath, shared: Arc<Shared>) -> std::io::Result<(Readers, Vec<JoinHandle<()>>)> {
        let (queue, reads) = channel();
        let reads = Arc::new(Mutex::new(reads));
        let start = |_| {
            let (path, reads) = (path.to_owned(), Arc::clone(&reads));
            std::thread::Builder::new().name("countersign-read".into()).spawn(move || serve(&path, &reads))
        };
        let threads = (0..READERS).map(start).collect::<Result<_, _>>()?;
        Ok((Readers { queue: Mutex::new(Some(queue)), shared }, threads))
    }

    /// Runs a read on a thread where it may block. What it saw is on disk when this returns.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            let found = connection.and_then(read);
            let is_fine = found.is_ok();
            let _ = answer.send(found);
            is_fine
        });
        self.queue().as_ref().and_then(|queue| queue.send(read).ok()).ok_or(StoreError::Closed)?;
        let panicked = |_| StoreError::Failed("the read was given up".to_owned());
        let found = answered.await.map_err(panicked)??;
        self.shared.progress.settled().await?;
        Ok(found)
    }

    /// Takes no more reads.
    pub(super) fn close(&self) {
        *self.queue() = None;
    }

    fn queue(&self) -> MutexGuard<'_, Option<Sender<Read>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads until nobody can ask any more.
fn serve(path: &FilePath, reads: &Mutex<Receiver<Read>>) {
    let mut idle: Option<Connection> = None;
    loop {
        let next = reads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(read) = next else { return };
        let connection = match idle.take() {
            Some(connection) => Ok(connection),
            None => open_reader(path).map_err(failed),
        };
        idle = match connection {
            // One that failed may be broken; the next read opens another.
            Ok(connection) => {
                let is_fine = catch_unwind(AssertUnwindSafe(|| read(Ok(&connection)))).unwrap_or(false);
                is_fine.then_some(connection)
            }
            Err(error) => {
                read(Err(error));
                None
            }
        };
    }
}

fn text(connection: &Connection, sql: &str, values: impl Params) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement.query_row(values, |row| row.get(0)).optional().map_err(failed)
}

fn one_call(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    id: Option<CallId>,
) -> Result<Option<Arc<Call>>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let parts = statement.query_row(values, rows::parts).optional().map_err(failed)?;
    parts.map(|parts| rows::call(&parts, id)).transpose()
}

pub(super) fn call(connection: &Connection, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
    one_call(connection, OF_ID, [id.as_bytes()], Some(id))
}

pub(super) fn call_of_hold(connection: &Connection, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
    one_call(connection, OF_HOLD, [hold.as_bytes()], None)
}

pub(super) fn page(limit: Option<usize>) -> usize {
    limit.unwrap_or(limits::PAGE_ROWS_DEFAULT).min(limits::PAGE_ROWS)
}

pub(super) fn holding(connection: &Connection) -> Result<usize, StoreError> {
    const SQL: &str = "SELECT count(*) FROM calls INDEXED BY calls_holding WHERE holding = 1";
    let mut statement = connection.prepare_cached(SQL).map_err(failed)?;
    let count: i64 = statement.query_row([], |row| row.get(0)).map_err(failed)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

pub(super) fn due(connection: &Connection, now: Time, limit: usize) -> Result<Vec<CallId>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(DUE).map_err(failed)?;
    let ids = statement.query_map([now.0, limit], |row| row.get::<_, Vec<u8>>(0)).map_err(failed)?;
    ids.map(|id| rows::call_id(&id.map_err(failed)?)).collect()
}

pub(super) fn grant(connection: &Connection, id: GrantId) -> Result<Option<Grant>, StoreError> {
    let body = text(connection, "SELECT body FROM grants WHERE id = ?1", [id.as_bytes()])?;
    body.map(|body| rows::grant(&body)).transpose()
}

/// No id is empty, so that an empty one stands before all of them.
pub(super) const GRANTS: &str = "SELECT body FROM grants WHERE id > ?1 ORDER BY id";

pub(super) fn grants(connection: &Connection, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
    let mut statement = connection.prepare_cached(GRANTS).map_err(failed)?;
    let after = after.map_or_else(Vec::new, |after| after.as_bytes().to_vec());
    let bodies = statement.query_map(params![after], |row| row.get::<_, String>(0)).map_err(failed)?;
    // One that cannot be read grants nothing, and keeps nobody from the others.
    let readable = bodies.filter_map(|body| body.map_err(failed).map(|body| rows::readable_grant(&body)).transpose());
    readable.take(page(Some(limit))).collect()
}

pub(super) fn halted(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM halts WHERE who = ?1").map_err(failed)?;
    let mut is_set = |who: String| statement.exists([who]).map_err(failed);
    if is_set(rows::halt(None))? {
        return Ok(true);
    }
    for agent in path.agents.iter() {
        if is_set(rows::halt(Some(agent)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// When the last event was written; the beginning of time where there is none.
pub(super) fn last_moment(connection: &Connection) -> Result<Time, StoreError> {
    const LAST: &str = "SELECT at FROM events ORDER BY id DESC LIMIT 1";
    let at = connection.query_row(LAST, [], |row| row.get(0)).optional().map_err(failed)?;
    Ok(at.map_or_else(Time::default, Time))
}

/// A policy's version and source.
type Policy = (Arc<str>, Arc<str>);

pub(super) fn policy(connection: &Connection) -> Result<Option<Policy>, StoreError> {
    const READ: &str = "SELECT version, source FROM policies WHERE version = (SELECT policy FROM meta)";
    let mut statement = connection.prepare_cached(READ).map_err(failed)?;
    let read = statement.query_row([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    Ok(read.optional().map_err(failed)?.map(|(version, source)| (version.into(), source.into())))
}
