//! The demo's approval server: the same gate and store, with the inbox in the browser.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use countersign::Gate;
use countersign::signer::Signer;
use countersign_server::{Server, StartError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::page;
use crate::fault::Fault;
use crate::link;
use crate::out;
use crate::run::Keyboard;
use crate::signals::Signals;

/// Where people expect the inbox.
const USUAL_PORT: u16 = 7117;
/// How long the demo waits for somebody to have read the link. A terminal nobody looks at must not keep it for ever.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long open requests may take once the demo is over.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What the person at the terminal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// They pressed Enter, or nobody was there.
    Enter,
    /// They want everything to stop.
    Stop,
}

/// A server that runs until it is closed or dropped.
pub(crate) struct Inbox {
    url: String,
    link: String,
    /// Dropped, it ends the server.
    end: oneshot::Sender<()>,
    serving: JoinHandle<io::Result<()>>,
}

impl Inbox {
    /// Serves the gate to this machine: on the port asked for, else on the usual one or, if that is taken, any other.
    pub(crate) async fn open(gate: &Gate, signer: Arc<Signer>, port: Option<u16>) -> Result<Inbox, Fault> {
        let bind = |port| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Server::builder(gate.clone()).signer(Arc::clone(&signer)).ui(page()).listen(address).bind()
        };
        let server = match bind(port.unwrap_or(USUAL_PORT)).await {
            Err(StartError::Listen(_)) if port.is_none() => bind(0).await?,
            bound => bound?,
        };
        let url = server.url().to_owned();
        let link = link::for_me(&**gate.store(), &url).await?;
        let (end, ended) = oneshot::channel();
        let serving = tokio::spawn(server.run(async move {
            let _ = ended.await;
        }));
        Ok(Inbox { url, link, end, serving })
    }

    /// Shows the way in, and gives the person time to take it: the first question covers the screen.
    pub(crate) async fn show(&self, signals: &mut Signals) -> io::Result<Pressed> {
        out::say("");
        out::say(out::paint(out::BOLD, "Decide here or in the browser, whichever comes first."));
        out::say("This link signs you in, once and within ten minutes:");
        // On a line of its own and in no colour, so that it can be copied whole.
        out::say(&self.link);
        out::say("");
        out::say(format_args!("Press Enter to begin. It begins by itself in {} seconds.", READ_WITHIN.as_secs()));
        tokio::select! {
            pressed = enter(signals) => pressed,
            () = tokio::time::sleep(READ_WITHIN) => Ok(Pressed::Enter),
        }
    }

    /// Keeps the inbox open until the person has seen enough.
    pub(crate) async fn linger(&self, signals: &mut Signals) -> io::Result<()> {
        // A key meant for the last question must not close the inbox.
        rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush)?;
        out::say("");
        out::say(format_args!("The inbox is still open: {}", self.url));
        out::say("Press Enter to end.");
        enter(signals).await.map(|_| ())
    }

    /// Ends the server. Whoever takes too long is cut.
    pub(crate) async fn close(mut self) {
        let _ = self.end.send(());
        if tokio::time::timeout(END_WITHIN, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
    }
}

async fn enter(signals: &mut Signals) -> io::Result<Pressed> {
    let mut keyboard = Keyboard::default();
    tokio::select! {
        biased;
        () = signals.any() => Ok(Pressed::Stop),
        line = keyboard.line() => line.map(|_| Pressed::Enter),
    }
}
