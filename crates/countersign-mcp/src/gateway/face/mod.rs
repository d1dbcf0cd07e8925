//! The gateway's face over streamable HTTP, without any web framework: requests go in, replies come out.
//!
//! A client of the handshake era has a session, and with it a connection of its own to the server. Clients of the newer
//! era have none: those of one principal share a connection, on which no two requests can be taken for one another.

mod check;
mod reply;
mod table;
mod working;

use std::io;
use std::sync::Arc;

use countersign::CallId;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

pub use reply::{Event, Events, Reply};

use super::caller::{Reading, Said};
use super::message::{Envelope, Id};
use super::post::one_line;
use super::streams::{About, Asked, Resumed};
use super::words::{self, INTERNAL, INVALID_REQUEST, PARSE_ERROR};
use super::{Gateway, Shared, Upstream};
use crate::limits;
use check::Lane;
use reply::{Keeping, Refused};
use table::{Key, Seat, Table};
use working::{Attending, Working};

/// How a connection to the server is made.
type Open = Box<dyn Fn() -> io::Result<Upstream> + Send + Sync>;

/// One server, offered to many clients over HTTP.
pub struct Face {
    shared: Arc<Shared>,
    open: Open,
    table: Arc<Table>,
}

impl Face {
    /// A gateway for clients over HTTP. `open` makes a connection to the server, one for each conversation.
    ///
    /// An error means that the store could not be read.
    pub async fn new(
        gateway: Gateway,
        open: impl Fn() -> io::Result<Upstream> + Send + Sync + 'static,
    ) -> io::Result<Face> {
        let shared = Shared::open(gateway).await.map_err(io::Error::other)?;
        Ok(Face { shared, open: Box::new(open), table: Arc::default() })
    }

    /// The server's name in rules.
    pub fn server(&self) -> &Arc<str> {
        &self.shared.server
    }

    /// Takes a message that was posted. The principal is whose calls these are.
    ///
    /// Dropped before it is done, or with its events unread, the client is gone.
    pub async fn post(&self, principal: &Arc<str>, headers: &HeaderMap, body: Vec<u8>) -> Reply {
        self.take(principal, headers, body).await.unwrap_or_else(Refused::reply)
    }

    /// Opens the stream for what the server says outside of answers, or takes one up again that was cut. Only sessions
    /// have any.
    pub async fn listen(&self, principal: &Arc<str>, headers: &HeaderMap) -> Reply {
        let Some(session) = headers.get(check::SESSION) else { return Reply::Empty(StatusCode::METHOD_NOT_ALLOWED) };
        let found = session.to_str().ok().and_then(|id| self.table.get(&Key::Session(id.into()), principal));
        let Some(seat) = found else { return Reply::Empty(StatusCode::NOT_FOUND) };
        let ears = seat.ears();
        let events = match headers.get(check::LAST) {
            None => {
                let kept = Keeping::begin(ears.streams(), About::Nothing);
                let reading = ears.stand(kept.number);
                Events::kept(kept, reading, None)
            }
            Some(last) => match last.to_str().ok().and_then(|last| ears.streams().resume(last)) {
                Some(resumed) => take_up(&seat, resumed).await,
                None => return Reply::Empty(StatusCode::BAD_REQUEST),
            },
        };
        Reply::Stream { events, session: None }
    }

    /// Ends a session.
    pub fn end(&self, principal: &Arc<str>, headers: &HeaderMap) -> Reply {
        let Some(session) = headers.get(check::SESSION) else { return Reply::Empty(StatusCode::METHOD_NOT_ALLOWED) };
        let found = session.to_str().ok().and_then(|id| self.table.get(&Key::Session(id.into()), principal));
        match found {
            Some(seat) => {
                seat.end();
                Reply::Empty(StatusCode::NO_CONTENT)
            }
            None => Reply::Empty(StatusCode::NOT_FOUND),
        }
    }

    /// Ends all conversations: what runs may still answer, for a while.
    pub async fn close(&self) {
        self.table.close().await;
    }

