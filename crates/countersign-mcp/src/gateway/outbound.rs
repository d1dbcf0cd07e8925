//! From the server to the client.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::frame::{Frame, Lines};
use super::link::unreadable;
use super::message::{Envelope, Id};
use super::post::Heard;
use super::tongue::{Said, TOOLS_CHANGED};
use super::{Core, question, words};
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
                Ok(Some(Frame::Line(line))) => self.hear_server(line, None).await,
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

    /// Hears what comes over HTTP until the server has no more to say.
    pub(super) async fn hear_address(self: Arc<Self>, mut heard: mpsc::Receiver<Heard>) -> Left {
        let left = loop {
            match heard.recv().await {
                Some(Heard::Message(line, about, share)) => {
                    self.hear_server(line, about.as_ref()).await;
                    drop(share);
                }
                Some(Heard::Nothing(id, missing)) if self.link.is_ours(&id) => self.link.answered(&id, Err(missing)),
                Some(Heard::Nothing(id, missing)) => {
                    let error = words::error(Some(&id), words::INTERNAL, &missing.to_string());
                    self.client.tell(error, Some(&id)).await;
                }
                Some(Heard::Ended) | None => break Left::Ended,
            }
        };
        self.link.gone();
        left
    }

    /// Takes what the server said, on its own or about one of the requests.
    async fn hear_server(&self, line: String, about: Option<&Id>) {
        if !line.trim_start().starts_with('[') {
            return self.take_message(line, about).await;
        }
        // An answer may hide in a batch, so each message is taken by itself.
        match serde_json::from_str::<Vec<Box<RawValue>>>(&line) {
            Ok(entries) => {
                for entry in entries {
                    self.take_message(entry.get().to_owned(), about).await;
                }
            }
            Err(_) => self.note("a message of the server was dropped: it is not JSON"),
        }
    }

    async fn take_message(&self, line: String, about: Option<&Id>) {
        let line = match self.link.tongue.incoming(line) {
            Said::Pass(line) => line,
            // A server that does not read its answers is noticed where it is written to next.
            Said::Answer(line) => return drop(self.link.say(line).await),
            Said::Change => {
                self.listing.want();
                return;
            }
            Said::Drop => return,
        };
        let envelope = match Envelope::read(&line) {
            Ok(envelope) => envelope,
            Err(error) => return self.note(&format!("a message of the server was dropped: {error}")),
        };
        let names_prompt = envelope.id.and_then(Id::read).is_some_and(|id| self.prompts.is_ours(&id));
        if names_prompt {
            return self.note("a message of the server was dropped: its id is one of the gateway's own");
        }
        let answered = envelope.id.filter(|_| envelope.is_answer()).and_then(Id::read);
        let ours = answered.as_ref().filter(|id| self.link.is_ours(id)).cloned();
        if let Some(id) = answered.filter(|_| ours.is_none()) {
            // SECURITY: the server knows requests under ids of ours alone. However it spells the client's, it could answer
            // a call that it has never seen, because people are still asked about it.
            return self
                .note(&format!("a message of the server was dropped: it answers {}, which it was not asked", id.0));
        }
        let is_change = envelope.method.as_deref() == Some(TOOLS_CHANGED);
        let labels = question::labels(&line, &envelope, &self.server);
        let labelled = labels.and_then(|labels| question::labelled(line, &labels));
        if let Some(id) = ours {
            return self.link.answered(&id, labelled.ok_or_else(unreadable));
        }
        if is_change {
            // Before the client hears of it: calls it makes from now on wait for the new definitions.
            self.listing.want();
        }
        let Some(line) = labelled else {
            return self.note("a question of the server was dropped: it has no message that can be shown");
        };
        if !self.client.tell(line, about).await {
            self.note("a message of the server reached nobody");
        }
    }
}
