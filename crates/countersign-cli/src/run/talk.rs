//! Attends a run: tells what happens, puts holds to the person, types for a model that a person plays, and stops.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::io;
use std::sync::Arc;

use countersign::hold::HoldState;
use countersign::show::escape;
use countersign::transition::Rejection;
use countersign::{CallId, Gate, GateError, Hold, HoldId};
use countersign_agent::{Reply, RunError, RunEvent, RunStream};
use tokio::sync::{Notify, mpsc};

use super::Attended;
use super::keyboard::Keyboard;
use super::line::Line;
use super::past::Past;
use super::teller::Teller;
use super::typist::Wanted;
use crate::commands::{Form, open_holds};
use crate::fault::{Exit, Fault};
use crate::out::{self, BOLD, DIM, WAIT};
use crate::person::person;
use crate::prompt::{self, Asked, Choice, Item, Picked};
use crate::signals::Signals;

/// Events kept while a question is on the screen. Beyond that the run's own feed keeps some, then says so.
const BACKLOG: usize = 10_000;

/// What stands before a line that a person types for a model.
const MODEL: &str = "model> ";

/// One person's side of a conversation.
pub(crate) struct Talk {
    gate: Gate,
    asking: Asking,
    pub(crate) teller: Teller,
    pub(crate) keyboard: Keyboard,
    /// Where what the person says is typed, and what they type for a model. None where nobody sits at a terminal.
    said: Option<Line>,
    played: Option<Line>,
    signals: Signals,
    wishes: mpsc::UnboundedReceiver<Wanted>,
    /// The line that a model waits for, and whether the person was told.
    wanted: Option<Wanted>,
    wanted_told: bool,
    /// Holds to be put to the person, oldest first, and which of them had the focus.
    open: Vec<Hold>,
    focus: usize,
    /// Every hold that has not closed yet.
    known: HashMap<HoldId, Hold>,
    /// Holds that were decided here.
    mine: HashSet<HoldId>,
    /// What happened while a question was on the screen.
    backlog: VecDeque<RunEvent>,
    /// Whether the run told its end.
    over: bool,
}

/// Who is asked about holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// The person at this terminal, too.
    Here,
    /// Others, elsewhere.
    Others,
    /// The people of a server, of this address.
    At(String),
}

/// What the person wants after a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    GoOn,
    Stop,
}

impl Talk {
    /// Takes the terminal for a conversation.
    pub(crate) fn new(
        gate: Gate,
        attended: Attended,
        asking: Asking,
        form: Form,
        wishes: mpsc::UnboundedReceiver<Wanted>,
        past: impl Fn(&str) -> Past,
    ) -> io::Result<Talk> {
        let line = |prompt, name| (attended == Attended::Yes).then(|| Line::new(prompt, past(name)));
        Ok(Talk {
            gate,
            asking,
            teller: Teller::new(form, attended == Attended::Yes),
            keyboard: Keyboard::default(),
            said: line("you> ", "you"),
            played: line(MODEL, "model"),
            signals: Signals::listen()?,
            wishes,
            wanted: None,
            wanted_told: false,
            open: Vec::new(),
            focus: 0,
            known: HashMap::new(),
            mine: HashSet::new(),
            backlog: VecDeque::new(),
            over: false,
        })
    }

    /// Reads what the person at the terminal says next; none when they are done. An error when they stop.
    pub(crate) async fn listen(&mut self) -> Result<Option<String>, Fault> {
        loop {
            let line = tokio::select! {
                biased;
                () = self.signals.any() => return Err(Fault::interrupted("stopped")),
                line = next_line(&mut self.said, &mut self.keyboard) => line?,
            };
            match line {
                None => return Ok(None),
                Some(line) if line.trim() == "/quit" => return Ok(None),
                Some(line) if line.trim().is_empty() => {}
                Some(line) => return Ok(Some(line)),
            }
        }
    }

