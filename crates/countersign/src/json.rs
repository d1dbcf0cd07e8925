//! Strict JSON: what comes in is refused or kept exactly, in one canonical spelling.
//!
//! The canonical form sorts keys by their UTF-8 bytes, drops white space, escapes strings minimally and keeps every
//! number in its source spelling, so integers of any size stay exact and no float is ever rounded.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

mod tree;

pub(crate) use tree::Tree;

/// JSON text in canonical form. Cheap to clone; equal values have equal bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json(Arc<str>);

/// How large a JSON text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the text.
    pub bytes: usize,
    /// Arrays and objects inside one another.
    pub depth: usize,
    /// Keys of all objects together.
    pub keys: usize,
}

impl Bounds {
    /// The bounds of everything that is not a call's arguments.
    pub const PAYLOAD: Bounds = Bounds {
        bytes: crate::limits::PAYLOAD_BYTES,
        depth: crate::limits::PAYLOAD_DEPTH,
        keys: crate::limits::PAYLOAD_KEYS,
    };
    /// What our own rows and files may hold.
    pub const STORED: Bounds = Bounds {
        bytes: crate::limits::STORED_BYTES,
        depth: crate::limits::STORED_DEPTH,
        keys: crate::limits::STORED_KEYS,
    };
}

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// More bytes than the bound.
    #[error("JSON text of {found} bytes is over the limit of {limit}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Nested deeper than the bound.
    #[error("JSON nests deeper than {limit} levels at byte {at}")]
    TooDeep {
        /// Levels allowed.
        limit: usize,
        /// Where the level opens.
        at: usize,
    },
    /// More keys than the bound.
    #[error("JSON has more than {limit} keys")]
    TooManyKeys {
        /// Keys allowed.
        limit: usize,
    },
    /// Two keys of one object are the same, or differ only by case.
    #[error("key `{key}` appears twice in one object, up to letter case, before byte {at}")]
    DuplicateKey {
        /// The beginning of the key in lower case, made safe to print.
        key: String,
        /// Where its object ends.
        at: usize,
    },
    /// A number no reader could hold.
    #[error("number at byte {at} is out of range")]
    NumberOutOfRange {
        /// Where it begins.
        at: usize,
    },
    /// Not JSON.
    #[error("not JSON at byte {at}: {what}")]
    Syntax {
        /// What was expected.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// Arguments must be an object.
    #[error("arguments must be a JSON object, not {found}")]
    NotAnObject {
        /// What was found instead.
        found: &'static str,
    },
}

impl Json {
    /// Reads one JSON value strictly and keeps it in canonical form.
    ///
    /// No bound lets a text nest deeper than [`Bounds::STORED`]: other readers give up soon after that.
    pub fn ingest(text: &str, bounds: Bounds) -> Result<Json, IngestError> {
        let bounds = Bounds { depth: bounds.depth.min(Bounds::STORED.depth), ..bounds };
        if text.len() > bounds.bytes {
            return Err(IngestError::TooLong { found: text.len(), limit: bounds.bytes });
        }
        let mut reader = Reader { text, at: 0, keys: 0, bounds, out: String::with_capacity(text.len()) };
        reader.space();
        reader.value(0)?;
        reader.space();
        if reader.at < text.len() {
            return Err(reader.syntax("nothing more after the value"));
        }
        Ok(Json(reader.out.into()))
    }

    /// Reads a call's arguments: like [`Json::ingest`], and an object.
    pub fn arguments(text: &str, limits: &crate::Limits) -> Result<Json, IngestError> {
        let bounds = Bounds { bytes: limits.argument_bytes, depth: limits.argument_depth, keys: limits.argument_keys };
        let json = Json::ingest(text, bounds)?;
        match json.kind() {
            "an object" => Ok(json),
            found => Err(IngestError::NotAnObject { found }),
        }
    }

    /// Turns a value of ours into canonical form.
    ///
    /// Fails where the value has keys that differ only by case or does not serialise.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Json, IngestError> {
        let text = serde_json::to_string(value)
            .map_err(|_| IngestError::Syntax { what: "the value does not serialise", at: 0 })?;
        Json::ingest(&text, Bounds::STORED)
    }

    /// The empty object.
    pub fn empty() -> Json {
        Json("{}".into())
    }

    /// A JSON string.
    pub fn string(text: &str) -> Json {
        let mut out = String::with_capacity(text.len() + 2);
        write_string(&mut out, text);
        Json(out.into())
    }

    /// The canonical text: what is hashed, stored, shown and run.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value for programs that need one. Integers beyond 64 bits become floats here, never in the text.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or(serde_json::Value::Null)
    }

    /// Reads the text into a type.
    pub fn read<T: de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The canonical text of one member of an object.
    pub fn field(&self, name: &str) -> Option<Json> {
        let fields: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(&self.0).ok()?;
        fields.get(name).map(|raw| Json(raw.get().into()))
    }

    fn kind(&self) -> &'static str {
        match self.0.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Json::ingest(raw.get(), Bounds::STORED).map_err(de::Error::custom)
    }
}

/// Reads a member that is there as `Some`, so that `null` stays a value and only absence is `None`.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// One pass over the text, writing the canonical form as it goes.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    keys: usize,
    bounds: Bounds,
    out: String,
}

