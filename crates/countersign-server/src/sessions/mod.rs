//! The agent runtime over HTTP: sessions that this server drives.
//!
//! ```text
//! message → inbox → ticket → driver → transcript, events
//!                     ↑         │ waits for people: parked
//!                     └─ tail ←─┘ wakes it when something happens
//! ```
//!
//! Everything a session is stands in the store, so any server on it can go on with any session; its ticket says which one
//! does. What a stream tells is read from the same place ([`story`]); only the text of an unfinished answer is not.

mod cursor;
mod driver;
mod hub;
mod inbox;
mod key;
mod show;
mod story;
mod supervisor;
mod ticket;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use countersign::store::CallFilter;
use countersign::{Call, Gate, Store};
use countersign_agent::{Agent, ClientError, Created, RunError, Session, SessionReader, Standing};
use countersign_api::wire::{self, Code, SessionState, SessionStatus};
use tokio::sync::mpsc;
use uuid::Uuid;

pub(crate) use cursor::Mark;
pub(crate) use key::Key;
pub(crate) use show::{Eyes, entry, usage};
pub(crate) use supervisor::Supervisor;
pub(crate) use watch::{Watch, Watched};

use crate::limits;
use crate::problem::{Answer, Refused};
use hub::Hubs;

/// The sessions of one server.
pub(crate) struct Sessions {
    agents: HashMap<Arc<str>, Agent>,
    gate: Gate,
    /// The name of this server among those on the same store.
    server: Arc<str>,
    hubs: Hubs,
    woken: mpsc::UnboundedSender<Key>,
}

impl Sessions {
    /// The sessions of these agents, and what tells their supervisor of work.
    pub(crate) fn new(gate: Gate, agents: Vec<Agent>) -> (Arc<Sessions>, mpsc::UnboundedReceiver<Key>) {
        let (woken, waking) = mpsc::unbounded_channel();
        let agents = agents.into_iter().map(|agent| (Arc::clone(agent.name()), agent)).collect();
        let server = Uuid::new_v4().simple().to_string().into();
        (Arc::new(Sessions { agents, gate, server, hubs: Hubs::default(), woken }), waking)
    }

    fn store(&self) -> &dyn Store {
        &**self.gate.store()
    }

    /// A principal's session. Absent and foreign are the same.
    pub(crate) async fn find(&self, principal: &Arc<str>, session: &str) -> Answer<SessionReader> {
        self.found(principal, session).await?.ok_or_else(Refused::not_found)
    }

    /// Begins a session.
    pub(crate) async fn begin(&self, principal: &Arc<str>, new: wire::NewSession) -> Answer<SessionReader> {
        let unknown = || Refused::because(Code::BadRequest, format!("there is no agent `{}` here", new.agent));
        let agent = self.agents.get(new.agent.as_str()).ok_or_else(unknown)?;
        if let Some(text) = &new.message {
            check_text(text)?;
        }
        let session = match &new.session {
            // Such a name is a folder to whoever builds a URL of it.
            Some(name) if matches!(name.as_str(), "." | "..") => {
                return Err(Refused::because(Code::BadRequest, "this is no name for a session"));
            }
            Some(name) => agent.session(name.as_str()),
            None => agent.new_session(),
        };
        let session = session.principal(Arc::clone(principal));
        let session = new.requester.into_iter().fold(session, Session::requester);
        match session.create().await.map_err(refused)? {
            Created::Now => {}
            Created::Before => return Err(Refused::because(Code::Conflict, "a session of this name is there")),
        }
        let key = Key::new(principal, session.id());
        if let Some(text) = new.message {
            self.say(&key, &text).await?;
        }
        self.find(principal, &key.session).await
    }

    /// Says something in a session that is there. It is durable when this returns.
    pub(crate) async fn say(&self, key: &Key, text: &str) -> Answer<()> {
        check_text(text)?;
        inbox::put(self.store(), key, text).await?;
        ticket::open(self.store(), key, |ticket| {
            ticket.parked = false;
            ticket.failed = None;
        })
        .await?;
        self.wake(key);
        Ok(())
    }

    /// Ends the run that goes on in a session.
    pub(crate) async fn cancel(&self, reader: &SessionReader) -> Answer<()> {
        let outline = reader.outline().await.map_err(refused)?;
        if outline.standing != Standing::Open {
            return Err(Refused::because(Code::WrongState, "no run goes on in this session"));
        }
        let key = Key::new(reader.principal(), &reader.listed().session);
        ticket::open(self.store(), &key, |ticket| {
            ticket.cancel = Some(Arc::clone(&outline.run));
            ticket.failed = None;
        })
        .await?;
        self.wake(&key);
        Ok(())
    }

    /// Takes the result of a call that the session's client ran.
    pub(crate) async fn give(&self, reader: &SessionReader, result: wire::ToolResult) -> Answer<Arc<Call>> {
        let session = self.session(reader).ok_or_else(Refused::not_found)?;
        let given = match (result.output, result.error) {
            (Some(output), None) => Ok(output),
            (None, Some(error)) => Err(error),
            (None, None) | (Some(_), Some(_)) => {
                return Err(Refused::because(Code::BadRequest, "a result is an `output` or an `error`, one of them"));
            }
        };
        Ok(session.give(result.call, result.fence, given).await?)
    }