    async fn take(&self, principal: &Arc<str>, headers: &HeaderMap, body: Vec<u8>) -> Result<Reply, Refused> {
        let bad = |code, why: &str| Refused::new(StatusCode::BAD_REQUEST, code, why);
        if body.len() > limits::CLIENT_MESSAGE_BYTES {
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID_REQUEST, "the message is too long"));
        }
        let line = String::from_utf8(body).map_err(|_| bad(PARSE_ERROR, "the message is not UTF-8"))?;
        let line = one_line(line);
        if line.trim_start().starts_with('[') {
            return Err(bad(INVALID_REQUEST, "batches are not taken; send one message a request"));
        }
        let envelope = Envelope::read(&line).map_err(|error| {
            let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
            bad(code, &format!("the message cannot be read: {error}"))
        })?;
        let id = envelope.id.and_then(Id::read);
        let refused = |refused: Refused| refused.about(id.clone());
        let lane = check::lane(headers, &envelope).map_err(refused)?;
        let (seat, session) = self.seat(principal, &lane).map_err(refused)?;
        if lane == Lane::Modern {
            check::mirrored(headers, &envelope, &seat.core().catalog).map_err(refused)?;
        }
        let (caller, reading) = seat.ears().exchange(lane != Lane::Modern);
        let taken = seat.core().hear_message(&line, &envelope, &caller).await;
        // From here on only those who see to the answer hold the caller: when they let go, there will be none.
        let mut working = Working::begin(seat.core(), taken, caller, reading);
        if envelope.method.is_none() || envelope.id.is_none() {
            return Ok(accepted(working.reading));
        }
        if let Some(id) = id.as_ref().filter(|_| matches!(lane, Lane::Session(_)) && check::takes_events(headers)) {
            let at_once = timeout(limits::AT_ONCE, working.said()).await;
            let Working { reading, attending } = working;
            let may_be_plain = check::is_call(&envelope) && check::takes_messages(headers);
            let at_once = match at_once {
                Ok(Some(Said::Answer(body, taken))) if may_be_plain && body.len() <= limits::PLAIN_BYTES => {
                    tell_taken(taken, attending);
                    return Ok(Reply::Message { status: StatusCode::OK, body, session });
                }
                at_once => at_once,
            };
            let asked = Asked { id: id.clone(), line: line.as_str().into(), call: reading.call.clone() };
            let kept = Keeping::begin(seat.ears().streams(), About::Request(asked));
            let mut events = Events::kept(kept, reading, Some(cancelled(id)));
            if let Ok(Some(said)) = at_once {
                events.begin_with(said);
            }
            if let Some(attending) = attending {
                attending.finish();
            }
            return Ok(Reply::Stream { events, session });
        }
        let reply = answer(working, headers, &envelope, &lane, session).await.map_err(refused)?;
        if lane == Lane::Opening {
            match &reply {
                reply if reply.is_error() => seat.end(),
                Reply::Message { body, .. } if check::agrees_on_priming(body) => seat.ears().streams().prime(),
                _ => {}
            }
        }
        Ok(reply)
    }

    /// The conversation a message belongs to; one that begins with it gets its session's name.
    fn seat(&self, principal: &Arc<str>, lane: &Lane) -> Result<(Arc<Seat>, Option<Arc<str>>), Refused> {
        let (key, session) = match lane {
            Lane::Session(id) => {
                let gone = || Refused::new(StatusCode::NOT_FOUND, INVALID_REQUEST, "there is no such session");
                return Ok((self.table.get(&Key::Session(Arc::clone(id)), principal).ok_or_else(gone)?, None));
            }
            Lane::Modern => (Key::Principal(Arc::clone(principal)), None),
            Lane::Opening => {
                let id: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
                (Key::Session(Arc::clone(&id)), Some(id))
            }
        };
        if let Some(seat) = self.table.get(&key, principal) {
            return Ok((seat, None));
        }
        let unavailable = |why: String| Refused::new(StatusCode::SERVICE_UNAVAILABLE, INTERNAL, &why);
        let full = || unavailable("too many conversations are open".to_owned());
        let place = self.table.place(principal).ok_or_else(full)?;
        let upstream = (self.open)().map_err(|error| unavailable(format!("the server cannot be started: {error}")))?;
        Ok((self.table.begin(place, key, Arc::clone(&self.shared), upstream), session))
    }
}

