//! Listing calls, as they were submitted: by an index that holds just the rows a filter wants, else stretch by stretch.

use std::cmp::Reverse;
use std::sync::Arc;

use countersign::call::{Call, CallState};
use countersign::store::{CallFilter, Order, StoreError};
use rusqlite::{Connection, OptionalExtension as _, ToSql};

use super::events::STRETCH;
use super::read::page;
use super::rows::{self, failed};

/// How a filter's rows are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By one statement, with this index.
    Whole(&'static str),
    /// By one statement for each stretch, in the order of the calls' numbers.
    Stretches(By),
}

/// What the index of a stretch goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Chain,
    Principal,
    Digest,
}

impl Way {
    /// The way that leaves the fewest rows to look at. Named, so that no guess of SQLite's reads a million old rows.
    pub(super) fn of(filter: &CallFilter) -> Way {
        if filter.holding || filter.state == Some(CallState::Pending) {
            return Way::Whole("INDEXED BY calls_holding");
        }
        if filter.argument_digest.is_some() {
            return Way::Stretches(By::Digest);
        }
        if filter.session.is_some() {
            return Way::Stretches(By::Chain);
        }
        match filter.state.and_then(implied_by) {
            Some("due_at IS NOT NULL") => Way::Whole("INDEXED BY calls_due"),
            Some(_) => Way::Whole("INDEXED BY calls_seldom"),
            None if filter.principal.is_some() => Way::Stretches(By::Principal),
            None => Way::Whole(""),
        }
    }
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

/// A condition, and the values it is to be given.
#[derive(Default)]
struct Clauses {
    clauses: Vec<&'static str>,
    values: Vec<Box<dyn ToSql>>,
}

impl Clauses {
    fn plain(&mut self, clause: &'static str) {
        self.clauses.push(clause);
    }

    fn with(&mut self, clause: &'static str, value: impl ToSql + 'static) {
        self.clauses.push(clause);
        self.values.push(Box::new(value));
    }

    fn of(filter: &CallFilter) -> Clauses {
        let mut clauses = Clauses::default();
        if filter.holding || filter.state == Some(CallState::Pending) {
            clauses.plain("holding = 1");
        }
        if let Some(state) = filter.state {
            clauses.with("state = ?", state.as_str());
            implied_by(state).into_iter().for_each(|implied| clauses.plain(implied));
        }
        if let Some(session) = &filter.session {
            clauses.with("session = ?", session.to_string());
        }
        if let Some(principal) = &filter.principal {
            clauses.with("principal = ?", principal.to_string());
        }
        if let Some(digest) = filter.argument_digest {
            clauses.with("argument_digest = ?", digest.as_bytes().to_vec());
        }
        clauses
    }

    fn where_all(&self) -> String {
        match self.clauses.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", self.clauses.join(" AND ")),
        }
    }
}

pub(super) fn calls(connection: &Connection, filter: &CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
    match Way::of(filter) {
        Way::Whole(index) => {
            let (sql, values) = whole(index, filter);
            read(connection, &sql, &values)
        }
        Way::Stretches(by) => by_stretches(connection, by, filter),
    }
}

fn read(connection: &Connection, sql: &str, values: &[Box<dyn ToSql>]) -> Result<Vec<Arc<Call>>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let values: Vec<&dyn ToSql> = values.iter().map(AsRef::as_ref).collect();
    let found = statement.query_map(&values[..], rows::parts).map_err(failed)?;
    found.map(|parts| rows::call(&parts.map_err(failed)?, None)).collect()
}

/// The statement that answers a filter, and what it is to be given.
pub(super) fn whole(index: &str, filter: &CallFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut clauses = Clauses::of(filter);
    let order = match filter.order {
        Order::Oldest => "",
        Order::Newest => " DESC",
    };
    if let Some(after) = filter.after {
        let beyond = match filter.order {
            Order::Oldest => "id > ?",
            Order::Newest => "id < ?",
        };
        clauses.with(beyond, after.as_bytes().to_vec());
    }
    let sql = format!(
        "SELECT r.body, standing FROM calls {index} CROSS JOIN requests r ON r.call = n {} ORDER BY id{order} LIMIT ?",
        clauses.where_all()
    );
    clauses.values.push(Box::new(page(filter.limit) as i64));
    (sql, clauses.values)
}

