//! A place in a session's stream: how far the log was told, and how far each open thread's transcript.
//!
//! Both are append-only, so a place says exactly what was told before it. Threads that ended are not named: what there is
//! of them was told before what ended them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use countersign::CallId;
use countersign::event::Cursor;

use crate::limits;

/// The thread every session begins with.
pub(super) const MAIN: &str = "main";

/// A place in a session's stream. `0.17~main.3~call_….1b` on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(super) log: Cursor,
    pub(super) threads: Vec<ThreadMark>,
}

/// How far one thread was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadMark {
    pub(super) thread: Arc<str>,
    /// Entries that were told.
    pub(super) told: u32,
    /// Whether its parent went on without waiting for it.
    pub(super) background: bool,
}

impl Mark {
    /// Before everything.
    pub(super) fn beginning() -> Mark {
        let main = ThreadMark { thread: MAIN.into(), told: 0, background: false };
        Mark { log: Cursor::default(), threads: vec![main] }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.log)?;
        for ThreadMark { thread, told, background } in &self.threads {
            write!(f, "~{thread}.{told}{}", if *background { "b" } else { "" })?;
        }
        Ok(())
    }
}

/// Why a text is no place of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadMark;

impl FromStr for Mark {
    type Err = BadMark;

    fn from_str(text: &str) -> Result<Mark, BadMark> {
        if text.len() > limits::SESSION_CURSOR_BYTES {
            return Err(BadMark);
        }
        let mut parts = text.split('~');
        let log = parts.next().and_then(|log| log.parse().ok()).ok_or(BadMark)?;
        let threads: Vec<ThreadMark> = parts.map(thread).collect::<Option<_>>().ok_or(BadMark)?;
        let main = threads.first().is_some_and(|first| &*first.thread == MAIN);
        let mut names: Vec<&str> = threads.iter().map(|mark| &*mark.thread).collect();
        names.sort_unstable();
        names.dedup();
        match main && names.len() == threads.len() && threads.len() <= limits::SESSION_THREADS {
            true => Ok(Mark { log, threads }),
            false => Err(BadMark),
        }
    }
}

fn thread(text: &str) -> Option<ThreadMark> {
    let (name, told) = text.split_once('.')?;
    let (told, background) = told.strip_suffix('b').map_or((told, false), |told| (told, true));
    let known = name == MAIN || name.parse::<CallId>().is_ok_and(|id| id.to_string() == name);
    known.then_some(ThreadMark { thread: name.into(), told: told.parse().ok()?, background })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_and_nothing_else_does() {
        let child = "call_00000000000070008000000000000000";
        for text in ["0.0~main.0", "7.12~main.3", &format!("0.17~main.3~{child}.1b")] {
            assert_eq!(text.parse::<Mark>().unwrap().to_string(), *text);
        }
        let twice = format!("0.1~main.1~{child}.1~{child}.2");
        let long = format!("0.1~main.1{}", "0".repeat(limits::SESSION_CURSOR_BYTES));
        for text in
            ["", "0.17", "0.17~main", "0.1~main.x", "0.1~other.1", "0.1~../main.1", "0.1~main.-1", &twice, &long]
        {
            assert_eq!(text.parse::<Mark>(), Err(BadMark), "{text}");
        }
    }
}
