//! Server-sent events as they come in, bounded.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::Response;
use sse_stream::{Error, Sse, SseStream};

/// The events of an answer. What stands between two of them is bounded: an endless one ends the stream.
pub(crate) fn events(response: Response, most: usize) -> BoxStream<'static, Result<Sse, Error>> {
    let bounded = response.bytes_stream().scan((0, false), move |(since, over), piece| {
        let piece = piece.map_err(std::io::Error::other).and_then(|piece| {
            *since = match piece.windows(2).rposition(|pair| matches!(pair, b"\n\n" | b"\r\r" | b"\n\r")) {
                Some(end) => piece.len() - end,
                None => *since + piece.len(),
            };
            match *since > most {
                true => Err(std::io::Error::other("a message that is too long")),
                false => Ok(piece),
            }
        });
        let ended = std::mem::replace(over, piece.is_err());
        futures::future::ready((!ended).then_some(piece))
    });
    SseStream::from_bytes_stream(bounded).boxed()
}
