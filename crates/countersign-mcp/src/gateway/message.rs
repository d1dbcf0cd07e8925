//! The parts of a message that the gateway looks at. Everything else stays as it came.
//!
//! SECURITY: a server may read a message differently than we do. A member named twice, or named in another case (some
//! readers do not mind), is an error here, and so is a line break that only some readers know: what cannot be read in
//! one way only is not passed on.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON object's members of these names, as they stand in the text.
pub(crate) fn pick<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Result<[Option<&'a RawValue>; N], serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_map(Picking { names })?;
    deserializer.end()?;
    Ok(found)
}

struct Picking<'n, const N: usize> {
    names: [&'n str; N],
}

impl<'a, const N: usize> Visitor<'a> for Picking<'_, N> {
    type Value = [Option<&'a RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = map.next_key_seed(Key { names: &self.names })? {
            match place.and_then(|place| found.get_mut(place)) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(Some(_)) => return Err(A::Error::custom("a member is there twice")),
                Some(empty) => *empty = Some(map.next_value()?),
            }
        }
        Ok(found)
    }
}

/// All members of a JSON object, in order, as they stand in the text.
pub(crate) fn members(text: &str) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_map(Members)?;
    deserializer.end()?;
    Ok(found)
}

struct Members;

impl<'a> Visitor<'a> for Members {
    type Value = Vec<(String, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(member) = map.next_entry()? {
            found.push(member);
        }
        Ok(found)
    }
}

/// Reads a key as its place among the names.
struct Key<'n> {
    names: &'n [&'n str],
}

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        if let Some(place) = self.names.iter().position(|name| *name == key) {
            return Ok(Some(place));
        }
        match self.names.iter().any(|name| is_spelling_of(key, name)) {
            true => Err(E::custom("a member's name is spelled in another case")),
            false => Ok(None),
        }
    }
}

/// Whether a reader that does not mind case, in Unicode's sense, takes one for the other. `plain` is lower case.
pub(crate) fn is_spelling_of(text: &str, plain: &str) -> bool {
    let folded = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    folded.eq(plain.chars().flat_map(char::to_lowercase))
}

/// A message's id: its JSON text, in one spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) String);

impl Id {
    /// Reads a string or a number; nothing else is an id.
    pub(crate) fn read(raw: &RawValue) -> Option<Id> {
        match raw.get().as_bytes().first()? {
            b'"' => serde_json::from_str::<String>(raw.get()).ok().map(|text| Id::text(&text)),
            b'-' | b'0'..=b'9' => Some(Id(raw.get().to_owned())),
            _ => None,
        }
    }

    /// A string as an id.
    pub(crate) fn text(text: &str) -> Id {
        Id(serde_json::Value::from(text).to_string())
    }
}

/// What a message is, as far as the gateway cares.
#[derive(Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<String>,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) result: Option<&'a RawValue>,
    pub(crate) error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Reads one message.
    pub(crate) fn read(line: &'a str) -> Result<Envelope<'a>, serde_json::Error> {
        // SECURITY: to some readers a carriage return ends a line, and what follows would be a message of its own.
        if line.strip_suffix('\r').unwrap_or(line).contains('\r') {
            return Err(serde_json::Error::custom("a carriage return inside a message"));
        }
        let [id, method, params, result, error] = pick(line, ["id", "method", "params", "result", "error"])?;
        let method = method.map(|method| serde_json::from_str(method.get())).transpose()?;
        Ok(Envelope { id, method, params, result, error })
    }

    /// Whether it is an answer.
    pub(crate) fn is_answer(&self) -> bool {
        self.method.is_none() && self.id.is_some()
    }
}

/// Where a part of a text stands in it. The part must be a slice of that text.
pub(crate) fn range_of(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let range = start..start + part.len();
    (text.get(range.clone()) == Some(part)).then_some(range)
}

/// A text with some of its parts replaced. Ranges come in order and do not overlap; anything else gives none.
pub(crate) fn splice(text: &str, edits: &[(Range<usize>, &str)]) -> Option<String> {
    // One more: most of these texts become lines.
    let mut out = String::with_capacity(text.len() + edits.iter().map(|(_, with)| with.len()).sum::<usize>() + 1);
    let mut at = 0;
    for (range, with) in edits {
        out.push_str(text.get(at..range.start)?);
        out.push_str(with);
        at = range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// A text with a further member, or several, in an object in it.
pub(crate) fn with_member(text: &str, object: &RawValue, member: &str) -> Option<String> {
    let start = range_of(text, object.get())?.start + 1;
    let comma = if text.get(start..)?.trim_start().starts_with('}') { "" } else { "," };
    splice(text, &[(start..start, &format!("{member}{comma}"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_not_read_at_all() {
        for line in [
            r#"{"method":"ping","method":"tools/call"}"#,
            r#"{"method":"ping","METHOD":"tools/call"}"#,
            r#"{"method":"ping","m\u0065thod":"tools/call"}"#,
            r#"{"method":"ping","param\u017f":{}}"#,
            "{\"method\":\"ping\",\"params\":\r{\"method\":\"tools/call\"}\r}",
            r#"{"method":"ping"} {"method":"tools/call"}"#,
            r#"["ping"]"#,
            r#"{"method":7}"#,
        ] {
            assert!(Envelope::read(line).is_err(), "{line}");
        }
        assert!(Envelope::read("{\"method\":\"ping\",\"other\":1,\"OTHER\":2}\r").is_ok());
    }

    #[test]
    fn only_the_named_parts_of_a_text_change() {
        let line = r#"{"x":[1, 2],"id":7,"params":{"b":1,"a":{}}}"#;
        let [id, params] = pick(line, ["id", "params"]).unwrap();
        let edits =
            [(range_of(line, id.unwrap().get()).unwrap(), "8"), (range_of(line, params.unwrap().get()).unwrap(), "0")];
        assert_eq!(splice(line, &edits).unwrap(), r#"{"x":[1, 2],"id":8,"params":0}"#);
        assert_eq!(range_of(line, "elsewhere"), None);
    }

    #[test]
    fn an_id_has_one_spelling() {
        let read = |text: &str| Id::read(&RawValue::from_string(text.into()).unwrap());
        assert_eq!(read(r#""\u0041""#), read(r#""A""#));
        assert_ne!(read("1"), read("\"1\""));
        assert_eq!(read("null"), None);
        assert_eq!(read("{}"), None);
    }
}
