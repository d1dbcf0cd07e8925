//! Server-sent events, read as they come: what both streams of the API are made of.

use reqwest::Response;

use super::{ClientError, lost};

/// The most one event may take: a session's largest, which holds a whole output, twice over for its escapes.
const EVENT_BYTES: usize = 16 * 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// What happened.
    pub(super) event: String,
    /// Where in the stream, if it says so.
    pub(super) id: Option<String>,
    /// What is told about it.
    pub(super) data: String,
}

/// A stream of events.
#[derive(Debug)]
pub(super) struct Frames {
    response: Response,
    unread: Vec<u8>,
}

impl Frames {
    pub(super) fn new(response: Response) -> Frames {
        Frames { response, unread: Vec::new() }
    }

    /// The next event; none when the server ended the stream. Signs of life are passed over.
    ///
    /// Can be dropped at any moment: what was read is kept for the next call.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        loop {
            if let Some(frame) = take(&mut self.unread)? {
                return Ok(Some(frame));
            }
            if self.unread.len() > EVENT_BYTES {
                return Err(ClientError::Strange(format!("an event of more than {EVENT_BYTES} bytes")));
            }
            match self.response.chunk().await.map_err(lost)? {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Takes the first event that is there in full.
fn take(unread: &mut Vec<u8>) -> Result<Option<Frame>, ClientError> {
    while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
        let text: Vec<u8> = unread.drain(..end + 2).collect();
        let text = String::from_utf8(text).map_err(|error| ClientError::Strange(error.to_string()))?;
        let frame = read(&text);
        if !frame.event.is_empty() {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

fn read(text: &str) -> Frame {
    let (mut frame, mut lines) = (Frame::default(), 0);
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut frame.event),
            "id" => frame.id = Some(value.to_owned()),
            "data" => {
                if lines > 0 {
                    frame.data.push('\n');
                }
                lines += 1;
                frame.data.push_str(value);
            }
            _ => {}
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_when_it_is_whole_and_signs_of_life_are_none() {
        let mut unread = b":\n\nevent: a\nid: 7\ndata: one\ndata: two\n\nevent: b\ndat".to_vec();
        let frame = Frame { event: "a".into(), id: Some("7".into()), data: "one\ntwo".into() };
        assert_eq!(take(&mut unread).unwrap(), Some(frame));
        assert_eq!(take(&mut unread).unwrap(), None);
        unread.extend_from_slice(b"a:x\n\n");
        assert_eq!(take(&mut unread).unwrap().unwrap().data, "x");
        assert!(take(&mut b"data: \xff\n\n".to_vec()).is_err());
    }
}
