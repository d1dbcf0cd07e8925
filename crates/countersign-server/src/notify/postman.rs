//! Tends one receiver: reads the event log from its place, writes deliveries, and tries them until they arrive.
//!
//! Several nodes may have the same receiver. One of them has the seat, a record with its place in the log, for as long
//! as it renews it; the others look now and then whether it is free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use countersign::event::{Cursor, Event};
use countersign::store::{EventFilter, Expect, Failure, Store, StoreError};
use countersign::{Time, limits as core_limits};
use countersign_api::wire::{Attempt, DeliveryState, timestamp};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::log::{self, Kept};
use super::notice::Notice;
use super::target::{Target, Undelivered};
use crate::limits;
use crate::tail::end_of_log;

const SEATS: &str = "notify";

/// Tends one receiver.
pub(super) struct Postman {
    pub(super) store: Arc<dyn Store>,
    pub(super) target: Arc<Target>,
    /// Where people look.
    pub(super) base: Arc<str>,
    /// Which process this is.
    pub(super) owner: Arc<str>,
    /// How many deliveries may wait.
    pub(super) most: usize,
    /// Changes when somebody wants a delivery tried again.
    pub(super) woken: watch::Receiver<u64>,
    pub(super) ending: watch::Receiver<bool>,
}

/// Who tends a receiver, and how far the log was read for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Seat {
    cursor: String,
    owner: String,
    until: Time,
}

/// The seat while it is ours.
struct Taken {
    version: u64,
    until: Time,
    /// How far the log was read; ahead of what is written by what need not be told.
    cursor: Cursor,
    /// How many deliveries wait.
    pending: usize,
    /// When there is something to try.
    due_at: Option<Time>,
    /// When the index was last read.
    looked_at: Time,
}

/// Gives a receiver that was just named its place: the end of the log, because nobody wants to be told what happened
/// before. Done before the server answers anybody, so that nothing it takes in is passed over.
pub(super) async fn place(store: &dyn Store, target: &Target) -> Result<(), StoreError> {
    if store.record(SEATS, &target.id).await?.is_some() {
        return Ok(());
    }
    let cursor = end_of_log(store).await?.to_string();
    let free = Seat { cursor, owner: String::new(), until: Time::default() };
    let value = serde_json::to_vec(&free).map_err(damaged)?;
    match store.put_record(SEATS, &target.id, &value, Expect::Absent, None).await {
        // Another node was quicker.
        Ok(_) | Err(Failure::Rejected(_)) => Ok(()),
        Err(Failure::Store(error)) => Err(error),
    }
}

