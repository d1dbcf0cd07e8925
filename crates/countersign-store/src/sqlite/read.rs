//! Reads: a few connections beside the writer, which see every commit and wait for none.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign::call::{Call, CallState, Chain, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits;
use countersign::store::{CallFilter, EventFilter, StoreError};
use countersign::time::Time;
use rusqlite::{Connection, OptionalExtension as _, Params, ToSql, params};
use tokio::sync::Semaphore;

use super::migrate::open_reader;
use super::rows::{self, failed};
use super::state::OF_HOLD;

pub(super) const DUE: &str = "SELECT id FROM calls WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
/// Events of the whole log, of one call, of one chain; each after a place.
pub(super) const TAIL: &str = "e.id > ?1 ORDER BY e.id";
pub(super) const TAIL_OF_CALL: &str = "e.call = ?1 AND e.id > ?2 ORDER BY e.id";
pub(super) const TAIL_OF_CHAIN: &str = "e.chain = ?1 AND e.seq > ?2 ORDER BY e.seq";
pub(super) const PLACE: &str = "SELECT id FROM events WHERE chain = ?1 AND seq = ?2";

/// How many reads may go on at once.
const READERS: usize = 4;

/// The reading connections.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Arc<Readers> {
        Arc::new(Readers { path, idle: Mutex::default(), turns: Semaphore::new(READERS) })
    }

    /// Runs a read on a thread where it may block.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _turn = self.turns.acquire().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let connection = match readers.idle().pop() {
                Some(connection) => connection,
                None => open_reader(&readers.path).map_err(failed)?,
            };
            let found = read(&connection);
            // One that failed may be broken; the next read opens another.
            if found.is_ok() {
                readers.idle().push(connection);
            }
            found
        });
        reading.await.map_err(|error| StoreError::Failed(error.to_string()))?
    }

    pub(super) fn close(&self) {
        self.turns.close();
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(connection: &Connection, sql: &str, values: impl Params) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement.query_row(values, |row| row.get(0)).optional().map_err(failed)
}

pub(super) fn call(connection: &Connection, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
    let body = text(connection, "SELECT body FROM calls WHERE id = ?1", [id.as_bytes()])?;
    body.map(|body| rows::call(&body, Some(id))).transpose()
}

pub(super) fn call_of_hold(connection: &Connection, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
    let body = text(connection, OF_HOLD, [hold.as_bytes()])?;
    body.map(|body| rows::call(&body, None)).transpose()
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
        clauses.push("id > ?");
        values.push(Box::new(after.as_bytes().to_vec()));
    }
    let index = if held { "INDEXED BY calls_holding" } else { index_for(filter) };
    let filtered = if clauses.is_empty() { "" } else { "WHERE " };
    let sql = format!("SELECT body FROM calls {index} {filtered}{} ORDER BY id LIMIT ?", clauses.join(" AND "));
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
        | CallState::Resolved => Some("state NOT IN ('allowed', 'pending', 'approved', 'executing', 'succeeded')"),
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
    let bodies = statement.query_map(&values[..], |row| row.get::<_, String>(0)).map_err(failed)?;
    bodies.map(|body| rows::call(&body.map_err(failed)?, None)).collect()
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

pub(super) fn grants(connection: &Connection) -> Result<Vec<Grant>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT body FROM grants ORDER BY id").map_err(failed)?;
    let bodies = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    bodies.map(|body| rows::grant(&body.map_err(failed)?)).collect()
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
    let Some(chains) = chains_of(connection, filter)? else {
        return read_events(connection, TAIL, [after], most, |_| true);
    };
    let mut found = Vec::new();
    for (chain, seq) in chains {
        found.append(&mut tail_of_chain(connection, (chain, seq), after, most)?);
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

/// The chains a filter is about, each with its last sequence number; none where it is about all.
fn chains_of(connection: &Connection, filter: &EventFilter) -> Result<Option<Vec<(i64, i64)>>, StoreError> {
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let read = |sql: &str, values: &[&dyn ToSql]| -> rusqlite::Result<Vec<(i64, i64)>> {
        connection.prepare_cached(sql)?.query_map(values, row)?.collect()
    };
    let found = match (&filter.chain, &filter.session) {
        (None, None) => return Ok(None),
        (Some(Chain(name)), None) => read("SELECT id, seq FROM chains WHERE name = ?1", &[&&**name]),
        (None, Some(session)) => read("SELECT id, seq FROM chains WHERE session = ?1", &[&&**session]),
        (Some(Chain(name)), Some(session)) => {
            read("SELECT id, seq FROM chains WHERE name = ?1 AND session = ?2", &[&&**name, &&**session])
        }
    };
    found.map(Some).map_err(failed)
}

fn is_wanted(event: &Event, filter: &EventFilter) -> bool {
    let session = event.chain.0.split_once('/').map(|(_, session)| session);
    filter.chain.as_ref().is_none_or(|chain| *chain == event.chain)
        && filter.session.as_deref().is_none_or(|wanted| session == Some(wanted))
}

/// Reads a chain's events after a place in the whole log.
///
/// Ids grow with sequence numbers within a chain, so the first one wanted is found by halving.
fn tail_of_chain(
    connection: &Connection,
    (chain, last): (i64, i64),
    after: i64,
    most: usize,
) -> Result<Vec<Event>, StoreError> {
    let mut at = connection.prepare_cached(PLACE).map_err(failed)?;
    let (mut low, mut high) = if after == 0 { (0, 0) } else { (0, last) };
    while low < high {
        let middle = low + (high - low + 1) / 2;
        let id: Option<i64> = at.query_row([chain, middle], |row| row.get(0)).optional().map_err(failed)?;
        match id {
            Some(id) if id <= after => low = middle,
            Some(_) => high = middle - 1,
            None => return Err(rows::damaged("chain of events", format!("number {middle} is missing"))),
        }
    }
    read_events(connection, TAIL_OF_CHAIN, [chain, low], most, |_| true)
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
