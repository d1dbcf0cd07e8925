//! The way to the server: what is written to it, and who waits for which answer.
//!
//! Requests whose answers the gateway looks at go out under ids of its own, which no client can guess, so no other
//! answer is ever taken for them.

use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::message::{Envelope, Id};
use super::post::{Exchanging, Mirrored, Wire};
use super::question;
use super::tongue::{Said, Tongue};

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// One end of a pipe that several write whole lines to.
pub(crate) struct Pipe(AsyncMutex<Option<Writer>>);

impl Pipe {
    pub(crate) fn new(writer: Writer) -> Pipe {
        Pipe(AsyncMutex::new(Some(writer)))
    }

    /// Writes one line, its end with it. An error means that it may have been written in part.
    pub(crate) async fn send(&self, mut line: String) -> io::Result<()> {
        line.push('\n');
        let mut pipe = self.0.lock().await;
        let writer = pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let sent = async {
            writer.write_all(line.as_bytes()).await?;
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
    way: Way,
    prefix: String,
    /// The server's name in rules.
    server: Arc<str>,
    /// How the server speaks.
    pub(crate) tongue: Tongue,
    waiting: Mutex<Waiting>,
}

enum Way {
    Pipe(Pipe),
    Address(Wire),
}

#[derive(Default)]
struct Waiting {
    next: u64,
    gone: bool,
    answers: HashMap<Id, oneshot::Sender<Answered>>,
}

type Answered = Result<String, Missing>;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Missing {
    /// The server is gone.
    #[error("the server ended before it answered")]
    Gone,
    /// The server never saw the question, or refused to look at it.
    #[error("nothing was sent to the server: {0}")]
    Unsent(String),
    /// The server may have seen the question.
    #[error("the answer was cut off: {0}")]
    Cut(String),
}

/// A question that was given an id and waits for its answer. Dropped, it waits no more.
pub(crate) struct Asked<'l> {
    link: &'l Link,
    pub(crate) id: Id,
    answer: oneshot::Receiver<Answered>,
    /// The question on its way over HTTP, which goes on while its answer is waited for.
    exchanging: Option<Exchanging>,
}

impl Link {
    /// A way that is a pipe.
    pub(crate) fn to_pipe(server: &Arc<str>, writer: Writer) -> Link {
        Link::new(server, Way::Pipe(Pipe::new(writer)))
    }

    /// A way over HTTP.
    pub(crate) fn to_address(server: &Arc<str>, wire: Wire) -> Link {
        Link::new(server, Way::Address(wire))
    }

    fn new(server: &Arc<str>, way: Way) -> Link {
        let prefix = format!("countersign-{}-", uuid::Uuid::new_v4().simple());
        Link { way, prefix, server: Arc::clone(server), tongue: Tongue::default(), waiting: Mutex::default() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something to the server, as the server speaks.
    pub(crate) async fn send(&self, line: String) -> io::Result<()> {
        self.say(self.tongue.outgoing(line).ok_or_else(unspeakable)?).await
    }

    /// Says something to the server. The line is as the server speaks.
    pub(crate) async fn say(&self, line: String) -> io::Result<()> {
        match &self.way {
            Way::Pipe(pipe) => pipe.send(line).await,
            Way::Address(wire) => wire.send(line, Vec::new()).await,
        }
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
        Some(Asked { link: self, id, answer, exchanging: None })
    }

    /// Whether an id is one of ours, waited for or not.
    pub(crate) fn is_ours(&self, id: &Id) -> bool {
        id.0.strip_prefix('"').is_some_and(|text| text.starts_with(&self.prefix))
    }

    /// Hands an answer to whoever waits for it; the first answer counts, and a later one is nobody's.
    pub(crate) fn answered(&self, id: &Id, answer: Answered) {
        if let Some(sender) = self.waiting().answers.remove(id) {
            let _ = sender.send(answer);
        }
    }

    /// An answer to a question of ours, as whoever asked is to read it.
    pub(crate) fn read(&self, line: String) -> Answered {
        let Said::Pass(line) = self.tongue.incoming(line) else { return Err(unreadable()) };
        let envelope = Envelope::read(&line).map_err(|error| Missing::Cut(error.to_string()))?;
        let labels = question::labels(&line, &envelope, &self.server);
        labels.and_then(|labels| question::labelled(line, &labels)).ok_or_else(unreadable)
    }

    /// The server is gone: nobody gets an answer any more.
    pub(crate) fn gone(&self) {
        let mut waiting = self.waiting();
        waiting.gone = true;
        waiting.answers.clear();
    }

    /// Tells the server that no more comes.
    pub(crate) async fn close(&self) {
        match &self.way {
            Way::Pipe(pipe) => pipe.close().await,
            Way::Address(wire) => wire.close().await,
        }
    }
}

fn unspeakable() -> io::Error {
    io::Error::other("the server knows no words for it")
}

/// Why an answer is none that has a question which cannot be labelled.
pub(crate) fn unreadable() -> Missing {
    Missing::Cut("it has the client ask something that cannot be shown".to_owned())
}

impl Asked<'_> {
    /// Puts the question to the server, as the server speaks. Over HTTP it is on its way for as long as its answer is
    /// waited for.
    pub(crate) async fn send(&mut self, line: String) -> io::Result<()> {
        let line = self.link.tongue.outgoing(line).ok_or_else(unspeakable)?;
        self.say(line, Vec::new).await
    }

    /// The same with a line that is as the server speaks, and with the headers that repeat some of a call's arguments
    /// where the way has headers.
    pub(crate) async fn say(&mut self, line: String, mirrored: impl FnOnce() -> Mirrored) -> io::Result<()> {
        match &self.link.way {
            Way::Pipe(pipe) => pipe.send(line).await,
            Way::Address(wire) => {
                let mut exchanging = wire.exchange(line, mirrored())?;
                // On its way before anything else can happen to it.
                if let Poll::Ready(came) = futures::poll!(&mut exchanging) {
                    exchanging = Box::pin(ready(came));
                }
                self.exchanging = Some(exchanging);
                Ok(())
            }
        }
    }

    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> Answered {
        if let Some(exchanging) = &mut self.exchanging {
            let came = tokio::select! {
                came = exchanging => came,
                answer = &mut self.answer => return answer.unwrap_or(Err(Missing::Gone)),
            };
            self.exchanging = None;
            if let Some((line, _share)) = came? {
                return self.link.read(line);
            }
        }
        (&mut self.answer).await.unwrap_or(Err(Missing::Gone))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.link.waiting().answers.remove(&self.id);
    }
}
