//! Problems of a file, each with its place and the line shown.

use countersign::policy::{PolicyError, PolicyErrors};
use countersign::show::escape;
use unicode_width::UnicodeWidthStr as _;

use crate::fault::Fault;

/// One problem as text: `file:line:col: what`, the line, a caret under the place, and what to do.
pub(crate) fn problem(error: &PolicyError) -> String {
    let place = format!("{}:{}:{}", error.file, error.line, error.column);
    let mut text = format!("{}: {}", escape(&place), escape(&error.message));
    if !error.source_line.is_empty() {
        let margin = error.line.to_string();
        let before: String = error.source_line.chars().take(error.column.saturating_sub(1)).collect();
        // A blank at the very end would be escaped; here it stands before the caret.
        let before = escape(&format!("{before}x")).width().saturating_sub(1);
        text.push_str(&format!("\n {margin} | {}", escape(error.source_line.trim_end())));
        text.push_str(&format!("\n {} | {}^", " ".repeat(margin.len()), " ".repeat(before)));
    }
    if let Some(help) = &error.help {
        text.push_str(&format!("\n {} = help: {}", " ".repeat(error.line.to_string().len()), escape(help)));
    }
    text
}

/// All problems of a file as one error.
pub(crate) fn fault(errors: &PolicyErrors) -> Fault {
    let count = errors.iter().count();
    let list: Vec<String> = errors.iter().map(problem).collect();
    let plural = if count == 1 { "problem" } else { "problems" };
    Fault::listed(list, format!("{count} {plural}; nothing was loaded"))
}
