//! A line typed at a terminal: edited in place, with what was typed before at the arrow keys.

use std::io::{self, Write as _};
use std::time::Duration;

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{execute, queue};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use super::past::Past;
use crate::out::{self, BOLD};
use crate::prompt::{Input, next_event};

/// One prompt, what is typed at it, and what was.
pub(crate) struct Line {
    prompt: &'static str,
    input: Input,
    past: Past,
    /// How far back in the past the person is; 0 is what they type now.
    ago: usize,
    /// What they had typed before they went back.
    draft: String,
    /// The row of the cursor below the first one on the screen.
    row: u16,
}

/// What a key led to.
enum Step {
    Stay,
    Done,
    Ended,
}

impl Line {
    /// An empty line at this prompt.
    pub(crate) fn new(prompt: &'static str, past: Past) -> Line {
        Line { prompt, input: Input::verbatim(""), past, ago: 0, draft: String::new(), row: 0 }
    }

    /// The next line; none at its end. Dropping the future takes the line off the screen and keeps what was typed.
    pub(crate) async fn read(&mut self) -> io::Result<Option<String>> {
        let _keys = Keys::take()?;
        let mut shown = Shown(self);
        shown.0.draw()?;
        loop {
            let step = match next_event().await.transpose()? {
                None => Step::Ended,
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => shown.0.key(key),
                Some(Event::Paste(text)) => {
                    shown.0.input.paste(&text);
                    Step::Stay
                }
                Some(Event::Resize(..)) => Step::Stay,
                Some(Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_)) => continue,
            };
            match step {
                // Keys that are there already are drawn together.
                Step::Stay if event::poll(Duration::ZERO)? => {}
                Step::Stay => shown.0.draw()?,
                Step::Done => return shown.end().map(Some),
                Step::Ended => {
                    shown.end()?;
                    return Ok(None);
                }
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Step {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter if !key.modifiers.contains(KeyModifiers::ALT) => return Step::Done,
            KeyCode::Char('d') if control && self.input.text().is_empty() => return Step::Ended,
            KeyCode::Char('d') if control => self.input.key(KeyEvent::new(KeyCode::Delete, KeyModifiers::NONE)),
            KeyCode::Up if self.input.on_first_line() => self.recall(self.ago + 1),
            KeyCode::Down if self.input.on_last_line() => self.recall(self.ago.saturating_sub(1)),
            _ => self.input.key(key),
        }
        Step::Stay
    }

    /// Goes to a line of the past, or back to what was being typed.
    fn recall(&mut self, ago: usize) {
        if ago == self.ago || (ago > 0 && self.past.ago(ago).is_none()) {
            return;
        }
        if self.ago == 0 {
            self.draft = self.input.text();
        }
        self.ago = ago;
        self.input = Input::verbatim(self.past.ago(ago).unwrap_or(&self.draft));
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, height) = crossterm::terminal::size().unwrap_or((80, 24));
        let indent = u16::try_from(self.prompt.len()).unwrap_or_default();
        let (rows, (row, column)) = self.input.rows(usize::from(columns.saturating_sub(indent)));
        // Of more rows than the screen has, those around the cursor.
        let height = usize::from(height).max(1);
        let first = (row + 1).saturating_sub(height);
        let last = rows.len().min(first + height) - 1;
        let mut drawn = Vec::new();
        self.to_start(&mut drawn)?;
        for (at, text) in rows.iter().enumerate().skip(first).take(height) {
            let begin = if at == 0 { bold(self.prompt) } else { " ".repeat(self.prompt.len()) };
            let end = if at == last { "" } else { "\r\n" };
            write!(drawn, "{begin}{text}{end}")?;
        }
        let below = u16::try_from(last - row).unwrap_or_default();
        if below > 0 {
            queue!(drawn, MoveUp(below))?;
        }
        queue!(drawn, MoveToColumn(indent + u16::try_from(column).unwrap_or_default()))?;
        self.row = u16::try_from(row - first).unwrap_or_default();
        show(&drawn)
    }

    /// Where the line begins on the screen, with nothing from there on.
    fn to_start(&self, drawn: &mut Vec<u8>) -> io::Result<()> {
        if self.row > 0 {
            queue!(drawn, MoveUp(self.row))?;
        }
        queue!(drawn, MoveToColumn(0), Clear(ClearType::FromCursorDown))
    }
}

/// A line on the screen. Dropped, it is off it, so that something else can be said in its place.
struct Shown<'a>(&'a mut Line);

impl Shown<'_> {
    /// Leaves the line on the screen and begins the next one.
    fn end(&mut self) -> io::Result<String> {
        let line = &mut *self.0;
        let text = line.input.text();
        // To the end of it, whatever the cursor was at.
        line.input = Input::verbatim(&text);
        line.draw()?;
        show(b"\r\n")?;
        line.past.keep(&text);
        (line.input, line.ago, line.row) = (Input::verbatim(""), 0, 0);
        Ok(text)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let mut drawn = Vec::new();
        let _ = self.0.to_start(&mut drawn).and_then(|()| show(&drawn));
        self.0.row = 0;
    }
}

fn show(drawn: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(drawn)?;
    stderr.flush()
}

fn bold(text: &str) -> String {
    match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => text.to_owned(),
        _ => out::paint(BOLD, text),
    }
}

/// Keys come one by one and are not echoed. Signals and the ends of lines that others print stay as they are.
struct Keys(Termios);

impl Keys {
    fn take() -> io::Result<Keys> {
        let before = tcgetattr(io::stdin())?;
        let mut each = before.clone();
        each.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        each.special_codes[SpecialCodeIndex::VMIN] = 1;
        each.special_codes[SpecialCodeIndex::VTIME] = 0;
        let keys = Keys(before);
        tcsetattr(io::stdin(), OptionalActions::Now, &each)?;
        execute!(io::stderr(), EnableBracketedPaste)?;
        Ok(keys)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = execute!(io::stderr(), DisableBracketedPaste);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
