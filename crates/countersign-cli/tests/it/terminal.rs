//! The demo and `approve` on a real terminal, driven by keys.

use std::process::{Command, Stdio};
use std::time::Duration;

use expectrl::process::unix::WaitStatus;
use expectrl::session::OsSession;
use expectrl::{Eof, Expect as _, Session};

use crate::bed::{Bed, gate, hold, read, submit};

pub(crate) const RIGHT: &str = "\x1b[C";
pub(crate) const ENTER: &str = "\r";
pub(crate) const CONTROL_C: &str = "\x03";

/// A terminal with the command in it, and everything it showed so far.
pub(crate) struct Terminal {
    session: OsSession,
    shown: String,
}

impl Terminal {
    pub(crate) fn run(bed: &Bed, args: &[&str], size: (u16, u16)) -> Terminal {
        Terminal::of(bed.command(args), size)
    }

    /// A terminal with a command that was prepared.
    pub(crate) fn of(mut command: Command, size: (u16, u16)) -> Terminal {
        // The shell sets the size before the command looks at it.
        command.stdin(Stdio::inherit());
        let mut session = Session::spawn(command).unwrap();
        session.get_process_mut().set_window_size(size.0, size.1).unwrap();
        session.set_expect_timeout(Some(Duration::from_secs(120)));
        Terminal { session, shown: String::new() }
    }

    /// Waits until something is shown.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> &mut Terminal {
        match self.session.expect(text) {
            Ok(found) => {
                self.shown.push_str(&String::from_utf8_lossy(found.before()));
                self.shown.push_str(text);
            }
            Err(error) => {
                let unread = self.session.check(expectrl::Regex("(?s).+"));
                let unread = unread.map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned());
                panic!("{error}: `{text}` was never shown after\n{}{}", self.shown, unread.unwrap_or_default())
            }
        }
        self
    }

    pub(crate) fn types(&mut self, keys: &str) -> &mut Terminal {
        self.session.send(keys).unwrap();
        self
    }

    /// Gives the terminal another size, as somebody does who drags its corner.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) -> &mut Terminal {
        self.session.get_process_mut().set_window_size(columns, rows).unwrap();
        self
    }

    /// Everything shown so far.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Ends the program as a crash would.
    pub(crate) fn kill(mut self) {
        self.session.get_process_mut().kill(expectrl::process::unix::Signal::SIGKILL).unwrap();
        let _ = self.session.get_process().wait();
    }

    /// Waits for the end, and returns everything shown and the exit code.
    pub(crate) fn ends(mut self) -> (String, i32) {
        let rest = self.session.expect(Eof).unwrap();
        self.shown.push_str(&String::from_utf8_lossy(rest.as_bytes()));
        match self.session.get_process().wait().unwrap() {
            WaitStatus::Exited(_, code) => (self.shown, code),
            other => panic!("{other:?}: {}", self.shown),
        }
    }
}

/// B126: arrow keys and Enter approve; Enter alone denies, with a reason; hostile words are shown as what they are.
#[test]
fn the_demo_is_decided_with_arrow_keys() {
    let bed = Bed::new();
    let mut terminal = Terminal::run(&bed, &["demo", "--no-server", "--dir", "scene"], (160, 50));
    terminal.sees("Approve this call?").sees("write_file").sees("a Approve").types(RIGHT).sees("[a Approve]");
    terminal.types(ENTER).sees("you approve");
    terminal.sees("Approve this call?").sees("edit_file");
    terminal.sees("\\u{1b}[2K\\r\\u{1b}[32m").sees("[d Deny]").types(ENTER).sees("Why not?");
    terminal.types("too risky").sees("too risky").types(ENTER).sees("you deny: too risky");
    terminal.sees("Approve this call?").sees("append_line").types("m").sees("exactly these arguments, in session demo");
    terminal.sees("s For this session").types("s").sees("remembered: allow append_line");
    terminal.sees("allowed by what you had remembered");
    terminal
        .sees("Approve this call?")
        .sees("already running")
        .sees("[d Deny]")
        .types(ENTER)
        .sees("Why not?")
        .types(ENTER);
    terminal.sees("verified:");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("\u{1b}[32m\u{2714}"), "the agent's words paint nothing");
    assert!(shown.contains("\u{1b}[?1049l"), "the screen is given back");
    let work = bed.work().join("scene/work");
    assert!(work.join("README.md").exists() && work.join("old.log").exists());
    assert!(read(work.join("settings.toml")).contains("debug = true"));
    assert_eq!(read(work.join("progress.log")).lines().count(), 2);
}