impl Reader<'_> {
    fn syntax(&self, what: &'static str) -> IngestError {
        IngestError::Syntax { what, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), IngestError> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                write_string(&mut self.out, &text);
                Ok(())
            }
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.syntax("a value")),
        }
    }

    fn open(&mut self, depth: usize) -> Result<(), IngestError> {
        if depth >= self.bounds.depth {
            return Err(IngestError::TooDeep { limit: self.bounds.depth, at: self.at });
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), IngestError> {
        self.open(depth)?;
        self.out.push('[');
        if !self.take(b']') {
            loop {
                self.value(depth + 1)?;
                self.space();
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.syntax("`,` or `]`"));
                }
                self.out.push(',');
                self.space();
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), IngestError> {
        self.open(depth)?;
        self.out.push('{');
        let body = self.out.len();
        // Each member as written to `out`: its key, and where its text begins and ends.
        let mut members: Vec<(String, usize, usize)> = Vec::new();
        if !self.take(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.syntax("a key in double quotes"));
                }
                self.keys += 1;
                if self.keys > self.bounds.keys {
                    return Err(IngestError::TooManyKeys { limit: self.bounds.keys });
                }
                let key = self.string()?;
                let begin = self.out.len();
                write_string(&mut self.out, &key);
                self.space();
                if !self.take(b':') {
                    return Err(self.syntax("`:`"));
                }
                self.out.push(':');
                self.space();
                self.value(depth + 1)?;
                members.push((key, begin, self.out.len()));
                self.space();
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.syntax("`,` or `}`"));
                }
                self.out.push(',');
                self.space();
            }
        }
        self.refuse_twins(&members)?;
        if !members.is_sorted_by(|a, b| a.0 <= b.0) {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            let mut sorted = String::with_capacity(self.out.len() - body);
            for (_, begin, end) in &members {
                if !sorted.is_empty() {
                    sorted.push(',');
                }
                sorted.push_str(self.out.get(*begin..*end).unwrap_or_default());
            }
            self.out.truncate(body);
            self.out.push_str(&sorted);
        }
        self.out.push('}');
        Ok(())
    }

    /// SECURITY: readers differ in which of two keys wins and in whether letter case counts, so both are refused.
    fn refuse_twins(&self, members: &[(String, usize, usize)]) -> Result<(), IngestError> {
        if members.len() < 2 {
            return Ok(());
        }
        let mut folded: Vec<String> = members.iter().map(|(key, ..)| fold(key)).collect();
        folded.sort_unstable();
        for pair in folded.windows(2) {
            if let [first, second] = pair
                && first == second
            {
                let key = crate::show::escape(&first.chars().take(80).collect::<String>());
                return Err(IngestError::DuplicateKey { key, at: self.at });
            }
        }
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), IngestError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.syntax("`true`, `false` or `null`"));
        }
        self.at += word.len();
        self.out.push_str(word);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), IngestError> {
        let begin = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == begin { Err(self.syntax("a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), IngestError> {
        let begin = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let spelling = self.text.get(begin..self.at).unwrap_or_default();
        // No reader of the value may meet an infinity; the text itself is kept as it came.
        if !spelling.parse::<f64>().is_ok_and(|value| value.abs() <= 1e300) {
            return Err(IngestError::NumberOutOfRange { at: begin });
        }
        self.out.push_str(spelling);
        Ok(())
    }

    fn string(&mut self) -> Result<String, IngestError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest.bytes().take_while(|b| !matches!(b, b'"' | b'\\' | 0..=0x1f)).count();
            text.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                Some(_) => return Err(self.syntax("control characters in strings to be escaped")),
                None => return Err(self.syntax("the string to end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, IngestError> {
        let kind = self.peek().ok_or_else(|| self.syntax("an escape"))?;
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.syntax("a known escape")),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, IngestError> {
        let first = self.hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.syntax("a code point"));
        }
        let paired = first < 0xdc00 && self.take(b'\\') && self.take(b'u');
        let second = if paired { self.hex4()? } else { 0 };
        if !(0xdc00..0xe000).contains(&second) {
            return Err(self.syntax("a surrogate pair, not half of one"));
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
            .ok_or_else(|| self.syntax("a code point"))
    }

    fn hex4(&mut self) -> Result<u32, IngestError> {
        let hex = self.text.get(self.at..self.at + 4).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let value = value.ok_or_else(|| self.syntax("four hexadecimal digits"))?;
        self.at += 4;
        Ok(value)
    }
}

/// Letter case removed, the way the laxest readers do it.
pub(crate) fn fold(key: &str) -> String {
    if key.is_ascii() { key.to_ascii_lowercase() } else { key.to_lowercase().to_uppercase().to_lowercase() }
}

/// Writes a string in the one spelling we use: only what must be escaped is.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    if is_plain(text.as_bytes()) {
        out.push_str(text);
    } else {
        write_escaped(out, text);
    }
    out.push('"');
}

/// Whether nothing in a text must be escaped. Looks at every byte, which is faster than stopping at the first.
fn is_plain(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |found, byte| found | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
}

fn write_escaped(out: &mut String, text: &str) {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(text.get(plain..at).unwrap_or_default());
        plain = at + 1;
        if escape.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(text.get(plain..).unwrap_or_default());
}
