//! What happened in a session, in order: the entries of its transcripts and the events of its calls, each once.
//!
//! The two are kept apart and neither knows the other, but each says enough to be put in its place: a call is named after
//! the entry that wanted it, so that entry comes before it; and whoever writes an entry has brought the calls before it to
//! their ends, so those come before the entry. Reading transcripts first and the log after finds the latter complete.

use std::collections::VecDeque;
use std::sync::Arc;

use countersign::call::Chain;
use countersign::event::{Cursor, Event, EventName};
use countersign::store::EventFilter;
use countersign::{Call, Hold};
use countersign_agent::{Entry, SessionReader};
use countersign_api::wire::{self, ClosedHold, SessionEvent};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::cursor::{MAIN, Mark, ThreadMark};
use super::key::Key;
use super::refused;
use super::show::{self, Eyes};
use crate::app::App;
use crate::feed::is_in_log;
use crate::limits;
use crate::problem::Answer;

/// Tells one reader what happened in a session, from a place on.
pub(super) struct Story {
    app: App,
    reader: SessionReader,
    chain: Chain,
    /// Whether the reader owns the session.
    own: bool,
    log: Cursor,
    lines: Vec<Line>,
    told: VecDeque<Told>,
}

/// An event and the place right after it.
pub(super) struct Told {
    pub(super) place: String,
    pub(super) event: SessionEvent,
}

/// An open thread.
struct Line {
    thread: Arc<str>,
    parent: Option<Arc<str>>,
    agents: Vec<Arc<str>>,
    background: bool,
    /// Entries that were told.
    told: u32,
    /// Entries that were read and not told.
    read: VecDeque<Entry>,
}

/// Whether there may be more to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    Yes,
    No,
}

impl Story {
    /// Begins after a place; none where that is no place of this session's stream.
    pub(super) async fn after(app: App, reader: SessionReader, own: bool, mark: Mark) -> Answer<Option<Story>> {
        let chain = Key::new(reader.principal(), &reader.listed().session).chain();
        let filter = EventFilter { chain: Some(chain.clone()), ..EventFilter::default() };
        if !is_in_log(&**app.store(), mark.log, filter).await? {
            return Ok(None);
        }
        let (log, told) = (mark.log, VecDeque::new());
        let mut story = Story { app, reader, chain, own, log, lines: Vec::new(), told };
        for thread in mark.threads {
            if !story.go_on_with(thread).await? {
                return Ok(None);
            }
        }
        Ok(Some(story))
    }