/// On a small screen approve sleeps until the last page was shown.
#[test]
fn a_small_screen_is_paged_before_approve_wakes() {
    let bed = Bed::new();
    let mut terminal = Terminal::run(&bed, &["demo", "--no-server", "--dir", "scene"], (80, 24));
    terminal.sees("Space for more").types("a").sees("that is all").sees("a Approve").types("a").sees("you approve");
    terminal.sees("edit_file").sees("Approve this call?").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("hold.cancelled") && shown.contains("what waited was withdrawn"), "{shown}");
    assert!(bed.work().join("scene/work/README.md").exists());
}

/// Keys pressed before there is a question answer nothing.
#[test]
fn keys_typed_ahead_are_thrown_away() {
    let bed = Bed::new();
    let mut terminal = Terminal::run(&bed, &["demo", "--no-server", "--dir", "scene"], (160, 50));
    terminal.types("aaaaa\r\ra").sees("Approve this call?").sees("a Approve").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 1, "{shown}");
    assert!(!shown.contains("you approve") && !shown.contains("you deny"), "{shown}");
    assert!(!bed.work().join("scene/work/README.md").exists());
}

/// NO_COLOR: no colour, and every sign is still there.
#[test]
fn no_colour_is_no_loss() {
    let bed = Bed::new();
    let mut command = bed.command(["demo", "--no-server"]);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::of(command, (160, 50));
    terminal.sees("[d Deny]").sees("left").types(CONTROL_C);
    let (shown, _) = terminal.ends();
    for colour in 30..=37 {
        assert!(!shown.contains(&format!("\u{1b}[{colour}m")), "{shown:?}");
    }
}

/// `approve` shows the hold and asks; leaving it decides nothing.
#[test]
fn approve_shows_the_hold_and_asks() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bed = Bed::new();
    let (agent, call) = runtime.block_on(async {
        let agent = gate(&bed.store().await, "otherwise: ask\n");
        let call = submit(&agent, "pay", r#"{"to": "Bo"}"#).await;
        (agent, call)
    });
    let id = hold(&call).id.to_string();
    let args = ["approve", &id, "--store", &bed.url()];
    let mut terminal = Terminal::run(&bed, &args, (120, 40));
    terminal.sees("pay").sees("\"Bo\"").sees("[l Leave it]").types(ENTER);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Nothing was decided"), "{shown}");
    assert!(runtime.block_on(agent.get(call.id)).unwrap().open_hold().is_some());

    let mut terminal = Terminal::run(&bed, &args, (120, 40));
    terminal.sees("a Approve").types("a");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(runtime.block_on(agent.get(call.id)).unwrap().state, countersign::CallState::Approved);
}

/// A hold that somebody else decides closes in front of the person who looks at it.
#[test]
fn a_hold_decided_elsewhere_closes_the_question() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bed = Bed::new();
    let (agent, call) = runtime.block_on(async {
        let agent = gate(&bed.store().await, "otherwise: ask\n");
        let call = submit(&agent, "pay", "{}").await;
        (agent, call)
    });
    let id = hold(&call).id.to_string();
    let mut terminal = Terminal::run(&bed, &["approve", &id, "--store", &bed.url()], (120, 40));
    terminal.sees("[l Leave it]");
    runtime.block_on(agent.cancel(call.id)).unwrap();
    let (shown, code) = terminal.ends();
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains("closed meanwhile"), "{shown}");
}
