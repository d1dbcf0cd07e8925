//! How much anybody may ask for: buckets that fill with time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use countersign_api::wire::Code;

use crate::auth::Principal;
use crate::limits;
use crate::problem::Refused;
use crate::serve::Peer;

/// Whose rate it is. An agent that is called like an approver does not use up what the approver may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    name: Arc<str>,
    agent: bool,
}

impl Whose {
    /// An agent's.
    pub(crate) fn agent(name: &Arc<str>) -> Whose {
        Whose { name: Arc::clone(name), agent: true }
    }
}

impl From<&Principal> for Whose {
    fn from(principal: &Principal) -> Whose {
        Whose { name: Arc::clone(&principal.name), agent: principal.is_agent() }
    }
}

/// The rates of one server.
pub(crate) struct Rates {
    submits: Buckets<Whose>,
    requests: Buckets<Whose>,
    failures: Buckets<IpAddr>,
    refusals: Buckets<Whose>,
    strangers: Buckets<()>,
    strangers_from: Buckets<(Option<IpAddr>, Code)>,
    streams: Counts,
    waits: Counts,
}

/// How many each has open.
type Counts = Arc<Mutex<HashMap<Whose, usize>>>;

/// A principal's place among the streams, or the waits, that may be open.
pub(crate) struct StreamPlace {
    whose: Whose,
    counts: Counts,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let Ok(mut counts) = self.counts.lock() else { return };
        if let Some(open) = counts.get_mut(&self.whose) {
            *open -= 1;
            if *open == 0 {
                counts.remove(&self.whose);
            }
        }
    }
}

impl Rates {
    /// With so many submissions per second of one principal.
    pub(crate) fn new(submits_per_second: u32) -> Rates {
        let second = Duration::from_secs(1);
        Rates {
            submits: Buckets::new(limits::SUBMIT_BURST.max(submits_per_second), second / submits_per_second.max(1)),
            requests: Buckets::new(limits::REQUEST_BURST, second / limits::REQUESTS_PER_SECOND),
            failures: Buckets::new(limits::FAILURES_PER_MINUTE, second * 60 / limits::FAILURES_PER_MINUTE),
            refusals: Buckets::new(limits::REFUSALS_NOTED, second),
            strangers: Buckets::new(limits::STRANGERS_NOTED, limits::STRANGER_NOTED_EVERY),
            strangers_from: Buckets::new(limits::REFUSALS_NOTED, second * 60),
            streams: Arc::default(),
            waits: Arc::default(),
        }
    }

    /// Whether one more refused access of a principal may be put on the record: nobody fills it with their own.
    pub(crate) fn may_note(&self, whose: impl Into<Whose>) -> bool {
        self.refusals.take(whose.into(), Instant::now()).is_ok()
    }

    /// Whether one more stranger from an address may be put on the record, sent away for this. All together have a rate,
    /// too.
    pub(crate) fn may_note_stranger(&self, address: Option<IpAddr>, why: Code) -> bool {
        let now = Instant::now();
        self.strangers_from.take((address, why), now).is_ok() && self.strangers.take((), now).is_ok()
    }

    /// A principal opens a stream.
    pub(crate) fn stream(&self, whose: impl Into<Whose>) -> Result<StreamPlace, Refused> {
        place(&self.streams, whose.into(), limits::STREAMS, "too many open streams")
    }

    /// A principal waits for people, as one of at most so many.
    pub(crate) fn wait(&self, whose: impl Into<Whose>, most: usize) -> Result<StreamPlace, Refused> {
        place(&self.waits, whose.into(), most, "too many requests that wait")
    }

    /// How many streams are open.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.lock().map_or(0, |streams| streams.values().sum())
    }

    /// A principal submits a call.
    pub(crate) fn submit(&self, whose: impl Into<Whose>) -> Result<(), Refused> {
        taken(self.submits.take(whose.into(), Instant::now()), "too many submissions")
    }

    /// A principal asks for anything.
    pub(crate) fn request(&self, whose: impl Into<Whose>) -> Result<(), Refused> {
        taken(self.requests.take(whose.into(), Instant::now()), "too many requests")
    }

    /// Somebody came without a good credential: what to tell them. Who has a good one is never kept waiting by it.
    pub(crate) fn failure(&self, peer: Option<&Peer>) -> Refused {
        let Some(peer) = peer else { return Refused::new(Code::Unauthenticated) };
        match taken(self.failures.take(peer.0.peer.ip(), Instant::now()), "too many wrong credentials") {
            Ok(()) => Refused::new(Code::Unauthenticated),
            Err(refused) => refused,
        }
    }
}

fn place(counts: &Counts, whose: Whose, most: usize, what: &str) -> Result<StreamPlace, Refused> {
    let full = || Refused::later(limits::KEEP_ALIVE.as_secs(), what);
    let mut open = counts.lock().map_err(|_| full())?;
    let count = open.entry(whose.clone()).or_default();
    if *count >= most {
        return Err(full());
    }
    *count += 1;
    Ok(StreamPlace { whose, counts: Arc::clone(counts) })
}

fn taken(result: Result<(), Duration>, what: &str) -> Result<(), Refused> {
    result.map_err(|wait| Refused::later(wait.as_secs() + 1, what))
}

/// One bucket for each key. Keys whose bucket is full again are forgotten when there are too many.
struct Buckets<K> {
    burst: u32,
    every: Duration,
    /// When each bucket will be full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + std::hash::Hash> Buckets<K> {
    fn new(burst: u32, every: Duration) -> Buckets<K> {
        Buckets { burst, every, full_at: Mutex::default() }
    }

    /// Takes one, or says how long to wait for it.
    fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        // A poisoned lock means that counting failed: fail closed, and say to come back.
        let Ok(mut full_at) = self.full_at.lock() else { return Err(self.every) };
        if full_at.len() >= limits::RATES && !full_at.contains_key(&key) {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= limits::RATES {
                return Err(self.every);
            }
        }
        let at = full_at.entry(key).or_insert(now);
        let next = (*at).max(now) + self.every;
        let most = now + self.every * self.burst;
        if next > most {
            return Err(next - most);
        }
        *at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let buckets = Buckets::new(3, Duration::from_millis(100));
        let begin = Instant::now();
        for _ in 0..3 {
            assert_eq!(buckets.take("ann", begin), Ok(()));
        }
        assert_eq!(buckets.take("ann", begin), Err(Duration::from_millis(100)));
        assert_eq!(buckets.take("bo", begin), Ok(()), "one's haste costs nobody else");
        assert_eq!(buckets.take("ann", begin + Duration::from_millis(100)), Ok(()));
        assert!(buckets.take("ann", begin + Duration::from_millis(100)).is_err());
    }

    #[test]
    fn more_keys_than_are_remembered_wait_rather_than_pass_uncounted() {
        let buckets = Buckets::new(2, Duration::from_secs(1));
        let begin = Instant::now();
        for key in 0..limits::RATES {
            assert_eq!(buckets.take(key, begin), Ok(()));
        }
        assert!(buckets.take(usize::MAX, begin).is_err());
        assert_eq!(buckets.take(usize::MAX, begin + Duration::from_secs(2)), Ok(()), "full buckets are forgotten");
    }
}
