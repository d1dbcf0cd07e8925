//! Long output, cut in the middle.

use std::collections::VecDeque;

/// Keeps the beginning and the end of what is pushed, and counts what is left out.
#[derive(Debug)]
pub(crate) struct Clip {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    end: usize,
    cut: u64,
}

impl Clip {
    /// Keeps up to `end` bytes of each end.
    pub(crate) fn new(end: usize) -> Clip {
        Clip { head: Vec::new(), tail: VecDeque::new(), end, cut: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.end.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.end);
        self.tail.drain(..over);
        self.cut += over as u64;
    }

    /// What is kept, with a line that says how much is not.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        match self.cut {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned(),
            cut => {
                let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
                format!("{head}\n[… {cut} bytes left out …]\n{tail}")
            }
        }
    }
}

/// The beginning of a text, within a bound, and how many bytes are left out.
pub(crate) fn head(text: &str, most: usize) -> (&str, usize) {
    let head = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
    (head, text.len() - head.len())
}
