//! Our own names for things: UUID v7 behind a prefix. Names, never rights.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// Why a text is not one of our ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id of the form `{prefix}…`")]
pub struct IdError {
    text: String,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Mints a new id.
            #[expect(clippy::new_without_default, reason = "a default id would look like a constant")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// From the sixteen bytes, as a store keeps them.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The sixteen bytes behind the text form.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl crate::event::Plain for $name {
            fn spell(&self, out: &mut String) {
                let mut buffer = Uuid::encode_buffer();
                out.push_str($prefix);
                out.push_str(self.0.simple().encode_lower(&mut buffer));
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = Uuid::encode_buffer();
                f.write_str($prefix)?;
                f.write_str(self.0.simple().encode_lower(&mut buffer))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let error = || IdError { text: text.chars().take(80).collect(), prefix: $prefix };
                let hex = text.strip_prefix($prefix).ok_or_else(error)?;
                // One spelling per id: no dashes, no capitals.
                let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
                if !plain {
                    return Err(error());
                }
                Uuid::try_parse(hex).map(Self).map_err(|_| error())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

id!(
    /// Names one call.
    CallId, "call_"
);
id!(
    /// Names one hold. A call that is asked twice has two.
    HoldId, "hold_"
);
id!(
    /// Names one grant.
    GrantId, "grant_"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// B78: ids are ours, prefixed, and have exactly one spelling.
    #[test]
    fn an_id_has_one_spelling() {
        let id = HoldId::new();
        let text = id.to_string();
        assert_eq!(text.parse::<HoldId>(), Ok(id));
        assert!(text.parse::<CallId>().is_err());
        assert!(text.to_uppercase().parse::<HoldId>().is_err());
        assert!("hold_".parse::<HoldId>().is_err());
        let dashed = format!("hold_{}", Uuid::now_v7());
        assert!(dashed.parse::<HoldId>().is_err());
    }

    #[test]
    fn new_ids_sort_by_age() {
        let first = CallId::new();
        std::thread::yield_now();
        assert!(first < CallId::new());
    }
}
