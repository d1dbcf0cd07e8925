//! PostgreSQL keeps the contract.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign::store::Store;
use countersign::testing::TestStore;
use countersign_store::PostgresStore;

use super::Bench;

struct TestNode {
    store: Mutex<Arc<PostgresStore>>,
    bench: Bench,
}

async fn make() -> TestNode {
    let bench = Bench::new();
    TestNode { store: Mutex::new(Arc::new(bench.node().await)), bench }
}

#[async_trait]
impl TestStore for TestNode {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&*self.store.lock().unwrap()) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.bench.pass(by);
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let another = Arc::new(self.bench.node().await);
        *self.store.lock().unwrap() = Arc::clone(&another);
        another
    }
}

countersign::contract_tests!(make);
