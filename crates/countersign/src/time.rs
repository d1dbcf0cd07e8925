//! Time as the core sees it: microseconds since 1970, passed in, never read by pure code.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// The moment `duration` later, or the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long until `later`; zero when that has passed.
    pub fn until(self, later: Time) -> Duration {
        Duration::from_micros(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// Tells a store what time it is.
///
/// PostgreSQL uses the database's clock instead, so that all nodes agree.
pub trait Clock: Send + Sync {
    /// Returns the present moment.
    fn now(&self) -> Time;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time(jiff::Timestamp::now().as_microsecond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time(5).after(Duration::MAX), Time(i64::MAX));
        assert_eq!(Time(10).until(Time(4)), Duration::ZERO);
        assert_eq!(Time(10).until(Time(14)), Duration::from_micros(4));
    }
}
