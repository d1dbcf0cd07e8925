//! The history of one thread: an append-only list in the store's records, and what follows from it.
//!
//! What to do next is a function of the entries alone ([`History::next`]), so a run goes on after a restart where it
//! stopped. Two drivers cannot both append: the place of each entry is written only where nothing stands yet.

use std::collections::HashSet;
use std::sync::Arc;

use countersign::store::{Expect, Failure, Record};
use countersign::transition::Rejection;
use countersign::{CallId, Store, Time};
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::limits;
use crate::model::{Given, Message, Said, Stop, Usage};

/// Where transcripts are kept among the store's records.
pub(crate) const TRANSCRIPTS: &str = "transcript";

/// Room for an entry of common size, so that writing one down does not grow its text step by step.
const ENTRY_BYTES: usize = 512;

// Tagged from outside, so that JSON inside is read byte for byte.
/// One thing that happened in a thread, as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A run begins: the user said something, or a parent gave a task.
    User {
        /// What.
        text: Arc<str>,
        /// The run's name within the session.
        run: Arc<str>,
        /// When, where the run has an end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
        /// The sender's name for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Arc<str>>,
    },
    /// A background child ended; the runtime tells the model.
    Told {
        /// What the model reads.
        text: Arc<str>,
        /// The child's thread.
        thread: Arc<str>,
        /// What the child took.
        spent: Spent,
    },
    /// The model answered.
    Model {
        /// What.
        said: Said,
        /// What it took.
        usage: Usage,
        /// Why it ended. Transcripts from before this was written down say that it was done.
        #[serde(default)]
        stop: Stop,
    },
    /// The calls of the turn before came to their ends.
    Results {
        /// What the model reads of each, in the order of the calls.
        given: Vec<Given>,
        /// Our ids of the calls.
        calls: Vec<CallId>,
        /// Whom the thread was handed over to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Arc<str>>,
        /// Background children begun.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        started: Vec<Started>,
        /// What children took that ended within this turn.
        #[serde(default)]
        spent: Spent,
    },
    /// The run was ended before its time. Nothing goes on until the user says something.
    Stopped {
        /// Why.
        why: Stopped,
    },
}

/// A background child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The agent.
    pub agent: Arc<str>,
    /// Its thread.
    pub thread: Arc<str>,
}

/// Why a run was ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stopped {
    /// Somebody cancelled it.
    Cancelled,
    /// It took too long.
    TimedOut,
    /// Nobody decided about a call in time, and its rule ends the run.
    Expired {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: Arc<str>,
    },
    /// It reached a limit.
    Limit {
        /// Which.
        limit: Arc<str>,
        /// How much there was.
        allowed: u64,
    },
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Turns of models.
    pub turns: u64,
    /// Tokens, and what they cost.
    pub usage: Usage,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.turns = self.turns.saturating_add(more.turns);
        self.usage += more.usage;
    }
}

/// What to do next in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: nobody has said anything yet.
    Nothing,
    /// Ask the model.
    Ask,
    /// Bring the calls of the last turn to their ends.
    Calls,
    /// Wait for a background child.
    Await,
    /// Nothing: the model has answered.
    Done,
    /// Nothing: the run was ended.
    Stopped(Stopped),
}

/// What follows from the entries so far.
#[derive(Debug)]
pub(crate) struct History {
    /// What the model is told. Shared with the prompt, so that asking copies nothing.
    pub(crate) messages: Arc<Vec<Message>>,
    /// How many entries there are.
    pub(crate) entries: u32,
    /// The run that goes on, or the last one.
    pub(crate) run: Arc<str>,
    /// How many runs there were.
    pub(crate) runs: u32,
    /// When the run began, where that matters.
    pub(crate) began: Option<Time>,
    /// To whom the thread was handed over, in order.
    pub(crate) handed: Vec<Arc<str>>,
    /// Background children whose end the model does not know yet.
    pub(crate) children: Vec<Started>,
    /// What the run took so far.
    pub(crate) spent: Spent,
    /// Why the model's last answer ended.
    pub(crate) stop: Stop,
    /// The last call whose result is written down.
    pub(crate) last_call: Option<CallId>,
    /// What was said under a name.
    heard: HashSet<Arc<str>>,
    stopped: Option<Stopped>,
}

impl Default for History {
    fn default() -> Self {
        History {
            messages: Arc::default(),
            entries: 0,
            run: "r0".into(),
            runs: 0,
            began: None,
            handed: Vec::new(),
            children: Vec::new(),
            spent: Spent::default(),
            stop: Stop::default(),
            last_call: None,
            heard: HashSet::new(),
            stopped: None,
        }
    }
}

