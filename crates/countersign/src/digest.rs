//! The two digests of a call, and the hash of a tool's definition.
//!
//! Both are SHA-256 over canonical JSON, so an auditor recomputes them with stock tools. The *argument digest* compares
//! calls; the *call digest* binds a decision to one call, and a nonce in it keeps low-entropy arguments from being
//! guessed out of an export.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::call::{Path, ToolId};
use crate::id::{CallId, HoldId};
use crate::json::{Json, write_string};
use crate::place::Places;
use crate::time::Time;

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest of the form `{prefix}` and 64 hexadecimal digits")]
pub struct DigestError {
    text: String,
    prefix: &'static str,
}

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The SHA-256 of a text.
            pub fn of(text: &[u8]) -> Self {
                Self(Sha256::digest(text).into())
            }

            /// The 32 bytes.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// From the 32 bytes, as a store keeps them.
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            fn push_to(&self, out: &mut String) {
                out.push_str($prefix);
                push_hex(out, &self.0);
            }
        }

        impl crate::event::Plain for $name {
            fn spell(&self, out: &mut String) {
                self.push_to(out);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(std::str::from_utf8(&hex(&self.0)).unwrap_or_default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = DigestError;
            fn from_str(text: &str) -> Result<Self, DigestError> {
                let error = || DigestError { text: text.chars().take(100).collect(), prefix: $prefix };
                let hex = text.strip_prefix($prefix).ok_or_else(error)?;
                read_hex(hex).map(Self).ok_or_else(error)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut text = String::with_capacity($prefix.len() + 64);
                self.push_to(&mut text);
                serializer.serialize_str(&text)
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

digest!(
    /// Compares calls: tool, server, definition and arguments. Never authorises a run.
    ArgumentDigest, "cs1a:"
);
digest!(
    /// Binds: what a decision names, a receipt signs and a claim re-checks.
    CallDigest, "cs1c:"
);
digest!(
    /// The hash of a tool's definition.
    DefinitionDigest, "cs1d:"
);
digest!(
    /// The hash of an event, chained over the one before it.
    EventHash, "cs1e:"
);

/// A number used once, so that equal calls have different call digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub u128);

impl Nonce {
    /// A fresh nonce: 122 random bits.
    #[expect(clippy::new_without_default, reason = "a default nonce would look like a constant")]
    pub fn new() -> Nonce {
        Nonce(uuid::Uuid::new_v4().as_u128())
    }
}

/// Computes the argument digest.
pub fn argument_digest(tool: &ToolId, definition: Option<&DefinitionDigest>, arguments: &Json) -> ArgumentDigest {
    let mut text = String::with_capacity(arguments.as_str().len() + 192);
    text.push_str("{\"arguments\":");
    text.push_str(arguments.as_str());
    text.push_str(",\"definition\":");
    match definition {
        Some(digest) => quoted(&mut text, |out| digest.push_to(out)),
        None => text.push_str("null"),
    }
    text.push_str(",\"server\":");
    optional(&mut text, tool.server.as_deref());
    text.push_str(",\"tool\":");
    write_string(&mut text, &tool.name);
    text.push('}');
    ArgumentDigest::of(text.as_bytes())
}

/// Everything a call digest covers.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The arguments, tool and definition, by their digest.
    pub arguments: &'a ArgumentDigest,
    /// The call.
    pub call: CallId,
    /// The hold that asks about it, if any.
    pub hold: Option<HoldId>,
    /// Whose call it is, and where it stands.
    pub path: &'a Path,
    /// Where its arguments point.
    pub places: &'a Places,
    /// Which policy judged it.
    pub policy: &'a str,
    /// When the hold expires.
    pub expires_at: Option<Time>,
    /// What a running tool shows the approver.
    pub payload: Option<&'a Json>,
    /// What a running tool says to the approver.
    pub hint: Option<&'a str>,
    /// Random, kept out of every export.
    pub nonce: Nonce,
}

impl Bound<'_> {
    /// Computes the call digest.
    pub fn digest(&self) -> CallDigest {
        let mut text = String::with_capacity(768);
        text.push_str("{\"agents\":[");
        for (index, agent) in self.path.agents.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            write_string(&mut text, agent);
        }
        text.push_str("],\"arguments\":");
        quoted(&mut text, |out| self.arguments.push_to(out));
        text.push_str(",\"call\":\"");
        push_hex(&mut text, self.call.as_bytes());
        text.push_str("\",\"expires_at\":");
        match self.expires_at {
            Some(time) => text.push_str(&time.0.to_string()),
            None => text.push_str("null"),
        }
        text.push_str(",\"hint\":");
        optional(&mut text, self.hint);
        text.push_str(",\"hold\":");
        match self.hold {
            Some(hold) => quoted(&mut text, |out| push_hex(out, hold.as_bytes())),
            None => text.push_str("null"),
        }
        text.push_str(",\"nonce\":");
        quoted(&mut text, |out| push_hex(out, &self.nonce.0.to_be_bytes()));
        // Left out where there is none, since `null` is a payload too.
        if let Some(payload) = self.payload {
            text.push_str(",\"payload\":");
            text.push_str(payload.as_str());
        }
        if !self.places.is_empty() {
            text.push_str(",\"places\":");
            self.places.write(&mut text);
        }
        text.push_str(",\"policy\":");
        write_string(&mut text, self.policy);
        text.push_str(",\"principal\":");
        write_string(&mut text, &self.path.principal);
        text.push_str(",\"requester\":");
        optional(&mut text, self.path.requester.as_deref());
        text.push_str(",\"run\":");
        optional(&mut text, self.path.run.as_deref());
        text.push_str(",\"session\":");
        optional(&mut text, self.path.session.as_deref());
        text.push_str(",\"thread\":");
        optional(&mut text, self.path.thread.as_deref());
        text.push('}');
        CallDigest::of(text.as_bytes())
    }
}

fn optional(out: &mut String, text: Option<&str>) {
    match text {
        Some(text) => write_string(out, text),
        None => out.push_str("null"),
    }
}

fn quoted(out: &mut String, write: impl FnOnce(&mut String)) {
    out.push('"');
    write(out);
    out.push('"');
}

/// Appends bytes as lower-case hexadecimal.
pub(crate) fn push_hex(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(32) {
        let text = hex(chunk);
        let written = text.get(..chunk.len() * 2).unwrap_or_default();
        out.push_str(std::str::from_utf8(written).unwrap_or_default());
    }
}

/// Up to 32 bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> [u8; 64] {
    let mut text = [b'0'; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [hex_digit(byte >> 4), hex_digit(byte & 15)];
    }
    text
}

fn hex_digit(half: u8) -> u8 {
    if half < 10 { b'0' + half } else { b'a' + half - 10 }
}

/// Reads 64 lower-case hexadecimal digits.
pub(crate) fn read_hex(hex: &str) -> Option<[u8; 32]> {
    // One spelling per digest. `from_str_radix` alone would take capitals and `+f`.
    if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0u8; 32];
    for (out, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *out = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}
