//! What there is to read at each stage, as rows that fit the width.

use countersign::show::{Line, LineKind, View, wrap};
use similar::{ChangeTag, TextDiff};
use unicode_width::UnicodeWidthStr as _;

use super::dialog::{Dialog, Stage};
use super::pretty::pretty;

/// Columns of a fact's label.
const LABEL: usize = 11;

/// What a row is, so that it can have a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Our own words.
    Heading,
    /// Something the gate knows.
    Fact,
    /// Something that might deceive.
    Warning,
    /// What will run.
    Argument,
    /// A line that comes.
    Add,
    /// A line that goes.
    Remove,
    /// Words of tool or agent.
    Note,
}

/// One row: safe to draw, and no wider than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) look: Look,
    pub(crate) text: String,
}

/// The rows of the present stage, at the present width.
pub(super) fn rows(dialog: &Dialog) -> Vec<Row> {
    let mut page = Page { width: dialog.width, rows: Vec::new() };
    match &dialog.stage {
        Stage::Choosing => page.view(&dialog.question.view),
        Stage::Checking => {
            if let Some(arguments) = &dialog.change.arguments {
                page.put(Look::Heading, "This is what changes:");
                page.difference(&pretty(&dialog.question.arguments), &pretty(arguments));
            }
            if let Some(payload) = &dialog.change.payload {
                page.put(Look::Heading, "The tool gets this along with your yes:");
                let given = dialog.question.payload.as_ref().map(pretty).unwrap_or_default();
                page.difference(&given, &pretty(payload));
            }
        }
        Stage::Remembering(covers) => {
            page.put(Look::Heading, "Choose what to allow from now on. `countersign grants` lists and revokes it.");
            for offer in dialog.offers(covers) {
                page.put(Look::Heading, "");
                for line in &offer.lines {
                    page.put(Look::Fact, line);
                }
            }
        }
        Stage::Denying(_) | Stage::Responding(_) | Stage::Editing(_) | Stage::Adding(_) | Stage::Naming(_) => {}
    }
    page.rows
}

/// Collects rows of one width.
struct Page {
    width: usize,
    rows: Vec<Row>,
}

impl Page {
    fn view(&mut self, view: &View) {
        let facts: Vec<&Line> = view.lines.iter().filter(|line| line.kind == LineKind::Fact).collect();
        self.facts(&facts);
        let mut in_arguments = false;
        let mut in_notes = false;
        for line in view.lines.iter().filter(|line| line.kind != LineKind::Fact) {
            match line.kind {
                LineKind::Warning | LineKind::Fact => {}
                LineKind::Note if !in_notes => {
                    in_notes = true;
                    self.put(Look::Heading, "Said by the tool or the agent, not checked:");
                }
                LineKind::Note => {}
                _ if !in_arguments => {
                    in_arguments = true;
                    self.put(Look::Heading, "The call's arguments, exactly as they would run:");
                }
                _ => {}
            }
            self.line(line);
        }
    }

    /// Short facts stand two in a row where there is room.
    fn facts(&mut self, facts: &[&Line]) {
        let half = self.width / 2;
        let mut left: Option<String> = None;
        for fact in facts {
            let text = format!("{:<LABEL$} {}", fact.label, fact.text);
            let is_short = text.width() < half;
            match left.take() {
                Some(before) if is_short => {
                    let gap = half.saturating_sub(before.width());
                    self.put(Look::Fact, &format!("{before}{}{text}", " ".repeat(gap)));
                }
                Some(before) => {
                    self.put(Look::Fact, &before);
                    self.put(Look::Fact, &text);
                }
                None if is_short => left = Some(text),
                None => self.put(Look::Fact, &text),
            }
        }
        if let Some(before) = left {
            self.put(Look::Fact, &before);
        }
    }

    fn line(&mut self, line: &Line) {
        let look = match line.kind {
            LineKind::Fact => Look::Fact,
            LineKind::Warning => Look::Warning,
            LineKind::Argument | LineKind::Text | LineKind::Masked | LineKind::DiffSame => Look::Argument,
            LineKind::DiffAdd => Look::Add,
            LineKind::DiffRemove => Look::Remove,
            LineKind::Note => Look::Note,
        };
        let lead = if matches!(look, Look::Warning) { "! " } else { "  " };
        self.put(look, &format!("{lead}{line}"));
    }

    fn difference(&mut self, old: &str, new: &str) {
        for change in TextDiff::from_lines(old, new).iter_all_changes() {
            let (look, sign) = match change.tag() {
                ChangeTag::Equal => (Look::Argument, " "),
                ChangeTag::Delete => (Look::Remove, "-"),
                ChangeTag::Insert => (Look::Add, "+"),
            };
            // Laid-out arguments hold nothing that is drawn as something else.
            self.put(look, &format!("{sign} {}", change.value().trim_end_matches('\n')));
        }
    }

    /// Adds a text, broken into rows. A row that goes on from the one before begins with a sign of its own.
    fn put(&mut self, look: Look, text: &str) {
        let first_width = self.width.max(8);
        if text.width() <= first_width {
            return self.rows.push(Row { look, text: text.to_owned() });
        }
        let indent = text.len() - text.trim_start_matches(' ').len();
        let lead = format!("{}↪ ", " ".repeat(indent.min(12)));
        let mut pieces = wrap(text, first_width).into_iter();
        let first = pieces.next().unwrap_or_default();
        let rest: String = pieces.collect();
        self.rows.push(Row { look, text: first });
        for piece in wrap(&rest, first_width.saturating_sub(lead.width()).max(4)) {
            self.rows.push(Row { look, text: format!("{lead}{piece}") });
        }
    }
}
