//! What a server tells as it happens: server-sent events, read as they come.

use reqwest::Response;
use serde::Deserialize;

use crate::client::ClientError;
use crate::wire;

/// The most one event may take: the largest body of an event, twice over for its escapes.
const EVENT_BYTES: usize = 4 * 1024 * 1024;

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
pub struct Events {
    response: Response,
    unread: Vec<u8>,
}

impl Events {
    pub(super) fn new(response: Response) -> Events {
        Events { response, unread: Vec::new() }
    }

    /// The next thing told; none when the server ended the stream.
    ///
    /// Can be dropped at any moment: what was read is kept for the next call.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        loop {
            if let Some(told) = self.take()? {
                return Ok(Some(told));
            }
            if self.unread.len() > EVENT_BYTES {
                return Err(ClientError::Strange(format!("an event of more than {EVENT_BYTES} bytes")));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.unread.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(ClientError::Unreachable(error.without_url().to_string())),
            }
        }
    }

    /// Takes what is there in full, if it tells anything.
    fn take(&mut self) -> Result<Option<Told>, ClientError> {
        while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
            let frame: Vec<u8> = self.unread.drain(..end + 2).collect();
            let text = String::from_utf8(frame).map_err(|error| ClientError::Strange(error.to_string()))?;
            if let Some(told) = read(&text)? {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }
}

#[derive(Deserialize)]
struct Ready {
    cursor: String,
}

/// Reads one event of the stream; none for a sign of life.
fn read(frame: &str) -> Result<Option<Told>, ClientError> {
    let (mut name, mut data) = ("", String::new());
    for line in frame.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value,
            "data" if data.is_empty() => data.push_str(value),
            "data" => {
                data.push('\n');
                data.push_str(value);
            }
            _ => {}
        }
    }
    let strange = |error: serde_json::Error| ClientError::Strange(error.to_string());
    match name {
        "" => Ok(None),
        "resync" => Ok(Some(Told::Resync)),
        "ready" => serde_json::from_str::<Ready>(&data).map(|ready| Some(Told::Ready(ready.cursor))).map_err(strange),
        _ => serde_json::from_str(&data).map(|event| Some(Told::Event(Box::new(event)))).map_err(strange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_tell_nothing_and_nonsense_is_an_error() {
        assert!(read(":\n\n").unwrap().is_none());
        assert!(matches!(read("event: resync\ndata: {}\n\n").unwrap(), Some(Told::Resync)));
        let ready = read("event: ready\nid: 0-7\ndata: {\"cursor\":\"0-7\"}\n\n").unwrap();
        assert!(matches!(ready, Some(Told::Ready(cursor)) if cursor == "0-7"));
        assert!(read("event: hold.opened\ndata: {}\n\n").is_err());
        assert!(read("event: ready\ndata: nonsense\n\n").is_err());
    }
}
