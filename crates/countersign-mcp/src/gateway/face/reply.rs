//! What a client over HTTP is answered with.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use reqwest::StatusCode;

use crate::gateway::caller::{Reading, Said};
use crate::gateway::message::{Id, pick};
use crate::gateway::words;

/// What a client is answered with. A session's name goes into the header `Mcp-Session-Id`.
pub enum Reply {
    /// A status and nothing else.
    Empty(StatusCode),
    /// One message, as JSON.
    Message {
        /// Its status.
        status: StatusCode,
        /// The message.
        body: String,
        /// The session that begins with it.
        session: Option<Arc<str>>,
    },
    /// Messages as they come, as server-sent events.
    Stream {
        /// The messages.
        events: Events,
        /// The session that begins with it.
        session: Option<Arc<str>>,
    },
}

impl Reply {
    /// Whether it is a message that reports an error.
    pub(super) fn is_error(&self) -> bool {
        match self {
            Reply::Message { body, .. } => matches!(pick(body, ["error"]), Ok([Some(_)])),
            Reply::Empty(_) | Reply::Stream { .. } => false,
        }
    }
}

/// Messages as they come, each one line of JSON. Ends after the answer; dropped before that, its client is gone.
pub struct Events {
    first: Option<Said>,
    reading: Reading,
    is_over: bool,
}

impl Events {
    pub(super) fn new(first: Option<Said>, reading: Reading) -> Events {
        Events { first, reading, is_over: false }
    }
}

impl Stream for Events {
    type Item = String;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<String>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let said = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.reading.said.poll_recv(context),
        };
        said.map(|said| {
            self.is_over = !matches!(said, Some(Said::Note(_)));
            said.map(|said| match said {
                Said::Note(line) | Said::Answer(line) => line,
            })
        })
    }
}

/// Why a message was not taken.
pub(super) struct Refused {
    status: StatusCode,
    code: i32,
    why: String,
    id: Option<Id>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, code: i32, why: &str) -> Refused {
        Refused { status, code, why: why.to_owned(), id: None }
    }

    pub(super) fn about(self, id: Option<Id>) -> Refused {
        Refused { id, ..self }
    }

    pub(super) fn reply(self) -> Reply {
        let body = words::error(self.id.as_ref(), self.code, &self.why);
        Reply::Message { status: self.status, body, session: None }
    }
}
