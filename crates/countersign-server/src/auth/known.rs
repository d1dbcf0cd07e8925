//! What the store said about credentials a moment ago, and when that may still be believed.
//!
//! SECURITY: an answer is believed only while nothing can have changed it unheard. A change made in this process rings
//! before it is answered; one made elsewhere is an event, and the tail rings when it reads it. A server whose tail has not
//! read the log to its end of late does not hear, so it asks the store every time. And whatever was or was not heard,
//! nothing is believed for longer than [`limits::BELIEVED_FOR`].

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use countersign::bell::Listener;
use countersign::{CallId, Store};
use futures::FutureExt as _;

use crate::auth::changes;
use crate::limits;
use crate::tail::Tail;

/// Answers of the store, by what was asked.
pub(crate) struct Known<K, V> {
    store: Arc<dyn Store>,
    tail: Tail,
    answers: Mutex<Answers<K, V>>,
}

struct Answers<K, V> {
    /// Rings when somebody's access changes.
    changes: Listener<CallId>,
    /// How often it rang.
    rings: u64,
    by_key: HashMap<K, (V, Asked)>,
}

/// The moment before the store was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    rings: u64,
    at: Instant,
}

/// What is known.
pub(crate) enum Look<V> {
    /// This, and it holds.
    Known(V),
    /// Nothing that may be believed: ask the store, and say what it answered.
    Ask(Asked),
}

impl<K: Eq + Hash, V: Clone> Known<K, V> {
    /// Knows nothing yet.
    pub(crate) fn new(store: &Arc<dyn Store>, tail: &Tail) -> Known<K, V> {
        let answers = Answers { changes: changes::listen(&**store), rings: 0, by_key: HashMap::new() };
        Known { store: Arc::clone(store), tail: tail.clone(), answers: Mutex::new(answers) }
    }

    /// What is known of this.
    pub(crate) fn look(&self, key: &K) -> Look<V> {
        let at = Instant::now();
        // A poisoned lock means that remembering failed: then nothing is remembered.
        let Ok(mut answers) = self.answers.lock() else { return Look::Ask(Asked { rings: u64::MAX, at }) };
        answers.hear(&*self.store);
        match answers.by_key.get(key) {
            Some((value, asked)) if at.duration_since(asked.at) < limits::BELIEVED_FOR && self.tail.hears() => {
                Look::Known(value.clone())
            }
            Some(_) | None => Look::Ask(Asked { rings: answers.rings, at }),
        }
    }

    /// Remembers what the store answered, unless something changed since it was asked.
    pub(crate) fn keep(&self, key: K, value: V, asked: Asked) {
        let Ok(mut answers) = self.answers.lock() else { return };
        answers.hear(&*self.store);
        if asked.rings != answers.rings {
            return;
        }
        if answers.by_key.len() >= limits::REMEMBERED && !answers.by_key.contains_key(&key) {
            // Cheaper than to find out which ones are old: each costs one more reading.
            answers.by_key.clear();
        }
        answers.by_key.insert(key, (value, asked));
    }
}

impl<K, V> Answers<K, V> {
    /// Forgets everything if it rang.
    fn hear(&mut self, store: &dyn Store) {
        if (&mut self.changes).now_or_never().is_some() {
            // Listens again before anything is read again, so that no ring falls between the two.
            self.changes = changes::listen(store);
            self.rings += 1;
            self.by_key.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign::Gate;
    use countersign::memory::MemoryStore;

    use super::*;

    async fn known() -> (Arc<dyn Store>, Known<u32, &'static str>) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let gate = Gate::builder().store(Arc::clone(&store)).decided_elsewhere().build().unwrap();
        let tail = Tail::begin(gate, Arc::default()).await.unwrap();
        while !tail.hears() {
            tokio::task::yield_now().await;
        }
        let known = Known::new(&store, &tail);
        (store, known)
    }

    fn asked(known: &Known<u32, &'static str>, key: u32) -> Asked {
        match known.look(&key) {
            Look::Ask(asked) => asked,
            Look::Known(value) => panic!("{key} is known as {value}"),
        }
    }

    #[tokio::test]
    async fn an_answer_is_known_until_a_change_rings() {
        let (store, known) = known().await;
        known.keep(1, "ann", asked(&known, 1));
        assert!(matches!(known.look(&1), Look::Known("ann")));
        changes::ring(&*store);
        asked(&known, 1);
    }

    /// The store answered, then somebody revoked, then the answer came: it is of no use any more.
    #[tokio::test]
    async fn an_answer_from_before_a_change_is_not_kept() {
        let (store, known) = known().await;
        let before = asked(&known, 1);
        changes::ring(&*store);
        known.keep(1, "ann", before);
        asked(&known, 1);
    }

    #[tokio::test]
    async fn no_answer_is_believed_for_longer_than_its_time() {
        let (_store, known) = known().await;
        let old = Asked { at: Instant::now().checked_sub(limits::BELIEVED_FOR).unwrap(), ..asked(&known, 1) };
        known.keep(1, "ann", old);
        asked(&known, 1);
    }

    #[tokio::test]
    async fn no_more_answers_are_kept_than_may_be() {
        let (_store, known) = known().await;
        for key in 0..=u32::try_from(limits::REMEMBERED).unwrap() {
            known.keep(key, "ann", asked(&known, key));
            assert!(known.answers.lock().unwrap().by_key.len() <= limits::REMEMBERED);
        }
        let last = u32::try_from(limits::REMEMBERED).unwrap();
        assert!(matches!(known.look(&last), Look::Known("ann")));
    }
}
