//! Every kind of store, fresh and empty, with a hand on its time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use countersign::Store;
use countersign::testing::{ManualClock, TestMemory, TestStore};
use countersign_store::SqliteStore;
use countersign_store::postgres::{PostgresOptions, PostgresStore};

use crate::{TestDatabase, TestPostgres};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory.
    Memory,
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Kind {
    /// A fresh store of this kind.
    ///
    /// # Errors
    ///
    /// When its file or database cannot be made.
    pub async fn fresh(self) -> Result<Box<dyn TestStore>> {
        Ok(match self {
            Kind::Memory => Box::new(TestMemory::new()),
            Kind::Sqlite => Box::new(SqliteFile::new().await?),
            Kind::Postgres => Box::new(PostgresDatabase::new().await?),
        })
    }
}

/// Opens a durable store for tests by its address, as another process would.
///
/// # Errors
///
/// When there is none, or it cannot be used.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url.starts_with("postgres") {
        let options = PostgresOptions { readers: 2, ..patient() };
        return Ok(Arc::new(PostgresStore::connect(url, options).await?));
    }
    Ok(countersign_store::connect(url).await?)
}

/// Other tests make and drop databases on the same server, and those are long transactions; and a busy machine is no
/// server that is away.
fn patient() -> PostgresOptions {
    PostgresOptions {
        allow_unsafe_durability: true,
        settle_within: Duration::from_secs(30),
        reconnect_within: Duration::from_secs(20),
        ..PostgresOptions::default()
    }
}

/// A SQLite store in a folder of its own.
struct SqliteFile {
    folder: tempfile::TempDir,
    clock: ManualClock,
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl SqliteFile {
    async fn new() -> Result<SqliteFile> {
        let file = SqliteFile { folder: tempfile::tempdir()?, clock: ManualClock::new(), store: Mutex::new(None) };
        file.open().await?;
        Ok(file)
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        let path = self.folder.path().join("countersign.db");
        let opened: Arc<dyn Store> = Arc::new(SqliteStore::open_with_clock(path, Arc::new(self.clock.clone())).await?);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

/// A database of its own on the shared server.
struct PostgresDatabase {
    database: TestDatabase,
    offset: Arc<AtomicI64>,
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl PostgresDatabase {
    async fn new() -> Result<PostgresDatabase> {
        let database = tokio::task::spawn_blocking(|| TestPostgres::shared()?.create_database()).await??;
        let database = PostgresDatabase { database, offset: Arc::default(), store: Mutex::new(None) };
        database.open().await?;
        Ok(database)
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        let clock_offset = Arc::clone(&self.offset);
        let options = PostgresOptions { readers: 4, clock_offset, ..patient() };
        let store = PostgresStore::connect(self.database.url(), options).await.context("a database for tests")?;
        let opened: Arc<dyn Store> = Arc::new(store);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

fn current(store: &Mutex<Option<Arc<dyn Store>>>) -> Arc<dyn Store> {
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(store.as_ref().expect("it is open from the beginning"))
}

#[async_trait]
impl TestStore for SqliteFile {
    fn store(&self) -> Arc<dyn Store> {
        current(&self.store)
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open().await.expect("a file that was open before opens again")
    }
}

#[async_trait]
impl TestStore for PostgresDatabase {
    fn store(&self) -> Arc<dyn Store> {
        current(&self.store)
    }

    async fn advance(&self, by: Duration) {
        self.offset.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.open().await.expect("a database that was open before opens again")
    }
}
