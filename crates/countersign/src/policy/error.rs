//! What is wrong with a policy or configuration file, and where.

use std::fmt;
use std::sync::Arc;

/// One problem, at its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyError {
    /// The file's name, as the caller gave it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The line as written.
    pub source_line: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        if !self.source_line.is_empty() {
            let margin = self.line.to_string();
            let before: String = self.source_line.chars().take(self.column.saturating_sub(1)).map(blank).collect();
            write!(f, "\n {margin} | {}", self.source_line)?;
            write!(f, "\n {} | {before}^", " ".repeat(margin.len()))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n   = help: {help}")?;
        }
        Ok(())
    }
}

/// Keeps the caret in its column under tabs.
fn blank(char: char) -> char {
    if char == '\t' { '\t' } else { ' ' }
}

/// Every problem found in one reading of a policy or configuration file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl PolicyErrors {
    /// The problems, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, PolicyError> {
        self.0.iter()
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}

/// A place in the file being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Collects problems while a file is read, so that one reading reports them all.
pub(crate) struct Problems<'a> {
    file: Arc<str>,
    lines: Vec<&'a str>,
    found: Vec<PolicyError>,
}

impl<'a> Problems<'a> {
    pub(crate) fn new(file: &str, text: &'a str) -> Problems<'a> {
        Problems { file: file.into(), lines: text.lines().collect(), found: Vec::new() }
    }

    pub(crate) fn add(&mut self, at: At, message: impl Into<String>) {
        self.push(at, message.into(), None);
    }

    pub(crate) fn add_with_help(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        self.push(at, message.into(), Some(help.into()));
    }

    fn push(&mut self, at: At, message: String, help: Option<String>) {
        let (line, column) = (at.line.max(1), at.column.max(1));
        let shown = self.line(line).chars().take(crate::limits::PROBLEM_LINE).collect();
        self.found.push(PolicyError { file: Arc::clone(&self.file), line, column, message, help, source_line: shown });
    }

    /// The line as written; empty past the end.
    pub(crate) fn line(&self, line: usize) -> &'a str {
        line.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or_default()
    }

    /// Whether nothing was found so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn finish<T>(mut self, value: T) -> Result<T, PolicyErrors> {
        if self.found.is_empty() {
            return Ok(value);
        }
        self.found.sort_by_key(|error| (error.line, error.column));
        self.found.dedup();
        Err(PolicyErrors(self.found))
    }
}

/// The known word nearest to a mistyped one, if any is near.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let near = |candidate: &&str| distance(word, candidate) <= 1 + candidate.chars().count() / 4;
    known.into_iter().filter(near).min_by_key(|candidate| distance(word, candidate))
}

/// How many letters must change to turn one word into the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().take(64).enumerate() {
        let mut diagonal = index;
        let mut last = index + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&right) {
            let substituted = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            last = substituted.min(*cell + 1).min(last + 1);
            *cell = last;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
