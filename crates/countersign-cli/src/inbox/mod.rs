//! The full-screen inbox: a list of the holds that wait, and the one in focus beside it.
//!
//! [`state`] is what it knows, [`update`] what each message changes, [`view`] how it is drawn. Only this file touches
//! terminal, clock and source.

mod detail;
mod follow;
mod keys;
mod layout;
mod source;
mod state;
mod together;
mod update;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use follow::{Link, News, follow};
pub(crate) use source::{Listing, Source, Terms, on_the_wire};
pub(crate) use state::question;

use std::io::{self, BufWriter, Stderr};
use std::time::{Duration, Instant};

use countersign::digest::CallDigest;
use countersign::hold::HoldState;
use countersign::{Answer, HoldId};
use crossterm::event::{Event, KeyEventKind};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::fault::Fault;
use crate::prompt::{Guard, edit, flush, next_event};
use crate::signals::Signals;
use follow::on_one_line;
use state::{Effect, Message, State};
use together::Outcomes;
use view::view;

/// How often countdowns are drawn anew.
const TICK: Duration = Duration::from_millis(200);

/// Shows the inbox until the person leaves. `place` says where the holds are, and is safe to draw.
pub(crate) async fn run(source: Source, place: String) -> Result<(), Fault> {
    // What cannot be reached at all is said on the plain screen.
    let listing = source.list().await?;
    let mut signals = Signals::listen()?;
    let (sender, news) = unbounded_channel();
    let follower = tokio::spawn(follow(source.clone(), sender));
    let guard = Guard::take()?;
    flush()?;
    let size = crossterm::terminal::size().unwrap_or((80, 24));
    let state = State::new(place, guard.has_colour(), size, listing, Duration::ZERO);
    let mut screen = Screen { source, guard, state, begin: Instant::now(), work: JoinSet::new() };
    let ended = screen.run(news, &mut signals).await;
    follower.abort();
    ended
}

/// The inbox on a terminal.
struct Screen {
    source: Source,
    guard: Guard,
    state: State,
    begin: Instant,
    work: JoinSet<Message>,
}

impl Screen {
    async fn run(&mut self, mut news: UnboundedReceiver<News>, signals: &mut Signals) -> Result<(), Fault> {
        let mut terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stderr())))?;
        let mut tick = tokio::time::interval(TICK);
        let mut effects = self.state.begin();
        loop {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Interrupt => return Err(interrupted()),
                    Effect::Editor(id, text) => {
                        self.guard.lend();
                        let written = edit(text).await;
                        self.guard.retake()?;
                        terminal.clear()?;
                        self.state.update(Message::Written(id, written), self.begin.elapsed());
                    }
                    effect => self.start(effect),
                }
            }
            self.draw(&mut terminal)?;
            let message = tokio::select! {
                biased;
                () = signals.any() => return Err(interrupted()),
                Some(done) = self.work.join_next() => done.map_err(|_| broken())?,
                told = news.recv() => Message::News(told.ok_or_else(broken)?),
                event = next_event() => match event {
                    // The terminal is gone.
                    None => return Err(interrupted()),
                    Some(event) => heard(event?),
                },
                _ = tick.tick() => Message::Tick,
            };
            effects = self.state.update(message, self.begin.elapsed());
        }
    }

    fn draw(&mut self, terminal: &mut Terminal<CrosstermBackend<BufWriter<Stderr>>>) -> io::Result<()> {
        // INVARIANT: what is laid out is what is drawn. The window may have changed before we heard of it.
        let size = terminal.size()?;
        if (size.width, size.height) != self.state.size {
            self.state.update(Message::Resized(size.width, size.height), self.begin.elapsed());
        }
        terminal.draw(|frame| view(frame, &self.state)).map(|_| ())
    }

    /// Begins something outside. What comes of it is a message.
    fn start(&mut self, effect: Effect) {
        let source = self.source.clone();
        self.work.spawn(async move {
            let words = |fault: Fault| on_one_line(&fault);
            match effect {
                Effect::Load(id) => Message::Detail(id, source.detail(id).await.map(Box::new).map_err(words)),
                Effect::Cover(id, folders, terms) => {
                    let found = source.coverages(id, &folders, &terms).await.map_err(words);
                    Message::Coverages(id, terms, found)
                }
                Effect::Decide(id, digest, answer) => {
                    Message::Decided(id, source.decide(id, digest, answer).await.map(Box::new).map_err(words))
                }
                Effect::DecideAll(holds, answer) => decide_all(&source, holds, answer).await,
                Effect::History => Message::History(source.closed().await.map_err(words)),
                Effect::Editor(..) | Effect::Quit | Effect::Interrupt => Message::Tick,
            }
        });
    }
}

/// Decides one after the other, each by its own digest. The first that is not taken ends it.
async fn decide_all(source: &Source, holds: Vec<(HoldId, CallDigest)>, answer: Answer) -> Message {
    let mut came = Outcomes { decided: Vec::new(), closed: Vec::new(), stopped: None };
    let lead = holds.first().map(|(id, _)| *id);
    for (id, digest) in holds {
        match source.decide(id, digest, answer.clone()).await {
            Ok(decided) => {
                came.decided.push(id);
                came.closed.extend((decided.state != HoldState::Pending).then_some(id));
            }
            Err(fault) => {
                came.stopped = Some(on_one_line(&fault));
                break;
            }
        }
    }
    lead.map_or(Message::Tick, |lead| Message::DecidedAll(lead, came))
}

/// What the terminal said, as a message.
fn heard(event: Event) -> Message {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => Message::Key(key),
        Event::Paste(text) => Message::Paste(text),
        Event::Resize(columns, rows) => Message::Resized(columns, rows),
        Event::FocusGained => Message::Returned,
        Event::Key(_) | Event::FocusLost | Event::Mouse(_) => Message::Tick,
    }
}

fn interrupted() -> Fault {
    Fault::interrupted("the inbox was closed; what waits goes on waiting")
}

fn broken() -> Fault {
    Fault::failed("a part of the inbox stopped; what waits goes on waiting")
}
