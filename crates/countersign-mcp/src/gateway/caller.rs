//! Who reads what the gateway says: one client on a pipe, or the many requests of clients over HTTP.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use countersign::CallId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::link::Pipe;
use super::message::{Envelope, Id, pick, range_of, splice};
use super::streams::Streams;
use crate::limits;

/// The `_meta` key by which notices of a subscription name the request that asked for them.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Where the ids of requests are told apart: one for a whole session, or one for each request without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane(pub(crate) u64);

/// Whoever sent a message, and reads the answer to it.
#[derive(Clone)]
pub(crate) enum Caller {
    Pipe(Arc<Pipe>),
    Exchange(Arc<Exchange>),
    /// Nobody: whoever wants to know will ask.
    Nobody,
}

impl Caller {
    /// The last thing this message is answered with. An error means that nobody reads it.
    pub(crate) async fn answer(&self, line: String) -> io::Result<()> {
        match self {
            Caller::Pipe(pipe) => pipe.send(line).await,
            Caller::Exchange(exchange) => {
                exchange.to.send(Said::Answer(line, None)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
            Caller::Nobody => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The same for an answer that must not be lost: waits until somebody takes it.
    pub(crate) async fn deliver(&self, line: String) -> io::Result<()> {
        let Caller::Exchange(exchange) = self else { return self.answer(line).await };
        let (taken, was_taken) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        exchange.to.send(Said::Answer(line, Some(taken))).await.map_err(|_| gone())?;
        was_taken.await.map_err(|_| gone())
    }

    /// Something on the way to the answer. A caller that is gone is noticed elsewhere; one that does not read over HTTP
    /// misses it, and keeps nobody waiting.
    pub(crate) async fn note(&self, line: String) {
        match self {
            Caller::Pipe(pipe) => drop(pipe.send(line).await),
            Caller::Exchange(exchange) => drop(exchange.to.try_send(Said::Note(line))),
            Caller::Nobody => {}
        }
    }

    /// Says which call the request has become. Before it runs: whoever takes the request up again finds it.
    pub(crate) fn becomes(&self, call: CallId) {
        if let Caller::Exchange(exchange) = self {
            exchange.call.send_replace(Some(call));
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        match self {
            Caller::Pipe(_) | Caller::Nobody => Lane(0),
            Caller::Exchange(exchange) => exchange.lane,
        }
    }

    /// What is cancelled when a call of the caller's is, and when nobody reads answers any more.
    pub(crate) fn left(&self) -> CancellationToken {
        match self {
            // Thousands may wait on one pipe: nothing is kept above what is cancelled.
            Caller::Pipe(_) | Caller::Nobody => CancellationToken::new(),
            Caller::Exchange(exchange) => exchange.gone.child_token(),
        }
    }

    /// Is cancelled when nobody reads answers any more. On a pipe that shows where the input ends.
    pub(crate) fn gone(&self) -> CancellationToken {
        match self {
            Caller::Pipe(_) | Caller::Nobody => CancellationToken::new(),
            Caller::Exchange(exchange) => exchange.gone.clone(),
        }
    }
}

/// What is said to a caller.
#[derive(Debug)]
pub(crate) enum Said {
    /// On the way to the answer.
    Note(String),
    /// The answer: nothing comes after it. Whoever takes it says so to whoever waits for that.
    Answer(String, Option<oneshot::Sender<()>>),
}

/// A request over HTTP, for as long as its answer is read.
pub(crate) struct Exchange {
    lane: Lane,
    to: mpsc::Sender<Said>,
    gone: CancellationToken,
    /// The call that the request has become.
    call: watch::Sender<Option<CallId>>,
}

/// The other end of an exchange. Dropped, its caller is gone.
pub(crate) struct Reading {
    pub(crate) said: mpsc::Receiver<Said>,
    /// The call that the request has become, once that is known.
    pub(crate) call: watch::Receiver<Option<CallId>>,
    _gone: DropGuard,
}

/// The client of a conversation.
pub(crate) enum Client {
    Pipe(Arc<Pipe>),
    Http(Arc<Ears>),
}

/// Everybody over HTTP who reads what one connection to the server brings.
#[derive(Default)]
pub(crate) struct Ears {
    open: Mutex<Open>,
    streams: Arc<Streams>,
}

#[derive(Default)]
struct Open {
    count: u64,
    /// The stream for what belongs to no request.
    standing: Option<mpsc::Sender<Said>>,
    /// Its number among the streams that can be taken up again.
    standing_number: Option<u64>,
    exchanges: Vec<Weak<Exchange>>,
    /// How many of them are worth looking for those that are over.
    crowded_at: usize,
    asking: HashMap<Id, Asking>,
}

/// A request that the server knows under an id of ours.
struct Asking {
    exchange: Weak<Exchange>,
    /// The client's own id, and what it wants progress reported under.
    id: Id,
    token: Option<Id>,
}

impl Ears {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an exchange, in the lane of the session or in one of its own.
    pub(crate) fn exchange(&self, in_session: bool) -> (Caller, Reading) {
        let (to, said) = mpsc::channel(limits::BEHIND);
        let gone = CancellationToken::new();
        let mut open = self.open();
        open.count += 1;
        let lane = Lane(if in_session { 0 } else { open.count });
        let (call, becomes) = watch::channel(None);
        let exchange = Arc::new(Exchange { lane, to, gone: gone.clone(), call });
        if open.exchanges.len() >= open.crowded_at {
            open.exchanges.retain(|other| other.strong_count() > 0);
            // As many more may come as are there, so that thousands who wait are not looked at for each other request.
            open.crowded_at = 2 * open.exchanges.len() + 16;
        }
        open.exchanges.push(Arc::downgrade(&exchange));
        (Caller::Exchange(exchange), Reading { said, call: becomes, _gone: gone.drop_guard() })
    }

    /// What was said on streams.
    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Opens the stream of this number for what belongs to no request, in the place of one before.
    pub(crate) fn stand(&self, number: u64) -> Reading {
        let (to, said) = mpsc::channel(limits::BEHIND);
        let mut open = self.open();
        open.standing = Some(to);
        open.standing_number = Some(number);
        Reading { said, call: watch::channel(None).1, _gone: CancellationToken::new().drop_guard() }
    }

    /// Ends that stream.
    pub(crate) fn hang_up(&self) {
        self.open().standing = None;
    }

    /// Whether anybody reads.
    pub(crate) fn is_busy(&self) -> bool {
        let open = self.open();
        open.standing.as_ref().is_some_and(|to| !to.is_closed())
            || open.exchanges.iter().any(|exchange| exchange.strong_count() > 0)
    }

    /// Passes on what the server says. False where nobody is there to hear it.
    fn tell(&self, line: String, about: Option<&Id>) -> bool {
        let open = self.open();
        let (line, exchange) = match named(&line, &open.asking) {
            Some((line, asking)) => (line, asking.exchange.upgrade()),
            None => {
                let exchange = about.and_then(|id| open.asking.get(id)?.exchange.upgrade());
                (line, exchange)
            }
        };
        let standing = open.standing.as_ref().filter(|to| !to.is_closed());
        let newest = || open.exchanges.iter().rev().find_map(Weak::upgrade);
        let to = match (exchange, standing) {
            (Some(exchange), _) => exchange.to.clone(),
            (None, Some(standing)) => standing.clone(),
            (None, None) => match (newest(), open.standing_number) {
                (Some(exchange), _) => exchange.to.clone(),
                // For when its client comes back.
                (None, Some(number)) => {
                    self.streams.keep(number, &line);
                    return true;
                }
                (None, None) => return false,
            },
        };
        // Whoever does not read keeps nobody else waiting: what is too much for them is lost.
        to.try_send(Said::Note(line)).is_ok()
    }
}

/// Finds the request that a notice names by an id of ours, and puts the client's own in its place.
fn named<'o>(line: &str, asking: &'o HashMap<Id, Asking>) -> Option<(String, &'o Asking)> {
    let envelope = Envelope::read(line).ok()?;
    let params = envelope.params.filter(|_| envelope.id.is_none())?;
    let [token, meta] = pick(params.get(), ["progressToken", "_meta"]).ok()?;
    let [subscription] = meta.and_then(|meta| pick(meta.get(), [SUBSCRIPTION_KEY]).ok()).unwrap_or_default();
    let raw = token.or(subscription)?;
    let asking = asking.get(&Id::read(raw)?)?;
    let theirs = if token.is_some() { asking.token.as_ref()? } else { &asking.id };
    Some((splice(line, &[(range_of(line, raw.get())?, theirs.0.as_str())])?, asking))
}

/// Keeps a request known under an id of ours. Dropped, it is forgotten.
pub(crate) struct Attached<'c> {
    ears: Option<&'c Ears>,
    id: Id,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Some(ears) = self.ears {
            ears.open().asking.remove(&self.id);
        }
    }
}

impl Client {
    /// Passes on what the server says on its own, or about a request of ours. False where nobody hears it.
    pub(crate) async fn tell(&self, line: String, about: Option<&Id>) -> bool {
        match self {
            Client::Pipe(pipe) => pipe.send(line).await.is_ok(),
            Client::Http(ears) => ears.tell(line, about),
        }
    }

    /// Remembers whose request goes to the server under an id of ours.
    pub(crate) fn attach(&self, ours: &Id, caller: &Caller, id: &Id, token: Option<&Id>) -> Attached<'_> {
        let (Client::Http(ears), Caller::Exchange(exchange)) = (self, caller) else {
            return Attached { ears: None, id: ours.clone() };
        };
        let asking = Asking { exchange: Arc::downgrade(exchange), id: id.clone(), token: token.cloned() };
        ears.open().asking.insert(ours.clone(), asking);
        Attached { ears: Some(ears), id: ours.clone() }
    }
}
