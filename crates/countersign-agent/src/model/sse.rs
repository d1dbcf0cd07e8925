//! Server-sent events: bytes in, the data of whole events out.

use crate::limits;

/// Reads an event stream piece by piece.
///
/// Pieces may end anywhere, also within a character or between CR and LF. Comments and the fields other than `data` are
/// dropped: every dialect repeats the kind of an event in its data. An event that no empty line ends was cut and never
/// comes out.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

/// Why a stream is no event stream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("one event of it is longer than {} bytes", limits::MODEL_FRAME_BYTES)]
    TooLong,
    #[error("it is not UTF-8")]
    NotText,
}

impl Events {
    /// Takes the next bytes; adds the data of each event they complete to `whole`.
    pub(crate) fn push(&mut self, bytes: &[u8], whole: &mut Vec<String>) -> Result<(), Broken> {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = after;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (text, ending) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, &[]));
            if self.line.len() + self.data.len() + text.len() > limits::MODEL_FRAME_BYTES {
                return Err(Broken::TooLong);
            }
            self.line.extend_from_slice(text);
            let Some((&ending, after)) = ending.split_first() else { break };
            self.after_cr = ending == b'\r';
            self.end_line(whole)?;
            rest = after;
        }
        Ok(())
    }

    fn end_line(&mut self, whole: &mut Vec<String>) -> Result<(), Broken> {
        if self.line.is_empty() {
            return self.end_event(whole);
        }
        if let Some(value) = self.line.strip_prefix(b"data").and_then(value) {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            self.has_data = true;
        }
        self.line.clear();
        Ok(())
    }

    fn end_event(&mut self, whole: &mut Vec<String>) -> Result<(), Broken> {
        if std::mem::take(&mut self.has_data) {
            let data = String::from_utf8(std::mem::take(&mut self.data)).map_err(|_| Broken::NotText)?;
            whole.push(data);
        }
        Ok(())
    }
}

/// What stands after the name of a field, unless the name goes on.
fn value(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: &[&str]) {
        for size in [1, 2, 3, 7, text.len().max(1)] {
            let mut events = Events::default();
            let mut whole = Vec::new();
            for piece in text.chunks(size) {
                events.push(piece, &mut whole).unwrap();
            }
            assert_eq!(whole, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn every_line_ending_counts_and_pieces_may_end_anywhere() {
        check(b"data: a\n\ndata: b\n\n", &["a", "b"]);
        check(b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check(b"data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: zażółć 🦀\n\n".as_bytes(), &["zażółć 🦀"]);
    }

    #[test]
    fn only_data_comes_out_and_one_space_is_not_part_of_it() {
        check(b": ping\nevent: message\nid: 7\nretry: 1\ndata:x\ndata:  y\n\n", &["x\n y"]);
        check(b"database: no\n\n: only a comment\n\n\n\n", &[]);
        check(b"data\n\n", &[""]);
    }

    #[test]
    fn an_event_that_was_cut_never_comes_out() {
        check(b"data: a\n\ndata: {\"half\":", &["a"]);
        check(b"data: a\n\ndata: whole line, no empty one\n", &["a"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut whole = Vec::new();
        let line = vec![b'x'; limits::MODEL_FRAME_BYTES];
        assert_eq!(Events::default().push(&[b"data: ", &line[..]].concat(), &mut whole), Err(Broken::TooLong));
        let mut events = Events::default();
        let refused = (0..).find_map(|_| events.push(b"data: more and more\n", &mut whole).err());
        assert_eq!(refused, Some(Broken::TooLong), "many lines of one event");
        assert_eq!(Events::default().push(b"data: \xff\n\n", &mut whole), Err(Broken::NotText));
        assert!(whole.is_empty());
    }
}
