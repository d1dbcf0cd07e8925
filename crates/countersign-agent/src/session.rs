//! A session: one conversation, on the store's records, that can be left and gone on with from anywhere.

use std::sync::Arc;
use std::time::Duration;

use countersign::call::Path;
use countersign::store::{Expect, Failure};
use countersign::transition::Rejection;
use countersign::{Store, Time};
use futures::{FutureExt as _, TryFutureExt as _};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::error::RunError;
use crate::event::RunEvent;
use crate::limits;
use crate::model::{Message, Stop, Usage};
use crate::run::{self, Run, Spoken, Thread};
use crate::stillness::Stillness;
use crate::stream::{Feed, RunHandle, RunStream, Tail};
use crate::transcript::{Next, SessionKey, Stopped, Transcript};

/// Where sessions are listed among the store's records.
pub(crate) const SESSIONS: &str = "sessions";
/// The thread every session begins with.
pub(crate) const MAIN: &str = "main";

/// What a run answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The answer.
    pub text: Arc<str>,
    /// The session it was given in.
    pub session: Arc<str>,
    /// The run within the session.
    pub run: Arc<str>,
    /// The agent that gave it: another one than was asked, after a hand-over.
    pub agent: Arc<str>,
    /// How many turns the run took, its children's included.
    pub turns: u64,
    /// What the run took, its children included.
    pub usage: Usage,
    /// Why the answer ended: it may have been cut.
    #[serde(default)]
    pub stop: Stop,
}

/// A session as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub session: Arc<str>,
    /// The agent it was begun with.
    pub agent: Arc<str>,
    /// When it was begun.
    pub created_at: Time,
    /// For whom the work is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<Arc<str>>,
}

/// Whether a session was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was not.
    Now,
    /// It was.
    Before,
}

/// How a run is told of, ended and left.
#[derive(Default)]
struct Ways {
    feed: Option<Feed>,
    cancel: CancellationToken,
    stillness: Arc<Stillness>,
}

/// One conversation with an agent.
#[derive(Clone)]
pub struct Session {
    agent: Agent,
    path: Path,
    written: Written,
    message: Option<Arc<str>>,
}

/// Whether there may be something to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Perhaps,
}

impl Session {
    pub(crate) fn new(agent: Agent, id: Arc<str>) -> Session {
        Session { agent, path: Path::session(id), written: Written::Perhaps, message: None }
    }

    /// A session under a name that was just made up, for one run: there is nothing to read.
    pub(crate) fn unwritten(agent: Agent, id: Arc<str>) -> Session {
        Session { written: Written::Nothing, ..Session::new(agent, id) }
    }

    /// Says under which credential the work is done; `local` where nobody says.
    #[must_use]
    pub fn principal(mut self, principal: impl Into<Arc<str>>) -> Session {
        self.path.principal = principal.into();
        self
    }

    /// Says for whom the work is done. Where a rule says so, they may not approve it.
    #[must_use]
    pub fn requester(mut self, requester: impl Into<Arc<str>>) -> Session {
        self.path.requester = Some(requester.into());
        self
    }

    /// Names what is said next: said again under its name, after a crash or by another driver, it is said once, and the
    /// run that it began goes on instead.
    #[must_use]
    pub fn message(mut self, id: impl Into<Arc<str>>) -> Session {
        self.message = Some(id.into());
        self
    }

    /// Its name.
    pub fn id(&self) -> &str {
        self.path.session.as_deref().unwrap_or_default()
    }

    /// Says something and waits for the answer. Calls still open from before are brought to their ends first.
    pub async fn run(&self, text: impl Into<Arc<str>>) -> Result<Reply, RunError> {
        self.perform(Some(text.into()), Ways::default()).await
    }

    /// Goes on where the session stopped. One that is done gives its reply again.
    pub async fn resume(&self) -> Result<Reply, RunError> {
        self.perform(None, Ways::default()).await
    }

    /// As [`Session::run`], in a task of its own.
    pub fn spawn(&self, text: impl Into<Arc<str>>) -> RunHandle {
        self.in_a_task(Some(text.into()), None)
    }

