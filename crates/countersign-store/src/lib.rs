//! Durable stores for Countersign: SQLite here, PostgreSQL for many nodes.
//!
//! The only crate that knows SQL. Everything else holds an `Arc<dyn Store>` and picks one by its address:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let store = countersign_store::connect("memory:").await?;
//! assert!(!store.is_shared());
//! # Ok::<(), countersign_store::ConnectError>(()) }).unwrap();
//! ```

mod known;
pub mod postgres;
mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;

use std::path::PathBuf;
use std::sync::Arc;

use countersign::memory::MemoryStore;
use countersign::store::Store;

pub use postgres::{PostgresOptions, PostgresStore};
pub use sqlite::SqliteStore;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not an address of a store.
    #[error("`{0}` is not a store; write `memory:`, `sqlite:PATH` or `postgres://…`")]
    Address(String),
    /// The file cannot be reached.
    #[error("cannot open `{}`: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// The file is open to others, or not ours, or not where it seems to be.
    #[error("refusing to use `{}`: {why}", .path.display())]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The file is damaged or is no database. It is left as it is.
    #[error(
        "`{}` is damaged or not a database ({why}); it was left as it is. Move it away and restore a backup, or name another file",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How SQLite puts it.
        why: String,
    },
    /// A database of another program.
    #[error("`{}` is a database, but not one of ours; name another file", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of Countersign wrote it.
    #[error("`{}` has schema {found}, and this version knows {known}; use the newer version of countersign", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// PostgreSQL cannot be reached, or is not one to rely on.
    #[error(transparent)]
    Postgres(#[from] postgres::ConnectError),
}

/// The schema of every store at such an address that is open: the newest that this version knows. None where there is
/// no schema.
pub fn schema(url: &str) -> Option<usize> {
    match url.split_once(':') {
        Some(("sqlite", _)) => Some(sqlite::SCHEMA),
        Some(("postgres" | "postgresql", _)) => Some(postgres::SCHEMA),
        _ => None,
    }
}

/// Opens the store at an address: `memory:`, `sqlite:PATH` or `postgres://…`.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    if url == "memory:" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    if let Some(path) = url.strip_prefix("sqlite:") {
        return Ok(Arc::new(SqliteStore::open(path).await?));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await?));
    }
    Err(ConnectError::Address(url.to_owned()))
}