    /// The next event that was found.
    pub(super) fn pop(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// How many entries of a thread were told; none where the thread is not open.
    pub(super) fn told_of(&self, thread: &str) -> Option<u32> {
        self.lines.iter().find(|line| &*line.thread == thread).map(|line| line.told)
    }

    /// Looks for what happened since.
    pub(super) async fn look(&mut self) -> Answer<More> {
        let before = self.told.len();
        let threads: Vec<Arc<str>> = self.lines.iter().map(|line| Arc::clone(&line.thread)).collect();
        let mut whole = true;
        for thread in &threads {
            whole &= self.read_on(thread).await? < limits::SESSION_ROWS;
        }
        let filter = EventFilter {
            chain: Some(self.chain.clone()),
            limit: Some(limits::SESSION_ROWS),
            ..EventFilter::default()
        };
        let events = self.app.store().events(self.log, filter).await?;
        let at_end = events.len() < limits::SESSION_ROWS;
        for event in &events {
            self.happened(event).await?;
        }
        if at_end {
            for thread in &threads {
                self.tell_read(thread).await?;
            }
        }
        let moved = !events.is_empty() || self.told.len() > before;
        Ok(if moved || !whole || !at_end { More::Yes } else { More::No })
    }

    /// Takes a thread up where it was left: reads what was told before, for the agents it was handed to.
    async fn go_on_with(&mut self, mark: ThreadMark) -> Answer<bool> {
        let agents = self.reader.agents_of(&mark.thread).await.map_err(refused)?;
        if agents.is_empty() {
            return Ok(false);
        }
        let parent = self.parent_of(&mark.thread).await?;
        let ThreadMark { thread, told, background } = mark;
        self.lines.push(Line { thread, parent, agents, background, told: 0, read: VecDeque::new() });
        let Some(index) = self.lines.len().checked_sub(1) else { return Ok(false) };
        while self.lines.get(index).is_some_and(|line| line.told < told) {
            let thread = self.lines.get(index).map(|line| Arc::clone(&line.thread)).unwrap_or_default();
            if self.lines.get(index).is_some_and(|line| line.read.is_empty()) && self.read_on(&thread).await? == 0 {
                return Ok(false);
            }
            if let Some(line) = self.lines.get_mut(index)
                && let Some(entry) = line.read.pop_front()
            {
                line.told += 1;
                line.hand_over(&entry);
            }
        }
        Ok(true)
    }

    async fn parent_of(&self, thread: &str) -> Answer<Option<Arc<str>>> {
        let Ok(id) = thread.parse() else { return Ok(None) };
        Ok(self.app.store().call(id).await?.and_then(|call| call.facts.path.thread.clone()))
    }

    fn line(&mut self, thread: &str) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| &*line.thread == thread)
    }

    /// Reads one page more of a thread. Says how many entries that were.
    async fn read_on(&mut self, thread: &str) -> Answer<usize> {
        let Some(line) = self.line(thread) else { return Ok(0) };
        let from = line.told.saturating_add(u32::try_from(line.read.len()).unwrap_or(u32::MAX));
        let entries = self.reader.entries(thread, from, limits::SESSION_ROWS).await.map_err(refused)?;
        let count = entries.len();
        if let Some(line) = self.line(thread) {
            line.read.extend(entries);
        }
        Ok(count)
    }

    /// Tells what was read of a thread.
    async fn tell_read(&mut self, thread: &str) -> Answer<()> {
        while let Some(entry) = self.line(thread).and_then(|line| line.read.pop_front()) {
            self.tell_entry(thread, entry).await?;
        }
        Ok(())
    }

    /// Tells a thread up to an entry, that included.
    async fn tell_through(&mut self, thread: &str, entry: u32) -> Answer<()> {
        while self.line(thread).is_some_and(|line| line.told <= entry) {
            if self.line(thread).is_some_and(|line| line.read.is_empty()) && self.read_on(thread).await? == 0 {
                return Ok(());
            }
            if let Some(entry) = self.line(thread).and_then(|line| line.read.pop_front()) {
                self.tell_entry(thread, entry).await?;
            }
        }
        Ok(())
    }

    async fn tell_entry(&mut self, thread: &str, entry: Entry) -> Answer<()> {
        for child in self.ended_by(thread, &entry) {
            self.finish(child).await?;
        }
        let waits = self.lines.iter().any(|line| line.parent.as_deref() == Some(thread));
        let eyes = if self.own { Eyes::Own } else { Eyes::Others(&self.app.redactor) };
        let Some(line) = self.lines.iter_mut().find(|line| &*line.thread == thread) else { return Ok(()) };
        let shown = show::entry(thread, &line.agents, line.told, &entry, eyes);
        line.told += 1;
        line.hand_over(&entry);
        let ends = thread == MAIN && !waits && matches!(&entry, Entry::Model { said, .. } if said.calls.is_empty());
        if let Entry::Results { started, .. } = &entry {
            for child in started {
                if let Some(line) = self.line(&child.thread) {
                    line.background = true;
                }
            }
        }
        self.tell(if ends { SessionEvent::Done(shown) } else { SessionEvent::Entry(shown) });
        Ok(())
    }

    /// The children that are over once a thread has this entry.
    fn ended_by(&self, thread: &str, entry: &Entry) -> Vec<Arc<str>> {
        let ours = |line: &&Line| line.parent.as_deref() == Some(thread);
        let over = |line: &&Line| match entry {
            Entry::Results { calls, started, .. } => {
                let called = calls.iter().any(|call| *call.to_string() == *line.thread);
                called && !started.iter().any(|child| child.thread == line.thread)
            }
            Entry::Told { thread, .. } => *thread == line.thread,
            Entry::User { .. } | Entry::Stopped { .. } => true,
            _ => false,
        };
        self.lines.iter().filter(ours).filter(over).map(|line| Arc::clone(&line.thread)).collect()
    }

    /// Tells the rest of a thread that is over, and of its own children, and forgets it.
    fn finish(&mut self, thread: Arc<str>) -> BoxFuture<'_, Answer<()>> {
        async move {
            loop {
                self.tell_read(&thread).await?;
                if self.read_on(&thread).await? == 0 {
                    break;
                }
            }
            let children = self.lines.iter().filter(|line| line.parent.as_ref() == Some(&thread));
            for child in children.map(|line| Arc::clone(&line.thread)).collect::<Vec<_>>() {
                self.finish(child).await?;
            }
            self.lines.retain(|line| line.thread != thread);
            Ok(())
        }
        .boxed()
    }

    /// Tells what happened to a call.
    async fn happened(&mut self, event: &Event) -> Answer<()> {
        let call = match event.call {
            Some(id) => self.app.store().call(id).await?,
            None => None,
        };
        let Some(call) = call else {
            self.log = event.cursor;
            return Ok(());
        };
        if let (EventName::CallSubmitted, Some((thread, entry))) = (event.name, wanted_by(&call)) {
            self.tell_through(&thread, entry).await?;
        }
        self.log = event.cursor;
        if event.name == EventName::CallSucceeded {
            self.child_of(&call);
        }
        if let Some(told) = told(event, &call) {
            self.tell(told);
        }
        Ok(())
    }

    /// A task was given: its thread is named by the call.
    fn child_of(&mut self, call: &Call) {
        let (Some(name), Some(parent)) = (call.facts.tool.delegate(), &call.facts.path.thread) else { return };
        let thread: Arc<str> = call.id.to_string().into();
        if self.line(&thread).is_some() || self.line(parent).is_none() || self.lines.len() >= limits::SESSION_THREADS {
            return;
        }
        let agents = call.facts.path.agents.iter().cloned().chain([name.into()]).collect();
        let parent = Some(Arc::clone(parent));
        self.lines.push(Line { thread, parent, agents, background: false, told: 0, read: VecDeque::new() });
    }

    fn tell(&mut self, event: SessionEvent) {
        let threads = self.lines.iter().map(|line| ThreadMark {
            thread: Arc::clone(&line.thread),
            told: line.told,
            background: line.background,
        });
        let place = Mark { log: self.log, threads: threads.collect() }.to_string();
        self.told.push_back(Told { place, event });
    }
}

