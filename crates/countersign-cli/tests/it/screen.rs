//! A terminal whose screen can be looked at: programs that draw only what changed cannot be followed by their output.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expectrl::process::unix::{Signal, WaitStatus};
use expectrl::session::OsSession;
use expectrl::{Eof, Expect as _, Regex, Session};

/// How long anything may take to show up.
const WITHIN: Duration = Duration::from_secs(120);

/// A program on a terminal.
pub(crate) struct Screen {
    session: OsSession,
    unread: Vec<u8>,
    /// Everything that was written, as it came.
    raw: Vec<u8>,
    cells: Vec<Vec<char>>,
    cursor: (usize, usize),
}

impl Screen {
    pub(crate) fn of(mut command: Command, size: (u16, u16)) -> Screen {
        command.stdin(Stdio::inherit());
        let mut session = Session::spawn(command).unwrap();
        session.get_process_mut().set_window_size(size.0, size.1).unwrap();
        session.set_expect_timeout(Some(WITHIN));
        let mut screen = Screen { session, unread: Vec::new(), raw: Vec::new(), cells: Vec::new(), cursor: (0, 0) };
        screen.clear(size);
        screen
    }

    fn clear(&mut self, (columns, rows): (u16, u16)) {
        self.cells = vec![vec![' '; usize::from(columns)]; usize::from(rows)];
        self.cursor = (0, 0);
    }

    /// What is on the screen, a line for each row.
    pub(crate) fn text(&self) -> String {
        let row = |row: &Vec<char>| row.iter().filter(|cell| **cell != '\0').collect::<String>();
        self.cells.iter().map(|cells| row(cells).trim_end().to_owned() + "\n").collect()
    }

    /// Everything that was written so far.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Waits until this is on the screen.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> &mut Screen {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits until this is not on the screen.
    #[track_caller]
    pub(crate) fn sees_no(&mut self, text: &str) -> &mut Screen {
        self.until(text, |screen| !screen.contains(text))
    }

    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> &mut Screen {
        let begin = Instant::now();
        while !is_so(&self.text()) {
            assert!(begin.elapsed() < WITHIN, "waited for `{what}` on\n{}", self.text());
            match self.session.expect(Regex("(?s).+")) {
                Ok(found) => {
                    let bytes = found.as_bytes().to_vec();
                    self.write(&bytes);
                }
                Err(error) => panic!("{error}: waited for `{what}` on\n{}", self.text()),
            }
        }
        self
    }

    pub(crate) fn types(&mut self, keys: &str) -> &mut Screen {
        self.session.send(keys).unwrap();
        self
    }

    /// Gives the terminal another size, as somebody does who drags its corner.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) -> &mut Screen {
        self.clear((columns, rows));
        self.session.get_process_mut().set_window_size(columns, rows).unwrap();
        self
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        self.session.get_process_mut().signal(signal).unwrap();
    }

    /// Waits for the end; everything that was written, and the exit code.
    pub(crate) fn ends(mut self) -> (String, i32) {
        let rest = self.session.expect(Eof).unwrap();
        self.raw.extend_from_slice(rest.as_bytes());
        match self.session.get_process().wait().unwrap() {
            WaitStatus::Exited(_, code) => (self.raw(), code),
            other => panic!("{other:?}: {}", self.raw()),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        self.unread.extend_from_slice(bytes);
        let known = match std::str::from_utf8(&self.unread) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(self.unread.drain(..known).collect()).unwrap();
        let mut rest = text.as_str();
        while let Some(char) = rest.chars().next() {
            match rest.strip_prefix("\u{1b}[") {
                Some(sequence) => match sequence.find(|char: char| char.is_ascii_alphabetic()) {
                    Some(end) => {
                        self.control(&sequence[..end], &sequence[end..=end]);
                        rest = &sequence[end + 1..];
                    }
                    // The rest of it comes with the next bytes.
                    None => {
                        self.unread.splice(0..0, rest.bytes());
                        return;
                    }
                },
                None if rest == "\u{1b}" => {
                    self.unread.splice(0..0, rest.bytes());
                    return;
                }
                None => {
                    self.put(char);
                    rest = &rest[char.len_utf8()..];
                }
            }
        }
    }

    fn control(&mut self, parameters: &str, kind: &str) {
        let mut numbers = parameters.split(';').map(|number| number.parse::<usize>().unwrap_or(1));
        match kind {
            "H" => {
                let row = numbers.next().unwrap_or(1) - 1;
                self.cursor = (row, numbers.next().unwrap_or(1) - 1);
            }
            "J" => self.cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
            // Colours, modes, and where the cursor is asked for.
            "m" | "h" | "l" | "n" => {}
            other => panic!("what does `{parameters}{other}` mean?"),
        }
    }

    fn put(&mut self, char: char) {
        let (row, column) = self.cursor;
        match char {
            '\r' => self.cursor.1 = 0,
            '\n' => self.cursor.0 += 1,
            char => {
                assert!(!char.is_control(), "{char:?} reached the terminal");
                let width = unicode_width::UnicodeWidthChar::width(char).unwrap_or(0);
                if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = char;
                }
                self.cursor.1 += width;
            }
        }
    }
}
