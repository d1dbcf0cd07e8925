//! Where words go: data to stdout, talk to stderr, and nothing unsafe to either.

use std::fmt::Display;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use countersign::show::escape;
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

/// For headings and whatever has the focus.
pub(crate) const BOLD: Style = Style::new().bold();
/// For what matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// For yes.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For no.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// For what waits, and for warnings.
pub(crate) const WAIT: Style = AnsiColor::Yellow.on_default();

/// Colours a text that is already safe. Terminals that want no colour get none.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints a line of data on stdout.
pub(crate) fn data(line: impl Display) -> io::Result<()> {
    writeln!(anstream::stdout().lock(), "{line}")
}

/// Prints a part of a line of data on stdout, to be seen at once.
pub(crate) fn part(text: impl Display) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    write!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a part of a line of talk on stderr.
pub(crate) fn say_part(text: impl Display) {
    let mut stderr = anstream::stderr().lock();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Prints a value as one line of JSON on stdout.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> io::Result<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    data(text)
}

/// Prints a line of talk on stderr. Where nobody can read it there is nobody to tell.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Says that something is not as it should be, though the work goes on.
pub(crate) fn warn(line: impl Display) {
    say(format_args!("{} {line}", paint(WAIT, "warning:")));
}

/// Escapes a text of several lines, keeping its line breaks.
pub(crate) fn safe_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| escape(line.trim_end())).collect();
    lines.join("\n").replace("\\\\", "\\")
}

/// Escapes a piece of a longer text, keeping its line breaks and blanks. Tabs are drawn as blanks.
pub(crate) fn safe_piece(text: &str) -> String {
    let safe = |line: &str| {
        let line = line.replace('\t', "    ");
        let body = line.trim_end_matches(' ');
        let blanks = " ".repeat(line.len() - body.len());
        escape(body).replace("\\\\", "\\") + &blanks
    };
    let lines: Vec<String> = text.replace("\r\n", "\n").split('\n').map(safe).collect();
    lines.join("\n")
}

/// A text of at most this many columns; what is cut ends in `…`.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut lines = countersign::show::wrap(text, columns.saturating_sub(1).max(1)).into_iter();
    format!("{}…", lines.next().unwrap_or_default())
}

/// Columns of the terminal talk goes to, or a comfortable width where there is none.
pub(crate) fn columns() -> usize {
    crossterm::terminal::size().map_or(100, |(columns, _)| usize::from(columns)).clamp(40, 200)
}

/// One cell of a table: what it says, and how it looks.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A plain cell. The text is escaped here.
    pub(crate) fn new(text: impl Display) -> Cell {
        Cell::styled(Style::new(), text)
    }

    /// A cell of JSON, which has escapes of its own.
    pub(crate) fn json(json: &countersign::Json) -> Cell {
        Cell { text: crate::prompt::on_one_line(json.as_str()), style: Style::new() }
    }

    /// A cell with a look of its own.
    pub(crate) fn styled(style: Style, text: impl Display) -> Cell {
        Cell { text: escape(&text.to_string()), style }
    }
}

/// Lays rows out in columns. The last column takes what room is left, and what does not fit ends in `…`.
pub(crate) fn table(heads: &[&str], rows: &[Vec<Cell>], room: usize) -> Vec<String> {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.width());
        }
    }
    if let Some((last, others)) = widths.split_last_mut() {
        let used: usize = others.iter().map(|width| width + 2).sum();
        *last = (*last).min(room.saturating_sub(used).max(10));
    }
    let head: Vec<Cell> = heads.iter().map(|head| Cell::styled(DIM, head)).collect();
    std::iter::once(&head).chain(rows).map(|row| table_line(row, &widths)).collect()
}

fn table_line(row: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    let last = row.len().saturating_sub(1);
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = fit(&cell.text, *width);
        let pad = if index == last { 0 } else { width.saturating_sub(text.width()) + 2 };
        line.push_str(&paint(cell.style, &text));
        line.push_str(&" ".repeat(pad));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B126: nothing is cut without a sign.
    #[test]
    fn what_does_not_fit_ends_in_a_sign() {
        assert_eq!(fit("short", 10), "short");
        assert_eq!(fit("a longer text", 8), "a longe…");
        let rows = [vec![Cell::new("a"), Cell::new("x".repeat(50))]];
        let lines = table(&["one", "two"], &rows, 25);
        assert!(anstream::adapter::strip_str(&lines[1]).to_string().ends_with("x…"), "{lines:?}");
    }

    #[test]
    fn no_control_byte_survives_a_table_or_an_error() {
        let lines = table(&["h"], &[vec![Cell::new("a\u{1b}[2Jb\u{202e}")]], 80);
        let text = anstream::adapter::strip_str(&lines[1]).to_string();
        assert_eq!(text, "a\\u{1b}[2Jb\\u{202e}");
        assert_eq!(safe_lines("one\ntwo\u{1b}"), "one\ntwo\\u{1b}");
        assert_eq!(safe_piece("a \n\tb\\n\r\n\u{1b}[2J \r "), "a \n    b\\n\n\\u{1b}[2J \\r ");
    }
}
