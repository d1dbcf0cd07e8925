//! I4: one winner per hold, in the durable stores.

use countersign::testing::races::{race, report, seed};
use countersign_testkit::stores::Kind;

const RACES: usize = 200;

async fn races_in(kind: Kind) {
    let endings = race(kind.fresh().await.unwrap().as_ref(), seed(), RACES).await;
    println!("{}", report(&format!("{kind:?}"), seed(), RACES, &endings));
    assert!(endings.len() >= 4, "each kind of ending must win now and then: {endings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_winner_per_hold_in_sqlite() {
    races_in(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_winner_per_hold_in_postgres() {
    races_in(Kind::Postgres).await;
}
