//! Hostile text made safe to look at: escaped, never stripped, and told apart from its look-alikes.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use unicode_security::MixedScript as _;
use unicode_width::UnicodeWidthChar as _;

/// Marks on one letter that are still drawn there: the most any living orthography writes.
const MARKS: usize = 4;
/// Blanks in a row that are still shown one by one.
const BLANKS: usize = 32;
/// Line breaks or tabs in a row that are still shown one by one.
pub(super) const BREAKS: usize = 8;

/// Shows any text on one line without hiding any of it.
///
/// Control, format, bidirectional, zero-width, tag, private and unassigned characters, separators other than the
/// blank, everything else that draws nothing, and marks that would combine with our own characters become `\u{…}`.
/// Line break, return and tab become `\n`, `\r`, `\t`, a backslash `\\`, and a blank at the end `\u{20}`.
/// Two texts that differ are shown differently.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    // How many marks may still stand on the character before. None may stand on ours.
    let mut room = 0;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let before = std::mem::replace(&mut room, if char.is_alphanumeric() { MARKS } else { 0 });
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if chars.peek().is_none() => out.push_str("\\u{20}"),
            ' '..='~' => out.push(char),
            _ if is_hidden(char) || (before == 0 && is_mark(char)) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
                room = 0;
            }
            _ if is_mark(char) => {
                out.push(char);
                room = before - 1;
            }
            _ => out.push(char),
        }
    }
    out
}

/// [`escape`], with long runs of blanks, tabs and line breaks as `\[57 blanks]`, so that padding hides no tail.
pub(crate) fn escape_folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some((at, length, name)) = next_run(rest) {
        out.push_str(&escape_inner(rest.get(..at).unwrap_or_default()));
        let _ = write!(out, "\\[{length} {name}]");
        rest = rest.get(at + length..).unwrap_or_default();
    }
    out.push_str(&escape(rest));
    out
}

/// [`escape`], in double quotes, with double quotes inside as `\"`.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", escape_folded(text).replace('"', "\\\""))
}

/// A name as it is if it is plain, else in quotes, so that no name looks like our own punctuation.
pub(crate) fn name(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b'@' | b'/' | b'*');
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => quote(text),
    }
}

/// Breaks a text into lines of at most `width` columns. Joined again they are the text.
///
/// An escape such as `\u{202e}` is never split; one that is wider than `width` has a line to itself.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_length(rest));
        let columns: usize = piece.chars().map(|char| char.width().unwrap_or(1)).sum();
        if used > 0 && columns > 0 && used + columns > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        line.push_str(piece);
        used += columns;
        rest = after;
    }
    lines.push(line);
    lines
}

/// What about a call might deceive a reader, or deserves a second look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// Characters that draw nothing.
    Invisible,
    /// Characters that turn the direction of writing.
    Bidi,
    /// A word with letters of several scripts.
    MixedScript,
    /// A word that looks like another one in plain letters.
    Confusable,
    /// A path that may lead out of the folder the agent works in.
    OutsidePath,
    /// The tool's server says that it may destroy things.
    Destructive,
    /// Nobody said what the tool is.
    NoDefinition,
    /// Long arguments.
    Large,
    /// Nobody was asked about this tool for this principal before.
    FirstSeen,
    /// Another server has a tool of this name, or of one that looks the same.
    LookAlike,
    /// Whoever made the call does not wait for it any more.
    NoCaller,
}

impl WarningKind {
    /// What to tell the reader.
    pub fn as_str(self) -> &'static str {
        match self {
            WarningKind::Invisible => "invisible characters",
            WarningKind::Bidi => "characters that turn the direction of writing",
            WarningKind::MixedScript => "letters of several scripts in one word",
            WarningKind::Confusable => "a word that looks like another",
            WarningKind::OutsidePath => "a path that may lead outside the workspace",
            WarningKind::Destructive => "the server says that this tool may destroy things",
            WarningKind::NoDefinition => "nobody said what this tool is",
            WarningKind::Large => "the arguments are long: read all of them",
            WarningKind::FirstSeen => "first time seen: this principal never asked for this tool",
            WarningKind::LookAlike => "another tool looks the same",
            WarningKind::NoCaller => "nobody waits for it now: approved, it runs only when the same call comes again",
        }
    }
}

/// Something that might deceive a reader or deserves a second look. Everything in it is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What it is.
    pub kind: WarningKind,
    /// Where: `tool`, `/path/0` in the arguments … Empty for a text on its own, and for the call as a whole.
    pub place: String,
    /// The first such word, character or path, escaped; for a look-alike also what it looks like. Empty for the call as
    /// a whole.
    pub sample: String,
    /// How often it occurs there.
    pub count: usize,
}

