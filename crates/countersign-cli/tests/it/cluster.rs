//! Several servers on one PostgreSQL, killed at random along with it.

use std::path::Path;

use countersign_testkit::cluster;

/// I2, I3, B112 over HTTP: nothing acknowledged is lost, nothing runs unapproved or twice, and every hold ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_of_nodes_and_database_lose_nothing_and_repeat_nothing() {
    let seed = std::env::var("SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    let report = cluster::run(Path::new(env!("CARGO_BIN_EXE_countersign")), 20, seed).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.acknowledged > 20 && report.effects > 0, "too little happened: {report:?}");
}
