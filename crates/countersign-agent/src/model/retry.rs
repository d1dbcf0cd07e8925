//! When a provider is asked again, and after which pause.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::limits;

/// How long a model behind HTTP is waited for, and how often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long a connection may take.
    pub connect: Duration,
    /// How long the provider may be silent.
    pub silence: Duration,
    /// How long one answer may take in all.
    pub whole: Duration,
    /// How often it is asked the same, the first time included.
    pub attempts: u32,
    /// The first pause before asking again; it doubles each time.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: limits::MODEL_CONNECT_WITHIN,
            silence: limits::MODEL_SILENCE,
            whole: limits::MODEL_ANSWER_WITHIN,
            attempts: limits::MODEL_ATTEMPTS,
            pause: limits::MODEL_PAUSE,
        }
    }
}

/// Whether asking again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It cannot.
    Never,
    /// It may, after this pause if the provider named one.
    After(Option<Duration>),
}

impl Patience {
    /// The pause before the next attempt, or nothing if there is to be none. `jitter` is anything from 0 to 255.
    pub(crate) fn pause_before(&self, attempt: u32, again: Again, jitter: u8) -> Option<Duration> {
        let Again::After(named) = again else { return None };
        if attempt >= self.attempts {
            return None;
        }
        match named {
            // Waiting shorter than asked for would only add to the load; waiting longer is not ours to decide.
            Some(named) => (named <= limits::MODEL_LONGEST_PAUSE).then_some(named),
            None => {
                let doubled = self.pause.saturating_mul(1 << (attempt - 1).min(16));
                let spread = doubled.mul_f64(f64::from(jitter) / 512.0);
                Some((doubled / 2 + spread).min(limits::MODEL_LONGEST_PAUSE))
            }
        }
    }
}

/// The pause a provider asks for: seconds, or a date.
pub(crate) fn named_pause(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// A random byte, or the middle where there is no randomness: pauses only spread load with it.
pub(crate) fn jitter() -> u8 {
    let mut byte = [127];
    getrandom::fill(&mut byte).ok();
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_spread_and_end() {
        let patience = Patience { pause: ONE, attempts: 20, ..Patience::default() };
        let pause = |attempt, jitter| patience.pause_before(attempt, Again::After(None), jitter).unwrap();
        assert_eq!(pause(1, 0), ONE / 2);
        assert_eq!(pause(2, 0), ONE);
        assert_eq!(pause(3, 128), 3 * ONE);
        assert!(pause(1, 255) < ONE && pause(1, 255) > pause(1, 128));
        assert_eq!(pause(19, 255), limits::MODEL_LONGEST_PAUSE);
        assert_eq!(patience.pause_before(20, Again::After(None), 0), None);
        assert_eq!(patience.pause_before(1, Again::Never, 0), None);
    }

    #[test]
    fn a_named_pause_is_kept_or_refused_never_shortened() {
        let patience = Patience::default();
        let named = |seconds| patience.pause_before(1, Again::After(Some(seconds * ONE)), 9);
        assert_eq!(named(7), Some(7 * ONE));
        assert_eq!(named(3_600), None);
    }

    #[test]
    fn a_pause_is_named_in_seconds_or_by_a_date() {
        let now: jiff::Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, reqwest::header::HeaderValue::from_static(text))]);
            named_pause(&headers, now)
        };
        assert_eq!(read("3"), Some(3 * ONE));
        assert_eq!(read("0.5"), Some(ONE / 2));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7 * ONE));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
        assert_eq!(read("-1"), None);
        assert_eq!(named_pause(&HeaderMap::new(), now), None);
    }
}