/// Takes a stream up again. SECURITY: a request that was not answered on it is made again, as its client would: it joins
/// its hold, or gets the outcome that nobody got, and nothing runs twice for it.
async fn take_up(seat: &Seat, resumed: Resumed) -> Events {
    let Resumed { number, about, missed, is_over } = resumed;
    let kept = Keeping { streams: Arc::clone(seat.ears().streams()), number };
    match about {
        About::Nothing => Events::resumed(kept, missed, Some(seat.ears().stand(number)), None),
        About::Request(..) if is_over => Events::resumed(kept, missed, None, None),
        About::Request(Asked { id, line, mut call }) => {
            // Until it is known which call the request has become, or that it will be none.
            let known = timeout(limits::RESUME_WITHIN, call.wait_for(Option::is_some)).await.map(became_of);
            let Ok(became) = known else { return Events::resumed(kept, missed, None, None) };
            // A lane of its own: what is left of the one before may still be in hand.
            let (caller, reading) = seat.ears().exchange(false);
            match became {
                Some(call) => seat.core().hear_again(&line, call, &caller).await,
                None => {
                    kept.streams.asked_again(number, reading.call.clone());
                    if let Some(taken) = seat.core().hear_client(&line, &caller).await {
                        seat.core().begin(taken, &caller);
                    }
                }
            }
            Events::resumed(kept, missed, Some(reading), Some(cancelled(&id)))
        }
    }
}

/// The call that a request has become; none where it is over without one.
fn became_of(known: Result<watch::Ref<'_, Option<CallId>>, watch::error::RecvError>) -> Option<CallId> {
    known.ok().and_then(|call| *call)
}

fn cancelled(id: &Id) -> String {
    words::error(Some(id), INVALID_REQUEST, "the request was cancelled")
}

/// What a message without an answer is answered with.
fn accepted(mut reading: Reading) -> Reply {
    match reading.said.try_recv() {
        Ok(Said::Answer(body, _)) => Reply::Message { status: StatusCode::BAD_REQUEST, body, session: None },
        _ => Reply::Empty(StatusCode::ACCEPTED),
    }
}

/// Whoever gave the answer hears that it was taken.
fn tell_taken(taken: Option<oneshot::Sender<()>>, attending: Option<Attending>) {
    if let Some(taken) = taken {
        let _ = taken.send(());
    }
    if let Some(attending) = attending {
        attending.finish();
    }
}

/// Waits for the head of an answer: one message, or a stream where more is to come or it takes its time.
async fn answer(
    mut working: Working,
    headers: &HeaderMap,
    envelope: &Envelope<'_>,
    lane: &Lane,
    session: Option<Arc<str>>,
) -> Result<Reply, Refused> {
    // Whether a server knows these at all must show in the status of the answer.
    let asks_for_status = matches!(envelope.method.as_deref(), Some("initialize" | "server/discover"));
    let streams = check::takes_events(headers) && !asks_for_status;
    loop {
        let said = match streams {
            true => timeout(limits::HEAD_WITHIN, working.said()).await,
            false => Ok(working.said().await),
        };
        match said {
            Ok(Some(Said::Answer(body, taken))) => {
                tell_taken(taken, working.attending);
                let status = if *lane == Lane::Modern { check::status(&body) } else { StatusCode::OK };
                return Ok(Reply::Message { status, body, session });
            }
            Ok(None) => {
                return Err(Refused::new(StatusCode::OK, INVALID_REQUEST, "the request was cancelled"));
            }
            Ok(Some(note)) if streams => {
                return Ok(Reply::Stream { events: Events::passing(Some(note), working.reading), session });
            }
            Ok(Some(_)) => {}
            Err(_) => return Ok(Reply::Stream { events: Events::passing(None, working.reading), session }),
        }
    }
}
