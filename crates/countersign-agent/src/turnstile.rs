//! One run at a time in each session of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::transcript::SessionKey;

/// Lets one run at a time into each session of this process; what is said meanwhile waits its turn.
///
/// Another process is kept out by the transcript itself: [`RunError::Busy`](crate::RunError::Busy).
#[derive(Clone, Default)]
pub(crate) struct Turnstile(Arc<Mutex<HashMap<SessionKey, Weak<tokio::sync::Mutex<()>>>>>);

/// The right to drive a session. Nothing is remembered of it once the last one is gone.
pub(crate) struct Pass {
    turnstile: Turnstile,
    key: SessionKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turnstile {
    pub(crate) async fn enter(&self, key: &SessionKey) -> Pass {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let lock = locks.get(key).and_then(Weak::upgrade).unwrap_or_default();
            locks.insert(key.clone(), Arc::downgrade(&lock));
            lock
        };
        let guard = Some(lock.lock_owned().await);
        Pass { turnstile: self.clone(), key: key.clone(), guard }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut locks = self.turnstile.0.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.get(&self.key).is_some_and(|lock| lock.strong_count() == 0) {
            locks.remove(&self.key);
        }
    }
}
