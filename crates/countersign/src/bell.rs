//! Waiting without losing a ring: listen first, then look, then wait.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::sync::{Arc, Mutex};

/// Rings for listeners of one key, or of any.
///
/// A [`Listener`] counts from the moment it is made: a ring between making it and awaiting it is not lost.
pub struct Bell<K> {
    inner: Arc<Mutex<Inner<K>>>,
}

struct Inner<K> {
    next: u64,
    by_key: HashMap<K, Vec<(u64, Waiting)>>,
    any: Vec<(u64, Waiting)>,
}

/// What a listener and the bell share: whether it rang, and whom to wake.
type Waiting = Arc<Mutex<Slot>>;

#[derive(Default)]
struct Slot {
    rung: bool,
    waker: Option<Waker>,
}

impl<K: Eq + Hash + Copy> Default for Bell<K> {
    fn default() -> Self {
        Bell { inner: Arc::new(Mutex::new(Inner { next: 0, by_key: HashMap::new(), any: Vec::new() })) }
    }
}

impl<K: Eq + Hash + Copy> Bell<K> {
    /// Listens for one key.
    pub fn listen(&self, key: K) -> Listener<K> {
        self.enlist(Some(key))
    }

    /// Listens for every ring.
    pub fn listen_any(&self) -> Listener<K> {
        self.enlist(None)
    }

    /// Rings for a key, and for those who listen for any.
    pub fn ring(&self, key: K) {
        let woken = match self.inner.lock() {
            Ok(mut inner) => {
                let mut woken = inner.by_key.remove(&key).unwrap_or_default();
                woken.append(&mut inner.any);
                woken
            }
            Err(_) => return,
        };
        wake(woken);
    }

    /// Rings for those who listen for any: something happened that concerns no key.
    pub fn ring_any(&self) {
        let woken = match self.inner.lock() {
            Ok(mut inner) => std::mem::take(&mut inner.any),
            Err(_) => return,
        };
        wake(woken);
    }

    /// Rings for everybody: something happened that may concern any key.
    pub fn ring_all(&self) {
        let woken = match self.inner.lock() {
            Ok(mut inner) => {
                let mut woken: Vec<_> = inner.by_key.drain().flat_map(|(_, waiting)| waiting).collect();
                woken.append(&mut inner.any);
                woken
            }
            Err(_) => return,
        };
        wake(woken);
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        match self.inner.lock() {
            Ok(inner) => inner.any.len() + inner.by_key.values().map(Vec::len).sum::<usize>(),
            Err(_) => 0,
        }
    }

    /// Whether anybody listens.
    pub fn has_listeners(&self) -> bool {
        match self.inner.lock() {
            Ok(inner) => !inner.any.is_empty() || !inner.by_key.is_empty(),
            Err(_) => false,
        }
    }

    fn enlist(&self, key: Option<K>) -> Listener<K> {
        let waiting = Waiting::default();
        let mut ticket = 0;
        if let Ok(mut inner) = self.inner.lock() {
            inner.next += 1;
            ticket = inner.next;
            let entry = (ticket, Arc::clone(&waiting));
            match key {
                Some(key) => inner.by_key.entry(key).or_default().push(entry),
                None => inner.any.push(entry),
            }
        }
        Listener { bell: Arc::clone(&self.inner), key, ticket, waiting }
    }
}

fn wake(woken: Vec<(u64, Waiting)>) {
    // The bell's own lock is free by now: a waker may do anything.
    for (_, waiting) in woken {
        let waker = match waiting.lock() {
            Ok(mut slot) => {
                slot.rung = true;
                slot.waker.take()
            }
            Err(_) => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that ends with the next ring.
#[must_use = "a listener that is dropped hears nothing"]
pub struct Listener<K: Eq + Hash + Copy> {
    bell: Arc<Mutex<Inner<K>>>,
    key: Option<K>,
    ticket: u64,
    waiting: Waiting,
}

impl<K: Eq + Hash + Copy> Future for Listener<K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.waiting.lock() {
            Ok(slot) if slot.rung => Poll::Ready(()),
            Ok(mut slot) => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
            // A poisoned slot wakes its waiter: looking once too often is harmless, sleeping for ever is not.
            Err(_) => Poll::Ready(()),
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Listener<K> {
    fn drop(&mut self) {
        let Ok(mut inner) = self.bell.lock() else { return };
        match self.key {
            Some(key) => {
                if let Some(waiting) = inner.by_key.get_mut(&key) {
                    waiting.retain(|(ticket, _)| *ticket != self.ticket);
                    if waiting.is_empty() {
                        inner.by_key.remove(&key);
                    }
                }
            }
            None => inner.any.retain(|(ticket, _)| *ticket != self.ticket),
        }
    }
}
