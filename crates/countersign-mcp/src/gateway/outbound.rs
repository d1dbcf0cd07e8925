//! From the server to the client.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::io::AsyncRead;

use super::frame::{Frame, Lines};
use super::message::{Envelope, Id};
use super::{Core, question};
use crate::limits;

/// Why nothing more comes from the server.
#[derive(Debug)]
pub(super) enum Left {
    /// It closed its end.
    Ended,
    /// It sent what cannot be taken.
    Stopped(String),
}

impl Core {
    /// Reads what the server says until it ends.
    pub(super) async fn read_server(self: Arc<Self>, stdout: impl AsyncRead + Unpin) -> Left {
        let mut lines = Lines::new(stdout, limits::SERVER_MESSAGE_BYTES);
        let left = loop {
            match lines.next().await {
                Ok(Some(Frame::Line(line))) if line.trim().is_empty() => {}
                Ok(Some(Frame::Line(line))) => self.hear_server(line).await,
                Ok(Some(Frame::NotText)) => self.note("a message of the server was dropped: it is not UTF-8"),
                // Whose answer it was is not known, so nobody would ever be told that it is missing.
                Ok(Some(Frame::TooLong)) => {
                    let most = limits::SERVER_MESSAGE_BYTES;
                    break Left::Stopped(format!("the server sent a message of over {most} bytes"));
                }
                Ok(None) | Err(_) => break Left::Ended,
            }
        };
        // Whoever still waits for an answer gets none.
        self.link.gone();
        left
    }

    async fn hear_server(&self, line: String) {
        if !line.trim_start().starts_with('[') {
            return self.take_message(line).await;
        }
        // An answer may hide in a batch, so each message is taken by itself.
        match serde_json::from_str::<Vec<Box<RawValue>>>(&line) {
            Ok(entries) => {
                for entry in entries {
                    self.take_message(entry.get().to_owned()).await;
                }
            }
            Err(_) => self.note("a message of the server was dropped: it is not JSON"),
        }
    }

    async fn take_message(&self, line: String) {
        let envelope = match Envelope::read(&line) {
            Ok(envelope) => envelope,
            Err(error) => return self.note(&format!("a message of the server was dropped: {error}")),
        };
        let ours = envelope.id.filter(|_| envelope.is_answer()).and_then(Id::read).filter(|id| self.link.is_ours(id));
        if let Some(id) = ours {
            return self.link.answered(&id, line);
        }
        if envelope.method.as_deref() == Some(question::METHOD) {
            return match question::labelled(&line, &envelope, &self.server) {
                Some(labelled) => self.answer(labelled).await,
                None => self.note("a question of the server was dropped: it has no message that can be shown"),
            };
        }
        if envelope.method.as_deref() == Some("notifications/tools/list_changed") {
            // Before the client hears of it: calls it makes from now on wait for the new definitions.
            self.listing.want();
        }
        self.answer(line).await;
    }
}
