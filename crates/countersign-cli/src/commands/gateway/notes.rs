//! What the gateway tells on standard error.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::out;

/// Notes that may wait to be told. What comes then is lost.
const MOST: usize = 1_024;
/// How long the last notes may take.
const LAST_WITHIN: Duration = Duration::from_secs(1);

enum Note {
    Words(String),
    /// Everything before it has been told.
    Mark(oneshot::Sender<()>),
}

/// Tells notes from a thread of its own: a client that does not read them must not keep calls waiting.
#[derive(Clone)]
pub(super) struct Notes(mpsc::Sender<Note>);

impl Notes {
    /// Begins to tell.
    pub(super) fn begin() -> std::io::Result<Notes> {
        let (to, mut notes) = mpsc::channel(MOST);
        std::thread::Builder::new().name("notes".into()).spawn(move || {
            while let Some(note) = notes.blocking_recv() {
                match note {
                    Note::Words(words) => out::say(out::safe_lines(&words)),
                    // Nobody waits any more: then nobody is told.
                    Note::Mark(told) => drop(told.send(())),
                }
            }
        })?;
        Ok(Notes(to))
    }

    /// Takes a note.
    pub(super) fn take(&self, words: &str) {
        // A reader that is so far behind reads nothing.
        let _ = self.0.try_send(Note::Words(words.to_owned()));
    }

    /// Waits until all is told that was taken, or until nobody seems to listen.
    pub(super) async fn told(&self) {
        let (mark, told) = oneshot::channel();
        let all = async {
            if self.0.send(Note::Mark(mark)).await.is_ok() {
                let _ = told.await;
            }
        };
        let _ = tokio::time::timeout(LAST_WITHIN, all).await;
    }
}
