//! Sessions: conversations with agents that the server runs.

use reqwest::header::ACCEPT;

use super::frames::{Frame, Frames};
use super::{Client, ClientError, frames};
use crate::wire::{self, Page, SessionEvent};

impl Client {
    /// Begins a session.
    pub async fn begin_session(&self, new: &wire::NewSession) -> Result<wire::Session, ClientError> {
        self.post("/v1/sessions", new).await
    }

    /// One page of sessions: `after`, `limit`.
    pub async fn sessions(&self, query: &[(&str, &str)]) -> Result<Page<wire::Session>, ClientError> {
        self.get("/v1/sessions", query).await
    }

    /// A session with what it waits for: `principal`, `thread`, `after`, `limit`.
    pub async fn session(&self, id: &str, query: &[(&str, &str)]) -> Result<wire::SessionDetail, ClientError> {
        self.get(&format!("/v1/sessions/{}", segment(id)), query).await
    }

    /// Says something in a session. Where a run goes on it waits until that has ended.
    pub async fn say(&self, id: &str, text: &str) -> Result<wire::Session, ClientError> {
        let message = wire::NewMessage { text: text.to_owned() };
        self.post(&format!("/v1/sessions/{}/messages", segment(id)), &message).await
    }

    /// Ends the run that goes on in a session; its holds are withdrawn.
    pub async fn cancel_run(&self, id: &str) -> Result<wire::Session, ClientError> {
        self.post(&format!("/v1/sessions/{}/cancel", segment(id)), &wire::CancelRun {}).await
    }

    /// Gives the result of a call that this client claimed and ran.
    pub async fn give(&self, id: &str, result: &wire::ToolResult) -> Result<wire::Call, ClientError> {
        self.post(&format!("/v1/sessions/{}/tool-results", segment(id)), result).await
    }

    /// Follows a session: everything after a cursor, or from its beginning, then what happens.
    pub async fn follow_session(&self, id: &str, after: Option<&str>) -> Result<SessionEvents, ClientError> {
        let address = self.address(&format!("/v1/sessions/{}/events", segment(id)), &[])?;
        let request = self.streams.get(address).bearer_auth(&self.token).header(ACCEPT, "text/event-stream");
        let request = after.into_iter().fold(request, |request, after| request.header("last-event-id", after));
        Ok(SessionEvents { frames: frames(request).await?, cursor: after.map(str::to_owned) })
    }
}

/// The stream of a session. When it ends, follow again from [`SessionEvents::cursor`].
pub struct SessionEvents {
    frames: Frames,
    cursor: Option<String>,
}

impl SessionEvents {
    /// The last place of the stream: what comes after it was not told yet.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next event that this version knows; none when the stream is over.
    pub async fn next(&mut self) -> Result<Option<SessionEvent>, ClientError> {
        while let Some(frame) = self.frames.next().await? {
            if let Some(event) = self.read(frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn read(&mut self, frame: Frame) -> Result<Option<SessionEvent>, ClientError> {
        let read = SessionEvent::read(&frame.event, &frame.data);
        let event = read.map_err(|error| ClientError::Strange(error.to_string()))?;
        if frame.id.is_some() {
            self.cursor = frame.id;
        }
        Ok(event)
    }
}

/// A name as one segment of a path.
fn segment(name: &str) -> String {
    let mut written = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'.' => written.push(char::from(byte)),
            byte => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_have_any_name() {
        assert_eq!(segment("session_01-a~b"), "session_01-a~b");
        assert_eq!(segment("../../v1/tokens?x=ü"), "..%2F..%2Fv1%2Ftokens%3Fx%3D%C3%BC");
    }
}
