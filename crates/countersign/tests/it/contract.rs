//! The memory store keeps the contract.

use countersign::testing::TestMemory;

async fn make() -> TestMemory {
    TestMemory::new()
}

countersign::contract_tests!(make);