/// The statement that answers a filter within one stretch. What it is to be given are the values, the stretch and the
/// number to begin beyond, the chain where it goes by that, and how many.
pub(super) fn in_stretch(by: By, filter: &CallFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut clauses = Clauses::of(filter);
    if let (By::Digest, Some(digest)) = (by, filter.argument_digest) {
        clauses.with("substr(argument_digest, 1, 4) = substr(?, 1, 4)", digest.as_bytes().to_vec());
    }
    let (beyond, order) = match filter.order {
        Order::Oldest => ("n > ?", ""),
        Order::Newest => ("n < ?", " DESC"),
    };
    clauses.plain("n >> 10 = ?");
    clauses.plain(beyond);
    let index = match by {
        By::Chain => {
            clauses.plain("chain = ?");
            "calls_chain"
        }
        By::Principal => "calls_principal",
        By::Digest => "calls_arguments",
    };
    let sql = format!(
        "SELECT r.body, standing, n FROM calls INDEXED BY {index} CROSS JOIN requests r ON r.call = n {} \
         ORDER BY n{order} LIMIT ?",
        clauses.where_all()
    );
    (sql, clauses.values)
}

/// Where a listing begins: the number of the call it comes after, or of the one that stands next to it.
pub(super) const OLDEST_FROM: &str = "SELECT n FROM calls WHERE id <= ?1 ORDER BY id DESC LIMIT 1";
pub(super) const NEWEST_FROM: &str = "SELECT n FROM calls WHERE id >= ?1 ORDER BY id LIMIT 1";

fn by_stretches(connection: &Connection, by: By, filter: &CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
    // All of it as of one moment, so that no call is passed over for a later one.
    let _moment = connection.unchecked_transaction().map_err(failed)?;
    let chains = match by {
        By::Chain => chains_of(connection, filter).map_err(failed)?,
        By::Principal | By::Digest => vec![None],
    };
    let (beyond, stretches) = stretches(connection, filter).map_err(failed)?;
    let (sql, values) = in_stretch(by, filter);
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let most = page(filter.limit);
    let mut calls = Vec::new();
    for stretch in stretches {
        let left = most - calls.len();
        if left == 0 {
            break;
        }
        let mut found: Vec<(i64, rows::Parts)> = Vec::new();
        for chain in &chains {
            let limit = left as i64;
            let mut given: Vec<&dyn ToSql> = values.iter().map(AsRef::as_ref).collect();
            given.extend([&stretch as &dyn ToSql, &beyond]);
            given.extend(chain.as_ref().map(|chain| chain as &dyn ToSql));
            given.push(&limit);
            let read = statement.query_map(&given[..], |row| Ok((row.get(2)?, rows::parts(row)?))).map_err(failed)?;
            found.extend(read.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?);
        }
        match filter.order {
            Order::Oldest => found.sort_unstable_by_key(|(number, _)| *number),
            Order::Newest => found.sort_unstable_by_key(|(number, _)| Reverse(*number)),
        }
        for (_, parts) in found.iter().take(left) {
            calls.push(rows::call(parts, None)?);
        }
    }
    Ok(calls)
}

/// The chains of a session, one for each principal who has it.
fn chains_of(connection: &Connection, filter: &CallFilter) -> rusqlite::Result<Vec<Option<i64>>> {
    let mut statement = connection.prepare_cached("SELECT id FROM chains WHERE session = ?1")?;
    statement.query_map([filter.session.as_deref()], |row| row.get(0))?.collect()
}

/// The number to begin beyond, and the stretches from there on.
fn stretches(connection: &Connection, filter: &CallFilter) -> rusqlite::Result<(i64, Box<dyn Iterator<Item = i64>>)> {
    let last: i64 =
        connection.prepare_cached("SELECT coalesce(max(n), 0) FROM calls")?.query_row([], |row| row.get(0))?;
    let from = |sql: &str| match filter.after {
        Some(after) => connection.prepare_cached(sql)?.query_row([after.as_bytes()], |row| row.get(0)).optional(),
        None => Ok(None),
    };
    Ok(match filter.order {
        Order::Oldest => {
            let beyond = from(OLDEST_FROM)?.unwrap_or(0);
            (beyond, Box::new(beyond >> STRETCH..=last >> STRETCH))
        }
        Order::Newest => {
            let beyond = from(NEWEST_FROM)?.unwrap_or(last + 1);
            (beyond, Box::new((0..=beyond >> STRETCH).rev()))
        }
    })
}
