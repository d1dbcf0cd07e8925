//! Draws a question as the rows of a screen. Every row is exactly as wide as it may be; nothing is drawn twice.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use super::body::Look;
use super::dialog::{Dialog, Stage};
use super::input::Input;
use crate::out::{fit, paint};

/// Rows around the text beside the bar and its explanation: both borders, and the rule between.
const AROUND: usize = 3;
/// Rows that the text keeps, however long the explanation is.
const LEAST: usize = 3;

/// What stands above what is written for the tool.
pub(crate) const ADDING: &str = "For the tool, beside its arguments: JSON, or plain words.";

/// The smallest screen a question is drawn on.
pub(crate) const SMALLEST: (usize, usize) = (40, 10);

/// A drawn screen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// The rows, with their looks.
    pub(crate) rows: Vec<String>,
    /// Where the cursor stands, where there is one: column and row.
    pub(crate) cursor: Option<(usize, usize)>,
}

/// Draws the question for a screen of this size. What is drawn counts as shown.
pub(crate) fn draw(dialog: &mut Dialog, size: (usize, usize), left: Option<Duration>, now: Duration) -> Screen {
    if size.0 < SMALLEST.0 || size.1 < SMALLEST.1 {
        // Too small to show anything whole: nothing counts as shown, and nothing can be approved.
        dialog.forget();
        let words = format!("Make the window larger: {} by {} at least.", SMALLEST.0, SMALLEST.1);
        let rows = countersign::show::wrap(&words, size.0.max(1));
        return Screen { rows: rows.into_iter().take(size.1).collect(), cursor: None };
    }
    let width = (size.0 - 4).min(116);
    let foot = Foot::of(dialog, now, width, size.1.saturating_sub(AROUND + LEAST));
    let room = size.1.saturating_sub(AROUND + foot.rows()).max(1);
    dialog.lay_out(width);
    let mut frame = Frame { width, screen: Screen::default() };
    frame.top(&dialog.question.view.title, left);
    match &dialog.stage {
        Stage::Choosing | Stage::Checking | Stage::Remembering(_) => frame.reading(dialog, room),
        Stage::Denying(input) => frame.writing("Why not? The agent will read this. Empty is allowed.", input, room),
        Stage::Responding(input) => {
            frame.writing("Your answer in place of the tool's: plain words, or JSON.", input, room);
        }
        Stage::Editing(input) => frame.writing("The arguments, as JSON:", input, room),
        Stage::Naming(input) => frame.writing(&dialog.naming(), input, room),
        Stage::Adding(input) => frame.writing(ADDING, input, room),
    }
    // What was drawn counts as shown, which may have woken a choice.
    let left = size.1.saturating_sub(frame.screen.rows.len() + 1);
    frame.foot(&Foot::of(dialog, now, width, left), dialog);
    frame.screen
}

/// What stands below the text: the choices, and what comes of the one in focus. Both take as many rows as they need.
struct Foot {
    /// The rows of the bar, painted, and how wide each is.
    bar: Vec<(String, usize)>,
    explanation: Vec<String>,
}

impl Foot {
    /// The choices whole, and of the explanation what fits into so many rows with them.
    fn of(dialog: &Dialog, now: Duration, width: usize, rows: usize) -> Foot {
        let bar = bar(dialog, now, width);
        let words = countersign::show::escape(&dialog.explanation(now));
        let mut explanation = countersign::show::wrap(&words, width);
        let most = rows.saturating_sub(bar.len()).max(1);
        if explanation.len() > most {
            let rest = explanation.split_off(most - 1).concat();
            explanation.push(fit(&rest, width));
        }
        Foot { bar, explanation }
    }

    fn rows(&self) -> usize {
        self.bar.len() + self.explanation.len()
    }
}

/// The choices on as many rows as they need, so that the one in focus is always seen.
fn bar(dialog: &Dialog, now: Duration, width: usize) -> Vec<(String, usize)> {
    let mut rows: Vec<(String, usize)> = vec![(String::new(), 0)];
    for (index, choice) in dialog.bar().iter().enumerate() {
        let asleep = dialog.asleep(*choice, now);
        let name = match asleep {
            true => format!("{} ({})", choice.letter(), choice.label()),
            false => format!("{} {}", choice.letter(), choice.label()),
        };
        let (item, style) = match (index == dialog.focus, asleep) {
            (true, _) => (format!("[{name}]"), BOLD.invert()),
            (false, true) => (format!(" {name} "), DIM),
            (false, false) => (format!(" {name} "), Style::new()),
        };
        let item = fit(&item, width);
        let used = rows.last().map_or(0, |(_, used)| *used);
        if used > 0 && used + 1 + item.width() > width {
            rows.push((String::new(), 0));
        }
        if let Some((painted, used)) = rows.last_mut() {
            let gap = if *used == 0 { "" } else { " " };
            painted.push_str(gap);
            painted.push_str(&paint(style, &item));
            *used += gap.len() + item.width();
        }
    }
    rows
}

