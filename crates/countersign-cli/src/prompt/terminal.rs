//! The terminal: taken over for one question, and given back whatever happens.

use std::future::Future;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::panic;
use std::sync::Once;
use std::time::{Duration, Instant};

use countersign::Answer;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange, Event, KeyEventKind,
};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::dialog::{Dialog, Offer, Question, Step};
use super::draw::{Screen, draw};
use super::editor;
use crate::signals::Signals;

/// How often the countdown is drawn anew.
const TICK: Duration = Duration::from_millis(200);

/// How a question ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    /// The person answered.
    Answer(Answer),
    /// The person decides nothing.
    Left,
    /// The hold closed meanwhile: expired, or decided elsewhere.
    Closed,
    /// Another one came before the person touched a key.
    Joined,
    /// The person, or whoever runs the machine, wants everything to stop.
    Stop,
}

/// Whether a person can be asked here.
pub(crate) fn is_interactive() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdin().is_terminal() && io::stderr().is_terminal() && !dumb
}

/// Puts a question to the person at the terminal.
///
/// `left` says how long there is; `closed` resolves when the hold closes without them, `joined` when another one opens,
/// which counts only as long as no key was pressed. `look` says what could be remembered by some fields. Signals must be listened to:
/// without that, one would end us with the terminal still in our hands.
pub(crate) async fn ask(
    question: Question,
    left: impl Fn() -> Option<Duration>,
    closed: impl Future<Output = ()>,
    joined: impl Future<Output = ()>,
    look: impl AsyncFn(&[String]) -> Result<Vec<Offer>, String>,
    signals: &mut Signals,
) -> io::Result<Asked> {
    let mut guard = Guard::take()?;
    let begin = Instant::now();
    flush()?;
    let mut dialog = Dialog::new(question, begin.elapsed());
    let mut tick = tokio::time::interval(TICK);
    let mut touched = false;
    tokio::pin!(closed, joined);
    let asked = loop {
        guard.show(draw(&mut dialog, size(), left(), begin.elapsed()))?;
        let event = tokio::select! {
            biased;
            () = &mut closed => break Asked::Closed,
            () = signals.any() => break Asked::Stop,
            () = &mut joined, if !touched => break Asked::Joined,
            event = next_event() => event,
            _ = tick.tick() => continue,
        };
        touched |= matches!(event, Some(Ok(Event::Key(_) | Event::Paste(_))));
        let step = match event {
            None => break Asked::Stop,
            Some(Err(error)) => return Err(error),
            Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => dialog.key(key, begin.elapsed()),
            Some(Ok(Event::Key(_))) => continue,
            Some(Ok(Event::Paste(text))) => {
                dialog.paste(&text);
                Step::Stay
            }
            Some(Ok(Event::Resize(..) | Event::FocusGained)) => {
                guard.drawn = None;
                dialog.disturbed(begin.elapsed());
                Step::Stay
            }
            Some(Ok(Event::FocusLost | Event::Mouse(_))) => Step::Stay,
        };
        match step {
            Step::Stay | Step::Offers => {}
            Step::Fields(fields) => {
                let offers = look(&fields).await;
                dialog.named(fields, offers, begin.elapsed());
            }
            Step::Editor(text) => {
                guard.lend();
                let written = editor::edit(text).await;
                guard.retake()?;
                dialog.rewritten(written, begin.elapsed());
            }
            Step::Done(answer) => break Asked::Answer(answer),
            Step::Left => break Asked::Left,
            Step::Stop => break Asked::Stop,
        }
    };
    Ok(asked)
}

/// The next key, paste or change of size; none once the terminal is gone.
///
/// Crossterm's own stream waits on a thread that holds its reader. Dropped, it wakes that thread once, and whoever looks
/// at the input next may take the wake-up: then the thread never ends, and the next question never begins. This waits
/// for the input to be readable, and can be dropped at any moment.
pub(crate) async fn next_event() -> Option<io::Result<Event>> {
    loop {
        let stdin = io::stdin();
        // Asked of a terminal that is gone, crossterm reads for ever.
        if rustix::termios::tcgetattr(&stdin).is_err() {
            return None;
        }
        match event::poll(Duration::ZERO) {
            Ok(true) => return Some(event::read()),
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
        #[expect(deprecated, reason = "its successor is unsafe code; standard input outlives this borrow")]
        let input = match AsyncFd::with_interest(stdin.as_fd(), Interest::READABLE) {
            Ok(input) => input,
            Err(error) => return Some(Err(error)),
        };
        tokio::select! {
            ready = input.readable() => if let Err(error) = ready { return Some(Err(error)) },
            // A change of size makes nothing readable.
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

pub(super) fn size() -> (usize, usize) {
    let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
    (usize::from(columns), usize::from(rows))
}

/// Throws away keys pressed before there was a question: those the system holds, and those already read.
pub(crate) fn flush() -> io::Result<()> {
    #[cfg(unix)]
    rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush)?;
    while event::poll(Duration::ZERO)? {
        event::read()?;
    }
    Ok(())
}

/// The terminal in our hands. Dropped, it is as it was.
pub(crate) struct Guard {
    colour: bool,
    /// What is on the screen, as far as we know.
    pub(super) drawn: Option<Screen>,
}

impl Guard {
    pub(crate) fn take() -> io::Result<Guard> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                give_back();
                usual(info);
            }));
        });
        let colour = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
        let guard = Guard { colour, drawn: None };
        take()?;
        Ok(guard)
    }

    /// Lets another program have the terminal.
    pub(crate) fn lend(&mut self) {
        give_back();
    }

    /// Takes the terminal back. Keys that were meant for the other program are thrown away.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        take()?;
        self.drawn = None;
        flush()
    }

    /// Whether the person wants colour.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    pub(super) fn show(&mut self, screen: Screen) -> io::Result<()> {
        if self.drawn.as_ref() == Some(&screen) {
            return Ok(());
        }
        let mut out = Vec::new();
        queue!(out, Hide)?;
        for (index, row) in screen.rows.iter().enumerate() {
            queue!(out, MoveTo(0, u16::try_from(index).unwrap_or(u16::MAX)))?;
            out.extend_from_slice(self.coloured(row).as_bytes());
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, MoveTo(0, u16::try_from(screen.rows.len()).unwrap_or(u16::MAX)))?;
        if screen.rows.len() < size().1 {
            queue!(out, Clear(ClearType::FromCursorDown))?;
        }
        if let Some((column, row)) = screen.cursor {
            queue!(out, MoveTo(column as u16, row as u16), Show)?;
        }
        let mut stderr = io::stderr().lock();
        stderr.write_all(&out)?;
        stderr.flush()?;
        self.drawn = Some(screen);
        Ok(())
    }

    fn coloured(&self, row: &str) -> String {
        match self.colour {
            true => row.to_owned(),
            false => anstream::adapter::strip_str(row).to_string(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stderr(), EnterAlternateScreen, EnableBracketedPaste, EnableFocusChange, Hide)
}

/// Gives the terminal back. Doing it twice does no harm.
fn give_back() {
    let _ = execute!(io::stderr(), Show, DisableFocusChange, DisableBracketedPaste, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
