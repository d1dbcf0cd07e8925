//! Brings a file to the newest schema: numbered steps, each in one transaction with its number.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::file::file;
use crate::ConnectError;

/// Marks a file as ours.
const APPLICATION: i64 = 0x0043_5331;

const STEPS: &[&str] = &[include_str!("schema/0001_first.sql"), include_str!("schema/0002_stretches.sql")];

/// The newest schema.
pub(crate) const SCHEMA: usize = STEPS.len();

/// How long another process may keep us waiting for the file.
pub(super) const BUSY: Duration = Duration::from_secs(10);

/// Opens the connection that writes, with the schema as it should be.
pub(super) fn open_writer(path: &Path) -> Result<Connection, ConnectError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| file(path, error))?;
    let broken = |error| broken(path, error);
    connection.busy_timeout(BUSY).map_err(broken)?;
    // One transaction, so that all three facts are of one moment: another process may be making the schema right now.
    check_ours(path, &*connection.unchecked_transaction().map_err(broken)?)?;
    switch_to_wal(path, &connection)?;
    settle(&connection).map_err(broken)?;
    migrate(path, &mut connection)?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    open_settled(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Opens a connection beside the writer's that may touch the file, but writes no row.
pub(super) fn open_beside(path: &Path) -> rusqlite::Result<Connection> {
    open_settled(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

fn open_settled(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    settle(&connection)?;
    Ok(connection)
}

/// What every connection needs. The schema is not trusted. SQLite itself syncs only what keeps the file whole, because
/// `sync.rs` brings each commit to disk before anybody hears of it. What refers to a row was written with it or after it,
/// by us, so that SQLite need not look that up for each event.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    // Plans depend on the query alone. Otherwise a new value makes SQLite compile a query anew, each time.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL;
         PRAGMA foreign_keys = OFF;
         PRAGMA trusted_schema = OFF;
         PRAGMA mmap_size = 0;
         PRAGMA wal_autocheckpoint = 16384;
         PRAGMA cache_size = -8192;
         PRAGMA temp_store = MEMORY;",
    )
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

/// A file of another program, or of a newer version of ours, is left alone.
fn check_ours(path: &Path, connection: &Connection) -> Result<(), ConnectError> {
    let broken = |error| broken(path, error);
    let application = number(connection, "application_id").map_err(broken)?;
    let found = number(connection, "user_version").map_err(broken)?;
    let known = STEPS.len() as i64;
    if application == APPLICATION {
        return if found > known { Err(ConnectError::Newer { path: path.to_owned(), found, known }) } else { Ok(()) };
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(broken)?;
    if application != 0 || found != 0 || tables != 0 {
        return Err(ConnectError::Foreign { path: path.to_owned() });
    }
    Ok(())
}

/// SQLite does not wait for other openers here, so we do.
fn switch_to_wal(path: &Path, connection: &Connection) -> Result<(), ConnectError> {
    let until = Instant::now() + BUSY;
    loop {
        let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(file(path, format!("its journal stays `{mode}` and cannot be `wal`"))),
            Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(broken(path, error)),
        }
    }
}

/// Runs the steps that are missing. Two processes may do this at once: the second finds the work done.
fn migrate(path: &Path, connection: &mut Connection) -> Result<(), ConnectError> {
    let broken = |error| broken(path, error);
    if number(connection, "user_version").map_err(broken)? == STEPS.len() as i64 {
        return Ok(());
    }
    for (at, step) in STEPS.iter().enumerate() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
        check_ours(path, &transaction)?;
        if number(&transaction, "user_version").map_err(broken)? > at as i64 {
            continue;
        }
        run(&transaction, step).map_err(broken)?;
        transaction.pragma_update(None, "application_id", APPLICATION).map_err(broken)?;
        transaction.pragma_update(None, "user_version", at as i64 + 1).map_err(broken)?;
        transaction.commit().map_err(broken)?;
    }
    Ok(())
}

/// Runs a step statement by statement, so that tests can stand between any two of them.
fn run(connection: &Connection, step: &str) -> rusqlite::Result<()> {
    let mut batch = Batch::new(connection, step);
    while let Some(mut statement) = batch.next()? {
        statement.execute([])?;
        #[cfg(feature = "testing")]
        crate::testing::statement_done();
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn broken(path: &Path, error: rusqlite::Error) -> ConnectError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            ConnectError::Damaged { path: path.to_owned(), why: error.to_string() }
        }
        _ => file(path, error),
    }
}