    /// Attends one run to its end. An error of ours ends the run too.
    pub(crate) async fn attend(&mut self, mut stream: RunStream) -> Result<Result<Reply, RunError>, Fault> {
        self.over = false;
        let followed = self.follow(&mut stream).await;
        if followed.is_err() {
            stream.cancel();
        }
        let reply = stream.reply().await;
        self.teller.end_line()?;
        self.wanted = None;
        self.open.clear();
        self.known.clear();
        self.mine.clear();
        followed.map(|()| reply)
    }

    async fn follow(&mut self, stream: &mut RunStream) -> Result<(), Fault> {
        let session = Arc::clone(stream.session());
        let mut stopped = false;
        while !self.over {
            if self.asking == Asking::Here && !stopped && !self.open.is_empty() {
                if self.put(stream).await? == Wish::Stop {
                    stopped = true;
                    self.stop(stream)?;
                }
                self.catch_up(&session).await?;
                continue;
            }
            self.show_wish()?;
            tokio::select! {
                biased;
                () = self.signals.any() => {
                    if stopped {
                        leave_at_once();
                    }
                    stopped = true;
                    self.stop(stream)?;
                }
                event = stream.next() => match event {
                    Some(event) => self.take(event, &session).await?,
                    None => self.over = true,
                },
                Some(wanted) = self.wishes.recv(), if self.wanted.is_none() => {
                    self.wanted = Some(wanted);
                    self.wanted_told = false;
                }
                line = next_line(&mut self.played, &mut self.keyboard), if self.wanted.is_some() => self.typed(line?),
            }
        }
        Ok(())
    }

    /// Ends the run: what waits is withdrawn, what runs is left in doubt, and its history is made whole.
    fn stop(&mut self, stream: &RunStream) -> Result<(), Fault> {
        stream.cancel();
        self.teller.say(out::paint(DIM, "stopping; once more ends at once"))
    }

    /// Takes what happened while a question was on the screen.
    async fn catch_up(&mut self, session: &str) -> Result<(), Fault> {
        while let Some(event) = self.backlog.pop_front() {
            self.take(event, session).await?;
        }
        Ok(())
    }

    async fn take(&mut self, event: RunEvent, session: &str) -> Result<(), Fault> {
        self.teller.tell(&event)?;
        // Whatever was said stands below the line a model waits for.
        self.wanted_told = false;
        match event {
            RunEvent::Held { hold } => self.held(hold)?,
            RunEvent::HoldClosed { hold, call, state } => self.closed(hold, call, state).await?,
            RunEvent::Missed { .. } => {
                for hold in open_holds(self.gate.store(), Some(session)).await? {
                    self.held(hold)?;
                }
            }
            RunEvent::Done(_) | RunEvent::Failed { .. } => self.over = true,
            _ => {}
        }
        Ok(())
    }

    fn held(&mut self, hold: Hold) -> Result<(), Fault> {
        if !hold.is_pending() || self.known.insert(hold.id, hold.clone()).is_some() {
            return Ok(());
        }
        let at = match &self.asking {
            Asking::Here => None,
            Asking::Others => Some(String::new()),
            Asking::At(url) => Some(format!(" --url {}", escape(url))),
        };
        if let Some(at) = at {
            let tool = escape(&hold.call.facts.tool.to_string());
            let words = format!("waits: {tool}; countersign approve {} --digest {}{at}", hold.id, hold.digest);
            self.teller.say(out::paint(WAIT, words))?;
        }
        self.open.push(hold);
        Ok(())
    }

