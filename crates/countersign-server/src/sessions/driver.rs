//! Drives one session: says what waits to be said, goes on with what is open, and lets go when nothing is left.

use std::sync::Arc;

use countersign_agent::{Reply, RunError, RunEvent, RunStream, Session, SessionReader, Standing};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::cursor::MAIN;
use super::hub::Hub;
use super::key::Key;
use super::show::told;
use super::ticket::{self, Change, Driver, Ticket};
use super::{Sessions, ended, inbox, refused};
use crate::limits;
use crate::problem::Answer;
use crate::trace::{Calls, SPANS};

/// One session, while it is driven here.
pub(super) struct Drive {
    pub(super) sessions: Arc<Sessions>,
    pub(super) key: Key,
    /// Rings when the ticket changed.
    pub(super) poked: Arc<Notify>,
    pub(super) ending: watch::Receiver<bool>,
}

/// What to do next.
enum Step {
    /// Nothing.
    Rest,
    /// Look again.
    Again,
    /// Drive this run, which begins with this message.
    Run(RunStream, Option<Arc<str>>),
    /// The run cannot go on here.
    Fail(String),
}

/// How driving a run ended.
enum Ended {
    /// By itself.
    Run(Result<Reply, RunError>),
    /// It only waits, and was put away.
    Parked,
    /// The server ends.
    Left,
    /// Another server has the session.
    Lost,
}

/// A run that is parked when nobody drives it any more, also in a crash of ours.
struct Parking(Option<RunStream>);

impl Drop for Parking {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.park();
        }
    }
}

impl Drive {
    /// Drives the session for as long as there is something to do.
    pub(super) async fn go(mut self) {
        let hub = self.sessions.hubs.of(&self.key);
        hub.clear();
        if let Err(refused) = self.work(&hub).await {
            // The ticket stays ours until its time is up; then the sweep tries again.
            tracing::warn!(session = %self.key, problem = %refused.0, "a session could not be driven and will be tried again");
        }
        hub.clear();
    }

    #[tracing::instrument(level = "debug", target = SPANS, name = "drive", skip_all, fields(server = %self.sessions.server))]
    async fn work(&mut self, hub: &Hub) -> Answer<()> {
        if !self.take().await? {
            return Ok(());
        }
        let mut attempts = 0;
        loop {
            let Some((ticket, version)) = ticket::read(self.sessions.store(), &self.key).await? else { return Ok(()) };
            if !self.is_ours(&ticket) {
                return Ok(());
            }
            let (stream, mut message) = match self.next(&ticket).await? {
                Step::Rest if ticket::done(self.sessions.store(), &self.key, version).await? => return Ok(()),
                Step::Rest | Step::Again => continue,
                Step::Run(stream, message) => (stream, message),
                Step::Fail(why) => return self.fail(&why).await,
            };
            match self.attend(stream, &mut message, hub).await? {
                Ended::Run(ended) => match outcome(ended) {
                    Outcome::Over => {
                        attempts = 0;
                        self.heard(&mut message).await?;
                        hub.moved();
                    }
                    Outcome::Again if attempts < limits::SESSION_ATTEMPTS => {
                        tokio::time::sleep(limits::SESSION_PAUSE * 2_u32.pow(attempts)).await;
                        attempts += 1;
                    }
                    Outcome::Again => return self.fail("another driver is in the way").await,
                    Outcome::Failed(why) => return self.fail(&why).await,
                },
                Ended::Parked if self.park().await? => return Ok(()),
                Ended::Parked => {}
                Ended::Left => return self.release(|_| {}).await,
                Ended::Lost => return Ok(()),
            }
        }
    }

    fn is_ours(&self, ticket: &Ticket) -> bool {
        ticket.driver.as_ref().is_some_and(|driver| driver.server == self.sessions.server)
    }

