//! Several calls wait at once: a list to choose from. Choosing decides nothing; it opens one to look at.

use std::future::Future;
use std::io;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use unicode_width::UnicodeWidthStr as _;

use super::draw::{SMALLEST, Screen};
use super::terminal::{Guard, flush, next_event, size};
use crate::out::{BOLD, DIM, fit, paint};
use crate::signals::Signals;

/// One call that waits. Safe to print.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Who wants what.
    pub(crate) title: String,
    /// With which arguments.
    pub(crate) detail: String,
    /// How many there are of it.
    pub(crate) count: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// This one is to be looked at.
    At(usize),
    /// The list is no longer true.
    Changed,
    /// The person wants everything to stop.
    Stop,
}

/// Lets the person choose one of several. `changed` resolves when the list is no longer true.
pub(crate) async fn pick(
    items: &[Item],
    focus: usize,
    changed: impl Future<Output = ()>,
    signals: &mut Signals,
) -> io::Result<Picked> {
    let mut guard = Guard::take()?;
    flush()?;
    let mut list = List { items, focus: focus.min(items.len().saturating_sub(1)) };
    tokio::pin!(changed);
    loop {
        guard.show(list.draw(size()))?;
        let event = tokio::select! {
            biased;
            () = &mut changed => return Ok(Picked::Changed),
            () = signals.any() => return Ok(Picked::Stop),
            event = next_event() => event,
        };
        match event {
            None => return Ok(Picked::Stop),
            Some(Err(error)) => return Err(error),
            Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                if let Some(picked) = list.key(key) {
                    return Ok(picked);
                }
            }
            Some(Ok(Event::Resize(..) | Event::FocusGained)) => guard.drawn = None,
            Some(Ok(Event::Key(_) | Event::FocusLost | Event::Mouse(_) | Event::Paste(_))) => {}
        }
    }
}

/// The list as a state.
struct List<'a> {
    items: &'a [Item],
    focus: usize,
}

impl List<'_> {
    fn key(&mut self, key: KeyEvent) -> Option<Picked> {
        let last = self.items.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Some(Picked::Stop),
            KeyCode::Enter => return Some(Picked::At(self.focus)),
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => {
                self.focus = if self.focus >= last { 0 } else { self.focus + 1 };
            }
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => self.focus = self.focus.checked_sub(1).unwrap_or(last),
            KeyCode::Home => self.focus = 0,
            KeyCode::End => self.focus = last,
            KeyCode::Char(digit) => {
                let number = digit.to_digit(10).and_then(|number| usize::try_from(number).ok());
                return number.and_then(|number| number.checked_sub(1)).filter(|at| *at <= last).map(Picked::At);
            }
            _ => {}
        }
        None
    }

    fn count(&self) -> usize {
        self.items.iter().map(|item| item.count).sum()
    }

    fn draw(&self, size: (usize, usize)) -> Screen {
        if size.0 < SMALLEST.0 || size.1 < SMALLEST.1 {
            let words = format!("Make the window larger: {} by {} at least.", SMALLEST.0, SMALLEST.1);
            let rows = countersign::show::wrap(&words, size.0.max(1));
            return Screen { rows: rows.into_iter().take(size.1).collect(), cursor: None };
        }
        let width = (size.0 - 4).min(116);
        let room = size.1 - 3;
        // The window follows the focus.
        let top = self.focus.saturating_sub(room - 1);
        let mut rows = vec![border('┌', '┐', &format!(" {} calls wait for a decision ", self.count()), width)];
        for (index, item) in self.items.iter().enumerate().skip(top).take(room) {
            let sign = if index == self.focus { '›' } else { ' ' };
            let text = fit(&format!("{sign} {} {}  {}", index + 1, item.title, item.detail), width);
            let gap = " ".repeat(width.saturating_sub(text.width()));
            let style = if index == self.focus { BOLD.invert() } else { anstyle::Style::new() };
            rows.push(format!("│ {}{gap} │", paint(style, &text)));
        }
        rows.push(border('└', '┘', " ↑↓ choose · Enter look at it · Ctrl-C stop ", width));
        Screen { rows, cursor: None }
    }
}

fn border(left: char, right: char, words: &str, width: usize) -> String {
    let words = fit(words, width);
    let rest = "─".repeat((width + 1).saturating_sub(words.width()));
    format!("{left}─{}{rest}{right}", paint(DIM, &words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<Item> {
        (0..count).map(|at| Item { title: format!("tool_{at}"), detail: "x".repeat(300), count: 1 }).collect()
    }

    /// B126: every row fits, the one in focus is always drawn and marked by more than colour.
    #[test]
    fn the_call_in_focus_is_always_on_the_screen() {
        let items = items(40);
        for size in [(80, 24), (200, 50), (40, 10)] {
            let mut list = List { items: &items, focus: 0 };
            for at in 0..items.len() {
                let rows: Vec<String> =
                    list.draw(size).rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect();
                assert!(rows.len() <= size.1 && rows.iter().all(|row| row.width() <= size.0), "{rows:#?}");
                assert!(rows.iter().any(|row| row.contains(&format!("› {} tool_{at} ", at + 1))), "{at}: {rows:#?}");
                assert_eq!(list.key(KeyEvent::from(KeyCode::Down)), None);
            }
            assert_eq!(list.focus, 0, "it goes round");
        }
    }

    #[test]
    fn a_digit_opens_its_call_and_nothing_else() {
        let items = items(2);
        let mut list = List { items: &items, focus: 0 };
        let press = |list: &mut List<'_>, char| list.key(KeyEvent::from(KeyCode::Char(char)));
        assert_eq!(press(&mut list, '2'), Some(Picked::At(1)));
        assert_eq!(press(&mut list, '3'), None);
        assert_eq!(press(&mut list, '0'), None);
        assert_eq!(press(&mut list, 'a'), None);
    }
}