impl History {
    /// What to do next.
    pub(crate) fn next(&self) -> Next {
        match (&self.stopped, self.messages.last()) {
            (Some(why), _) => Next::Stopped(why.clone()),
            (None, None) => Next::Nothing,
            (None, Some(Message::User { .. } | Message::Results { .. })) => Next::Ask,
            (None, Some(Message::Model(said))) if !said.calls.is_empty() => Next::Calls,
            (None, Some(Message::Model(_))) if !self.children.is_empty() => Next::Await,
            (None, Some(Message::Model(_))) => Next::Done,
        }
    }

    /// What the model said last, if that is the last thing said.
    pub(crate) fn said(&self) -> Option<&Said> {
        match self.messages.last() {
            Some(Message::Model(said)) => Some(said),
            Some(Message::User { .. } | Message::Results { .. }) | None => None,
        }
    }

    /// Whether something was said under this name.
    pub(crate) fn heard(&self, message: &str) -> bool {
        self.heard.contains(message)
    }

    /// The number of the last entry: what calls of the last turn are named by.
    pub(crate) fn turn(&self) -> u32 {
        self.entries.saturating_sub(1)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries += 1;
        self.stopped = None;
        match entry {
            Entry::User { text, run, at, message } => {
                self.heard.extend(message);
                self.run = run;
                self.runs += 1;
                self.began = at;
                self.children.clear();
                self.spent = Spent::default();
                self.say(Message::User { text });
            }
            Entry::Told { text, thread, spent } => {
                self.children.retain(|child| child.thread != thread);
                self.spent += spent;
                self.say(Message::User { text });
            }
            Entry::Model { said, usage, stop } => {
                self.stop = stop;
                self.spent += Spent { turns: 1, usage };
                self.say(Message::Model(said));
            }
            Entry::Results { given, calls, agent, started, spent } => {
                self.last_call = calls.into_iter().max().max(self.last_call);
                self.handed.extend(agent);
                self.children.extend(started);
                self.spent += spent;
                self.say(Message::Results { results: given });
            }
            Entry::Stopped { why } => {
                // Their calls were ended with the run, and nobody waits for them.
                self.children.clear();
                self.stopped = Some(why);
            }
        }
    }

    fn say(&mut self, message: Message) {
        Arc::make_mut(&mut self.messages).push(message);
    }
}

/// A thread's history, and its place in the store.
pub(crate) struct Transcript {
    store: Arc<dyn Store>,
    prefix: String,
    pub(crate) history: History,
    /// What is counted and will be written down with the next entry, as one record.
    unwritten: Option<Vec<u8>>,
}

impl Transcript {
    /// A thread nobody has written to yet.
    pub(crate) fn fresh(store: &Arc<dyn Store>, session: &SessionKey, thread: &str) -> Transcript {
        let prefix = format!("{session}/{thread}/");
        Transcript { store: Arc::clone(store), prefix, history: History::default(), unwritten: None }
    }

    /// Reads a thread.
    pub(crate) async fn open(
        store: &Arc<dyn Store>,
        session: &SessionKey,
        thread: &str,
    ) -> Result<Transcript, RunError> {
        Transcript::open_seeing(store, session, thread, |_| {}).await
    }

    /// Reads a thread, and shows each entry on the way.
    pub(crate) async fn open_seeing(
        store: &Arc<dyn Store>,
        session: &SessionKey,
        thread: &str,
        mut seen: impl FnMut(&Entry),
    ) -> Result<Transcript, RunError> {
        let mut transcript = Transcript::fresh(store, session, thread);
        let mut after: Option<String> = None;
        loop {
            let rows = countersign::limits::PAGE_ROWS;
            let page = store.records(TRANSCRIPTS, &transcript.prefix, after.as_deref(), rows).await?;
            let whole = page.len() < rows;
            for record in page {
                if record.key != transcript.key(transcript.history.entries) {
                    return Err(RunError::Damaged(format!(
                        "the transcript of {session} has a gap at `{}`",
                        record.key
                    )));
                }
                for entry in entries_of(&record)? {
                    seen(&entry);
                    transcript.history.push(entry);
                }
                after = Some(record.key);
            }
            if whole {
                return Ok(transcript);
            }
        }
    }

    /// Writes an entry down, with the one that was left for it, then counts it. Where somebody else wrote meanwhile
    /// nothing happens.
    pub(crate) async fn append(&mut self, entry: Entry) -> Result<(), RunError> {
        let text = self.text_of(&entry)?;
        self.write(text).await?;
        self.history.push(entry);
        Ok(())
    }

