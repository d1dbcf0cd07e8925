//! Text the person types: one line, or several.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::UnicodeWidthChar as _;

/// The most a person may type into one field.
const MOST_CHARS: usize = 64 * 1024;

/// A text with a cursor in it. Holds only characters that are safe to draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input {
    chars: Vec<char>,
    cursor: usize,
    many_lines: bool,
}

impl Input {
    /// An empty line.
    pub(crate) fn line() -> Input {
        Input::default()
    }

    /// Several lines, beginning with this text.
    pub(crate) fn lines(text: &str) -> Input {
        Input { chars: text.chars().filter(|char| is_safe(*char)).collect(), cursor: 0, many_lines: true }
    }

    /// What was typed.
    pub(crate) fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// Takes a key. Keys it does not know do nothing.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        match key.code {
            KeyCode::Char(char) if plain => self.insert(char),
            KeyCode::Char('u') => self.delete_line(),
            KeyCode::Char('a') => self.cursor = self.line_start(),
            KeyCode::Char('e') => self.cursor = self.line_end(),
            KeyCode::Enter if self.many_lines => self.insert('\n'),
            KeyCode::Tab if self.many_lines => "  ".chars().for_each(|blank| self.insert(blank)),
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.chars.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.chars.len() => {
                self.chars.remove(self.cursor);
            }
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            _ => {}
        }
    }

    /// Takes pasted text. In a single line, breaks become blanks; what cannot be drawn is left out.
    pub(crate) fn paste(&mut self, text: &str) {
        for char in text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "  ").chars() {
            let char = if char == '\n' && !self.many_lines { ' ' } else { char };
            self.insert(char);
        }
    }

    /// The text in rows of at most `width` columns, and the cursor's row and column in it.
    pub(crate) fn rows(&self, width: usize) -> (Vec<String>, (usize, usize)) {
        let mut rows = vec![String::new()];
        let (mut used, mut place) = (0, (0, 0));
        for (index, char) in self.chars.iter().copied().enumerate() {
            let columns = char.width().unwrap_or(0);
            if char != '\n' && used + columns > width.max(2) - 1 {
                rows.push(String::new());
                used = 0;
            }
            if index == self.cursor {
                place = (rows.len() - 1, used);
            }
            match char {
                '\n' => {
                    rows.push(String::new());
                    used = 0;
                }
                char => {
                    used += columns;
                    if let Some(row) = rows.last_mut() {
                        row.push(char);
                    }
                }
            }
        }
        if self.cursor == self.chars.len() {
            place = (rows.len() - 1, used);
        }
        (rows, place)
    }

    fn insert(&mut self, char: char) {
        let before = self.cursor.checked_sub(1).and_then(|at| self.chars.get(at)).copied();
        let wanted = (is_safe(char) || is_mark_on(before, char)) && (char != '\n' || self.many_lines);
        if wanted && self.chars.len() < MOST_CHARS {
            self.chars.insert(self.cursor, char);
            self.cursor += 1;
        }
    }

    fn delete_line(&mut self) {
        let (start, end) = (self.line_start(), self.line_end());
        self.chars.drain(start..end);
        self.cursor = start;
    }

    fn line_start(&self) -> usize {
        let before = self.chars.iter().take(self.cursor).rposition(|char| *char == '\n');
        before.map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let after = self.chars.iter().skip(self.cursor).position(|char| *char == '\n');
        after.map_or(self.chars.len(), |at| self.cursor + at)
    }

    fn up(&mut self) {
        let (start, column) = (self.line_start(), self.cursor - self.line_start());
        if start > 0 {
            self.cursor = start - 1;
            self.cursor = (self.line_start() + column).min(start - 1);
        }
    }

    fn down(&mut self) {
        let (column, end) = (self.cursor - self.line_start(), self.line_end());
        if end < self.chars.len() {
            self.cursor = end + 1;
            self.cursor = (end + 1 + column).min(self.line_end());
        }
    }
}

/// Whether a character is a mark that belongs on the letter before it.
fn is_mark_on(before: Option<char>, mark: char) -> bool {
    let Some(before) = before.filter(|before| before.is_alphabetic()) else { return false };
    let text: String = [before, mark].into_iter().collect();
    countersign::show::escape(&text) == text
}

/// Whether a character is drawn as itself, wherever it stands.
fn is_safe(char: char) -> bool {
    if matches!(char, '\n' | ' ' | '\\') {
        return true;
    }
    let mut buffer = [0; 4];
    let text: &str = char.encode_utf8(&mut buffer);
    countersign::show::escape(text) == *text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(input: &mut Input, text: &str) {
        text.chars().for_each(|char| input.key(KeyEvent::new(KeyCode::Char(char), KeyModifiers::NONE)));
    }

    fn press(input: &mut Input, code: KeyCode) {
        input.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn a_line_is_typed_and_mended() {
        let mut input = Input::line();
        typed(&mut input, "nx");
        press(&mut input, KeyCode::Backspace);
        typed(&mut input, "o");
        press(&mut input, KeyCode::Home);
        typed(&mut input, "> ");
        press(&mut input, KeyCode::Enter);
        assert_eq!(input.text(), "> no");
        input.paste("\u{1b}[2J\nx\u{202e}");
        assert_eq!(input.text(), "> [2J xno", "what cannot be drawn is left out");
    }

    #[test]
    fn the_cursor_moves_over_lines() {
        let mut input = Input::lines("abc\nd\nefg");
        press(&mut input, KeyCode::End);
        press(&mut input, KeyCode::Down);
        typed(&mut input, "!");
        press(&mut input, KeyCode::Down);
        press(&mut input, KeyCode::Up);
        press(&mut input, KeyCode::Up);
        typed(&mut input, "?");
        assert_eq!(input.text(), "ab?c\nd!\nefg");
        let (rows, place) = input.rows(4);
        assert_eq!(rows, ["ab?", "c", "d!", "efg"]);
        assert_eq!(place, (1, 0));
    }
}
