//! A database that somebody else keeps to themselves, and a look at how a schema is made.

use std::path::Path;
use std::sync::OnceLock;

use rusqlite::{Connection, Result};
use sqlx::{Connection as _, PgConnection, Row as _};

/// Keeps an SQLite file locked, against readers and writers alike, until dropped.
#[derive(Debug)]
pub struct Busy {
    _connection: Connection,
}

impl Busy {
    /// Takes the lock. A transaction that is never committed changes nothing.
    pub fn keep(path: &Path) -> Result<Busy> {
        let connection = Connection::open(path)?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        Ok(Busy { _connection: connection })
    }
}

static AFTER_STATEMENT: OnceLock<fn()> = OnceLock::new();

/// From here on, calls this after each statement by which this process changes a schema. The first to ask is called.
pub fn after_each_migration_statement(call: fn()) {
    let _ = AFTER_STATEMENT.set(call);
}

pub(crate) fn statement_done() {
    if let Some(call) = AFTER_STATEMENT.get() {
        call();
    }
}

const COLUMNS: &str = "
    SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
    FROM information_schema.columns WHERE table_schema = current_schema()
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()
    UNION ALL SELECT 'version ' || version FROM countersign_schema
    ORDER BY 1";

/// What a store's schema consists of, sorted.
///
/// # Errors
///
/// When the store cannot be read.
pub async fn schema_parts(url: &str) -> std::result::Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        let connection = Connection::open(path)?;
        let mut statement = connection.prepare(
            "SELECT coalesce(sql, name) FROM sqlite_schema
             UNION ALL SELECT 'version ' || user_version FROM pragma_user_version ORDER BY 1",
        )?;
        let parts = statement.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
        return Ok(parts);
    }
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::query(COLUMNS).fetch_all(&mut connection).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?)
}
