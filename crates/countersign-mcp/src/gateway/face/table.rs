//! The conversations that are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign::Path;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::caller::{Client, Ears};
use crate::gateway::conversation::Conversation;
use crate::gateway::{Core, Ended, Shared, Upstream};
use crate::limits;

/// What a conversation is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The name of a session.
    Session(Arc<str>),
    /// Whose requests without a session these are.
    Principal(Arc<str>),
}

/// A conversation that is open.
pub(super) struct Seat {
    core: Arc<Core>,
    ears: Arc<Ears>,
    used: Mutex<Instant>,
    end: CancellationToken,
}

impl Seat {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn ears(&self) -> &Ears {
        &self.ears
    }

    /// Ends the conversation.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    /// Resolves when nobody used it for long.
    async fn idle(&self) {
        loop {
            tokio::time::sleep(limits::IDLE / 10).await;
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if self.ears().is_busy() {
                *used = Instant::now();
            } else if used.elapsed() >= limits::IDLE {
                return;
            }
        }
    }
}

/// All conversations of one face.
#[derive(Default)]
pub(super) struct Table {
    seats: Mutex<HashMap<Key, Arc<Seat>>>,
    /// Whose conversations are about to begin. Locked after the seats, if both are.
    kept: Mutex<Vec<Arc<str>>>,
    tasks: TaskTracker,
}

/// A place that is kept for a conversation until it has begun, so that no two take the same.
pub(super) struct Place {
    table: Arc<Table>,
    principal: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut kept = self.table.kept();
        if let Some(at) = kept.iter().position(|other| *other == self.principal) {
            kept.swap_remove(at);
        }
    }
}

impl Table {
    fn seats(&self) -> MutexGuard<'_, HashMap<Key, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A principal's conversation. Absent and foreign are the same.
    pub(super) fn get(&self, key: &Key, principal: &Arc<str>) -> Option<Arc<Seat>> {
        let seat = self.seats().get(key).cloned()?;
        if seat.core.path.principal != *principal || seat.end.is_cancelled() {
            return None;
        }
        *seat.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Some(seat)
    }

    /// Keeps a place for another conversation of a principal; none where there is none. Nobody takes the place of others:
    /// who has many loses the one that was idle longest, and those that are still ending count, too.
    pub(super) fn place(self: &Arc<Self>, principal: &Arc<str>) -> Option<Place> {
        let seats = self.seats();
        let mut kept = self.kept();
        if self.tasks.len() + kept.len() >= limits::CONVERSATIONS || self.tasks.is_closed() {
            return None;
        }
        let own: Vec<&Arc<Seat>> = seats.values().filter(|seat| seat.core.path.principal == *principal).collect();
        let count = own.len() + kept.iter().filter(|other| *other == principal).count();
        if count >= limits::CONVERSATIONS_OF_ONE {
            let idle = own.iter().filter(|seat| !seat.end.is_cancelled() && !seat.ears().is_busy());
            idle.min_by_key(|seat| *seat.used.lock().unwrap_or_else(PoisonError::into_inner))?.end();
        }
        if count >= 2 * limits::CONVERSATIONS_OF_ONE {
            return None;
        }
        kept.push(Arc::clone(principal));
        Some(Place { table: Arc::clone(self), principal: Arc::clone(principal) })
    }

    /// Begins a conversation in its place; of two at once for the same key the first stays.
    pub(super) fn begin(
        self: &Arc<Self>,
        place: Place,
        key: Key,
        shared: Arc<Shared>,
        upstream: Upstream,
    ) -> Arc<Seat> {
        let path = Path { principal: Arc::clone(&place.principal), ..Path::default() };
        let mut seats = self.seats();
        if let Some(first) = seats.get(&key).filter(|seat| !seat.end.is_cancelled()) {
            return Arc::clone(first);
        }
        let ears = Arc::new(Ears::default());
        let conversation = Conversation::begin(shared, path, Client::Http(Arc::clone(&ears)), upstream);
        let seat = Arc::new(Seat {
            ears,
            core: Arc::clone(&conversation.core),
            used: Mutex::new(Instant::now()),
            end: CancellationToken::new(),
        });
        seats.insert(key.clone(), Arc::clone(&seat));
        self.tasks.spawn(Arc::clone(self).keep(key, Arc::clone(&seat), conversation));
        seat
    }

    /// Stays with a conversation to its end.
    async fn keep(self: Arc<Self>, key: Key, seat: Arc<Seat>, mut conversation: Conversation) {
        let left = tokio::select! {
            left = conversation.server_left() => Some(left),
            () = seat.end.cancelled() => None,
            () = seat.idle() => None,
        };
        seat.end();
        seat.ears().hang_up();
        match conversation.end(left).await {
            Ok(Ended::ClientLeft) => {}
            Ok(Ended::ServerLeft(Some(status))) => seat.core.note(&format!("the server has ended ({status})")),
            Ok(Ended::ServerLeft(None)) => seat.core.note("the server has ended the session"),
            Ok(Ended::ServerStopped(why)) => seat.core.note(&format!("the server was stopped: {why}")),
            Err(error) => seat.core.note(&format!("the server could not be ended: {error}")),
        }
        let mut seats = self.seats();
        if seats.get(&key).is_some_and(|other| Arc::ptr_eq(other, &seat)) {
            seats.remove(&key);
        }
    }

    /// Ends all of them.
    pub(super) async fn close(&self) {
        self.tasks.close();
        for seat in self.seats().values() {
            seat.end();
        }
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_kept_count_before_anything_has_begun_in_them() {
        let (table, one, other) = (Arc::new(Table::default()), "one".into(), "other".into());
        let kept: Vec<Place> = std::iter::from_fn(|| table.place(&one)).take(1_000).collect();
        assert_eq!(kept.len(), limits::CONVERSATIONS_OF_ONE);
        assert!(table.place(&other).is_some());
        drop(kept);
        assert!(table.place(&one).is_some());
    }

    #[test]
    fn all_principals_together_have_so_many_places() {
        let table = Arc::new(Table::default());
        let principals = (0..1_000).map(|number| Arc::from(number.to_string()));
        let kept: Vec<Place> = principals.filter_map(|principal| table.place(&principal)).collect();
        assert_eq!(kept.len(), limits::CONVERSATIONS);
    }
}
