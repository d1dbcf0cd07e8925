//! Messages on a pipe: one a line, bounded, text.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// One line, or why it is none that can be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A line without its end.
    Line(String),
    /// More bytes than the bound. The rest of the line is passed over.
    TooLong,
    /// Not UTF-8.
    NotText,
}

/// Reads lines of a bounded length. What is too long is passed over, never kept.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    most: usize,
    /// What comes is the rest of a line that was too long.
    passing_over: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, most: usize) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(64 * 1024, reader), most, passing_over: false }
    }

    /// The next line; none where the stream has ended. One that is too long is told at once: it may never end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut line = Vec::new();
        let mut any = false;
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(any.then(|| frame(line)));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            let used = part.len() + usize::from(end.is_some());
            let is_rest = self.passing_over;
            let too_long = !is_rest && line.len() + part.len() > self.most;
            if !is_rest && !too_long {
                line.extend_from_slice(part);
            }
            self.reader.consume(used);
            self.passing_over = (is_rest || too_long) && end.is_none();
            match (is_rest, too_long) {
                (true, _) => continue,
                (false, true) => return Ok(Some(Frame::TooLong)),
                (false, false) if end.is_some() => return Ok(Some(frame(line))),
                (false, false) => any = true,
            }
        }
    }
}

fn frame(line: Vec<u8>) -> Frame {
    String::from_utf8(line).map_or(Frame::NotText, Frame::Line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_over_the_bound_is_passed_over_and_the_next_one_is_read() {
        let text = [b"one\n" as &[u8], &[b'x'; 200_000], b"\n\xff\xfe\n", b"last"].concat();
        let mut lines = Lines::new(&*text, 100);
        let mut found = Vec::new();
        while let Some(frame) = lines.next().await.unwrap() {
            found.push(frame);
        }
        assert_eq!(found, [Frame::Line("one".into()), Frame::TooLong, Frame::NotText, Frame::Line("last".into())]);
    }
}
