//! Canonical JSON as a tree that keeps every number in its spelling.

use std::borrow::Cow;

use super::{Bounds, Json, Reader, write_string};

/// One value of a canonical text. Numbers, `true`, `false` and `null` stay as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree<'a> {
    /// A number, `true`, `false` or `null`.
    Word(&'a str),
    /// The content of a string.
    Text(Cow<'a, str>),
    /// The items of an array.
    List(Vec<Tree<'a>>),
    /// The members of an object, in canonical order.
    Map(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl Json {
    /// The text as a tree.
    pub(crate) fn tree(&self) -> Tree<'_> {
        let mut reader = Reader { text: &self.0, at: 0, keys: 0, bounds: Bounds::STORED, out: String::new() };
        reader.tree()
    }
}

impl Tree<'_> {
    /// Back to canonical text. Members are written in the order they have here, so keep it when changing keys.
    pub(crate) fn to_json(&self) -> Json {
        let mut out = String::new();
        self.write(&mut out);
        Json(out.into())
    }

    /// Bytes of the value: of a string its content, of anything else its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Tree::Text(text) => text.len(),
            Tree::Word(word) => word.len(),
            Tree::List(_) | Tree::Map(_) => self.to_json().as_str().len(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Tree::Word(word) => out.push_str(word),
            Tree::Text(text) => write_string(out, text),
            Tree::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Tree::Map(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(out, key);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

// INVARIANT: the text is canonical, because nothing else becomes a `Json`: no white space, no error to report, and no
// nesting beyond `Bounds::STORED`.
impl<'a> Reader<'a> {
    fn tree(&mut self) -> Tree<'a> {
        match self.peek() {
            Some(b'{') => self.tree_map(),
            Some(b'[') => self.tree_list(),
            Some(b'"') => Tree::Text(self.tree_text()),
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let end = rest.bytes().position(|b| matches!(b, b',' | b']' | b'}')).unwrap_or(rest.len());
                self.at += end;
                Tree::Word(rest.get(..end).unwrap_or_default())
            }
        }
    }

    fn tree_list(&mut self) -> Tree<'a> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.take(b']') && self.at < self.text.len() {
            items.push(self.tree());
            self.take(b',');
        }
        Tree::List(items)
    }

    fn tree_map(&mut self) -> Tree<'a> {
        self.at += 1;
        let mut members = Vec::new();
        while !self.take(b'}') && self.at < self.text.len() {
            let key = self.tree_text();
            self.take(b':');
            members.push((key, self.tree()));
            self.take(b',');
        }
        Tree::Map(members)
    }

    fn tree_text(&mut self) -> Cow<'a, str> {
        let begin = self.at + 1;
        let plain = self.text.get(begin..).unwrap_or_default();
        let plain = plain.get(..plain.bytes().take_while(|b| !matches!(b, b'"' | b'\\')).count()).unwrap_or_default();
        if self.text.as_bytes().get(begin + plain.len()) == Some(&b'"') {
            self.at = begin + plain.len() + 1;
            return Cow::Borrowed(plain);
        }
        Cow::Owned(self.string().unwrap_or_default())
    }
}