impl Postman {
    /// Works until the server ends.
    pub(super) async fn work(mut self) {
        let mut taken = None;
        loop {
            let listener = self.store.bell().listen_any();
            let pause = match self.round(&mut taken).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, to = self.target.label(), "notifications wait for the store");
                    taken = None;
                    limits::SEAT_LOOK
                }
            };
            let seated = taken.is_some();
            self.target.pending.store(taken.as_ref().map_or(0, |taken| taken.pending), Ordering::Relaxed);
            tokio::select! {
                _ = self.ending.wait_for(|ending| *ending) => break,
                () = listener, if seated => {}
                Ok(()) = self.woken.changed() => {
                    if let Some(taken) = &mut taken {
                        taken.due_at = Some(Time::default());
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.leave(taken).await;
    }

    /// Reads on and tries what is due. Says how long there is nothing to do.
    async fn round(&self, seat: &mut Option<Taken>) -> Result<Duration, StoreError> {
        let now = self.store.now().await?;
        let Some(taken) = self.sit(seat, now).await? else { return Ok(limits::SEAT_LOOK) };
        self.read_on(taken, now).await?;
        self.try_due(taken, now).await
    }

    /// Takes the seat if it is free, and renews it in time.
    async fn sit<'s>(&self, seat: &'s mut Option<Taken>, now: Time) -> Result<Option<&'s mut Taken>, StoreError> {
        let fresh = |taken: &Taken| now.until(taken.until) > limits::SEAT - limits::SEAT_LOOK;
        if !seat.as_ref().is_some_and(fresh) {
            *seat = match seat.take() {
                Some(mut taken) => self.save(&mut taken, now).await?.then_some(taken),
                None => self.take(now).await?,
            };
        }
        Ok(seat.as_mut())
    }

    async fn take(&self, now: Time) -> Result<Option<Taken>, StoreError> {
        place(&*self.store, &self.target).await?;
        let Some(record) = self.store.record(SEATS, &self.target.id).await? else { return Ok(None) };
        let seat: Seat = serde_json::from_slice(&record.value).map_err(damaged)?;
        if seat.until > now && *seat.owner != *self.owner {
            return Ok(None);
        }
        let why = |why| StoreError::Damaged { what: "place of a notifier", why };
        let (version, cursor) = (record.version, seat.cursor.parse().map_err(why)?);
        let pending = log::due(&*self.store, &self.target.id, now).await?.pending;
        let due_at = Some(Time::default());
        let mut taken = Taken { version, until: now, cursor, pending, due_at, looked_at: now };
        Ok(self.save(&mut taken, now).await?.then_some(taken))
    }

    /// Writes how far we are, and that we stay. False, if somebody else took the seat.
    async fn save(&self, taken: &mut Taken, now: Time) -> Result<bool, StoreError> {
        self.write(taken, now.after(limits::SEAT)).await
    }

    async fn write(&self, taken: &mut Taken, until: Time) -> Result<bool, StoreError> {
        let (cursor, owner) = (taken.cursor.to_string(), self.owner.to_string());
        let value = serde_json::to_vec(&Seat { cursor, owner, until }).map_err(damaged)?;
        let expect = Expect::Version(taken.version);
        match self.store.put_record(SEATS, &self.target.id, &value, expect, None).await {
            Ok(version) => {
                (taken.version, taken.until) = (version, until);
                Ok(true)
            }
            Err(Failure::Rejected(_)) => Ok(false),
            Err(Failure::Store(error)) => Err(error),
        }
    }

    /// Gives the seat back, so that the next node need not wait.
    async fn leave(&self, taken: Option<Taken>) {
        if let Some(mut taken) = taken
            && let Err(error) = self.write(&mut taken, Time::default()).await
        {
            tracing::warn!(%error, "a seat was not given back; it is free by itself soon");
        }
    }

    /// Writes a delivery for everything new that is to be told, and only then passes it. A receiver that is far behind is
    /// not written for: the log keeps what it has not heard, until there is room or it is old news.
    async fn read_on(&self, taken: &mut Taken, now: Time) -> Result<(), StoreError> {
        while taken.pending < self.most {
            let filter = EventFilter { limit: Some(core_limits::PAGE_ROWS), ..EventFilter::default() };
            let events = self.store.events(taken.cursor, filter).await?;
            if events.is_empty() {
                return Ok(());
            }
            let before = taken.pending;
            for event in &events {
                if taken.pending == self.most {
                    break;
                }
                taken.pending += usize::from(self.write_down(event, now).await?);
                taken.cursor = event.cursor;
            }
            if taken.pending > before {
                taken.due_at = Some(Time::default());
                // Most events are nobody's business, and not worth a write; what was written is not written twice.
                self.save(taken, now).await?;
            }
        }
        Ok(())
    }

    /// Whether an event is to be told; then it is written down.
    async fn write_down(&self, event: &Event, now: Time) -> Result<bool, StoreError> {
        if !self.target.about.names(event.name) || event.at.after(limits::NEWS) < now {
            return Ok(false);
        }
        let call = match event.call {
            Some(call) => self.store.call(call).await?,
            None => None,
        };
        if !self.target.about.passes(event, call.as_deref()) {
            return Ok(false);
        }
        let kept = Kept {
            target: self.target.id.clone(),
            to: self.target.label(),
            notice: Notice::of(event, call.as_deref(), &self.base, self.target.arguments),
            at: event.at,
            state: DeliveryState::Pending,
            attempts: 0,
            next_at: Some(now),
            last: None,
        };
        log::add(&*self.store, &log::id(event, &self.target.id), &kept).await?;
        Ok(true)
    }

    /// Tries what is due, a few at once.
    async fn try_due(&self, taken: &mut Taken, now: Time) -> Result<Duration, StoreError> {
        let known = taken.due_at.is_some_and(|due_at| due_at <= now);
        if known || taken.looked_at.after(limits::SEAT_LOOK) <= now {
            let due = log::due(&*self.store, &self.target.id, now).await?;
            (taken.due_at, taken.looked_at, taken.pending) = (due.next_at, now, due.pending);
            let mut tries = Vec::new();
            for (place, id) in &due.now {
                tries.push(self.attempt(place, id));
            }
            let tried = join_all(tries).await;
            for again in tried {
                let again = again?;
                taken.pending = taken.pending.saturating_sub(usize::from(again.is_none()));
                taken.due_at = taken.due_at.into_iter().chain(again).min();
            }
        }
        // The store's clock need not run as ours does, so nobody sleeps until a moment of it.
        Ok(taken.due_at.map_or(limits::SEAT_LOOK, |due_at| now.until(due_at).min(limits::TICK)))
    }

    /// Tries one delivery. Says when it wants to be tried again.
    async fn attempt(&self, place: &str, id: &str) -> Result<Option<Time>, StoreError> {
        let store = &*self.store;
        let Some((mut kept, version)) = log::read(store, id).await?.filter(|(kept, _)| kept.is_pending()) else {
            // It was settled, and whoever did died before it was out of the index.
            log::forget(store, place).await?;
            return Ok(None);
        };
        if self.is_over(&kept).await? {
            (kept.state, kept.next_at) = (DeliveryState::Dropped, None);
            log::note(store, id, &kept, version).await?;
            return Ok(None);
        }
        let now = store.now().await?;
        let told = self.target.tell(id, now, &kept.notice).await;
        kept.attempts = kept.attempts.saturating_add(1);
        let (status, problem) = match &told {
            Ok(status) => (Some(*status), None),
            Err(undelivered) => (undelivered.status, Some(undelivered.problem.clone())),
        };
        if let Some(problem) = &problem {
            self.target.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(to = kept.to, delivery = id, problem, "a notification did not arrive");
        }
        kept.last = Some(Attempt { at: timestamp(now), status, problem });
        kept.next_at = told.as_ref().err().and_then(|undelivered| next(undelivered, &kept, now));
        kept.state = match (&told, kept.next_at) {
            (Ok(_), _) => DeliveryState::Delivered,
            (Err(_), Some(_)) => DeliveryState::Pending,
            (Err(_), None) => DeliveryState::Failed,
        };
        log::note(store, id, &kept, version).await?;
        Ok(kept.next_at)
    }

    /// Whether people would be asked about a hold that has closed.
    async fn is_over(&self, kept: &Kept) -> Result<bool, StoreError> {
        let Some(hold) = kept.hold().filter(|_| self.target.is_read_by_people() && kept.notice.asks()) else {
            return Ok(false);
        };
        let call = self.store.call_of_hold(hold).await?;
        let open = call.is_some_and(|call| call.holds.iter().any(|row| row.id == hold && row.is_pending()));
        Ok(!open)
    }
}