    /// Takes the ticket, if it is there and nobody else has it.
    async fn take(&self) -> Answer<bool> {
        let now = self.sessions.store().now().await?;
        let server = &self.sessions.server;
        let taken = |ticket: &mut Ticket| {
            if ticket.failed.is_some() || ticket.is_elsewhere(server, now) {
                return Change::Leave;
            }
            ticket.driver = Some(Driver { server: Arc::clone(server), until: now.after(limits::SESSION_LEASE) });
            (ticket.parked, ticket.wake_at) = (false, None);
            Change::Write
        };
        ticket::change(self.sessions.store(), &self.key, taken).await
    }

    /// Says that the session is still ours. Says whether it is.
    async fn renew(&self) -> Answer<bool> {
        let until = self.sessions.store().now().await?.after(limits::SESSION_LEASE);
        let renewed = |ticket: &mut Ticket| match &mut ticket.driver {
            Some(driver) if driver.server == self.sessions.server => {
                driver.until = until;
                Change::Write
            }
            Some(_) | None => Change::Leave,
        };
        ticket::change(self.sessions.store(), &self.key, renewed).await
    }

    /// Lets the ticket go for others to take, changed.
    async fn release(&self, mut how: impl FnMut(&mut Ticket)) -> Answer<()> {
        let released = |ticket: &mut Ticket| {
            if !self.is_ours(ticket) {
                return Change::Leave;
            }
            ticket.driver = None;
            how(ticket);
            Change::Write
        };
        ticket::change(self.sessions.store(), &self.key, released).await.map(|_| ())
    }

    async fn fail(&self, why: &str) -> Answer<()> {
        tracing::warn!(session = %self.key, %why, "a run broke off");
        self.release(|ticket| ticket.failed = Some(why.to_owned())).await
    }

    /// What the ticket, the inbox and the transcript say is to be done.
    async fn next(&self, ticket: &Ticket) -> Answer<Step> {
        let Key { principal, session } = &self.key;
        let reader = self.sessions.find(principal, session).await?;
        let Some(session) = self.sessions.session(&reader) else {
            return Ok(Step::Fail(format!("there is no agent `{}` here", reader.listed().agent)));
        };
        if let Some(run) = &ticket.cancel {
            self.end(&reader, &session, run).await?;
            return Ok(Step::Again);
        }
        if let Some(waiting) = inbox::first(self.sessions.store(), &self.key).await? {
            let stream = session.message(Arc::clone(&waiting.id)).stream(waiting.text);
            return Ok(Step::Run(stream, Some(waiting.id)));
        }
        Ok(match reader.outline().await.map_err(refused)?.standing {
            Standing::Open => Step::Run(session.resume_stream(), None),
            Standing::New | Standing::Done | Standing::Stopped(_) => Step::Rest,
        })
    }

    /// Ends a run that nobody drives, if it is still the one that was to be cancelled.
    async fn end(&self, reader: &SessionReader, session: &Session, run: &Arc<str>) -> Answer<()> {
        let outline = reader.outline().await.map_err(refused)?;
        if outline.run == *run && outline.standing == Standing::Open {
            session.cancel().await.map_err(refused)?;
        }
        let ended = |ticket: &mut Ticket| {
            ticket.cancel = None;
            Change::Write
        };
        ticket::change(self.sessions.store(), &self.key, ended).await.map(|_| ())
    }

    /// Forgets a message that the transcript has by now.
    async fn heard(&self, message: &mut Option<Arc<str>>) -> Answer<()> {
        match message.take() {
            Some(id) => inbox::remove(self.sessions.store(), &self.key, &id).await,
            None => Ok(()),
        }
    }