impl Warning {
    /// A warning about the call as a whole.
    pub(super) fn whole(kind: WarningKind) -> Warning {
        Warning { kind, place: String::new(), sample: String::new(), count: 1 }
    }

    /// What to tell the reader, without the place.
    pub fn text(&self) -> String {
        match self.sample.as_str() {
            "" => self.kind.as_str().to_owned(),
            sample => format!("{}: {sample}", self.kind.as_str()),
        }
    }
}

/// Finds what about a text might deceive a reader: at most one warning of each kind, with a count.
pub fn warnings(text: &str) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    if text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\t' | b'\r')) {
        return found;
    }
    let mut add = |kind, sample: &dyn Fn() -> String| match found.iter_mut().find(|warning| warning.kind == kind) {
        Some(warning) => warning.count += 1,
        None => found.push(Warning { kind, place: String::new(), sample: sample(), count: 1 }),
    };
    for char in text.chars().filter(|char| !matches!(char, '\n' | '\t' | '\r') && is_hidden(*char)) {
        let kind = if is_bidi(char) { WarningKind::Bidi } else { WarningKind::Invisible };
        add(kind, &|| escape(&char.to_string()));
    }
    for word in text.split(|char: char| !char.is_alphanumeric() && !is_mark(char)).filter(|word| !word.is_ascii()) {
        if !word.is_single_script() {
            add(WarningKind::MixedScript, &|| escape(word));
        }
        let looks_like: String = unicode_security::skeleton(word).collect();
        if looks_like.is_ascii() {
            add(WarningKind::Confusable, &|| format!("{} looks like {}", escape(word), escape(&looks_like)));
        }
    }
    found.sort_by_key(|warning| warning.kind);
    found
}

/// Escapes a text that something follows, so that its last blank needs no mark.
fn escape_inner(text: &str) -> String {
    let mut out = escape(text);
    if text.ends_with(' ') {
        out.truncate(out.len() - "\\u{20}".len());
        out.push(' ');
    }
    out
}

/// The first run long enough to fold: where it begins, how long it is, and of what.
fn next_run(text: &str) -> Option<(usize, usize, &'static str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let length = bytes.get(at..)?.iter().take_while(|other| **other == byte).count();
        match byte {
            b' ' if length > BLANKS => return Some((at, length, "blanks")),
            b'\t' if length > BREAKS => return Some((at, length, "tabs")),
            b'\n' if length > BREAKS => return Some((at, length, "line breaks")),
            _ => at += length,
        }
    }
    None
}

/// Bytes of the next piece that stays together: an escape, or a character and the marks on it.
fn piece_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    let first = chars.next().map(|(_, char)| char);
    if first == Some('\\') {
        let rest = text.get(1..).unwrap_or_default();
        let close = match rest.as_bytes() {
            [b'u', b'{', ..] => rest.find('}'),
            [b'[', ..] => rest.find(']'),
            _ => None,
        };
        let one = rest.chars().next().map_or(0, char::len_utf8);
        return 1 + close.map_or(one, |close| close + 1);
    }
    chars.find(|(_, char)| char.width().unwrap_or(1) > 0 && !is_mark(*char)).map_or(text.len(), |(at, _)| at)
}

/// Characters that must not reach a screen as they are.
fn is_hidden(char: char) -> bool {
    // SECURITY: U+2800 is a symbol by category but draws nothing. Unassigned code points belong to `C`.
    static EVERY: LazyLock<Ranges> =
        LazyLock::new(|| Ranges::of(r"[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\p{Me}\x{2800}&&[^ ]]+"));
    EVERY.contains(char)
}

/// Characters that draw onto the one before them.
fn is_mark(char: char) -> bool {
    static EVERY: LazyLock<Ranges> = LazyLock::new(|| Ranges::of(r"\p{M}+"));
    u32::from(char) >= 0x300 && EVERY.contains(char)
}

fn is_bidi(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A set of characters as sorted ranges.
struct Ranges(Vec<(char, char)>);

impl Ranges {
    /// Every character of a class, found once by trying them all.
    fn of(class: &str) -> Ranges {
        let every: String = ('\0'..=char::MAX).collect();
        let regex = regex::Regex::new(class).expect("the class is a constant");
        let ends =
            |found: regex::Match<'_>| Some((found.as_str().chars().next()?, found.as_str().chars().next_back()?));
        Ranges(regex.find_iter(&every).filter_map(ends).collect())
    }

    fn contains(&self, char: char) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= char);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| char <= *last)
    }
}
