//! What a client over HTTP is answered with.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use reqwest::StatusCode;

use crate::gateway::caller::{Reading, Said};
use crate::gateway::message::{Id, pick};
use crate::gateway::streams::{About, Streams};
use crate::gateway::words;
use crate::limits;

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

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where the stream can be taken up again after it.
    pub id: Option<String>,
    /// How long to wait before that.
    pub retry: Option<Duration>,
    /// A message as one line of JSON; empty where it only says where the stream begins.
    pub data: String,
}

/// Messages as they come. Ends after the answer; dropped before that, its client is gone.
pub struct Events {
    /// What comes before anything else.
    first: VecDeque<Event>,
    reading: Option<Reading>,
    kept: Option<Keeping>,
    /// What is said in the end where there is no answer.
    unanswered: Option<String>,
}

/// A stream that can be taken up again.
pub(super) struct Keeping {
    pub(super) streams: Arc<Streams>,
    pub(super) number: u64,
}

impl Keeping {
    /// Begins such a stream.
    pub(super) fn begin(streams: &Arc<Streams>, about: About) -> Keeping {
        Keeping { streams: Arc::clone(streams), number: streams.begin(about) }
    }

    fn beginning(&self) -> Option<Event> {
        let id = Some(Streams::beginning(self.number));
        self.streams.primes().then(|| Event { id, retry: Some(limits::REPLAY_AFTER), data: String::new() })
    }
}

impl Events {
    /// A stream that is not taken up again.
    pub(super) fn passing(first: Option<Said>, reading: Reading) -> Events {
        let mut events = Events { first: VecDeque::new(), reading: Some(reading), kept: None, unanswered: None };
        if let Some(first) = first {
            events.begin_with(first);
        }
        events
    }

    /// Has this said before anything else that comes.
    pub(super) fn begin_with(&mut self, said: Said) {
        let event = self.event(said);
        self.first.push_back(event);
    }

    /// One that can be; it says so at once to clients that know what that means.
    pub(super) fn kept(kept: Keeping, reading: Reading, unanswered: Option<String>) -> Events {
        let first = kept.beginning().into_iter().collect();
        Events { first, reading: Some(reading), kept: Some(kept), unanswered }
    }

    /// One that is taken up again: what was missed, and then what comes, if anything.
    pub(super) fn resumed(
        kept: Keeping,
        missed: Vec<(String, Arc<str>)>,
        reading: Option<Reading>,
        unanswered: Option<String>,
    ) -> Events {
        let event = |(id, line): (String, Arc<str>)| Event { id: Some(id), retry: None, data: line.to_string() };
        Events { first: missed.into_iter().map(event).collect(), reading, kept: Some(kept), unanswered }
    }

    fn event(&mut self, said: Said) -> Event {
        let (data, is_last) = match said {
            Said::Note(line) => (line, false),
            Said::Answer(line, taken) => {
                if let Some(taken) = taken {
                    let _ = taken.send(());
                }
                (line, true)
            }
        };
        let id = self.kept.as_ref().map(|kept| kept.streams.keep(kept.number, &data));
        if is_last {
            self.end();
        }
        Event { id, retry: None, data }
    }

    fn end(&mut self) {
        self.reading = None;
        if let Some(kept) = &self.kept {
            kept.streams.end(kept.number);
        }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(first) = self.first.pop_front() {
            return Poll::Ready(Some(first));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        reading.said.poll_recv(context).map(|said| match (said, self.unanswered.take()) {
            (Some(said), unanswered) => {
                self.unanswered = unanswered;
                Some(self.event(said))
            }
            (None, Some(unanswered)) => Some(self.event(Said::Answer(unanswered, None))),
            (None, None) => {
                self.reading = None;
                None
            }
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let (Some(reading), Some(kept)) = (&mut self.reading, &self.kept) else { return };
        reading.said.close();
        // What was said and not sent is for when its client comes back. An answer is not: its sender hears that nobody
        // took it, and keeps it for whoever asks again.
        while let Ok(Said::Note(line)) = reading.said.try_recv() {
            kept.streams.keep(kept.number, &line);
        }
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