    /// Watches over a run until it ends or is left.
    async fn attend(&mut self, stream: RunStream, message: &mut Option<Arc<str>>, hub: &Hub) -> Answer<Ended> {
        let (mut parking, mut calls) = (Parking(Some(stream)), Calls::default());
        let mut renewal = interval(limits::SESSION_RENEWED);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_event, mut renewed) = (Instant::now(), Instant::now());
        loop {
            let Some(stream) = &mut parking.0 else { return Ok(Ended::Left) };
            tokio::select! {
                biased;
                () = ended(self.ending.clone()) => {
                    if let Some(stream) = parking.0.take() {
                        stream.park_when_still(limits::DRAIN_WITHIN).await;
                    }
                    return Ok(Ended::Left);
                }
                () = self.poked.notified() => {
                    if self.is_cancelled().await? {
                        stream.cancel();
                    }
                }
                _ = renewal.tick() => {
                    match self.renew().await {
                        Ok(true) => renewed = Instant::now(),
                        Ok(false) => return Ok(Ended::Lost),
                        // A store that is away for a moment is no reason to stop; one that is away for longer is.
                        Err(_) if renewed.elapsed() < limits::SESSION_LEASE => {}
                        Err(refused) => return Err(refused),
                    }
                    // Another server may have been told to cancel.
                    if self.is_cancelled().await? {
                        stream.cancel();
                    }
                    if last_event.elapsed() >= limits::PARKED_AFTER && stream.park_if_waiting() {
                        return Ok(Ended::Parked);
                    }
                }
                event = stream.next() => match event {
                    Some(event) => {
                        last_event = Instant::now();
                        calls.follow(&event);
                        pass_on(&event, hub);
                        if follows_the_message(&event) {
                            self.heard(message).await?;
                        }
                    }
                    None => {
                        let Some(stream) = parking.0.take() else { return Ok(Ended::Left) };
                        return Ok(Ended::Run(stream.reply().await));
                    }
                },
            }
        }
    }

    async fn is_cancelled(&self) -> Answer<bool> {
        let Some((ticket, _)) = ticket::read(self.sessions.store(), &self.key).await? else { return Ok(false) };
        let Some(run) = ticket.cancel else { return Ok(false) };
        let reader = self.sessions.find(&self.key.principal, &self.key.session).await?;
        Ok(reader.outline().await.map_err(refused)?.run == run)
    }

    /// Puts the session away until something happens to it. Says whether it may: nothing was said meanwhile.
    async fn park(&self) -> Answer<bool> {
        let reader = self.sessions.find(&self.key.principal, &self.key.session).await?;
        let began = reader.outline().await.map_err(refused)?.began;
        let timeout = self.sessions.session(&reader).and_then(|session| session.timeout());
        let wake_at = began.zip(timeout).map(|(began, timeout)| began.after(timeout));
        let parked = |ticket: &mut Ticket| {
            if !self.is_ours(ticket) || ticket.cancel.is_some() {
                return Change::Leave;
            }
            ticket.driver = None;
            (ticket.parked, ticket.wake_at) = (true, wake_at);
            Change::Write
        };
        ticket::change(self.sessions.store(), &self.key, parked).await
    }
}

/// Whether the session's own model was asked, which it is only once what was said is written down.
fn follows_the_message(event: &RunEvent) -> bool {
    match event {
        RunEvent::Text { place, .. } | RunEvent::Turn { place, .. } => &*place.thread == MAIN,
        _ => false,
    }
}

/// Tells whoever watches what is not written down.
fn pass_on(event: &RunEvent, hub: &Hub) {
    match event {
        RunEvent::Text { place, entry, text } => hub.say(place, *entry, text),
        RunEvent::Turn { place, .. } => hub.finish(&place.thread),
        RunEvent::HandedOver { .. } | RunEvent::ChildBegan { .. } | RunEvent::ChildEnded { .. } => hub.moved(),
        // Calls and holds are told from the log, and ends by the driver once the session has been let go.
        _ => {}
    }
}

/// What the end of a run means for its session.
enum Outcome {
    /// It is over, by its answer or before its time; the transcript says how.
    Over,
    /// Somebody or something was in the way.
    Again,
    /// It broke off.
    Failed(String),
}

fn outcome(ended: Result<Reply, RunError>) -> Outcome {
    match ended {
        Ok(_)
        | Err(RunError::Cancelled | RunError::TimedOut(_) | RunError::Expired { .. } | RunError::Limit { .. }) => {
            Outcome::Over
        }
        Err(RunError::Busy) => Outcome::Again,
        Err(error @ RunError::Gate(_)) => {
            tracing::warn!(%error, "a run will be tried again");
            Outcome::Again
        }
        Err(error) => Outcome::Failed(told(&error)),
    }
}
