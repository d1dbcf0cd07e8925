//! One reader's stream of a session: what happened since a place, then what happens.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use countersign::call::Chain;
use countersign_agent::SessionReader;
use countersign_api::wire::{SessionEvent, SessionStatus, SessionText};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::cursor::Mark;
use super::hub::{Hub, News, Piece};
use super::key::Key;
use super::show::names;
use super::story::{More, Story};
use super::ticket;
use crate::app::App;
use crate::auth::Principal;
use crate::limits;
use crate::problem::Answer;
use crate::rate::StreamPlace;
use crate::tail::Live;

/// Something for a reader.
pub(crate) struct Watched {
    /// The place right after it; none where it has none.
    pub(crate) place: Option<String>,
    pub(crate) event: SessionEvent,
}

/// One reader's stream.
pub(crate) struct Watch {
    app: App,
    principal: Arc<Principal>,
    reader: SessionReader,
    key: Key,
    chain: Chain,
    story: Option<Story>,
    status: Option<SessionStatus>,
    ticket: Option<u64>,
    hub: Arc<Hub>,
    news: broadcast::Receiver<News>,
    live: Live,
    text: Text,
    queue: VecDeque<Watched>,
    /// Whether something may have happened that was not looked at.
    behind: bool,
    looks: Interval,
    checks: Interval,
    _place: StreamPlace,
}

/// What models are saying, on its way to a reader.
enum Text {
    /// To whose session it is: piece by piece.
    Pieces(VecDeque<Piece>),
    /// To others: the text so far again and again, so that secrets are masked in all of it.
    Whole { due: Option<Instant>, sent: HashMap<Arc<str>, String> },
}

impl Watch {
    /// Begins after a place, or with the beginning of the session.
    pub(crate) async fn begin(
        app: App,
        principal: Arc<Principal>,
        reader: SessionReader,
        after: Option<Mark>,
    ) -> Answer<Watch> {
        let _place = app.rates.stream(&*principal)?;
        let key = Key::new(reader.principal(), &reader.listed().session);
        // Listening begins before looking, so nothing falls in between.
        let hub = app.sessions.hubs.of(&key);
        let ((news, so_far), live) = (hub.listen(), app.tail.listen());
        let own = principal.is_agent();
        let mark = after.unwrap_or_else(Mark::beginning);
        let story = Story::after(app.clone(), reader.clone(), own, mark).await?;
        let queue = match &story {
            Some(_) => VecDeque::new(),
            None => VecDeque::from([Watched { place: None, event: SessionEvent::Resync }]),
        };
        let text = match own {
            true => Text::Pieces(so_far.into()),
            false => Text::Whole { due: Some(Instant::now()), sent: HashMap::new() },
        };
        let ticks = |every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        Ok(Watch {
            chain: key.chain(),
            story,
            status: None,
            ticket: None,
            news,
            hub,
            live,
            text,
            queue,
            behind: true,
            looks: ticks(limits::SESSION_LOOKED),
            checks: ticks(limits::KEEP_ALIVE),
            app,
            principal,
            reader,
            key,
            _place,
        })
    }

