//! Secrets are masked before anything is written down or shown.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::{Regex, RegexBuilder};

use crate::json::{Json, Tree, fold};
use crate::limits;

mod marks;

use marks::{Here, Marks};

/// Why a redaction pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// Not a glob for names of keys.
    #[error("`{0}` is not a pattern for names of keys")]
    Key(String),
    /// Not a regular expression, or one too large.
    #[error("`{0}` is not a regular expression for values, or is too large")]
    Value(String),
    /// A pattern that matches nothing at all, so everywhere.
    #[error("`{0}` matches the empty text")]
    Empty(String),
    /// More patterns than the bound.
    #[error("more than {limit} patterns")]
    TooMany {
        /// Patterns allowed.
        limit: usize,
    },
}

/// What to mask: names of keys, shapes of values, and always what a schema marks.
#[derive(Clone, Default)]
pub struct Redactor {
    keys: GlobSet,
    values: Vec<Regex>,
    /// All of `values` as one, to pass by a text without secrets in one look. None where that is too large.
    any: Option<Regex>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} keys, {} values)", self.keys.len(), self.values.len())
    }
}

impl Redactor {
    /// Masks values under keys that match a glob, whatever the letter case, and spans that match a regular expression.
    pub fn new(keys: &[String], values: &[String]) -> Result<Redactor, RedactError> {
        if keys.len().max(values.len()) > limits::REDACTIONS {
            return Err(RedactError::TooMany { limit: limits::REDACTIONS });
        }
        let mut globs = GlobSetBuilder::new();
        for key in keys {
            let error = || RedactError::Key(crate::show::escape(key));
            let short = !key.is_empty() && key.len() <= limits::NAME_BYTES;
            let glob = GlobBuilder::new(key).case_insensitive(true).build().ok().filter(|_| short).ok_or_else(error)?;
            globs.add(glob);
        }
        let keys = globs.build().map_err(|error| RedactError::Key(crate::show::escape(&error.to_string())))?;
        let values: Vec<Regex> = values.iter().map(|pattern| value_pattern(pattern)).collect::<Result<_, _>>()?;
        Ok(Redactor { keys, any: all_as_one(&values), values })
    }

    /// Masks only what a schema marks.
    pub fn none() -> Redactor {
        Redactor::default()
    }

    /// Masks private keys and the common shapes of access keys, besides what a schema marks.
    pub fn standard() -> Redactor {
        Redactor::none().and_standard()
    }

    /// Adds [`Redactor::standard`] to an operator's own patterns.
    #[must_use]
    pub fn and_standard(mut self) -> Redactor {
        self.values.extend(STANDARD.0.iter().cloned());
        let alone = self.values.len() == STANDARD.0.len();
        self.any = if alone { STANDARD.1.clone() } else { all_as_one(&self.values) };
        self
    }

    /// The arguments with their secrets masked; none where there is nothing to mask.
    ///
    /// Masked whole: values the schema marks `writeOnly` or `format: password`, and values under a matching key.
    /// Masked in part: spans of texts and names that match a value pattern. A mask tells only how long the secret is:
    /// a hash of a short secret could be guessed. Everything else stays where and as it was.
    pub fn arguments(&self, arguments: &Json, schema: Option<&Json>) -> Option<Json> {
        let schema = schema.filter(|schema| marks::may_mark(schema)).map(Json::value);
        if schema.is_none() && self.keys.is_empty() && self.values.is_empty() {
            return None;
        }
        let mut marks = Marks::new(schema.as_ref());
        let all = marks.root();
        let masked = self.value(&arguments.tree(), &all, &mut marks)?;
        Some(masked.to_json())
    }

    /// Free text with its secrets masked: hints, reasons, outputs.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let spans = self.spans(text);
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for span in spans {
            out.push_str(text.get(at..span.start).unwrap_or_default());
            out.push_str(&mask(span.len()));
            at = span.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// The value with its secrets masked; none where it has none.
    fn value<'a, 's>(&self, tree: &Tree<'a>, here: &Here<'s>, marks: &mut Marks<'s>) -> Option<Tree<'a>> {
        if here.is_secret() {
            return Some(whole(tree));
        }
        match tree {
            Tree::Word(word) => (!self.spans(word).is_empty()).then(|| whole(tree)),
            Tree::Text(text) => match self.text(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(masked) => Some(Tree::Text(Cow::Owned(masked))),
            },
            Tree::List(items) => {
                let alike_from = marks.alike_from(here);
                let mut below = marks.item(here, 0);
                let mut masked = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    if (1..=alike_from).contains(&index) {
                        below = marks.item(here, index);
                    }
                    masked.push(self.value(item, &below, marks));
                }
                let any = masked.iter().any(Option::is_some);
                let keep = |(new, old): (Option<Tree<'a>>, &Tree<'a>)| new.unwrap_or_else(|| old.clone());
                any.then(|| Tree::List(masked.into_iter().zip(items).map(keep).collect()))
            }
            Tree::Map(members) => self.members(members, here, marks),
        }
    }

    fn members<'a, 's>(
        &self,
        members: &[(Cow<'a, str>, Tree<'a>)],
        here: &Here<'s>,
        marks: &mut Marks<'s>,
    ) -> Option<Tree<'a>> {
        let mut any = false;
        let mut masked = Vec::with_capacity(members.len());
        for (key, value) in members {
            let below = marks.member(here, key);
            let new = match self.is_secret_key(key) {
                true => Some(whole(value)),
                false => self.value(value, &below, marks),
            };
            let name = self.text(key);
            any |= new.is_some() || matches!(name, Cow::Owned(_));
            masked.push((Cow::Owned(name.into_owned()), new.unwrap_or_else(|| value.clone())));
        }
        any.then(|| Tree::Map(sorted(masked)))
    }