    /// As [`Session::resume`], in a task of its own.
    pub fn resume_spawn(&self) -> RunHandle {
        self.in_a_task(None, None)
    }

    /// As [`Session::run`], telling everything on the way.
    pub fn stream(&self, text: impl Into<Arc<str>>) -> RunStream {
        self.watched(Some(text.into()))
    }

    /// As [`Session::resume`], telling everything on the way; pending holds come first.
    pub fn resume_stream(&self) -> RunStream {
        self.watched(None)
    }

    /// How long one of its runs may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.agent.timeout()
    }

    /// Lists the session before anything is said in it. One of this name may be there already: then says so.
    pub async fn create(&self) -> Result<Created, RunError> {
        check_names(&self.path, None)?;
        self.list(&self.key()).await
    }

    /// Ends a run that nobody drives, as [`RunHandle::cancel`] does with one that somebody does.
    pub async fn cancel(&self) -> Result<(), RunError> {
        let key = self.key();
        let _turn = self.agent.inner.sessions.enter(&key).await;
        self.check_owner(&key).await?;
        let run = Run::new(self.agent.clone(), self.path.clone(), key, None, Arc::default());
        run::settle(&run, Stopped::Cancelled).await
    }

    /// What was said so far, oldest first.
    pub async fn messages(&self) -> Result<Arc<Vec<Message>>, RunError> {
        Ok(Transcript::open(self.store(), &self.key(), MAIN).await?.history.messages)
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.agent.inner.gate.store()
    }

    fn key(&self) -> SessionKey {
        SessionKey::new(&self.path.principal, self.id())
    }

    fn in_a_task(&self, text: Option<Arc<str>>, feed: Option<Feed>) -> RunHandle {
        let cancel = CancellationToken::new();
        let stillness: Arc<Stillness> = Arc::default();
        let session = self.clone();
        let ways = Ways { feed, cancel: cancel.clone(), stillness: Arc::clone(&stillness) };
        let task = tokio::spawn(async move { session.perform(text, ways).await });
        RunHandle::new(self.id().into(), cancel, stillness, task)
    }

    fn watched(&self, text: Option<Arc<str>>) -> RunStream {
        let (feed, receiver) = Feed::new();
        RunStream::new(receiver, self.in_a_task(text, Some(feed)))
    }

    /// One run, told to whoever watches. The last event comes after everything the log has.
    async fn perform(&self, text: Option<Arc<str>>, mut ways: Ways) -> Result<Reply, RunError> {
        let Some(feed) = ways.feed.take() else { return self.drive(text, ways).await };
        let driven = async {
            let tail = Tail::start(&self.agent.inner.gate, &self.path, feed.clone()).await?;
            let driven = self.drive(text, Ways { feed: Some(tail.in_step(&feed)), ..ways }).await;
            tail.finish().await;
            driven
        };
        let driven = driven.await;
        feed.tell(match &driven {
            Ok(reply) => RunEvent::Done(reply.clone()),
            Err(error) => RunEvent::Failed { error: error.to_string().into() },
        });
        driven
    }

    /// One run: opens the session, drives it until it is done or ended, and leaves its history whole.
    async fn drive(&self, text: Option<Arc<str>>, ways: Ways) -> Result<Reply, RunError> {
        let Ways { feed, cancel, stillness } = ways;
        check_names(&self.path, text.as_deref())?;
        let key = self.key();
        let _turn = self.agent.inner.sessions.enter(&key).await;
        let transcript = self.open(&key, text.is_some()).await?;
        let text = text.filter(|_| !self.message.as_ref().is_some_and(|id| transcript.history.heard(id)));
        let run = Run::new(self.agent.clone(), self.path.clone(), key.clone(), feed, stillness);
        let time_left = run::time_left(&run, &transcript.history, text.is_some()).await?;
        let listing = match self.written {
            Written::Nothing => Some(self.list(&key).map_ok(drop).boxed()),
            Written::Perhaps => None,
        };
        let said = text.map(|text| Spoken { text, message: self.message.clone(), listing });
        let thread = Thread::main(Arc::clone(&run), transcript)?;
        let driven = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(RunError::Cancelled),
            driven = thread.go(said) => driven,
            () = run::out_of_time(time_left) => Err(RunError::TimedOut(self.agent.inner.timeout.unwrap_or_default())),
        };
        if let Some(why) = driven.as_ref().err().and_then(RunError::stops) {
            run::settle(&run, why).await?;
        }
        driven
    }

    /// Reads the session, and lists it where it is not yet. One whose name was just made up is nobody else's: it is
    /// listed along with what is said first.
    async fn open(&self, key: &SessionKey, may_begin: bool) -> Result<Transcript, RunError> {
        if self.written == Written::Nothing {
            return Ok(Transcript::fresh(self.store(), key, MAIN));
        }
        let transcript = Transcript::open(self.store(), key, MAIN).await?;
        if transcript.history.next() == Next::Nothing && !may_begin {
            return Err(RunError::NoSession(self.id().into()));
        }
        match self.listed(key).await? {
            Some(listed) => self.check_agent(listed)?,
            // Nobody has said anything, or whoever did was lost before it was listed, too.
            None => {
                if self.list(key).await? == Created::Before {
                    self.check_owner(key).await?;
                }
            }
        }
        Ok(transcript)
    }

    async fn list(&self, key: &SessionKey) -> Result<Created, RunError> {
        let created_at = self.store().now().await?;
        let agent = Arc::clone(self.agent.name());
        let requester = self.path.requester.clone();
        let listed = serde_json::to_vec(&Listed { session: self.id().into(), agent, created_at, requester });
        let listed = listed.map_err(|error| RunError::Damaged(error.to_string()))?;
        match self.store().put_record(SESSIONS, &key.to_string(), &listed, Expect::Absent, None).await {
            Ok(_) => Ok(Created::Now),
            Err(Failure::Rejected(Rejection::Conflict)) => Ok(Created::Before),
            Err(failure) => Err(RunError::Gate(failure.into())),
        }
    }

    async fn check_owner(&self, key: &SessionKey) -> Result<(), RunError> {
        let listed = self.listed(key).await?;
        self.check_agent(listed.ok_or_else(|| RunError::NoSession(self.id().into()))?)
    }

    async fn listed(&self, key: &SessionKey) -> Result<Option<Listed>, RunError> {
        let record = self.store().record(SESSIONS, &key.to_string()).await?;
        let read = record.map(|record| serde_json::from_slice(&record.value)).transpose();
        read.map_err(|error| RunError::Damaged(error.to_string()))
    }

    /// A session goes on with the agent it was begun with: another one would read the history with other tools.
    fn check_agent(&self, listed: Listed) -> Result<(), RunError> {
        match listed.agent == *self.agent.name() {
            true => Ok(()),
            false => Err(RunError::OtherAgent { owner: listed.agent, agent: Arc::clone(self.agent.name()) }),
        }
    }
}

fn check_names(path: &Path, text: Option<&str>) -> Result<(), RunError> {
    let named = [
        ("session", path.session.as_ref()),
        ("requester", path.requester.as_ref()),
        ("principal", Some(&path.principal)),
    ];
    for (what, name) in named {
        let most = countersign::limits::NAME_BYTES;
        let bad = |name: &Arc<str>| name.trim().is_empty() || name.len() > most || name.contains('\0');
        if name.is_some_and(bad) {
            return Err(RunError::BadInput(format!("the {what} must have 1 to {most} bytes and not be blank")));
        }
    }
    if path.principal.contains('/') {
        return Err(RunError::BadInput("the principal must not contain `/`".into()));
    }
    match text {
        Some(text) if text.len() > limits::USER_BYTES => {
            Err(RunError::BadInput(format!("more than {} bytes were said at once", limits::USER_BYTES)))
        }
        Some(_) | None => Ok(()),
    }
}
