//! Calls that wait in a gateway while something is wrong with its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign::memory::MemoryStore;
use countersign::testing::{Fault, FaultStore};
use countersign::{Gate, Policy};

use crate::hostile_peer::{Client, Hostile};

/// A hold whose time is over cannot be closed on a full disk: that is tried now and then, not without a pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_nothing_is_asked_now_and_then() {
    let server = Hostile::start().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = Arc::clone(&tries);
    let store = FaultStore::new(Arc::new(MemoryStore::new()), move |_, site| match site {
        "tick" => {
            tried.fetch_add(1, Ordering::SeqCst);
            Fault::Fail
        }
        _ => Fault::None,
    });
    let policy = Policy::from_yaml("{ preset: ask-all, expires_after: 100ms }").unwrap();
    let gate = Gate::builder().store(Arc::new(store)).policy(policy).decided_elsewhere().without_sweeper();
    let wait = Duration::from_secs(2);
    let mut client = Client::through(gate.build().unwrap(), &server, |gateway| gateway.wait(wait)).await;
    let (error, text) = client.call(1, "good").await;
    assert!(error && text.starts_with("Not run yet"), "{text}");
    let most = wait.as_millis() / countersign_mcp::limits::TICK_AGAIN.as_millis() + 1;
    let tries = tries.load(Ordering::SeqCst);
    assert!(tries > 0 && tries as u128 <= most, "{tries} tries");
    assert_eq!(server.called(), [""; 0]);
}
