//! A database that somebody else keeps to themselves.

use std::path::Path;

use rusqlite::{Connection, Result};

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