    /// Says how a hold closed, unless it was closed here.
    async fn closed(&mut self, id: HoldId, call: CallId, state: HoldState) -> Result<(), Fault> {
        self.open.retain(|open| open.id != id);
        let Some(hold) = self.known.remove(&id).filter(|_| !self.mine.remove(&id)) else { return Ok(()) };
        let tool = escape(&hold.call.facts.tool.to_string());
        let by = self.gate.get(call).await.ok().and_then(|call| {
            let decided = Hold::of(&call, id)?.decisions.last()?.clone();
            Some(format!(" by {} via {}", escape(&decided.by.id), escape(&decided.channel)))
        });
        let by = by.unwrap_or_default();
        let words = match state {
            HoldState::Expired => format!("nobody decided about {tool} in time; it does not run"),
            HoldState::Approved | HoldState::Denied | HoldState::Answered => {
                format!("{tool} was {} elsewhere{by}", state.as_str())
            }
            HoldState::Released => format!("{tool} is covered by what was remembered"),
            HoldState::Cancelled | HoldState::Superseded | HoldState::Pending => return Ok(()),
        };
        self.teller.say(format_args!("  {}", out::paint(WAIT, words)))
    }

    /// Puts one of the open holds to the person.
    async fn put(&mut self, stream: &mut RunStream) -> Result<Wish, Fault> {
        self.teller.end_line()?;
        self.keyboard.forget();
        self.wanted_told = false;
        let at = match self.open.len() {
            1 => 0,
            _ => match self.pick(stream).await? {
                Picked::At(at) => at,
                Picked::Changed => return Ok(Wish::GoOn),
                Picked::Stop => return Ok(Wish::Stop),
            },
        };
        self.focus = at;
        match self.open.get(at).cloned() {
            Some(hold) => self.decide(hold, stream).await,
            None => Ok(Wish::GoOn),
        }
    }

    async fn pick(&mut self, stream: &mut RunStream) -> Result<Picked, Fault> {
        let first = alike(&self.open);
        let items: Vec<Item> = first.iter().filter_map(|(at, count)| Some(item(self.open.get(*at)?, *count))).collect();
        let news = Notify::new();
        let listed: Vec<HoldId> = self.open.iter().map(|hold| hold.id).collect();
        let changes = |event: &RunEvent| match event {
            RunEvent::Held { .. } => true,
            RunEvent::HoldClosed { hold, .. } => listed.contains(hold),
            _ => false,
        };
        let picking = prompt::pick(&items, self.focus, news.notified(), &mut self.signals);
        Ok(match meanwhile(stream, &mut self.backlog, &news, changes, picking).await? {
            // Each of several alike still gets a decision of its own: the oldest is next.
            Picked::At(at) => first.get(at).map_or(Picked::Changed, |(first, _)| Picked::At(*first)),
            picked => picked,
        })
    }

