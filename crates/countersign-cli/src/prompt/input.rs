//! Text the person types: one line, or several.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::UnicodeWidthStr as _;

/// The most a person may type into one field.
const MOST_CHARS: usize = 64 * 1024;

/// A text with a cursor in it. Draws only what is safe to draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input {
    chars: Vec<char>,
    cursor: usize,
    many_lines: bool,
    /// Whether it also holds what cannot be drawn as itself, and shows it escaped.
    verbatim: bool,
}

impl Input {
    /// An empty line.
    pub(crate) fn line() -> Input {
        Input::default()
    }

    /// Several lines, beginning with this text.
    pub(crate) fn lines(text: &str) -> Input {
        let chars = text.chars().filter(|char| is_safe(*char)).collect();
        Input { chars, many_lines: true, ..Input::default() }
    }

    /// Several lines of whatever was typed, with the cursor behind them.
    pub(crate) fn verbatim(text: &str) -> Input {
        let chars: Vec<char> = text.chars().collect();
        Input { cursor: chars.len(), chars, many_lines: true, verbatim: true }
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
            KeyCode::Char('w') => self.delete_word(),
            KeyCode::Char('k') => {
                let end = self.line_end();
                self.chars.drain(self.cursor..end);
            }
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
        let tab = if self.verbatim { "\t" } else { "  " };
        for char in text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', tab).chars() {
            let char = if char == '\n' && !self.many_lines { ' ' } else { char };
            self.insert(char);
        }
    }

    /// The text in rows of at most `width` columns, and the cursor's row and column in it.
    pub(crate) fn rows(&self, width: usize) -> (Vec<String>, (usize, usize)) {
        let mut rows = vec![String::new()];
        let (mut used, mut place) = (0, (0, 0));
        for (index, char) in self.chars.iter().copied().enumerate() {
            let shown = self.shown(index, char);
            let columns = shown.width();
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
                _ => {
                    used += columns;
                    if let Some(row) = rows.last_mut() {
                        row.push_str(&shown);
                    }
                }
            }
        }
        if self.cursor == self.chars.len() {
            place = (rows.len() - 1, used);
        }
        (rows, place)
    }

    /// Whether nothing is before the cursor that another line begins with.
    pub(crate) fn on_first_line(&self) -> bool {
        self.line_start() == 0
    }

    /// Whether no line follows the one with the cursor.
    pub(crate) fn on_last_line(&self) -> bool {
        self.line_end() == self.chars.len()
    }

    /// A character as it is drawn.
    fn shown(&self, at: usize, char: char) -> String {
        match is_safe(char) || is_mark_on(self.before(at), char) {
            true => char.to_string(),
            false => countersign::show::escape(&char.to_string()),
        }
    }

    fn before(&self, at: usize) -> Option<char> {
        at.checked_sub(1).and_then(|at| self.chars.get(at)).copied()
    }

    fn insert(&mut self, char: char) {
        let drawn = is_safe(char) || is_mark_on(self.before(self.cursor), char);
        let wanted = (drawn || self.verbatim) && (char != '\n' || self.many_lines);
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

    /// Deletes the word before the cursor, and the blanks behind it.
    fn delete_word(&mut self) {
        let before = self.chars.iter().take(self.cursor);
        let blanks = before.clone().rev().take_while(|char| char.is_whitespace()).count();
        let word = before.rev().skip(blanks).take_while(|char| !char.is_whitespace()).count();
        let start = self.cursor.saturating_sub(blanks + word);
        self.chars.drain(start..self.cursor);
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
    fn words_and_rests_of_lines_are_deleted() {
        let control = |char| KeyEvent::new(KeyCode::Char(char), KeyModifiers::CONTROL);
        let mut input = Input::line();
        typed(&mut input, "send it  off ");
        input.key(control('w'));
        assert_eq!(input.text(), "send it  ");
        input.key(control('w'));
        assert_eq!(input.text(), "send ");
        input.key(control('a'));
        press(&mut input, KeyCode::Right);
        input.key(control('k'));
        assert_eq!(input.text(), "s");
        input.key(control('w'));
        input.key(control('w'));
        assert_eq!(input.text(), "");
    }

    /// What is said verbatim keeps every character, and none of them paints.
    #[test]
    fn what_is_verbatim_is_kept_whole_and_drawn_escaped() {
        let mut input = Input::verbatim("");
        input.paste("a\tb\u{1b}[2J\r\n\u{202e}c");
        assert_eq!(input.text(), "a\tb\u{1b}[2J\n\u{202e}c");
        assert_eq!(input.rows(40), (vec!["a\\tb\\u{1b}[2J".to_owned(), "\\u{202e}c".to_owned()], (1, 9)));
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