    /// Counts an entry that need not be on disk before the next step: whoever goes on without it finds the same again in
    /// the calls it is about. It is written down with the next one.
    pub(crate) fn leave_for_next(&mut self, entry: Entry) -> Result<(), RunError> {
        self.unwritten = Some(self.text_of(&entry)?);
        self.history.push(entry);
        Ok(())
    }

    /// Writes down what was left for an entry that does not come.
    pub(crate) async fn flush(&mut self) -> Result<(), RunError> {
        match self.unwritten.take() {
            Some(text) => self.put(self.history.turn(), &text).await,
            None => Ok(()),
        }
    }

    fn text_of(&self, entry: &Entry) -> Result<Vec<u8>, RunError> {
        if self.history.entries >= limits::TRANSCRIPT_ENTRIES {
            let most = limits::TRANSCRIPT_ENTRIES;
            return Err(RunError::BadInput(format!("the session has over {most} entries; begin another")));
        }
        let mut text = Vec::with_capacity(ENTRY_BYTES);
        serde_json::to_writer(&mut text, entry).map_err(|error| RunError::Damaged(error.to_string()))?;
        Ok(text)
    }

    /// One record for both: there is never the later entry without the earlier one.
    async fn write(&mut self, text: Vec<u8>) -> Result<(), RunError> {
        match self.unwritten.take() {
            Some(earlier) => self.put(self.history.turn(), &[b"[", &*earlier, b",", &text, b"]"].concat()).await,
            None => self.put(self.history.entries, &text).await,
        }
    }

    async fn put(&self, entry: u32, text: &[u8]) -> Result<(), RunError> {
        match self.store.put_record(TRANSCRIPTS, &self.key(entry), text, Expect::Absent, None).await {
            Ok(_) => Ok(()),
            Err(Failure::Rejected(Rejection::Conflict)) => Err(RunError::Busy),
            Err(failure) => Err(RunError::Gate(failure.into())),
        }
    }

    fn key(&self, entry: u32) -> String {
        format!("{}{entry:08}", self.prefix)
    }
}

/// The entries of a record: mostly one, and two where they were written at once. Its key has the number of the first.
pub(crate) fn entries_of(record: &Record) -> Result<Vec<Entry>, RunError> {
    let read = match record.value.first() {
        Some(b'[') => serde_json::from_slice(&record.value),
        _ => serde_json::from_slice(&record.value).map(|entry| vec![entry]),
    };
    read.map_err(|error| RunError::Damaged(format!("the entry `{}`: {error}", record.key)))
}

/// The name of a session among the store's records: whose it is, and its own name, so that no two read alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey(Arc<str>);

impl SessionKey {
    pub(crate) fn new(principal: &str, session: &str) -> SessionKey {
        // A principal holds no `/`; a session may.
        let session = session.replace('%', "%25").replace('/', "%2F");
        SessionKey(format!("{principal}/{session}").into())
    }
}

