//! SQLite keeps the contract.

use super::TestSqlite;

async fn make() -> TestSqlite {
    TestSqlite::new().await
}

countersign::contract_tests!(make);