    fn is_secret_key(&self, key: &str) -> bool {
        !self.keys.is_empty() && (self.keys.is_match(key) || self.keys.is_match(fold(key)))
    }

    /// Where secrets stand in a text, in order, overlapping ones as one.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        if self.values.is_empty() || self.any.as_ref().is_some_and(|any| !any.is_match(text)) {
            return Vec::new();
        }
        let found = self.values.iter().flat_map(|value| value.find_iter(text));
        let mut spans: Vec<Range<usize>> = found.map(|found| found.range()).filter(|span| !span.is_empty()).collect();
        spans.sort_by_key(|span| span.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }
}

/// What stands where a secret was.
fn mask(bytes: usize) -> String {
    format!("[masked: {bytes} bytes]")
}

fn whole<'a>(tree: &Tree<'a>) -> Tree<'a> {
    Tree::Text(Cow::Owned(mask(tree.bytes())))
}

/// Members in canonical order again, names that became equal told apart.
fn sorted<'a>(mut members: Vec<(Cow<'a, str>, Tree<'a>)>) -> Vec<(Cow<'a, str>, Tree<'a>)> {
    members.sort_by(|a, b| a.0.cmp(&b.0));
    let mut taken = std::collections::HashSet::new();
    for (name, _) in &mut members {
        let mut number = 2;
        let first = name.clone();
        while !taken.insert(fold(name)) {
            *name = Cow::Owned(format!("{first} {number}"));
            number += 1;
        }
    }
    members.sort_by(|a, b| a.0.cmp(&b.0));
    members
}

fn value_pattern(pattern: &str) -> Result<Regex, RedactError> {
    let mut builder = RegexBuilder::new(pattern);
    let regex = builder.size_limit(limits::PATTERN_BYTES).dfa_size_limit(limits::PATTERN_BYTES).build();
    let regex = regex.map_err(|_| RedactError::Value(crate::show::escape(pattern)))?;
    match regex.is_match("") {
        true => Err(RedactError::Empty(crate::show::escape(pattern))),
        false => Ok(regex),
    }
}

/// One pattern that matches wherever any of these does.
fn all_as_one(values: &[Regex]) -> Option<Regex> {
    let patterns: Vec<String> = values.iter().map(|value| format!("(?:{})", value.as_str())).collect();
    let mut builder = RegexBuilder::new(&patterns.join("|"));
    builder.size_limit(limits::PATTERN_BYTES).dfa_size_limit(limits::PATTERN_BYTES).build().ok()
}

/// Shapes nothing harmless has; each, and all as one.
static STANDARD: LazyLock<(Vec<Regex>, Option<Regex>)> = LazyLock::new(|| {
    let patterns = [
        // Private keys in PEM form, also when the end is cut off.
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----|\z)",
        // Model providers and payment services: sk-…, sk_live_…, rk_live_…
        r"(?-u:\b)[sr]k[-_](live_|test_|proj-|ant-|or-)?[A-Za-z0-9_-]{16,}",
        // GitHub, GitLab, Slack, npm, PyPI, Hugging Face.
        r"(?-u:\b)gh[pousr]_[A-Za-z0-9]{20,}",
        r"(?-u:\b)github_pat_[A-Za-z0-9_]{20,}",
        r"(?-u:\b)gl(pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{16,}",
        r"(?-u:\b)xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"(?-u:\b)xapp-[0-9]-[A-Za-z0-9-]{10,}",
        r"(?-u:\b)npm_[A-Za-z0-9]{30,}",
        r"(?-u:\b)pypi-[A-Za-z0-9_-]{40,}",
        r"(?-u:\b)hf_[A-Za-z0-9]{30,}",
        // Cloud access keys.
        r"(?-u:\b)(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?-u:\b)",
        r"(?-u:\b)AIza[A-Za-z0-9_-]{35}",
        // Signed tokens, and what follows `Bearer` or `Basic` in a header.
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
        r"(?i)(?-u:\b)(bearer|basic) [A-Za-z0-9._~+/=-]{16,}",
        // A password inside an address.
        r"://[^/\s:@]*:[^/\s@]+@",
    ];
    let compiled = patterns.iter().map(|pattern| Regex::new(pattern).expect("a constant, tried by the tests"));
    let values: Vec<Regex> = compiled.collect();
    let any = all_as_one(&values);
    (values, any)
});
