//! What about a call deserves a second look, beside what its text might hide.

use crate::call::Call;
use crate::json::Tree;
use crate::limits;
use crate::place::Place;

use super::escape::{Warning, WarningKind, escape_folded, name};

/// Words in the name of an argument that say that it is a path.
const PATH_WORDS: [&str; 18] = [
    "path",
    "paths",
    "filepath",
    "file",
    "files",
    "filename",
    "dir",
    "directory",
    "directories",
    "folder",
    "folders",
    "cwd",
    "workdir",
    "root",
    "destination",
    "dest",
    "dst",
    "src",
];

/// What about this call deserves a second look.
pub(super) fn notable(call: &Call) -> Vec<Warning> {
    let mut found = Paths { call, place: String::new(), warnings: Vec::new() };
    found.value("", &call.shown_arguments().tree());
    let claims = call.facts.annotations.as_ref().and_then(|claims| claims.field("destructiveHint"));
    let whole = [
        (claims.is_some_and(|claim| claim.as_str() == "true"), WarningKind::Destructive),
        (call.definition.is_none(), WarningKind::NoDefinition),
        (call.facts.arguments.as_str().len() > limits::LARGE_ARGUMENT_BYTES, WarningKind::Large),
    ];
    let mut warnings = found.warnings;
    warnings.extend(whole.into_iter().filter(|(holds, _)| *holds).map(|(_, kind)| Warning::whole(kind)));
    warnings
}

/// Looks for paths that may lead outside the folder the agent works in.
struct Paths<'a> {
    call: &'a Call,
    place: String,
    warnings: Vec<Warning>,
}

impl Paths<'_> {
    fn value(&mut self, field: &str, value: &Tree<'_>) {
        match value {
            Tree::Word(_) => {}
            Tree::Text(text) if is_path_name(field) || self.resolved(field).is_some() => self.path(field, text),
            Tree::Text(_) => {}
            // The items of a list are what the list is called.
            Tree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.below(&index.to_string(), |paths| paths.value(field, item));
                }
            }
            Tree::Map(members) => {
                for (key, value) in members {
                    self.below(&name(key), |paths| paths.value(key, value));
                }
            }
        }
    }

    fn below(&mut self, step: &str, look: impl FnOnce(&mut Self)) {
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(step);
        look(self);
        self.place.truncate(length);
    }

    fn path(&mut self, field: &str, text: &str) {
        let sample = match self.resolved(field) {
            // SECURITY: the gate cannot follow links. The tool can, and says where the path leads.
            Some(place) if !leads_there(text, place.path()) => {
                format!("{} leads to {}", name(text), name(place.path()))
            }
            _ if leads_out(text) => escape_folded(text),
            _ => return,
        };
        let kind = WarningKind::OutsidePath;
        self.warnings.push(Warning { kind, place: self.place.clone(), sample, count: 1 });
    }

    /// Where the tool says that a member of the arguments leads.
    fn resolved(&self, field: &str) -> Option<&Place> {
        let is_member = self.place.matches('/').count() == 1;
        self.call.facts.places.get(field).filter(|_| is_member)
    }
}

/// Whether one of the words in a name says that it is a path: `file_path`, `targetDir`.
fn is_path_name(field: &str) -> bool {
    let mut words = String::with_capacity(field.len() + 4);
    let mut after_lower = false;
    for char in field.chars() {
        if after_lower && char.is_ascii_uppercase() {
            words.push(' ');
        }
        after_lower = char.is_ascii_lowercase();
        words.push(char.to_ascii_lowercase());
    }
    words.split(|char: char| !char.is_ascii_alphanumeric()).any(|word| PATH_WORDS.contains(&word))
}

/// Whether a path starts elsewhere than in the folder the agent works in, or climbs out of it.
fn leads_out(path: &str) -> bool {
    let path = path.trim();
    let bytes = path.as_bytes();
    let drive = bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.get(1) == Some(&b':');
    let elsewhere = path.starts_with(['/', '\\', '~', '$', '%']) || drive || path.starts_with("file:");
    elsewhere || path.len() > limits::PATH_BYTES || inner(path).is_none()
}

/// Whether a relative path, read as it is written, ends where the tool says that it leads.
fn leads_there(path: &str, resolved: &str) -> bool {
    match inner(path) {
        Some(steps) if !path.starts_with('/') => {
            let there: Vec<&str> = resolved.split('/').collect();
            there.ends_with(&steps)
        }
        // An absolute path is told of as such.
        _ => true,
    }
}

/// The steps of a path with `.` and `..` taken out; none where it climbs out of the folder it starts in.
fn inner(path: &str) -> Option<Vec<&str>> {
    let mut steps = Vec::new();
    for step in path.split(['/', '\\']) {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop()?;
            }
            step => steps.push(step),
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_start_elsewhere_or_climb_out_are_told_of() {
        for path in
            ["/etc/passwd", "~/.ssh/id", "../x", "a/../../x", "C:\\x", "\\\\host\\x", "file:///x", "$HOME/x", " /x"]
        {
            assert!(leads_out(path), "{path}");
        }
        for path in ["", ".", "a", "./a/b", "a/../b", "a..b", "..a", "src/main.rs"] {
            assert!(!leads_out(path), "{path}");
        }
        assert!(leads_out(&"a/".repeat(limits::PATH_BYTES)), "too long to be looked at");
    }

    #[test]
    fn a_link_is_told_of_by_where_it_leads() {
        assert!(leads_there("docs/a.txt", "/w/docs/a.txt") && leads_there(".", "/w") && leads_there("b/../a", "/w/a"));
        assert!(!leads_there("docs/a.txt", "/etc/a.txt") && !leads_there("a.txt", "/w/ba.txt"));
    }

    #[test]
    fn names_say_what_a_path_is() {
        for field in ["path", "file_path", "targetDir", "FILE", "src", "working-directory"] {
            assert!(is_path_name(field), "{field}");
        }
        for field in ["to", "profile", "direction", "text", "pathology", ""] {
            assert!(!is_path_name(field), "{field}");
        }
    }
}
