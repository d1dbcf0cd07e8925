//! Moments and lengths of time, as they are written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use countersign::Time;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::{PartialSchema, ToSchema};

/// A moment of the store as it is written: RFC 3339, in UTC.
///
/// Moments beyond the calendar become its end: they mean "never" wherever they occur.
pub fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_microsecond(time.0).unwrap_or(if time.0 < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// A length of time, written as in the configuration: `4s`, `10m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a length of time such as `30s`, `10m`, `2h` or `7d`")]
pub struct BadSpan(String);

impl FromStr for Span {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Span, BadSpan> {
        let read = || {
            let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
            let unit = match text.strip_prefix(digits)? {
                "s" => 1,
                "m" => 60,
                "h" => 3_600,
                "d" => 86_400,
                _ => return None,
            };
            let number: u64 = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
            number.checked_mul(unit).filter(|seconds| *seconds > 0).map(Duration::from_secs)
        };
        read().map(Span).ok_or_else(|| BadSpan(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match [(86_400, 'd'), (3_600, 'h'), (60, 'm')].into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", seconds / unit),
            None => write!(f, "{seconds}s"),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl PartialSchema for Span {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}

impl ToSchema for Span {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_reads_back() {
        for text in ["4s", "10m", "2h", "7d", "90s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["", "s", "10", "0s", "-1s", "1.5h", "1w", "1ms", "99999999999999999999d", "9999999999999999d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_rfc_3339_and_never_fails() {
        assert_eq!(timestamp(Time(1_700_000_000_123_456)).to_string(), "2023-11-14T22:13:20.123456Z");
        assert_eq!(timestamp(Time(i64::MAX)), Timestamp::MAX);
    }
}