    /// The next thing; none when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Watched> {
        loop {
            if let Some(watched) = self.queue.pop_front() {
                return Some(watched);
            }
            self.story.as_ref()?;
            let stepped = match self.behind {
                true => self.catch_up().await,
                false => self.wait().await,
            };
            if let Err(refused) = stepped {
                // The reader comes back with the last place it has.
                tracing::warn!(session = %self.key, problem = %refused.0, "a stream could not go on");
                self.story = None;
            }
        }
    }

    /// Tells what happened since, and how the session stands then.
    async fn catch_up(&mut self) -> Answer<()> {
        if self.status.is_none() {
            self.tell_status().await?;
        }
        let Some(story) = &mut self.story else { return Ok(()) };
        let more = story.look().await?;
        while let Some(told) = story.pop() {
            self.queue.push_back(Watched { place: Some(told.place), event: told.event });
        }
        if more == More::No {
            self.behind = false;
            self.tell_status().await?;
            self.tell_pieces();
        }
        Ok(())
    }

    async fn tell_status(&mut self) -> Answer<()> {
        self.ticket = self.ticket_version().await?;
        let status = self.app.sessions.status(&self.reader).await?;
        if self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.queue.push_back(Watched { place: None, event: SessionEvent::State(Box::new(status)) });
        }
        Ok(())
    }

    async fn ticket_version(&self) -> Answer<Option<u64>> {
        Ok(ticket::read(&**self.app.store(), &self.key).await?.map(|(_, version)| version))
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Answer<()> {
        let due = self.text.due();
        tokio::select! {
            news = self.news.recv() => self.heard(news),
            event = self.live.events.recv() => match event {
                Ok(event) => self.behind = event.chain == self.chain,
                // What was missed is in the store, where it is read from anyway.
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => self.story = None,
            },
            () = at(due) => self.tell_whole(),
            _ = self.looks.tick() => self.behind = self.moved_elsewhere().await?,
            _ = self.checks.tick() => {
                // SECURITY: a credential that was revoked or ran out hears nothing more.
                if !self.principal.still_holds(&self.app).await {
                    self.story = None;
                }
            }
            () = self.app.ended() => self.story = None,
        }
        Ok(())
    }

    /// Whether another server wrote something down.
    async fn moved_elsewhere(&mut self) -> Answer<bool> {
        if self.ticket_version().await? != self.ticket {
            return Ok(true);
        }
        let Some(story) = &mut self.story else { return Ok(false) };
        Ok(story.look().await? == More::Yes)
    }

    fn heard(&mut self, news: Result<News, RecvError>) {
        match news {
            Ok(News::Moved) => self.behind = true,
            Ok(News::Text(piece)) => self.said(piece),
            Err(RecvError::Lagged(_)) => {
                if let Text::Pieces(pieces) = &mut self.text {
                    *pieces = self.hub.so_far().into();
                }
                self.behind = true;
            }
            // We hold the hub, so there is always somebody to hear from.
            Err(RecvError::Closed) => self.story = None,
        }
    }

    fn said(&mut self, piece: Piece) {
        let told = self.story.as_ref().and_then(|story| story.told_of(&piece.place.thread));
        match &mut self.text {
            Text::Whole { due, .. } => *due = due.or_else(|| Some(Instant::now() + limits::TEXT_EVERY)),
            Text::Pieces(pieces) => {
                // What came before it is told first.
                self.behind = told.is_none_or(|told| told < piece.entry);
                pieces.push_back(piece);
                if !self.behind {
                    self.tell_pieces();
                }
            }
        }
    }

    /// Tells the pieces that wait, unless the whole text was told meanwhile.
    fn tell_pieces(&mut self) {
        let Text::Pieces(pieces) = &mut self.text else { return };
        for piece in std::mem::take(pieces) {
            let told = self.story.as_ref().and_then(|story| story.told_of(&piece.place.thread));
            if told.is_some_and(|told| told <= piece.entry) {
                let text = piece.text.to_string();
                self.queue.push_back(watched(&piece, text));
            }
        }
    }

    /// Tells what is being said, as far as its last word is whole, with secrets masked.
    fn tell_whole(&mut self) {
        let Text::Whole { due, sent } = &mut self.text else { return };
        *due = None;
        let so_far = self.hub.so_far();
        sent.retain(|thread, _| so_far.iter().any(|piece| piece.place.thread == *thread));
        for piece in so_far {
            let told = self.story.as_ref().and_then(|story| story.told_of(&piece.place.thread));
            if told.is_some_and(|told| told > piece.entry) {
                continue;
            }
            let words = piece.text.rfind(char::is_whitespace).and_then(|end| piece.text.get(..end)).unwrap_or_default();
            let text = self.app.redactor.text(words).into_owned();
            if !text.is_empty() && sent.insert(Arc::clone(&piece.place.thread), text.clone()).as_ref() != Some(&text) {
                self.queue.push_back(watched(&piece, text));
            }
        }
    }
}

impl Text {
    fn due(&self) -> Option<Instant> {
        match self {
            Text::Pieces(_) => None,
            Text::Whole { due, .. } => *due,
        }
    }
}

fn watched(piece: &Piece, text: String) -> Watched {
    let text = SessionText {
        thread: piece.place.thread.to_string(),
        agents: names(&piece.place.agents),
        entry: piece.entry,
        start: piece.start,
        text,
    };
    Watched { place: None, event: SessionEvent::Text(text) }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
