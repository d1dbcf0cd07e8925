//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::time::{Clock, Time};

/// A clock set by hand. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock at some fixed moment of the year 2026.
    #[expect(clippy::new_without_default, reason = "a default clock would look like the machine's")]
    pub fn new() -> ManualClock {
        ManualClock::at(Time(1_780_000_000_000_000))
    }

    /// A clock at this moment.
    pub fn at(time: Time) -> ManualClock {
        ManualClock(Arc::new(AtomicI64::new(time.0)))
    }

    /// Sets the moment, forward or back.
    pub fn set(&self, time: Time) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}
