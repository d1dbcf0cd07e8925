//! Reading the log: all of it, or the events of a chain, a session or a call, each by stretches.

use countersign::call::Chain;
use countersign::event::{Cursor, Event};
use countersign::id::{CallId, HoldId};
use countersign::store::{EventFilter, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Params, ToSql, params};

use super::read::page;
use super::rows::{self, failed};

/// A stretch, as the indexes divide the log and the calls: so many rows, as a power of two.
pub(super) const STRETCH: u32 = 10;

/// Events of the whole log after a place; of a chain, in one stretch; of a call likewise.
pub(super) const TAIL: &str = "e.id > ?1 ORDER BY e.id";
pub(super) const TAIL_OF_CHAIN: &str = "e.id >> 10 = ?1 AND e.chain = ?2 AND e.id > ?3 ORDER BY e.id";
pub(super) const TAIL_OF_CALL: &str = "e.id >> 10 = ?1 AND e.chain = ?2 AND e.id > ?3 AND e.call = ?4 ORDER BY e.id";
/// The chain of a call, and where its own events begin and end there.
pub(super) const ENDS_OF_CALL: &str = "SELECT chain, first_event, last_event FROM calls WHERE id = ?1";

pub(super) fn events(connection: &Connection, after: Cursor, filter: &EventFilter) -> Result<Vec<Event>, StoreError> {
    let after = rows::signed(after.minor)?;
    let most = page(filter.limit);
    // Several chains are read as of one moment. Else an event of the first might be passed over for a later one.
    let _moment = connection.unchecked_transaction().map_err(failed)?;
    if let Some(call) = filter.call {
        return of_call(connection, call, after, most, |event| is_wanted(event, filter));
    }
    let Some(chains) = chains_of(connection, filter)? else {
        return read_events(connection, TAIL, [after], most, |_| true);
    };
    let mut found = Vec::new();
    for chain in chains {
        found.append(&mut chain.tail(connection, None, after, most, |_| true)?);
    }
    found.sort_by_key(|event| event.cursor);
    found.truncate(most);
    Ok(found)
}

/// The events by which holds opened: many small readings, of one connection and without waiting in between.
pub(super) fn openings(connection: &Connection, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
    let mut found = Vec::new();
    for (call, hold) in holds {
        found.append(&mut of_call(connection, *call, 0, 1, |event| event.opens(*hold))?);
    }
    found.sort_by_key(|event| event.cursor);
    Ok(found)
}

fn of_call(
    connection: &Connection,
    call: CallId,
    after: i64,
    most: usize,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Vec<Event>, StoreError> {
    let mut statement = connection.prepare_cached(ENDS_OF_CALL).map_err(failed)?;
    let Some(ends) = statement.query_row([call.as_bytes()], Ends::of).optional().map_err(failed)? else {
        return Ok(Vec::new());
    };
    ends.tail(connection, Some(call), after, most, wanted)
}

/// A chain, and the ids of the first and last event to look at.
struct Ends {
    chain: i64,
    first: i64,
    last: i64,
}

impl Ends {
    fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Ends> {
        Ok(Ends { chain: row.get(0)?, first: row.get(1)?, last: row.get(2)? })
    }

    /// Reads what comes after a place in the whole log, stretch by stretch: from where the reader is, or the first lies,
    /// to where the last does.
    fn tail(
        &self,
        connection: &Connection,
        call: Option<CallId>,
        after: i64,
        most: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Vec<Event>, StoreError> {
        let mut found = Vec::new();
        let after = after.max(self.first - 1);
        for stretch in (after + 1) >> STRETCH..=self.last >> STRETCH {
            let left = most - found.len();
            if left == 0 || after >= self.last {
                break;
            }
            let mut read = match call {
                None => read_events(connection, TAIL_OF_CHAIN, params![stretch, self.chain, after], left, &wanted)?,
                Some(call) => {
                    let values = params![stretch, self.chain, after, call.as_bytes()];
                    read_events(connection, TAIL_OF_CALL, values, left, &wanted)?
                }
            };
            found.append(&mut read);
        }
        Ok(found)
    }
}

/// The chains a filter is about; none where it is about all.
fn chains_of(connection: &Connection, filter: &EventFilter) -> Result<Option<Vec<Ends>>, StoreError> {
    let read = |condition: &str, values: &[&dyn ToSql]| -> rusqlite::Result<Vec<Ends>> {
        let sql = format!("SELECT id, first, last FROM chains WHERE {condition}");
        connection.prepare_cached(&sql)?.query_map(values, Ends::of)?.collect()
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
