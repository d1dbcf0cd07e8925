//! The way to the server: what is written to it, and who waits for which answer.
//!
//! Requests whose answers the gateway looks at go out under ids of its own, which no client can guess, so no other
//! answer is ever taken for them.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::message::Id;

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// One end of a pipe that several write whole lines to.
pub(crate) struct Pipe(AsyncMutex<Option<Writer>>);

impl Pipe {
    pub(crate) fn new(writer: Writer) -> Pipe {
        Pipe(AsyncMutex::new(Some(writer)))
    }

    /// Writes one line. An error means that it may have been written in part.
    pub(crate) async fn send(&self, line: &str) -> io::Result<()> {
        let mut pipe = self.0.lock().await;
        let writer = pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let bytes = [line.as_bytes(), b"\n"].concat();
        let sent = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        let sent = sent.await;
        if sent.is_err() {
            // Half a line may be out: nothing may follow it.
            *pipe = None;
        }
        sent
    }

    /// Closes it: the other side reads its end.
    pub(crate) async fn close(&self) {
        *self.0.lock().await = None;
    }
}

/// The way to the server.
pub(crate) struct Link {
    pipe: Pipe,
    prefix: String,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    gone: bool,
    answers: HashMap<Id, oneshot::Sender<String>>,
}

/// A question that was given an id and waits for its answer. Dropped, it waits no more.
pub(crate) struct Asked<'l> {
    link: &'l Link,
    pub(crate) id: Id,
    answer: oneshot::Receiver<String>,
}

impl Link {
    pub(crate) fn new(writer: Writer) -> Link {
        let prefix = format!("countersign-{}-", uuid::Uuid::new_v4().simple());
        Link { pipe: Pipe::new(writer), prefix, waiting: Mutex::default() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one line to the server.
    pub(crate) async fn send(&self, line: &str) -> io::Result<()> {
        self.pipe.send(line).await
    }

    /// Takes an id for a question. None where the server is gone.
    pub(crate) fn ask(&self) -> Option<Asked<'_>> {
        let mut waiting = self.waiting();
        if waiting.gone {
            return None;
        }
        waiting.next += 1;
        let id = Id::text(&format!("{}{}", self.prefix, waiting.next));
        let (sender, answer) = oneshot::channel();
        waiting.answers.insert(id.clone(), sender);
        Some(Asked { link: self, id, answer })
    }

    /// Whether an id is one of ours, waited for or not.
    pub(crate) fn is_ours(&self, id: &Id) -> bool {
        id.0.strip_prefix('"').is_some_and(|text| text.starts_with(&self.prefix))
    }

    /// Hands an answer to whoever waits for it; the first answer counts, and a later one is nobody's.
    pub(crate) fn answered(&self, id: &Id, line: String) {
        if let Some(sender) = self.waiting().answers.remove(id) {
            let _ = sender.send(line);
        }
    }

    /// The server is gone: nobody gets an answer any more.
    pub(crate) fn gone(&self) {
        let mut waiting = self.waiting();
        waiting.gone = true;
        waiting.answers.clear();
    }

    /// Tells the server that no more comes.
    pub(crate) async fn close(&self) {
        self.pipe.close().await;
    }
}

impl Asked<'_> {
    /// Waits for the answer; none where the server ended without one.
    pub(crate) async fn answer(&mut self) -> Option<String> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.link.waiting().answers.remove(&self.id);
    }
}
