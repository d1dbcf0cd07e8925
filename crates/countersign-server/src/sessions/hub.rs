//! What models are saying right now, for whoever watches on this server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use countersign_agent::Place;
use tokio::sync::broadcast;

use super::key::Key;
use crate::limits;

/// The hubs of sessions that are driven or watched here. Nothing is kept of one that is neither.
#[derive(Default)]
pub(crate) struct Hubs(Mutex<HashMap<Key, Weak<Hub>>>);

impl Hubs {
    /// The hub of a session.
    pub(crate) fn of(&self, key: &Key) -> Arc<Hub> {
        let mut hubs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = hubs.get(key).and_then(Weak::upgrade) {
            return hub;
        }
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = Arc::new(Hub { unfinished: Mutex::default(), news: broadcast::channel(limits::TEXT_BEHIND).0 });
        hubs.insert(key.clone(), Arc::downgrade(&hub));
        hub
    }
}

/// Hands on what happens in one session before it is written down.
pub(crate) struct Hub {
    unfinished: Mutex<HashMap<Arc<str>, Unfinished>>,
    news: broadcast::Sender<News>,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A model said something more.
    Text(Piece),
    /// Something was written down, or how the session stands has changed.
    Moved,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) place: Arc<Place>,
    pub(crate) entry: u32,
    /// Whether the answer begins with it.
    pub(crate) start: bool,
    pub(crate) text: Arc<str>,
}

/// An answer so far.
struct Unfinished {
    place: Arc<Place>,
    entry: u32,
    text: String,
}

impl Hub {
    /// Listens from here on; what is being said comes along.
    pub(crate) fn listen(&self) -> (broadcast::Receiver<News>, Vec<Piece>) {
        let unfinished = self.unfinished();
        (self.news.subscribe(), unfinished.values().map(Unfinished::whole).collect())
    }

    /// What is being said.
    pub(crate) fn so_far(&self) -> Vec<Piece> {
        self.unfinished().values().map(Unfinished::whole).collect()
    }

    /// A model said something more.
    pub(crate) fn say(&self, place: &Arc<Place>, entry: u32, text: &Arc<str>) {
        let mut unfinished = self.unfinished();
        let fresh = || Unfinished { place: Arc::clone(place), entry, text: String::new() };
        let so_far = unfinished.entry(Arc::clone(&place.thread)).or_insert_with(fresh);
        if so_far.entry != entry {
            *so_far = fresh();
        }
        let start = so_far.text.is_empty();
        if so_far.text.len() + text.len() <= limits::TEXT_KEPT {
            so_far.text.push_str(text);
        }
        let piece = Piece { place: Arc::clone(place), entry, start, text: Arc::clone(text) };
        // Nobody watches: nothing is lost.
        let _ = self.news.send(News::Text(piece));
    }

    /// A thread's answer is complete.
    pub(crate) fn finish(&self, thread: &str) {
        self.unfinished().remove(thread);
    }

    /// A driver begins or ends: what was being said is said no more.
    pub(crate) fn clear(&self) {
        self.unfinished().clear();
        self.moved();
    }

    /// Something was written down.
    pub(crate) fn moved(&self) {
        let _ = self.news.send(News::Moved);
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<Arc<str>, Unfinished>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished {
    fn whole(&self) -> Piece {
        Piece { place: Arc::clone(&self.place), entry: self.entry, start: true, text: self.text.as_str().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_gets_the_answer_so_far() {
        let hubs = Hubs::default();
        let key = Key::new(&"bot".into(), "s");
        let hub = hubs.of(&key);
        let place = Arc::new(Place { thread: "main".into(), agents: Arc::from(["banker".into()]) });
        hub.say(&place, 1, &"One ".into());
        hub.say(&place, 1, &"by one".into());
        let (_, so_far) = hubs.of(&key).listen();
        let text: Vec<&str> = so_far.iter().map(|piece| &*piece.text).collect();
        assert_eq!(text, ["One by one"]);
        hub.say(&place, 3, &"Next".into());
        assert_eq!(hub.so_far().first().map(|piece| (piece.entry, &*piece.text)), Some((3, "Next")));
        hub.finish("main");
        assert!(hub.so_far().is_empty());
    }
}