impl Line {
    fn hand_over(&mut self, entry: &Entry) {
        if let Entry::Results { agent: Some(to), .. } = entry {
            self.agents.retain(|agent| agent != to);
            self.agents.push(Arc::clone(to));
        }
    }
}

/// The thread and the entry that wanted a call, as its key says.
fn wanted_by(call: &Call) -> Option<(Arc<str>, u32)> {
    let thread = call.facts.path.thread.as_ref()?;
    let rest = call.key.as_ref()?.strip_prefix(&**thread)?.strip_prefix('.')?;
    Some((Arc::clone(thread), rest.split('.').next()?.parse().ok()?))
}

/// What is told of an event.
fn told(event: &Event, call: &Arc<Call>) -> Option<SessionEvent> {
    match event.name {
        EventName::CallSubmitted => Some(SessionEvent::Called(Box::new(wire::Call::from(&**call)))),
        EventName::HoldOpened => {
            let hold = Hold::of(call, event.hold?)?;
            Some(SessionEvent::Held(Box::new(wire::Hold::from(&hold))))
        }
        // One of several decisions closes a hold; the others are no news here.
        EventName::HoldDecided if !closes(event) => None,
        EventName::HoldDecided
        | EventName::HoldReleased
        | EventName::HoldExpired
        | EventName::HoldCancelled
        | EventName::HoldSuperseded => {
            let brief = wire::Call::from(&**call).holds.into_iter().find(|brief| Some(brief.id) == event.hold)?;
            Some(SessionEvent::HoldClosed(Box::new(ClosedHold { call: call.id, hold: brief })))
        }
        EventName::CallRefused
        | EventName::CallSucceeded
        | EventName::CallFailed
        | EventName::CallAnswered
        | EventName::CallCancelled
        | EventName::CallLapsed
        | EventName::CallInDoubt
        | EventName::CallResolved => Some(SessionEvent::Ended(Box::new(wire::Call::from(&**call)))),
        EventName::CallAllowed
        | EventName::CallClaimed
        | EventName::GrantMade
        | EventName::GrantRevoked
        | EventName::PolicyLoaded
        | EventName::PolicyRejected
        | EventName::HaltSet
        | EventName::HaltLifted
        | EventName::AccessRefused
        | EventName::AccessChanged
        | EventName::ToolPinned
        | EventName::ToolChanged
        | EventName::ToolAccepted
        | EventName::CheckpointSigned => None,
    }
}

fn closes(event: &Event) -> bool {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        closes: bool,
    }
    serde_json::from_str::<Body>(&event.body).is_ok_and(|body| body.closes)
}