/// When a delivery is tried again: later each time, never quite when others are, and not once it is old news.
fn next(undelivered: &Undelivered, kept: &Kept, now: Time) -> Option<Time> {
    let least = undelivered.again?;
    let factor = 4u32.saturating_pow(kept.attempts.saturating_sub(1));
    let wait = limits::TELL_AGAIN.saturating_mul(factor).min(limits::TELL_AGAIN_MOST);
    let next = now.after(spread(wait).max(least));
    // Old news that somebody asked for again gets its few quick tries.
    let asked_again = kept.attempts <= 3 && kept.at.after(limits::NEWS) < now;
    (next < kept.at.after(limits::NEWS) || asked_again).then_some(next)
}

/// Between three quarters and five quarters of a time.
fn spread(wait: Duration) -> Duration {
    let mut byte = [128u8];
    // Without randomness it is the time itself.
    let _ = getrandom::fill(&mut byte);
    let [byte] = byte;
    wait.mul_f64(0.75 + f64::from(byte) / 512.0)
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::Damaged { what: "place of a notifier", why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use countersign::config::Config;
    use countersign::memory::MemoryStore;
    use countersign::{Gate, Policy, Proposal};

    use super::*;

    /// A postman of a webhook that nobody answers, with room for so many deliveries.
    fn postman(store: &Arc<dyn Store>, most: usize) -> Postman {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let text = "notify: [{ webhook: 'http://127.0.0.1:1/', allow_private: true }]";
        let config = Config::from_yaml("test", text, &|_| None).unwrap();
        let target = Target::new(&config.notify[0], 0, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (target, base) = (Arc::new(target), "http://127.0.0.1:2".into());
        let (woken, ending) = (watch::channel(0).1, watch::channel(false).1);
        Postman { store: Arc::clone(store), target, base, owner: "node".into(), most, woken, ending }
    }

    /// What a receiver cannot take stays in the log: no more is written than may wait, and nothing is passed over.
    #[tokio::test]
    async fn a_receiver_far_behind_leaves_the_rest_in_the_log() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let builder = Gate::builder().policy(Policy::ask_all()).store(Arc::clone(&store)).without_sweeper();
        let gate = builder.decided_elsewhere().build().unwrap();
        let postman = postman(&store, 2);
        let mut seat = None;
        postman.round(&mut seat).await.unwrap();
        for _ in 0..5 {
            gate.submit_undefined(Proposal::new("write_file", "{}")).await.unwrap();
        }
        let mut ids = Vec::new();
        for left in [2, 2, 1, 0] {
            postman.round(&mut seat).await.unwrap();
            let pending = log::due(&*store, &postman.target.id, Time(i64::MAX)).await.unwrap();
            assert_eq!((pending.pending, seat.as_ref().unwrap().pending), (left, left));
            for (_, id) in pending.now {
                let (mut kept, version) = log::read(&*store, &id).await.unwrap().unwrap();
                (kept.state, kept.next_at) = (DeliveryState::Delivered, None);
                log::note(&*store, &id, &kept, version).await.unwrap();
                ids.push(id);
            }
            // The next look finds that they arrived.
            seat.as_mut().unwrap().due_at = Some(Time::default());
            let now = store.now().await.unwrap();
            postman.try_due(seat.as_mut().unwrap(), now).await.unwrap();
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 5, "each of them once");
    }

    /// What happens after a receiver was named and before anybody reads the log for it is told.
    #[tokio::test]
    async fn what_comes_before_the_first_look_is_told() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let builder = Gate::builder().policy(Policy::ask_all()).store(Arc::clone(&store)).without_sweeper();
        let gate = builder.decided_elsewhere().build().unwrap();
        let postman = postman(&store, 10);
        gate.submit_undefined(Proposal::new("before", "{}")).await.unwrap();
        place(&*store, &postman.target).await.unwrap();
        gate.submit_undefined(Proposal::new("after", "{}")).await.unwrap();
        // A node that starts later does not move it.
        place(&*store, &postman.target).await.unwrap();
        let mut seat = None;
        postman.round(&mut seat).await.unwrap();
        assert_eq!(seat.unwrap().pending, 1);
    }

    fn kept(attempts: u32) -> Kept {
        Kept {
            target: String::new(),
            to: String::new(),
            notice: Notice::test(timestamp(Time(0)), ""),
            at: Time(0),
            state: DeliveryState::Pending,
            attempts,
            next_at: None,
            last: None,
        }
    }

    #[test]
    fn tries_are_spread_out_and_end_when_the_news_is_old() {
        let failed = Undelivered::later("no".into());
        let wait = |attempts| next(&failed, &kept(attempts), Time(0)).map(|at| Time(0).until(at));
        for (attempts, seconds) in [(1, 5.0), (2, 20.0), (3, 80.0), (5, 1_280.0), (20, 21_600.0), (u32::MAX, 21_600.0)]
        {
            let wait = wait(attempts).unwrap().as_secs_f64();
            assert!((seconds * 0.75..=seconds * 1.25).contains(&wait), "{attempts}: {wait}");
        }
        let late = Time(0).after(limits::NEWS);
        assert_eq!(next(&failed, &kept(9), late), None);
        let gone = Undelivered { problem: "gone".into(), status: Some(410), again: None };
        assert_eq!(next(&gone, &kept(1), Time(0)), None);
        let busy = Undelivered { again: Some(Duration::from_secs(600)), ..failed };
        assert_eq!(next(&busy, &kept(1), Time(0)), Some(Time(0).after(Duration::from_secs(600))));
    }
}
