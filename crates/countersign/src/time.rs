//! Time as the core sees it: microseconds since 1970, passed in, never read by pure code.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

    /// Tells the clock of a moment that is surely over: what a store's record ends with.
    fn has_been(&self, _moment: Time) {}
}

/// The machine's clock. Setting it back does not set it back here: see [`Steady`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

static MACHINE: Steady = Steady::new();

impl Clock for SystemClock {
    fn now(&self) -> Time {
        MACHINE.read(Time(jiff::Timestamp::now().as_microsecond()), Instant::now())
    }

    fn has_been(&self, moment: Time) {
        MACHINE.has_been(moment, Instant::now());
    }
}

/// How far a clock may be set back before its readings are no longer believed.
const MOST_BACK: Duration = Duration::from_secs(2);

/// Readings of a clock that somebody may set back.
///
/// SECURITY: a step back would give life again to holds, approvals and grants whose time was over. So where a reading
/// lies more than two seconds behind what has passed since the last one, time goes on from there instead, as fast as it
/// does in truth: nothing comes back, and no deadline moves.
#[derive(Debug, Default)]
pub struct Steady(Mutex<Option<(Time, Instant)>>);

impl Steady {
    /// Knows of no moment yet.
    pub const fn new() -> Steady {
        Steady(Mutex::new(None))
    }

    /// What time it is, by what the clock says `at` this instant.
    pub fn read(&self, reading: Time, at: Instant) -> Time {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = last.map(|(time, then)| time.after(at.saturating_duration_since(then)));
        let now = passed.filter(|passed| reading.after(MOST_BACK) < *passed).unwrap_or(reading);
        *last = Some((now, at));
        now
    }

    /// Tells of a moment that is surely over.
    pub fn has_been(&self, moment: Time, at: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|(time, then)| time.after(at.saturating_duration_since(then)) < moment) {
            *last = Some((moment, at));
        }
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

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    /// Safety 5, `clock_jumps_revive_nothing`: time goes on where the clock was set back, and follows it again after.
    #[test]
    fn a_clock_that_is_set_back_moves_no_deadline() {
        let (steady, begin, noon) = (Steady::new(), Instant::now(), Time::default().after(minutes(12 * 60)));
        assert_eq!(steady.read(noon, begin), noon);
        assert_eq!(steady.read(noon.after(minutes(5)), begin + minutes(5)), noon.after(minutes(5)));
        // Set back by an hour: six minutes have passed all the same.
        let back = Time::default().after(minutes(11 * 60));
        assert_eq!(steady.read(back, begin + minutes(6)), noon.after(minutes(6)));
        assert_eq!(steady.read(back.after(minutes(4)), begin + minutes(10)), noon.after(minutes(10)));
        // Set right again, or ahead.
        assert_eq!(steady.read(noon.after(minutes(11)), begin + minutes(11)), noon.after(minutes(11)));
        assert_eq!(steady.read(noon.after(minutes(90)), begin + minutes(12)), noon.after(minutes(90)));
        // What a clock is corrected by every day is believed.
        let corrected = Time(noon.after(minutes(91)).0 - 1_500_000);
        assert_eq!(steady.read(corrected, begin + minutes(13)), corrected);
    }

    #[test]
    fn a_clock_that_was_set_back_while_nobody_looked_is_told_by_the_record() {
        let (steady, begin, noon) = (Steady::new(), Instant::now(), Time::default().after(minutes(12 * 60)));
        steady.has_been(noon, begin);
        assert_eq!(steady.read(Time::default(), begin + minutes(1)), noon.after(minutes(1)));
        // An older record changes nothing.
        steady.has_been(Time::default(), begin + minutes(1));
        assert_eq!(steady.read(Time::default(), begin + minutes(2)), noon.after(minutes(2)));
    }
}
