//! JSON as clients keep it, comments and trailing commas included: read with the place of every part, so that a part can
//! be replaced and the rest of the text stays as it is.

use std::ops::Range;

/// Nesting beyond this is nobody's configuration.
const DEPTH: usize = 64;

/// One value, and where it stands in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Range<usize>,
    pub(super) value: Value,
}

/// What a value is, as far as anybody here wants to know.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    /// A number, a boolean or null.
    Other,
}

/// One member of an object.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_at: Range<usize>,
    pub(super) node: Node,
}

impl Node {
    /// The members of an object.
    pub(super) fn members(&self) -> Option<&[Member]> {
        match &self.value {
            Value::Object(members) => Some(members),
            Value::Array(_) | Value::Text(_) | Value::Other => None,
        }
    }

    /// A member's value.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.members()?.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// The text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Object(_) | Value::Array(_) | Value::Other => None,
        }
    }

    /// The items of an array.
    pub(super) fn items(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Array(items) => Some(items),
            Value::Object(_) | Value::Text(_) | Value::Other => None,
        }
    }
}

/// Reads a whole text. An error says what is wrong and in which line.
///
/// A member that is there twice is an error: clients differ in which one counts.
pub(super) fn read(text: &str) -> Result<Node, String> {
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 } };
    let node = reader.value(DEPTH);
    let node = node.and_then(|node| reader.end().map(|()| node));
    node.map_err(|why| {
        let line = text.get(..reader.at).map_or(0, |before| before.matches('\n').count()) + 1;
        format!("line {line}: {why}")
    })
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Passes over blanks and comments.
    fn blanks(&mut self) -> Result<(), String> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let rest = rest.get(blank..).unwrap_or_default();
            let comment = match rest.get(..2) {
                Some("//") => rest.find('\n').unwrap_or(rest.len()),
                Some("/*") => rest.find("*/").ok_or("a comment has no end")? + 2,
                _ => 0,
            };
            self.at += blank + comment;
            if comment == 0 {
                return Ok(());
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.blanks()?;
        if self.rest().is_empty() { Ok(()) } else { Err("there is more after the end".into()) }
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        self.blanks()?;
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        let begin = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(_) => self.word()?,
            None => return Err("it ends too early".into()),
        };
        Ok(Node { at: begin..self.at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut members: Vec<Member> = Vec::new();
        let mut known = std::collections::HashSet::new();
        loop {
            self.blanks()?;
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            let begin = self.at;
            let key = self.string()?;
            let key_at = begin..self.at;
            if !known.insert(key.clone()) {
                return Err(format!("`{key}` is there twice"));
            }
            self.blanks()?;
            if !self.take(b':') {
                return Err("a colon is missing".into());
            }
            let node = self.value(depth)?;
            members.push(Member { key, key_at, node });
            self.comma(b'}')?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blanks()?;
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth)?);
            self.comma(b']')?;
        }
    }

    /// A comma, which may be missing before the end.
    fn comma(&mut self, end: u8) -> Result<(), String> {
        self.blanks()?;
        match self.take(b',') || self.peek() == Some(end) {
            true => Ok(()),
            false => Err("a comma is missing".into()),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if self.peek() != Some(b'"') {
            return Err("a text in quotes is missing".into());
        }
        let bytes = self.rest().as_bytes();
        let mut at = 1;
        while bytes.get(at).is_some_and(|byte| *byte != b'"') {
            at += if bytes.get(at) == Some(&b'\\') { 2 } else { 1 };
        }
        let raw = self.rest().get(..=at).ok_or("a text has no end")?;
        let text = serde_json::from_str(raw).map_err(|_| "a text in quotes cannot be read")?;
        self.at += at + 1;
        Ok(text)
    }

    fn word(&mut self) -> Result<Value, String> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || "+-.".contains(char);
        let rest = self.rest();
        let length = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
        let word: Result<serde_json::Value, _> = serde_json::from_str(rest.get(..length).unwrap_or_default());
        word.map_err(|_| "something that is no JSON")?;
        self.at += length;
        Ok(Value::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_read_and_every_part_has_its_place() {
        let text = "\u{feff}// first\n{ \"a\": [1, /* two */ \"b\\\"c\", ],\n  \"d\": { \"e\": null, }, // last\n}\n";
        let node = read(text).unwrap();
        assert_eq!(&text[node.get("a").unwrap().at.clone()], "[1, /* two */ \"b\\\"c\", ]");
        assert_eq!(node.get("a").unwrap().items().unwrap()[1].text(), Some("b\"c"));
        assert_eq!(&text[node.get("d").unwrap().get("e").unwrap().at.clone()], "null");
    }

    #[test]
    fn what_is_broken_is_said_with_its_line() {
        for (text, why) in [
            ("{\n\"a\": 1,\n\"a\": 2}", "line 3: `a` is there twice"),
            ("{\"a\" 1}", "line 1: a colon is missing"),
            ("{\"a\": 1 \"b\": 2}", "line 1: a comma is missing"),
            ("{\"a\": tru}", "line 1: something that is no JSON"),
            ("{\"a\": \"x", "line 1: a text has no end"),
            ("{\"a\": \"x\\", "line 1: a text has no end"),
            ("{} /* x", "line 1: a comment has no end"),
            ("{} {}", "line 1: there is more after the end"),
            ("", "line 1: it ends too early"),
            ("{\"é\":é}", "line 1: something that is no JSON"),
        ] {
            assert_eq!(read(text).unwrap_err(), why, "{text}");
        }
        assert_eq!(read(&"[".repeat(1 << 20)).unwrap_err(), "line 1: it is nested too deeply");
    }
}
