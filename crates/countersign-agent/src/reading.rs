//! Reading sessions from outside a run: which there are, how they stand, and what is written down in them.

use std::sync::Arc;

use countersign::call::Path;
use countersign::store::Record;
use countersign::{CallId, Store, Time};

use crate::error::RunError;
use crate::model::Usage;
use crate::session::{Listed, MAIN, SESSIONS};
use crate::transcript::{Entry, Next, SessionKey, Spent, Stopped, TRANSCRIPTS, Transcript, entries_of};

/// How far a session has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has said anything yet.
    New,
    /// A run goes on, or waits to be gone on with.
    Open,
    /// The last run gave its answer.
    Done,
    /// The last run was ended before its time.
    Stopped(Stopped),
}

/// A session's own thread in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// How far it has come.
    pub standing: Standing,
    /// The run that goes on, or the last one; `r0` before the first.
    pub run: Arc<str>,
    /// When that run began, where it has an end.
    pub began: Option<Time>,
    /// The agents that took part, the one that acts last.
    pub agents: Vec<Arc<str>>,
    /// What all runs took together, children included.
    pub spent: Spent,
    /// Entries of its transcript.
    pub entries: u32,
}

/// One line of work of a session: its own, or a child's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadOutline {
    /// Its name: `main`, or the id of the call that began it.
    pub thread: Arc<str>,
    /// The agents from the root to the one it began with.
    pub agents: Vec<Arc<str>>,
}

/// Reads one session. It needs no agent, so sessions of agents that are not here any more can be read, too.
#[derive(Clone)]
pub struct SessionReader {
    store: Arc<dyn Store>,
    key: SessionKey,
    principal: Arc<str>,
    listed: Listed,
}

impl SessionReader {
    /// A principal's session, if it is there.
    pub async fn open(
        store: Arc<dyn Store>,
        principal: Arc<str>,
        session: &str,
    ) -> Result<Option<SessionReader>, RunError> {
        let key = SessionKey::new(&principal, session);
        let record = store.record(SESSIONS, &key.to_string()).await?;
        let listed: Option<Listed> = record.as_ref().map(read).transpose()?;
        Ok(listed.map(|listed| SessionReader { store, key, principal, listed }))
    }

    /// The session as it is listed.
    pub fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Whose it is.
    pub fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// How the session stands.
    pub async fn outline(&self) -> Result<Outline, RunError> {
        let mut spent = Spent::default();
        let mut agents = vec![Arc::clone(&self.listed.agent)];
        let seen = |entry: &Entry| {
            spent += taken(entry);
            if let Entry::Results { agent: Some(to), .. } = entry {
                agents.retain(|agent| agent != to);
                agents.push(Arc::clone(to));
            }
        };
        let transcript = Transcript::open_seeing(&self.store, &self.key, MAIN, seen).await?;
        let history = transcript.history;
        let standing = match history.next() {
            Next::Nothing => Standing::New,
            Next::Ask | Next::Calls | Next::Await => Standing::Open,
            Next::Done => Standing::Done,
            Next::Stopped(why) => Standing::Stopped(why),
        };
        Ok(Outline { standing, run: history.run, began: history.began, agents, spent, entries: history.entries })
    }

    /// What is written down of a thread from the entry with this number on, oldest first.
    pub async fn entries(&self, thread: &str, from: u32, limit: usize) -> Result<Vec<Entry>, RunError> {
        let prefix = format!("{}/{thread}/", self.key);
        // The record before may hold two entries, and the second of them is the one asked for.
        let after = from.checked_sub(2).map(|before| format!("{prefix}{before:08}"));
        let records = self.store.records(TRANSCRIPTS, &prefix, after.as_deref(), limit.saturating_add(1)).await?;
        let mut found = Vec::new();
        for record in &records {
            let first = record.key.strip_prefix(&prefix).and_then(|number| number.parse().ok()).unwrap_or(from);
            found.extend((first..).zip(entries_of(record)?).filter(|(number, _)| *number >= from));
        }
        Ok(found.into_iter().map(|(_, entry)| entry).take(limit).collect())
    }

    /// Its threads by name, so many at most. A child's agents are read from the call that began it.
    pub async fn threads(&self, limit: usize) -> Result<Vec<ThreadOutline>, RunError> {
        let prefix = format!("{}/", self.key);
        let mut found: Vec<ThreadOutline> = Vec::new();
        while found.len() < limit {
            // Keys of a thread end in digits, so this is past its last one.
            let after = found.last().map(|last| format!("{prefix}{}/:", last.thread));
            let next = self.store.records(TRANSCRIPTS, &prefix, after.as_deref(), 1).await?;
            let Some(record) = next.first() else { break };
            let name = record.key.strip_prefix(&prefix).and_then(|rest| rest.split('/').next());
            let thread: Arc<str> = name.unwrap_or_default().into();
            let agents = self.agents_of(&thread).await?;
            found.push(ThreadOutline { thread, agents });
        }
        Ok(found)
    }

    /// The agents from the root to the one a thread began with.
    pub async fn agents_of(&self, thread: &str) -> Result<Vec<Arc<str>>, RunError> {
        let Ok(id) = thread.parse::<CallId>() else { return Ok(vec![Arc::clone(&self.listed.agent)]) };
        let call = self.store.call(id).await?;
        let Some(call) = call.filter(|call| self.owns(&call.facts.path)) else { return Ok(Vec::new()) };
        let child = call.facts.tool.delegate().map(Arc::from);
        Ok(call.facts.path.agents.iter().cloned().chain(child).collect())
    }
}

impl SessionReader {
    fn owns(&self, path: &Path) -> bool {
        path.principal == self.principal && path.session.as_ref() == Some(&self.listed.session)
    }
}

/// What an entry says was taken.
fn taken(entry: &Entry) -> Spent {
    match entry {
        Entry::Model { usage, .. } => Spent { turns: 1, usage: *usage },
        Entry::Results { spent, .. } | Entry::Told { spent, .. } => *spent,
        Entry::User { .. } | Entry::Stopped { .. } => Spent { turns: 0, usage: Usage::default() },
    }
}

fn read<T: serde::de::DeserializeOwned>(record: &Record) -> Result<T, RunError> {
    let damaged = |error: serde_json::Error| RunError::Damaged(format!("the record `{}`: {error}", record.key));
    serde_json::from_slice(&record.value).map_err(damaged)
}

/// Lists a principal's sessions by name, after one of them.
pub async fn sessions(
    store: &dyn Store,
    principal: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Listed>, RunError> {
    let after = after.map(|after| SessionKey::new(principal, after).to_string());
    let records = store.records(SESSIONS, &format!("{principal}/"), after.as_deref(), limit).await?;
    records.iter().map(read).collect()
}

/// Lists everybody's sessions, each with its principal, after one of them.
pub async fn every_session(
    store: &dyn Store,
    after: Option<(&str, &str)>,
    limit: usize,
) -> Result<Vec<(Arc<str>, Listed)>, RunError> {
    let after = after.map(|(principal, session)| SessionKey::new(principal, session).to_string());
    let records = store.records(SESSIONS, "", after.as_deref(), limit).await?;
    let owned = |record: &Record| {
        let principal = record.key.split('/').next().unwrap_or_default();
        Ok((principal.into(), read(record)?))
    };
    records.iter().map(owned).collect()
}