    /// Shows a hold and records what the person decides.
    async fn decide(&mut self, hold: Hold, stream: &mut RunStream) -> Result<Wish, Fault> {
        let also: &[Choice] = if self.open.len() > 1 { &[Choice::Leave] } else { &[] };
        let mut notice = None;
        loop {
            let news = Notify::new();
            let joined = async {
                match also.is_empty() {
                    true => news.notified().await,
                    false => std::future::pending().await,
                }
            };
            let asking = prompt::put(&self.gate, &hold, also, notice.take(), joined, &mut self.signals);
            // Only another question makes this one give way. The end of an earlier one must not: keys pressed meanwhile
            // would be thrown away with it.
            let opens = |event: &RunEvent| matches!(event, RunEvent::Held { .. });
            let answer = match meanwhile(stream, &mut self.backlog, &news, opens, asking).await? {
                Asked::Answer(answer) => answer,
                Asked::Left => {
                    self.focus += 1;
                    return Ok(Wish::GoOn);
                }
                // Nothing was pressed yet: the two are a list.
                Asked::Joined => return Ok(Wish::GoOn),
                Asked::Closed => break,
                Asked::Stop => return Ok(Wish::Stop),
            };
            let words = prompt::in_words(&answer);
            match self.gate.decide(hold.id, hold.decision(person(), "cli", answer)).await {
                Ok(decided) => {
                    self.mine.insert(hold.id);
                    let tool = escape(&hold.call.facts.tool.to_string());
                    self.teller.say(format_args!("  {tool}: {}", out::paint(BOLD, words)))?;
                    if let Some(grant) = &decided.grant {
                        self.teller.say(format_args!("  remembered: {}", escape(&grant.as_rule())))?;
                    }
                    if Hold::of(&decided.call, hold.id).is_some_and(|hold| hold.is_pending()) {
                        self.teller.say("  more approvals are needed; it waits for others")?;
                    }
                    break;
                }
                Err(GateError::Rejected(Rejection::Closed(_))) => break,
                Err(error @ (GateError::Rejected(_) | GateError::BadEdit(_) | GateError::BadInput(_))) => {
                    notice = Some(format!("Not taken: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.open.retain(|open| open.id != hold.id);
        Ok(Wish::GoOn)
    }

    /// Tells the person that a model waits for their line.
    fn show_wish(&mut self) -> Result<(), Fault> {
        // A run that was stopped waits for nothing.
        let Some(wanted) = self.wanted.take().filter(|wanted| !wanted.reply.is_closed()) else { return Ok(()) };
        if !std::mem::replace(&mut self.wanted_told, true) {
            self.teller.end_line()?;
            for line in &wanted.news {
                out::say(format_args!("  {}", out::paint(DIM, line)));
            }
            if self.played.is_none() {
                out::say_part(out::paint(BOLD, MODEL));
            }
        }
        self.wanted = Some(wanted);
        Ok(())
    }

    fn typed(&mut self, line: Option<String>) {
        // Without a line the wish is dropped, which tells the model that nobody types any more.
        if let (Some(wanted), Some(line)) = (self.wanted.take(), line) {
            let _ = wanted.reply.send(line);
        }
    }
}

/// The next line: edited at a terminal, or as it comes through a pipe.
async fn next_line(line: &mut Option<Line>, keyboard: &mut Keyboard) -> io::Result<Option<String>> {
    match line {
        Some(line) => line.read().await,
        None => keyboard.line().await,
    }
}

/// Does something on the screen while events are kept for later. Those that matter to it are news at once.
async fn meanwhile<T>(
    stream: &mut RunStream,
    backlog: &mut VecDeque<RunEvent>,
    news: &Notify,
    matters: impl Fn(&RunEvent) -> bool,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    let mut over = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            event = stream.next(), if !over && backlog.len() < BACKLOG => match event {
                Some(event) => {
                    if matters(&event) {
                        news.notify_one();
                    }
                    backlog.push_back(event);
                }
                None => over = true,
            },
        }
    }
}

/// Ends the process here and now: a person who asks twice does not want to wait for a store that does not answer.
///
/// Nothing is lost by it. What was written stays written, as after a crash, and `--resume` goes on from there.
fn leave_at_once() -> ! {
    out::say("");
    std::process::exit(i32::from(Exit::Interrupted.code()))
}

/// Holds of the same call by the same agents are one item: where the first of each is, and how many there are.
fn alike(open: &[Hold]) -> Vec<(usize, usize)> {
    let same = |one: &Hold, other: &Hold| {
        let (one, other) = (&one.call.facts, &other.call.facts);
        one.tool == other.tool && one.arguments == other.arguments && one.path.agents == other.path.agents
    };
    let mut first: Vec<(usize, usize)> = Vec::new();
    for (at, hold) in open.iter().enumerate() {
        let known = first.iter_mut().find(|(at, _)| open.get(*at).is_some_and(|earlier| same(earlier, hold)));
        match known {
            Some((_, count)) => *count += 1,
            None => first.push((at, 1)),
        }
    }
    first
}

fn item(hold: &Hold, count: usize) -> Item {
    let facts = &hold.call.facts;
    let agents: Vec<String> = facts.path.agents.iter().map(|agent| escape(agent)).collect();
    let times = if count > 1 { format!(" ×{count}") } else { String::new() };
    Item {
        title: format!("{}: {}{times}", agents.join(" › "), escape(&facts.tool.to_string())),
        detail: prompt::on_one_line(hold.call.shown_arguments().as_str()),
        count,
    }
}
