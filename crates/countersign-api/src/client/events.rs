//! What a server tells as it happens.

use serde::Deserialize;

use super::ClientError;
use super::frames::{Frame, Frames};
use crate::wire;

/// What a server tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Told {
    /// Something happened; or, before the first [`Told::Ready`] of a stream without a cursor, a hold waits.
    Event(Box<wire::Event>),
    /// All there was has been told; what comes now is live. Holds the cursor to go on from.
    Ready(String),
    /// Events were missed: read the lists again, then listen anew.
    Resync,
}

/// A stream of events. Made by [`Client::events`](crate::client::Client::events); dropped, it ends.
#[derive(Debug)]
pub struct Events(Frames);

impl Events {
    pub(super) fn new(frames: Frames) -> Events {
        Events(frames)
    }

    /// The next thing told; none when the server ended the stream.
    ///
    /// Can be dropped at any moment: what was read is kept for the next call.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        self.0.next().await?.map(|frame| read(&frame)).transpose()
    }
}

#[derive(Deserialize)]
struct Ready {
    cursor: String,
}

fn read(frame: &Frame) -> Result<Told, ClientError> {
    let strange = |error: serde_json::Error| ClientError::Strange(error.to_string());
    match frame.event.as_str() {
        "resync" => Ok(Told::Resync),
        "ready" => serde_json::from_str::<Ready>(&frame.data).map(|ready| Told::Ready(ready.cursor)).map_err(strange),
        _ => serde_json::from_str(&frame.data).map(|event| Told::Event(Box::new(event))).map_err(strange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_in_an_event_is_an_error() {
        let frame = |event: &str, data: &str| Frame { event: event.into(), id: None, data: data.into() };
        assert!(matches!(read(&frame("resync", "{}")).unwrap(), Told::Resync));
        let ready = read(&frame("ready", "{\"cursor\":\"0-7\"}")).unwrap();
        assert!(matches!(ready, Told::Ready(cursor) if cursor == "0-7"));
        assert!(read(&frame("hold.opened", "{}")).is_err());
        assert!(read(&frame("ready", "nonsense")).is_err());
    }
}
