//! What was said on the streams of a session, to be said once more to a client that was cut off (`Last-Event-ID`).
//!
//! Every event has an id: the number of its stream, and its own in there. Only what was said on a stream is said again on
//! it. What is not kept any more is never asked for anew in its place: it may have run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign::CallId;
use tokio::sync::watch;

use super::message::Id;
use crate::limits;

/// What a stream is about.
#[derive(Clone, Debug)]
pub(crate) enum About {
    /// Whatever belongs to no request.
    Nothing,
    /// One request.
    Request(Asked),
}

/// A request that is answered on a stream.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    /// The whole of it.
    pub(crate) line: Arc<str>,
    /// The call that it has become, once that is known. Closed where it is over.
    pub(crate) call: watch::Receiver<Option<CallId>>,
}

/// The streams of a session.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    kept: Mutex<Kept>,
    /// Whether its client expects to be told at once where a stream can be taken up again.
    primes: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    bytes: usize,
    streams: VecDeque<Stream>,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    about: About,
    last: u64,
    events: VecDeque<(u64, Arc<str>)>,
    is_over: bool,
}

/// A stream that is taken up again.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) number: u64,
    pub(crate) about: About,
    /// What its client missed, with ids.
    pub(crate) missed: Vec<(String, Arc<str>)>,
    /// Whether nothing comes after that.
    pub(crate) is_over: bool,
}

impl Streams {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on streams begin with an event that says where they can be taken up again.
    pub(crate) fn prime(&self) {
        self.primes.store(true, Ordering::Relaxed);
    }

    pub(crate) fn primes(&self) -> bool {
        self.primes.load(Ordering::Relaxed)
    }

    /// Begins a stream; its number.
    pub(crate) fn begin(&self, about: About) -> u64 {
        let mut kept = self.kept();
        kept.count += 1;
        let number = kept.count;
        kept.streams.push_back(Stream { number, about, last: 0, events: VecDeque::new(), is_over: false });
        while kept.streams.len() > limits::REPLAY_STREAMS {
            // One that is over first: the others may still be needed.
            let at = kept.streams.iter().position(|stream| stream.is_over).unwrap_or_default();
            let gone = kept.streams.remove(at);
            kept.bytes -= gone.map_or(0, |stream| stream.events.iter().map(|(_, line)| line.len()).sum());
        }
        number
    }

    /// The id of the beginning of a stream.
    pub(crate) fn beginning(number: u64) -> String {
        format!("{number}-0")
    }

    /// Keeps what is said on a stream; its id.
    pub(crate) fn keep(&self, number: u64, line: &str) -> String {
        let mut kept = self.kept();
        let Some(stream) = kept.streams.iter_mut().find(|stream| stream.number == number) else {
            // Nobody finds it again, whatever it is called.
            return format!("{number}-x");
        };
        stream.last += 1;
        let id = format!("{number}-{}", stream.last);
        if line.len() <= limits::REPLAY_BYTES {
            let event = (stream.last, Arc::from(line));
            stream.events.push_back(event);
            kept.bytes += line.len();
            kept.shrink();
        }
        id
    }

    /// A request is made again: from now on this says which call it has become.
    pub(crate) fn asked_again(&self, number: u64, call: watch::Receiver<Option<CallId>>) {
        let mut kept = self.kept();
        let stream = kept.streams.iter_mut().find(|stream| stream.number == number);
        if let Some(About::Request(asked)) = stream.map(|stream| &mut stream.about) {
            asked.call = call;
        }
    }

    /// Nothing more is said on a stream.
    pub(crate) fn end(&self, number: u64) {
        if let Some(stream) = self.kept().streams.iter_mut().find(|stream| stream.number == number) {
            stream.is_over = true;
        }
    }

    /// Takes a stream up again after an event. None where there is no such stream any more.
    pub(crate) fn resume(&self, last: &str) -> Option<Resumed> {
        let (number, after) = last.split_once('-')?;
        let (number, after): (u64, u64) = (number.parse().ok()?, after.parse().ok()?);
        let kept = self.kept();
        let stream = kept.streams.iter().find(|stream| stream.number == number)?;
        let missed = stream.events.iter().filter(|(at, _)| *at > after);
        let missed = missed.map(|(at, line)| (format!("{number}-{at}"), Arc::clone(line))).collect();
        Some(Resumed { number, about: stream.about.clone(), missed, is_over: stream.is_over })
    }
}

impl Kept {
    /// Lets go of what was said first where there is too much.
    fn shrink(&mut self) {
        let most = limits::REPLAY_BYTES;
        let mut total: usize = self.streams.iter().map(|stream| stream.events.len()).sum();
        while self.bytes > most || total > limits::REPLAY_EVENTS {
            let oldest = self.streams.iter_mut().find(|stream| !stream.events.is_empty());
            let Some((_, line)) = oldest.and_then(|stream| stream.events.pop_front()) else { return };
            self.bytes -= line.len();
            total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(id: &str) -> About {
        About::Request(Asked { id: Id::text(id), line: "{}".into(), call: watch::channel(None).1 })
    }

    fn missed(streams: &Streams, last: &str) -> Option<Vec<String>> {
        Some(streams.resume(last)?.missed.iter().map(|(_, line)| line.to_string()).collect())
    }

    #[test]
    fn only_what_came_after_on_the_same_stream_is_said_again() {
        let streams = Streams::default();
        let (one, other) = (streams.begin(about("a")), streams.begin(About::Nothing));
        let ids: Vec<String> = ["1", "2", "3"].iter().map(|line| streams.keep(one, line)).collect();
        streams.keep(other, "theirs");
        assert_eq!(missed(&streams, &Streams::beginning(one)).unwrap(), ["1", "2", "3"]);
        assert_eq!(missed(&streams, &ids[1]).unwrap(), ["3"]);
        assert_eq!(missed(&streams, &ids[2]).unwrap(), [""; 0]);
        assert_eq!(missed(&streams, &Streams::beginning(other)).unwrap(), ["theirs"]);
        assert!(!streams.resume(&ids[0]).unwrap().is_over);
        streams.end(one);
        assert!(streams.resume(&ids[0]).unwrap().is_over);
        for unknown in ["", "1", "9-1", "1-", "-1", "1-1-1", "x-1", "1-x"] {
            assert_eq!(missed(&streams, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let streams = Streams::default();
        let first = streams.begin(about("a"));
        for number in 0..2 * limits::REPLAY_EVENTS {
            streams.keep(first, &number.to_string());
        }
        assert_eq!(missed(&streams, &Streams::beginning(first)).unwrap().len(), limits::REPLAY_EVENTS);
        let big = "x".repeat(limits::REPLAY_BYTES / 2);
        for _ in 0..5 {
            streams.keep(first, &big);
        }
        assert!(streams.kept().bytes <= limits::REPLAY_BYTES);
        let id = streams.keep(first, &"x".repeat(limits::REPLAY_BYTES + 1));
        assert_eq!(missed(&streams, &id).unwrap(), [""; 0]);
        for _ in 0..2 * limits::REPLAY_STREAMS {
            let number = streams.begin(about("b"));
            streams.keep(number, "y");
            streams.end(number);
        }
        assert_eq!(streams.kept().streams.len(), limits::REPLAY_STREAMS);
        assert!(streams.resume(&Streams::beginning(first)).is_some(), "what is over goes first");
    }
}
