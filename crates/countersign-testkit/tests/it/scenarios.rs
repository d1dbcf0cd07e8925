//! Every scenario file on every store.

use std::path::Path;

use countersign_testkit::scenario::{Scenario, files};
use countersign_testkit::stores::Kind;

/// B137: one scenario file gives the same events on every store.
async fn replay_all(kind: Kind) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = files(&folder).unwrap();
    assert!(files.len() >= 25, "only {} scenarios", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let store = kind.fresh().await.unwrap();
        let replayed = match Scenario::read(path) {
            Ok(scenario) => scenario.replay(store.as_ref()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = replayed {
            wrong.push(format!("{name} on {kind:?}: {error:#}"));
        }
    }
    println!("{} scenarios on {kind:?}", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_in_memory() {
    replay_all(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_in_sqlite() {
    replay_all(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_in_postgres() {
    replay_all(Kind::Postgres).await;
}