/// A box in the making.
struct Frame {
    width: usize,
    screen: Screen,
}

impl Frame {
    fn top(&mut self, title: &str, left: Option<Duration>) {
        let clock = left.map_or("waits for ever".to_owned(), countdown);
        let asks = if self.width < 60 { "─ Approve? ─" } else { "─ Approve this call? ─" };
        let room = (self.width + 2).saturating_sub(asks.width() + clock.width() + 5);
        let title = format!("{asks} {} ", fit(title, room.max(4)));
        let gap = (self.width + 2).saturating_sub(title.width() + clock.width() + 3);
        let style = if left.is_some_and(|left| left < Duration::from_secs(30)) { BAD } else { WAIT };
        let row = format!("┌{}{} {} ─┐", paint(BOLD, &title), "─".repeat(gap), paint(style, &clock));
        self.screen.rows.push(row);
    }

    fn reading(&mut self, dialog: &mut Dialog, room: usize) {
        // A short text needs no page of its own height.
        let height = room.min(dialog.rows.len().max(3));
        dialog.show(height);
        for row in dialog.visible() {
            self.row(look(row.look), &row.text);
        }
        for _ in dialog.visible().count()..height {
            self.row(Style::new(), "");
        }
        self.rule(&dialog.part().unwrap_or_default());
    }

    fn writing(&mut self, heading: &str, input: &Input, room: usize) {
        let headings = countersign::show::wrap(heading, self.width);
        for heading in &headings {
            self.row(BOLD, heading);
        }
        let (rows, (row, column)) = input.rows(self.width);
        let height = room.saturating_sub(headings.len()).max(1).min(rows.len().max(3));
        let top = row.saturating_sub(height.saturating_sub(1));
        for text in rows.iter().skip(top).take(height) {
            self.row(Style::new(), text);
        }
        for _ in rows.len().saturating_sub(top).min(height)..height {
            self.row(Style::new(), "");
        }
        self.screen.cursor = Some((column + 2, 1 + headings.len() + row - top));
        self.rule("");
    }

    fn foot(&mut self, foot: &Foot, dialog: &Dialog) {
        for (painted, width) in &foot.bar {
            self.painted_row(painted, *width);
        }
        let style = if dialog.notice.is_some() { WAIT } else { Style::new() };
        for row in &foot.explanation {
            self.row(style, row);
        }
        let keys = fit(keys(&dialog.stage), self.width);
        let rest = (self.width + 1).saturating_sub(keys.width());
        self.screen.rows.push(format!("└─{}{}┘", paint(DIM, &keys), "─".repeat(rest)));
    }

    fn rule(&mut self, words: &str) {
        let rest = (self.width + 2).saturating_sub(words.width() + 1);
        self.screen.rows.push(format!("├─{}{}┤", paint(WAIT, words), "─".repeat(rest)));
    }

    fn row(&mut self, style: Style, text: &str) {
        self.painted_row(&paint(style, text), text.width());
    }

    fn painted_row(&mut self, painted: &str, width: usize) {
        let gap = " ".repeat(self.width.saturating_sub(width));
        self.screen.rows.push(format!("│ {painted}{gap} │"));
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WAIT: Style = AnsiColor::Yellow.on_default();

fn look(look: Look) -> Style {
    match look {
        Look::Heading => BOLD,
        Look::Fact => Style::new(),
        Look::Warning => BAD,
        Look::Argument => AnsiColor::Cyan.on_default(),
        Look::Add => AnsiColor::Green.on_default(),
        Look::Remove => AnsiColor::Red.on_default(),
        Look::Note => DIM,
    }
}

fn keys(stage: &Stage) -> &'static str {
    match stage {
        Stage::Choosing => " ←→ choose · Enter take it · Space, PgUp turn the page · Ctrl-C stop ",
        Stage::Checking | Stage::Remembering(_) => {
            " ←→ choose · Enter take it · Space turn the page · Esc back · Ctrl-C stop "
        }
        Stage::Denying(_) | Stage::Responding(_) => " Enter send it · Esc back · Ctrl-C stop ",
        Stage::Naming(_) => " Enter look at the rule · Esc back · Ctrl-C stop ",
        Stage::Editing(_) | Stage::Adding(_) => " Ctrl-S or F2 look at the change · Ctrl-O in your $EDITOR · Esc back ",
    }
}

/// The time that is left, as on a clock.
pub(crate) fn countdown(left: Duration) -> String {
    let seconds = left.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02} left", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02} left", seconds / 60 % 60, seconds % 60),
    }
}
