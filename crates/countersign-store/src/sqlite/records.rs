//! Records: namespaced, versioned bytes with compare-and-set and expiry.

use std::time::Duration;

use countersign::store::{Expect, Failure, Record, StoreError};
use countersign::time::Time;
use countersign::transition::Rejection;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::rows;
use super::state::Batch;

/// Expired records that one write clears away.
const SWEPT_PER_WRITE: i64 = 8;

const COLUMNS: &str = "key, value, version, expires_at";

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        key: row.get(0)?,
        value: row.get(1)?,
        version: row.get::<_, i64>(2)?.unsigned_abs(),
        expires_at: row.get::<_, Option<i64>>(3)?.map(Time),
    })
}

fn is_live(record: &Record, now: Time) -> bool {
    record.expires_at.is_none_or(|at| now < at)
}

pub(super) fn get(connection: &Connection, namespace: &str, key: &str, now: Time) -> rusqlite::Result<Option<Record>> {
    let sql = format!("SELECT {COLUMNS} FROM records WHERE namespace = ?1 AND key = ?2");
    let found = connection.prepare_cached(&sql)?.query_row([namespace, key], record).optional()?;
    Ok(found.filter(|record| is_live(record, now)))
}

pub(super) fn list(
    connection: &Connection,
    (namespace, prefix): (&str, &str),
    after: Option<&str>,
    limit: usize,
    now: Time,
) -> rusqlite::Result<Vec<Record>> {
    let (comparison, from) = match after {
        Some(after) if after >= prefix => (">", after),
        _ => (">=", prefix),
    };
    let sql = format!("SELECT {COLUMNS} FROM records WHERE namespace = ?1 AND key {comparison} ?2 ORDER BY key");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = Vec::new();
    for row in statement.query_map([namespace, from], record)? {
        let record = row?;
        // Text sorts by its bytes here as in Rust, so the first key without the prefix ends the list.
        if found.len() >= limit || !record.key.starts_with(prefix) {
            break;
        }
        if is_live(&record, now) {
            found.push(record);
        }
    }
    Ok(found)
}

pub(super) fn put(
    batch: &mut Batch<'_>,
    namespace: &str,
    key: &str,
    value: &[u8],
    expect: Expect,
    life: Option<Duration>,
) -> Result<u64, Failure> {
    const PUT: &str = "INSERT INTO records (namespace, key, value, version, expires_at) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (namespace, key) DO UPDATE \
         SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at";
    let version = expected(batch, namespace, key, expect)? + 1;
    let expires_at = life.map(|life| batch.now.after(life).0);
    let values = params![namespace, key, value, rows::signed(version)?, expires_at];
    execute(batch, PUT, values)?;
    sweep(batch)?;
    Ok(version)
}

pub(super) fn delete(batch: &mut Batch<'_>, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
    expected(batch, namespace, key, expect)?;
    execute(batch, "DELETE FROM records WHERE namespace = ?1 AND key = ?2", [namespace, key])?;
    sweep(batch)?;
    Ok(())
}

/// The version the record has now, if it is as the writer expects.
fn expected(batch: &mut Batch<'_>, namespace: &str, key: &str, expect: Expect) -> Result<u64, Failure> {
    let found = get(batch.connection, namespace, key, batch.now).map_err(|error| batch.sql(error))?;
    let version = found.as_ref().map_or(0, |record| record.version);
    let fits = match expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::Version(expected) => found.is_some() && expected == version,
    };
    if fits { Ok(version) } else { Err(Rejection::Conflict.into()) }
}

/// Clears a few expired records away, so that they never pile up.
fn sweep(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    const SWEEP: &str = "DELETE FROM records WHERE rowid IN \
         (SELECT rowid FROM records WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    let now = batch.now.0;
    execute(batch, SWEEP, [now, SWEPT_PER_WRITE])
}

fn execute(batch: &mut Batch<'_>, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
    let written = batch.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
    written.map(|_| ()).map_err(|error| batch.sql(error))
}
