//! Messages on a pipe: one a line, bounded, text.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// One line, or why it is none that can be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A line without its end.
    Line(String),
    /// More bytes than the bound. The line was passed over.
    TooLong,
    /// Not UTF-8.
    NotText,
}

/// Reads lines of a bounded length. What is too long is passed over, never kept.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    most: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, most: usize) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(64 * 1024, reader), most }
    }

    /// The next line; none where the stream has ended.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut line = Vec::new();
        let (mut any, mut too_long) = (false, false);
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(any.then(|| frame(line, too_long)));
            }
            any = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            too_long |= line.len() + part.len() > self.most;
            if too_long {
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(frame(line, too_long)));
            }
        }
    }
}

fn frame(line: Vec<u8>, too_long: bool) -> Frame {
    match String::from_utf8(line) {
        _ if too_long => Frame::TooLong,
        Ok(line) => Frame::Line(line),
        Err(_) => Frame::NotText,
    }
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
