//! Values as lines: every key, every item and every line of every text.

use std::borrow::Cow;

use similar::{ChangeTag, DiffOp, TextDiff};

use super::escape::{BREAKS, Warning, escape_folded, name, quote, warnings};
use super::{Line, LineKind, count};
use crate::json::Tree;
use crate::limits;

/// Names under which tools take the text to replace and its replacement.
const EDITS: [(&str, &str); 6] = [
    ("old_text", "new_text"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("oldText", "newText"),
    ("oldString", "newString"),
    ("before", "after"),
];

/// Lines around a change that are shown with it, where the whole text is shown elsewhere.
const AROUND: usize = 3;

type Members<'a> = [(Cow<'a, str>, Tree<'a>)];

/// Paints values. Nothing is left out, and different values give different lines.
pub(super) struct Painter {
    pub(super) lines: Vec<Line>,
    pub(super) warnings: Vec<Warning>,
    kind: LineKind,
    indent: usize,
    place: String,
}

impl Painter {
    /// Paints lines of this kind: arguments or notes.
    pub(super) fn new(kind: LineKind) -> Painter {
        Painter { lines: Vec::new(), warnings: Vec::new(), kind, indent: 0, place: String::new() }
    }

    /// Paints the members of an object. What differs from `real` is masked.
    pub(super) fn root(&mut self, shown: &Tree<'_>, real: &Tree<'_>) {
        match shown {
            Tree::Map(members) if !members.is_empty() => self.members(members, Some(real)),
            Tree::Map(_) => self.line(LineKind::Argument, "no arguments".to_owned(), "{}".to_owned()),
            Tree::Word(_) | Tree::Text(_) | Tree::List(_) => self.value("not an object".to_owned(), shown, Some(real)),
        }
    }

    /// Paints one value under its label.
    pub(super) fn value(&mut self, label: String, shown: &Tree<'_>, real: Option<&Tree<'_>>) {
        match shown {
            Tree::Word(word) => self.line(LineKind::Argument, label, (*word).to_owned()),
            Tree::Text(text) if real != Some(shown) => self.masked(label, text),
            Tree::Text(text) => self.text(label, text),
            Tree::List(items) if items.iter().all(|item| matches!(item, Tree::Word(_))) => {
                self.line(LineKind::Argument, label, shown.to_json().to_string());
            }
            Tree::List(items) => {
                self.line(LineKind::Argument, label, format!("list of {}", count(items.len())));
                self.indent += 1;
                for (index, item) in items.iter().enumerate() {
                    let real = match real {
                        Some(Tree::List(real)) => real.get(index),
                        _ => None,
                    };
                    self.below(&index.to_string(), |painter| painter.value(format!("[{index}]"), item, real));
                }
                self.indent -= 1;
            }
            Tree::Map(members) if members.is_empty() => self.line(LineKind::Argument, label, "{}".to_owned()),
            Tree::Map(members) => {
                self.line(LineKind::Argument, label, format!("object of {}", count(members.len())));
                self.indent += 1;
                self.members(members, real);
                self.indent -= 1;
            }
        }
    }

    /// Paints only what differs between two texts, with a few lines around.
    pub(super) fn changes(&mut self, old: &str, new: &str) {
        if is_long(old, new) {
            return self.line(LineKind::Note, String::new(), "too many lines to compare".to_owned());
        }
        let diff = TextDiff::from_lines(old, new);
        let mut at = 0;
        for group in diff.grouped_ops(AROUND) {
            let begin = group.first().map_or(at, |op| op.new_range().start);
            self.same_lines(begin.saturating_sub(at));
            at = group.last().map_or(at, |op| op.new_range().end);
            for op in &group {
                self.change(&diff, op);
            }
        }
        self.same_lines(diff.new_len().saturating_sub(at));
    }

    fn same_lines(&mut self, lines: usize) {
        if lines > 0 {
            self.line(LineKind::Note, String::new(), format!("… {} equal lines", count(lines)));
        }
    }

    fn members(&mut self, members: &Members<'_>, real: Option<&Tree<'_>>) {
        let edit = edit_in(members, real);
        for (key, value) in members {
            let real = match real {
                Some(Tree::Map(real)) => {
                    let at = real.binary_search_by(|(real, _)| real.cmp(key)).ok();
                    at.and_then(|at| real.get(at)).map(|(_, value)| value)
                }
                _ => None,
            };
            if edit.is_some_and(|edit| edit.0 == key || edit.2 == key) {
                continue;
            }
            self.below(key, |painter| {
                painter.warn(key);
                painter.value(name(key), value, real);
            });
        }
        if let Some((old_key, old, new_key, new)) = edit {
            self.below(old_key, |painter| painter.warn(old));
            self.below(new_key, |painter| painter.warn(new));
            self.edit(old_key, old, new_key, new);
        }
    }

    /// Paints two texts as one: the old is the lines with blank and `-`, the new those with blank and `+`.
    fn edit(&mut self, old_key: &str, old: &str, new_key: &str, new: &str) {
        let text = format!("a difference of {} and {} bytes", count(old.len()), count(new.len()));
        self.line(LineKind::Argument, format!("- {old_key}, + {new_key}"), text);
        self.indent += 1;
        let diff = TextDiff::from_lines(old, new);
        for op in diff.ops() {
            self.change(&diff, op);
        }
        self.indent -= 1;
    }

    fn change(&mut self, diff: &TextDiff<'_, '_, str>, op: &DiffOp) {
        for change in diff.iter_changes(op) {
            let (kind, label) = match change.tag() {
                ChangeTag::Equal => (LineKind::DiffSame, " "),
                ChangeTag::Delete => (LineKind::DiffRemove, "-"),
                ChangeTag::Insert => (LineKind::DiffAdd, "+"),
            };
            self.line(kind, label.to_owned(), escape_folded(change.value()));
        }
    }

    fn masked(&mut self, label: String, text: &str) {
        let bytes = text.strip_prefix("[masked: ").and_then(|rest| rest.strip_suffix(" bytes]"));
        let is_whole = bytes.is_some_and(|bytes| bytes.parse::<usize>().is_ok());
        self.line(LineKind::Masked, label, if is_whole { text.to_owned() } else { quote(text) });
    }

    /// A text on its own line, or line by line with each break visible.
    fn text(&mut self, label: String, text: &str) {
        self.warn(text);
        if !text.trim_end_matches('\n').contains('\n') {
            return self.line(LineKind::Argument, label, quote(text));
        }
        let lines = text.split_inclusive('\n').count();
        self.line(LineKind::Argument, label, format!("text of {} lines, {} bytes", count(lines), count(text.len())));
        self.indent += 1;
        let mut number = 1;
        let mut rest = text;
        while !rest.is_empty() {
            let blank = rest.bytes().take_while(|b| *b == b'\n').count();
            let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
            let (line, after) = rest.split_at(if blank > BREAKS { blank } else { end });
            self.line(LineKind::Text, number.to_string(), escape_folded(line));
            number += if blank > BREAKS { blank } else { 1 };
            rest = after;
        }
        self.indent -= 1;
    }

    fn line(&mut self, kind: LineKind, label: String, text: String) {
        let kind = if self.kind == LineKind::Note { LineKind::Note } else { kind };
        self.lines.push(Line { kind, indent: self.indent, label, text });
    }

    fn below(&mut self, key: &str, paint: impl FnOnce(&mut Painter)) {
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(&name(key));
        paint(self);
        self.place.truncate(length);
    }

    fn warn(&mut self, text: &str) {
        let place = &self.place;
        self.warnings.extend(warnings(text).into_iter().map(|warning| Warning { place: place.clone(), ..warning }));
    }
}

/// The old and new text of an edit, where an object has both and neither is masked.
fn edit_in<'m>(
    members: &'m Members<'_>,
    real: Option<&Tree<'_>>,
) -> Option<(&'static str, &'m str, &'static str, &'m str)> {
    let Some(Tree::Map(real)) = real else { return None };
    let text = |name: &str| match members.iter().find(|(key, _)| key == name) {
        Some(member @ (_, Tree::Text(text))) if real.contains(member) => Some(text.as_ref()),
        _ => None,
    };
    EDITS.into_iter().find_map(|(old_key, new_key)| {
        let (old, new) = (text(old_key)?, text(new_key)?);
        (!is_long(old, new)).then_some((old_key, old, new_key, new))
    })
}

fn is_long(old: &str, new: &str) -> bool {
    old.lines().count() + new.lines().count() > limits::DIFF_LINES
}
