//! I4: listen, look, wait never misses a ring, in any schedule that shuttle tries.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::bell::{Bell, Listener};

/// How many schedules each scheduler tries.
const SCHEDULES: usize = 20_000;
/// How many changes of priority the PCT scheduler makes in one.
const DEPTH: usize = 3;

/// What waiters look at, and the bell that rings after it changed.
#[derive(Default)]
struct Shared {
    done: AtomicUsize,
    bell: Bell<u8>,
}

/// Whom a waiter listens for.
#[derive(Clone, Copy)]
enum Ear {
    Key(u8),
    Any,
}

impl Shared {
    fn listen(&self, ear: Ear) -> Listener<u8> {
        match ear {
            Ear::Key(key) => self.bell.listen(key),
            Ear::Any => self.bell.listen_any(),
        }
    }

    /// Listens, looks, waits: as the gate does. A ring that is missed is a deadlock, which shuttle reports.
    fn wait(&self, ear: Ear, until: usize) {
        block_on(async {
            loop {
                let listener = self.listen(ear);
                if self.done.load(Ordering::SeqCst) >= until {
                    return;
                }
                listener.await;
            }
        });
    }

    /// Changes what is looked at, then rings: as a store does after its commit.
    fn commit(&self, ring: impl FnOnce(&Bell<u8>)) {
        self.done.fetch_add(1, Ordering::SeqCst);
        ring(&self.bell);
    }
}

fn spawn(shared: &Arc<Shared>, work: impl FnOnce(&Shared) + Send + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

/// Polls a listener once and drops it, as a caller that gives up does.
fn give_up(listener: Listener<u8>) {
    let mut listener = pin!(listener);
    let mut context = Context::from_waker(futures::task::noop_waker_ref());
    let _: Poll<()> = listener.as_mut().poll(&mut context);
}

/// Two commits, waiters for a key and for any, and one who gives up in between.
fn rings_by_key() {
    let shared = Arc::new(Shared::default());
    let others = [
        spawn(&shared, |shared| shared.wait(Ear::Key(1), 2)),
        spawn(&shared, |shared| shared.wait(Ear::Any, 2)),
        spawn(&shared, |shared| give_up(shared.listen(Ear::Key(1)))),
        spawn(&shared, |shared| shared.commit(|bell| bell.ring(1))),
    ];
    shared.commit(|bell| bell.ring(1));
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(shared.bell.listeners(), 0, "nobody is left listening");
}

/// Something that concerns everybody reaches listeners of every key, and of any.
fn rings_for_all() {
    let shared = Arc::new(Shared::default());
    let others = [
        spawn(&shared, |shared| shared.wait(Ear::Key(1), 1)),
        spawn(&shared, |shared| shared.wait(Ear::Key(2), 1)),
        spawn(&shared, |shared| shared.wait(Ear::Any, 1)),
        spawn(&shared, |shared| give_up(shared.listen(Ear::Any))),
    ];
    shared.commit(Bell::ring_all);
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(shared.bell.listeners(), 0, "nobody is left listening");
}

#[test]
fn no_random_schedule_misses_a_ring() {
    shuttle::check_random(rings_by_key, SCHEDULES);
    shuttle::check_random(rings_for_all, SCHEDULES);
    println!("2 x {SCHEDULES} random schedules");
}

#[test]
fn no_prioritised_schedule_misses_a_ring() {
    shuttle::check_pct(rings_by_key, SCHEDULES, DEPTH);
    shuttle::check_pct(rings_for_all, SCHEDULES, DEPTH);
    println!("2 x {SCHEDULES} schedules with {DEPTH} changes of priority");
}