    /// Whether a call is for the client of a session of ours to run; true, too, where it is none of ours.
    pub(crate) async fn may_be_claimed(&self, call: &Call) -> Answer<bool> {
        let path = &call.facts.path;
        let (Some(session), Some(_), Some(_)) = (&path.session, &path.run, &path.thread) else { return Ok(true) };
        match self.found(&path.principal, session).await? {
            // SECURITY: a session whose agent is at another server is that server's to run.
            Some(reader) => Ok(self.session(&reader).is_some_and(|session| session.runs_at_client(call))),
            None => Ok(true),
        }
    }

    /// A principal's session, if a server on this store runs one of this name.
    pub(crate) async fn found(&self, principal: &Arc<str>, session: &str) -> Answer<Option<SessionReader>> {
        let found = SessionReader::open(Arc::clone(self.gate.store()), Arc::clone(principal), session).await;
        found.map_err(refused)
    }

    /// What a session does or waits for.
    pub(crate) async fn status(&self, reader: &SessionReader) -> Answer<SessionStatus> {
        let key = Key::new(reader.principal(), &reader.listed().session);
        let ticket = ticket::read(self.store(), &key).await?.map(|(ticket, _)| ticket);
        let holds = self.holding(&key).await?;
        let client_calls = match self.session(reader) {
            Some(session) if ticket.is_some() => session.client_calls().await?.iter().map(show::client_call).collect(),
            Some(_) | None => Vec::new(),
        };
        let error = ticket.as_ref().and_then(|ticket| ticket.failed.clone());
        let waits = !holds.is_empty() || !client_calls.is_empty();
        let state = match &ticket {
            None => SessionState::Idle,
            Some(ticket) if ticket.failed.is_some() => SessionState::Failed,
            Some(ticket) if waits || ticket.parked => SessionState::Waiting,
            Some(_) => SessionState::Running,
        };
        let queued = inbox::count(self.store(), &key).await?;
        Ok(SessionStatus { state, holds, client_calls, queued, error })
    }

    /// How sessions stand, for a list: without looking into each of them.
    pub(crate) async fn state(&self, key: &Key) -> Answer<SessionState> {
        Ok(match ticket::read(self.store(), key).await? {
            None => SessionState::Idle,
            Some((ticket, _)) if ticket.failed.is_some() => SessionState::Failed,
            Some((ticket, _)) if ticket.parked || !self.holding(key).await?.is_empty() => SessionState::Waiting,
            Some(_) => SessionState::Running,
        })
    }

    async fn holding(&self, key: &Key) -> Answer<Vec<countersign::HoldId>> {
        let filter = CallFilter {
            holding: true,
            session: Some(Arc::clone(&key.session)),
            principal: Some(Arc::clone(&key.principal)),
            limit: Some(countersign::limits::PAGE_ROWS),
            ..CallFilter::default()
        };
        let calls = self.store().calls(filter).await?;
        Ok(calls.iter().filter_map(|call| Some(call.open_hold()?.id)).collect())
    }

    /// The session with its agent, if that is here.
    fn session(&self, reader: &SessionReader) -> Option<Session> {
        let listed = reader.listed();
        let agent = self.agents.get(&listed.agent)?;
        let session = agent.session(Arc::clone(&listed.session)).principal(Arc::clone(reader.principal()));
        Some(listed.requester.iter().cloned().fold(session, Session::requester))
    }

    fn wake(&self, key: &Key) {
        // The supervisor is gone when the server ends; the ticket stays for the next one.
        let _ = self.woken.send(key.clone());
    }
}

/// Resolves when the server ends. A sender that is gone is a server that ended.
async fn ended(mut ending: tokio::sync::watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}

fn check_text(text: &str) -> Answer<()> {
    match text {
        text if text.trim().is_empty() => Err(Refused::because(Code::BadRequest, "there is nothing in the message")),
        text if text.len() > limits::SAID_BYTES => {
            Err(Refused::because(Code::TooLarge, format!("a message has at most {} bytes", limits::SAID_BYTES)))
        }
        _ => Ok(()),
    }
}

/// Why a session could not be read or changed.
pub(crate) fn refused(error: RunError) -> Refused {
    match error {
        RunError::Gate(error) => error.into(),
        RunError::BadInput(why) => Refused::because(Code::BadRequest, why),
        RunError::NoSession(_) => Refused::not_found(),
        RunError::Busy => Refused::new(Code::Conflict),
        error => {
            tracing::error!(%error, "a session could not be read");
            Refused::new(Code::Internal)
        }
    }
}

impl From<ClientError> for Refused {
    fn from(error: ClientError) -> Refused {
        match error {
            ClientError::NotFound => Refused::not_found(),
            ClientError::WrongState(_) => Refused::because(Code::WrongState, error.to_string()),
            ClientError::Gate(error) => error.into(),
            error => {
                tracing::error!(%error, "a client's call failed");
                Refused::new(Code::Internal)
            }
        }
    }
}
