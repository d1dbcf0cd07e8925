//! Reads: a few connections beside the writer, which see every commit and wait for none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use countersign::call::{Call, CallState, Chain, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits;
use countersign::store::{CallFilter, EventFilter, Order, StoreError};
use countersign::time::Time;
use rusqlite::{Connection, OptionalExtension as _, Params, ToSql, params};
use tokio::sync::oneshot;

use super::migrate::open_reader;
use super::rows::{self, failed};
use super::state::{OF_HOLD, OF_ID};
use super::writer::Shared;

pub(super) const DUE: &str = "SELECT id FROM calls WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
/// Events of the whole log, of one call, of one chain; each after a place.
pub(super) const TAIL: &str = "e.id > ?1 ORDER BY e.id";
pub(super) const TAIL_OF_CALL: &str = "e.call = ?1 AND e.id > ?2 ORDER BY e.id";
pub(super) const TAIL_OF_CHAIN: &str = "e.id >> 10 = ?1 AND e.chain = ?2 AND e.id > ?3 ORDER BY e.seq";

/// A stretch of the log, as the index of chains divides it: so many events, as a power of two.
const STRETCH: u32 = 10;

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

fn page(limit: Option<usize>) -> usize {
    limit.unwrap_or(limits::PAGE_ROWS_DEFAULT).min(limits::PAGE_ROWS)
}

/// The statement that answers a filter, and what it is to be given.
pub(super) fn listing(filter: &CallFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut clauses: Vec<&str> = Vec::new();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let held = filter.holding || filter.state == Some(CallState::Pending);
    if held {
        clauses.push("holding = 1");
    }
    if let Some(state) = filter.state {
        clauses.push("state = ?");
        values.push(Box::new(state.as_str()));
        clauses.extend(implied_by(state));
    }
    if let Some(session) = &filter.session {
        clauses.push("session = ?");
        values.push(Box::new(session.to_string()));
    }
    if let Some(principal) = &filter.principal {
        clauses.push("principal = ?");
        values.push(Box::new(principal.to_string()));
    }
    if let Some(digest) = filter.argument_digest {
        clauses.push("argument_digest = ?");
        values.push(Box::new(digest.as_bytes().to_vec()));
    }
    if let Some(after) = filter.after {
        clauses.push(match filter.order {
            Order::Oldest => "id > ?",
            Order::Newest => "id < ?",
        });
        values.push(Box::new(after.as_bytes().to_vec()));
    }
    let index = if held { "INDEXED BY calls_holding" } else { index_for(filter) };
    let filtered = if clauses.is_empty() { "" } else { "WHERE " };
    let clauses = clauses.join(" AND ");
    let order = match filter.order {
        Order::Oldest => "",
        Order::Newest => " DESC",
    };
    let sql = format!(
        "SELECT r.body, standing FROM calls {index} CROSS JOIN requests r ON r.call = n {filtered}{clauses} \
         ORDER BY id{order} LIMIT ?"
    );
    values.push(Box::new(page(filter.limit) as i64));
    (sql, values)
}

/// What a state says about other columns, in the words of the index that knows it.
fn implied_by(state: CallState) -> Option<&'static str> {
    match state {
        CallState::Pending | CallState::Succeeded => None,
        CallState::Allowed | CallState::Approved | CallState::Executing => Some("due_at IS NOT NULL"),
        CallState::Denied
        | CallState::Answered
        | CallState::Expired
        | CallState::Cancelled
        | CallState::Lapsed
        | CallState::Failed
        | CallState::InDoubt
        | CallState::Resolved => Some(
            "state <> 'allowed' AND state <> 'pending' AND state <> 'approved' AND state <> 'executing' \
             AND state <> 'succeeded'",
        ),
    }
}

/// The index that leaves the fewest rows to look at. Named, so that no guess of SQLite's reads a million old rows.
fn index_for(filter: &CallFilter) -> &'static str {
    if filter.argument_digest.is_some() {
        return "INDEXED BY calls_arguments";
    }
    if filter.session.is_some() {
        return "INDEXED BY calls_session";
    }
    match filter.state.and_then(implied_by) {
        Some("due_at IS NOT NULL") => "INDEXED BY calls_due",
        Some(_) => "INDEXED BY calls_seldom",
        None if filter.principal.is_some() => "INDEXED BY calls_principal",
        None => "",
    }
}