impl std::fmt::Display for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Wanted;

    fn user() -> Entry {
        Entry::User { text: "hi".into(), run: "r1".into(), at: None, message: None }
    }

    fn model(calls: usize) -> Entry {
        let wanted = Wanted { label: "a".into(), name: "x".into(), arguments: "{}".into() };
        let said = Said { text: "so".into(), calls: vec![wanted; calls], opaque: None };
        Entry::Model { said, usage: Usage { input: 2, output: 1, ..Usage::default() }, stop: Stop::Done }
    }

    fn results(started: &[&str]) -> Entry {
        let started = started.iter().map(|thread| Started { agent: "kid".into(), thread: (*thread).into() });
        Entry::Results {
            given: Vec::new(),
            calls: Vec::new(),
            agent: None,
            started: started.collect(),
            spent: Spent::default(),
        }
    }

    fn told(thread: &str) -> Entry {
        Entry::Told { text: "done".into(), thread: thread.into(), spent: Spent::default() }
    }

    #[track_caller]
    fn check(entries: &[Entry], expected: Next) {
        let mut history = History::default();
        for entry in entries {
            let text = serde_json::to_string(entry).unwrap();
            let read: Entry = serde_json::from_str(&text).unwrap();
            assert_eq!(read, *entry, "what is written down reads back");
            history.push(read);
        }
        assert_eq!(history.next(), expected);
    }

    /// B108: where a run goes on is a function of what is written down, and of nothing else.
    #[test]
    fn what_comes_next_follows_from_the_entries() {
        let stopped = || Entry::Stopped { why: Stopped::Cancelled };
        check(&[], Next::Nothing);
        check(&[user()], Next::Ask);
        check(&[user(), model(0)], Next::Done);
        check(&[user(), model(2)], Next::Calls);
        check(&[user(), model(2), results(&[])], Next::Ask);
        check(&[user(), model(1), results(&[]), model(0)], Next::Done);
        check(&[user(), model(1), results(&["a", "b"]), model(0)], Next::Await);
        check(&[user(), model(1), results(&["a", "b"]), model(0), told("a")], Next::Ask);
        check(&[user(), model(1), results(&["a", "b"]), model(0), told("a"), model(0)], Next::Await);
        check(&[user(), model(1), results(&["a"]), model(0), told("a"), model(0)], Next::Done);
        check(&[user(), stopped()], Next::Stopped(Stopped::Cancelled));
        check(&[user(), model(1), results(&[]), stopped()], Next::Stopped(Stopped::Cancelled));
        check(&[user(), stopped(), user()], Next::Ask);
    }

    /// What was written before answers said why they ended is still read.
    #[test]
    fn an_answer_without_its_end_reads_as_done() {
        let old = r#"{"model":{"said":{"text":"so"},"usage":{"input":2,"output":1}}}"#;
        assert!(matches!(serde_json::from_str(old).unwrap(), Entry::Model { stop: Stop::Done, .. }));
        let cut = r#"{"model":{"said":{"text":"so"},"usage":{"input":2,"output":1},"stop":"length"}}"#;
        assert!(matches!(serde_json::from_str(cut).unwrap(), Entry::Model { stop: Stop::Length, .. }));
    }

    #[test]
    fn a_new_run_counts_what_it_takes_from_nothing() {
        let mut history = History::default();
        for entry in [user(), model(1), results(&["a"]), model(0)] {
            history.push(entry);
        }
        assert_eq!((history.spent.turns, history.spent.usage.input), (2, 4));
        history.push(user());
        assert_eq!((history.spent, history.runs, history.children.len()), (Spent::default(), 2, 0));
    }

    /// What was left for the next entry is written with it, as one record, or by itself where none comes. Either way it
    /// reads back in its place, and nothing else is ever read.
    #[tokio::test]
    async fn what_is_left_for_the_next_entry_is_never_missing_before_it() {
        let store: Arc<dyn Store> = Arc::new(countersign::memory::MemoryStore::new());
        let key = SessionKey::new("p", "s");
        let keys = async || -> Vec<String> {
            let records = store.records(TRANSCRIPTS, "", None, 100).await.unwrap();
            records.into_iter().map(|record| record.key.rsplit('/').next().unwrap().to_owned()).collect()
        };
        let mut writing = Transcript::open(&store, &key, "main").await.unwrap();
        for entry in [user(), model(1)] {
            writing.append(entry).await.unwrap();
        }
        writing.leave_for_next(results(&[])).unwrap();
        assert_eq!((writing.history.next(), writing.history.entries), (Next::Ask, 3));
        assert_eq!(keys().await, ["00000000", "00000001"]);
        assert_eq!(Transcript::open(&store, &key, "main").await.unwrap().history.next(), Next::Calls);

        writing.append(model(1)).await.unwrap();
        assert_eq!(keys().await, ["00000000", "00000001", "00000002"]);
        let mut read = Transcript::open(&store, &key, "main").await.unwrap();
        assert_eq!((read.history.next(), read.history.entries), (Next::Calls, 4));
        assert_eq!(read.history.messages, writing.history.messages);

        writing.leave_for_next(results(&[])).unwrap();
        writing.flush().await.unwrap();
        writing.flush().await.unwrap();
        assert_eq!(keys().await, ["00000000", "00000001", "00000002", "00000004"]);
        read.leave_for_next(results(&[])).unwrap();
        assert!(matches!(read.append(model(0)).await, Err(RunError::Busy)), "another driver was there");
        let mut read = Transcript::open(&store, &key, "main").await.unwrap();
        read.append(model(0)).await.unwrap();
        assert_eq!((read.history.next(), read.history.entries), (Next::Done, 6));
    }

    #[test]
    fn no_two_sessions_share_a_place() {
        let names = ["a", "a/main", "a%2Fmain", "a/main/00000000", "%", "%25"];
        let keys: std::collections::HashSet<_> = names.iter().map(|name| SessionKey::new("p", name).0).collect();
        assert_eq!(keys.len(), names.len());
        assert!(keys.iter().all(|key| key.matches('/').count() == 1));
    }
}
