//! Server-sent events as they come in, bounded.

use std::error::Error as StdError;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use hyper::body::Bytes;
use sse_stream::{Error, Sse, SseStream};

/// The events of an answer that comes in pieces. What stands between two of them is bounded: an endless one ends the stream.
///
/// `fits` says whether so many bytes of one event may be kept.
pub(crate) fn events(
    pieces: impl Stream<Item = Result<Bytes, impl Into<Box<dyn StdError + Send + Sync>>>> + Send + 'static,
    mut fits: impl FnMut(usize) -> bool + Send + 'static,
) -> BoxStream<'static, Result<Sse, Error>> {
    let bounded = pieces.scan((Since::default(), false), move |(since, over), piece| {
        let piece = piece.map_err(std::io::Error::other).and_then(|piece| {
            since.add(&piece);
            match fits(since.bytes) {
                true => Ok(piece),
                false => Err(std::io::Error::other("a message that is too long")),
            }
        });
        let ended = std::mem::replace(over, piece.is_err());
        futures::future::ready((!ended).then_some(piece))
    });
    SseStream::from_bytes_stream(bounded).boxed()
}

/// What came since the last event ended.
#[derive(Default)]
struct Since {
    bytes: usize,
    /// The last byte of the piece before: an event may end between two pieces.
    last: Option<u8>,
}

impl Since {
    fn add(&mut self, piece: &[u8]) {
        let ends = |pair: [u8; 2]| matches!(&pair, b"\n\n" | b"\r\r" | b"\n\r");
        let within = piece.windows(2).rposition(|pair| pair.try_into().is_ok_and(ends));
        let across = self.last.zip(piece.first().copied()).is_some_and(|(last, first)| ends([last, first]));
        self.bytes = match within {
            Some(at) => piece.len() - at,
            None if across => piece.len(),
            None => self.bytes + piece.len(),
        };
        self.last = piece.last().copied().or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(pieces: &[&str]) -> usize {
        let mut since = Since::default();
        pieces.iter().for_each(|piece| since.add(piece.as_bytes()));
        since.bytes
    }

    #[test]
    fn an_event_ends_wherever_the_pieces_do() {
        assert_eq!(since(&["data: 1\n\ndata"]), 6);
        assert_eq!(since(&["data: 1\n", "\n"]), 1);
        assert_eq!(since(&["data: 1\n", "", "\ndata: 2"]), 8);
        assert_eq!(since(&["data: 1\r\n\r", "\ndata"]), 7);
        assert_eq!(since(&["data: 1\r\n", "\r\n"]), 2);
    }

    #[test]
    fn lines_of_one_event_add_up() {
        assert_eq!(since(&["data: 1\n", "data: 2\n"]), 16);
        assert_eq!(since(&["data: 1\r\n", "data: 2\r\n"]), 18);
    }
}