pub(super) fn calls(connection: &Connection, filter: &CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
    let (sql, values) = listing(filter);
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let values: Vec<&dyn ToSql> = values.iter().map(AsRef::as_ref).collect();
    let found = statement.query_map(&values[..], rows::parts).map_err(failed)?;
    found.map(|parts| rows::call(&parts.map_err(failed)?, None)).collect()
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

pub(super) fn events(connection: &Connection, after: Cursor, filter: &EventFilter) -> Result<Vec<Event>, StoreError> {
    let after = rows::signed(after.minor)?;
    let most = page(filter.limit);
    if let Some(call) = filter.call {
        let wanted = |event: &Event| is_wanted(event, filter);
        return read_events(connection, TAIL_OF_CALL, params![call.as_bytes(), after], most, wanted);
    }
    // Several chains are read as of one moment. Else an event of the first might be passed over for a later one.
    let _moment = connection.unchecked_transaction().map_err(failed)?;
    let Some(chains) = chains_of(connection, filter)? else {
        return read_events(connection, TAIL, [after], most, |_| true);
    };
    let mut found = Vec::new();
    for chain in chains {
        found.append(&mut tail_of_chain(connection, &chain, after, most)?);
    }
    found.sort_by_key(|event| event.cursor);
    found.truncate(most);
    Ok(found)
}

/// The events by which holds opened: many small readings, of one connection and without waiting in between.
pub(super) fn openings(connection: &Connection, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
    let mut found = Vec::new();
    for (call, hold) in holds {
        let opens = |event: &Event| event.opens(*hold);
        found.append(&mut read_events(connection, TAIL_OF_CALL, params![call.as_bytes(), 0], 1, opens)?);
    }
    found.sort_by_key(|event| event.cursor);
    Ok(found)
}

/// A chain, and the ids of its first and last event.
struct ChainEnds {
    chain: i64,
    first: i64,
    last: i64,
}

/// The chains a filter is about; none where it is about all.
fn chains_of(connection: &Connection, filter: &EventFilter) -> Result<Option<Vec<ChainEnds>>, StoreError> {
    let ends = |row: &rusqlite::Row<'_>| Ok(ChainEnds { chain: row.get(0)?, first: row.get(1)?, last: row.get(2)? });
    let read = |condition: &str, values: &[&dyn ToSql]| -> rusqlite::Result<Vec<ChainEnds>> {
        let sql = format!("SELECT id, first, last FROM chains WHERE {condition}");
        connection.prepare_cached(&sql)?.query_map(values, ends)?.collect()
    };
    let found = match (&filter.chain, &filter.session) {
        (None, None) => return Ok(None),
        (Some(Chain(name)), None) => read("name = ?1", &[&&**name]),
        (None, Some(session)) => read("session = ?1", &[&&**session]),
        (Some(Chain(name)), Some(session)) => read("name = ?1 AND session = ?2", &[&&**name, &&**session]),
    };
    found.map(Some).map_err(failed)
}

fn is_wanted(event: &Event, filter: &EventFilter) -> bool {
    let session = event.chain.0.split_once('/').map(|(_, session)| session);
    filter.chain.as_ref().is_none_or(|chain| *chain == event.chain)
        && filter.session.as_deref().is_none_or(|wanted| session == Some(wanted))
}

/// Reads a chain's events after a place in the whole log, stretch by stretch: from where the reader is, or the chain
/// begins, to where the chain ends.
fn tail_of_chain(connection: &Connection, ends: &ChainEnds, after: i64, most: usize) -> Result<Vec<Event>, StoreError> {
    let mut found = Vec::new();
    for stretch in after.max(ends.first) >> STRETCH..=ends.last >> STRETCH {
        let left = most - found.len();
        if left == 0 || after >= ends.last {
            break;
        }
        found.append(&mut read_events(connection, TAIL_OF_CHAIN, [stretch, ends.chain, after], left, |_| true)?);
    }
    Ok(found)
}

/// The statement that reads the events of a condition.
pub(super) fn events_where(condition: &str) -> String {
    format!("SELECT {} FROM events e JOIN chains c ON c.id = e.chain WHERE {condition}", rows::EVENT)
}

fn read_events(
    connection: &Connection,
    condition: &str,
    values: impl Params,
    most: usize,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Vec<Event>, StoreError> {
    let mut statement = connection.prepare_cached(&events_where(condition)).map_err(failed)?;
    let mut found = Vec::new();
    let mut rows = statement.query(values).map_err(failed)?;
    while found.len() < most {
        let Some(row) = rows.next().map_err(failed)? else { break };
        let event = rows::event(row)?;
        if wanted(&event) {
            found.push(event);
        }
    }
    Ok(found)
}
