//! The SQLite store.

mod chains;
mod contract;
mod file;
mod sharing;
mod stretches;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign::store::Store;
use countersign::testing::{ManualClock, TestStore};
use countersign_store::SqliteStore;
use rusqlite::Connection;

/// A SQLite store in a folder of its own.
pub(crate) struct TestSqlite {
    folder: tempfile::TempDir,
    clock: ManualClock,
    store: Mutex<Option<Arc<SqliteStore>>>,
}

impl TestSqlite {
    pub(crate) async fn new() -> TestSqlite {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let path = folder.path().join("countersign.db");
        let store = SqliteStore::open_with_clock(&path, Arc::new(clock.clone())).await.unwrap();
        TestSqlite { folder, clock, store: Mutex::new(Some(Arc::new(store))) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("countersign.db")
    }

    pub(crate) fn sqlite(&self) -> Arc<SqliteStore> {
        Arc::clone(self.store.lock().unwrap().as_ref().unwrap())
    }

    /// Lets go of the store: it is closed once nobody else holds it.
    pub(crate) fn close(&self) {
        *self.store.lock().unwrap() = None;
    }

    /// The file as any program sees it.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// A second handle on the same file, as another process has it.
    pub(crate) async fn another(&self) -> SqliteStore {
        SqliteStore::open_with_clock(self.path(), Arc::new(self.clock.clone())).await.unwrap()
    }
}

#[async_trait]
impl TestStore for TestSqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.sqlite()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.close();
        let store = Arc::new(self.another().await);
        *self.store.lock().unwrap() = Some(Arc::clone(&store));
        store
    }
}
