//! I4: one winner per hold, in memory.

use countersign::testing::TestMemory;
use countersign::testing::races::{race, report, seed};

const RACES: usize = 2_000;

/// B80, B86: 2 to 64 deciders, expiry, cancel, revoke, halt and claim against one hold: one winner.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_winner_per_hold() {
    let endings = race(&TestMemory::new(), seed(), RACES).await;
    println!("{}", report("memory", seed(), RACES, &endings));
    assert!(endings.len() >= 4, "each kind of ending must win now and then: {endings:?}");
}
