//! Checks a log, event by event: the same code for a file and for a live store.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::audit::body::{AboutCall, Body, Signed, Statement};
use crate::audit::in_scope;
use crate::audit::log::{Log, OfStore, Readable};
use crate::audit::problem::{Problem, What};
use crate::audit::report::{ChainReport, ClockStep, Report};
use crate::audit::walk::Walk;
use crate::call::Chain;
use crate::digest::EventHash;
use crate::event::{self, Event, EventName, Head};
use crate::id::{CallId, HoldId};
use crate::limits;
use crate::signer;
use crate::store::{Store, StoreError};
use crate::time::Time;

/// How far the clock may go back inside a chain without being reported.
const CLOCK_STEP: Duration = Duration::from_secs(2);

/// What a log is checked against, besides itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Public keys that may sign, in base64. None at all: whatever key the log names is taken at its word.
    pub pinned: Vec<String>,
}

/// A check under way. Its memory grows with chains and open calls, not with events.
#[derive(Debug)]
pub struct Verifier {
    session: Option<Arc<str>>,
    pinned: Vec<String>,
    /// The keys the header names; none for a store, which has no header.
    named: Option<BTreeSet<String>>,
    chains: HashMap<Chain, Progress>,
    /// The chains of the youngest events, oldest first: whose turn it is to forget a hash.
    recent: VecDeque<Chain>,
    last_checkpoint: Option<EventHash>,
    walk: Walk,
    report: Report,
    keys: BTreeSet<String>,
}

/// How far one chain was checked.
#[derive(Debug, Default)]
struct Progress {
    head: Head,
    signed: u64,
    at: Option<Time>,
    /// The hashes of its last events, as far as they are recent.
    recent: VecDeque<EventHash>,
}

impl Progress {
    /// The hash of an event of this chain, if it is the head or recent.
    fn hash_of(&self, seq: u64) -> Option<EventHash> {
        let back = usize::try_from(self.head.seq.checked_sub(seq)?).ok()?;
        let at = self.recent.len().checked_sub(back + 1);
        at.and_then(|at| self.recent.get(at)).copied().or((back == 0).then_some(self.head.hash))
    }
}

impl Verifier {
    /// Begins to check the log of a store.
    pub fn new(options: &VerifyOptions) -> Verifier {
        Verifier {
            session: None,
            pinned: options.pinned.clone(),
            named: None,
            chains: HashMap::new(),
            recent: VecDeque::new(),
            last_checkpoint: None,
            walk: Walk::default(),
            report: Report::default(),
            keys: BTreeSet::new(),
        }
    }

    /// Begins to check an export whose header names a session and keys.
    pub(super) fn of_export(options: &VerifyOptions, session: Option<Arc<str>>, named: &[String]) -> Verifier {
        Verifier { session, named: Some(named.iter().cloned().collect()), ..Verifier::new(options) }
    }

    /// Checks the next event of the log.
    pub fn event(&mut self, hash: &EventHash, text: &str) -> Result<(), Problem> {
        let body = Body::read(text).map_err(|why| Problem::whole(What::Body(why)))?;
        let chain = Chain(body.chain.as_ref().into());
        let wrong = |what| Problem::event(&chain, body.seq, what);
        if body.v != 1 {
            return Err(wrong(What::Version(body.v)));
        }
        if !in_scope(self.session.as_deref(), &chain) {
            return Err(wrong(What::Scope));
        }
        self.link(&chain, &body, hash, text).map_err(wrong)?;
        self.note_time(&chain, &body);
        match body.event.parse::<EventName>() {
            Ok(EventName::CheckpointSigned) => self.checkpoint(&chain, body.seq, hash, text).map_err(wrong)?,
            Ok(name) if Walk::concerns(name) => {
                let about: AboutCall =
                    serde_json::from_str(text).map_err(|error| wrong(What::Body(error.to_string())))?;
                let call = about.call;
                let stepped = self.walk.step(&chain, body.seq, name, &about);
                stepped.map_err(|why| wrong(What::Walk { call, why }))?;
            }
            Ok(_) => {}
            Err(_) => self.report.unknown += 1,
        }
        self.report.events += 1;
        Ok(())
    }

    /// Ends the check of a log that has no end mark: a store.
    pub fn finish(mut self) -> Result<Report, Problem> {
        if !self.pinned.is_empty() && self.report.checkpoints == 0 {
            return Err(Problem::whole(What::NotSigned));
        }
        self.settle()?;
        self.report.complete = self.report.unproven == 0 && self.report.checkpoints > 0;
        Ok(self.report)
    }

    /// Ends the check of an export, whose end mark was found to be right and signed by this key, if by any.
    pub(super) fn finish_export(mut self, signed_by: Option<&str>) -> Result<Report, Problem> {
        if !self.pinned.is_empty() && self.report.checkpoints == 0 && signed_by.is_none() {
            return Err(Problem::whole(What::NotSigned));
        }
        if let Some(key) = signed_by {
            self.admit(key).map_err(Problem::whole)?;
        }
        self.settle()?;
        if signed_by.is_some() {
            self.report.unproven = 0;
            self.report.complete = true;
        }
        Ok(self.report)
    }

    /// How many events were checked.
    pub(super) fn events(&self) -> u64 {
        self.report.events
    }

    /// The event must be the next of its chain, with the hash that follows.
    fn link(&mut self, chain: &Chain, body: &Body<'_>, hash: &EventHash, text: &str) -> Result<(), What> {
        let progress = self.chains.entry(chain.clone()).or_default();
        let expected = progress.head.seq + 1;
        if body.seq != expected {
            return Err(What::Gap { expected });
        }
        if event::hash(&progress.head.hash, text) != *hash {
            return Err(What::Hash);
        }
        progress.head = Head { seq: body.seq, hash: *hash };
        progress.recent.push_back(*hash);
        self.recent.push_back(chain.clone());
        if self.recent.len() > limits::AUDIT_RECENT
            && let Some(oldest) = self.recent.pop_front()
            && let Some(progress) = self.chains.get_mut(&oldest)
        {
            progress.recent.pop_front();
        }
        Ok(())
    }

    fn note_time(&mut self, chain: &Chain, body: &Body<'_>) {
        let at = Time(body.at);
        let report = &mut self.report;
        report.first_at = Some(report.first_at.map_or(at, |first| first.min(at)));
        report.last_at = Some(report.last_at.map_or(at, |last| last.max(at)));
        let Some(progress) = self.chains.get_mut(chain) else { return };
        let back = progress.at.map_or(Duration::ZERO, |before| at.until(before));
        progress.at = Some(at);
        if back > CLOCK_STEP {
            report.clock_steps_total += 1;
            if report.clock_steps.len() < limits::AUDIT_CLOCK_STEPS {
                report.clock_steps.push(ClockStep { chain: chain.clone(), seq: body.seq, back });
            }
        }
    }

    /// A checkpoint must follow the one before it and sign what the log holds.
    fn checkpoint(&mut self, chain: &Chain, seq: u64, hash: &EventHash, text: &str) -> Result<(), What> {
        let signed: Signed<'_> = serde_json::from_str(text).map_err(|_| What::Checkpoint)?;
        if *chain != Chain::system() {
            return Err(What::Checkpoint);
        }
        if !signer::verify(&signed.key, signed.statement.get(), &signed.signature) {
            return Err(What::Signature { key: signed.key.into_owned() });
        }
        self.admit(&signed.key)?;
        let statement: Statement = serde_json::from_str(signed.statement.get()).map_err(|_| What::Checkpoint)?;
        if statement.previous != self.last_checkpoint {
            return Err(What::Previous);
        }
        for (chain, seq, hash) in statement.heads {
            self.head(Chain(chain.into()), seq, &hash)?;
        }
        // It carries its own signature, and the next checkpoint names its hash.
        if let Some(progress) = self.chains.get_mut(chain) {
            progress.signed = seq;
        }
        self.last_checkpoint = Some(*hash);
        self.report.checkpoints += 1;
        Ok(())
    }

    fn head(&mut self, chain: Chain, seq: u64, hash: &EventHash) -> Result<(), What> {
        if !in_scope(self.session.as_deref(), &chain) {
            return Ok(());
        }
        let found = match self.chains.get_mut(&chain) {
            None => "does not have that chain",
            Some(progress) if progress.head.seq < seq => "ends before it",
            Some(progress) => match progress.hash_of(seq) {
                Some(found) if found == *hash => {
                    progress.signed = progress.signed.max(seq);
                    return Ok(());
                }
                Some(_) => "has another one in its place",
                None => "is too far ahead of it to tell",
            },
        };
        Err(What::Head { chain, seq, found })
    }

    /// A key that signed must be one that may.
    fn admit(&mut self, key: &str) -> Result<(), What> {
        let refuse = |among| Err(What::Key { key: key.to_owned(), among });
        if self.named.as_ref().is_some_and(|named| !named.contains(key)) {
            return refuse("keys the header names");
        }
        if !self.pinned.is_empty() && !self.pinned.iter().any(|pinned| pinned == key) {
            return refuse("pinned keys");
        }
        self.keys.insert(key.to_owned());
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Problem> {
        self.walk.finish()?;
        self.report.open_calls = self.walk.open_calls();
        self.report.session = self.session.take();
        self.report.keys = std::mem::take(&mut self.keys).into_iter().collect();
        let chains = std::mem::take(&mut self.chains).into_iter();
        self.report.chains = chains
            .map(|(chain, progress)| ChainReport { chain, events: progress.head.seq, signed_up_to: progress.signed })
            .collect();
        self.report.chains.sort_by(|a, b| a.chain.cmp(&b.chain));
        self.report.unproven = self.report.chains.iter().map(|chain| chain.events - chain.signed_up_to).sum();
        Ok(())
    }
}

/// Checks the log of a live store: everything [`verify`](crate::audit::verify) checks, and each row against its event.
pub async fn verify_store(store: &dyn Store, options: &VerifyOptions) -> Result<Report, Problem> {
    verify_log(&OfStore(store), options).await
}

/// Checks a log that somebody else keeps, like [`verify_store`].
pub async fn verify_log(log: &dyn Readable, options: &VerifyOptions) -> Result<Report, Problem> {
    let unreadable = |error: StoreError| Problem::whole(What::Unreadable(error.to_string()));
    let mut verifier = Verifier::new(options);
    let mut log = Log::begin(log, None).await.map_err(unreadable)?;
    while let Some(event) = log.next().await.map_err(unreadable)? {
        verifier.event(&event.hash, &event.body)?;
        if !row_fits(&event) {
            return Err(Problem::event(&event.chain, event.seq, What::Row));
        }
    }
    verifier.finish()
}

/// What a store finds events by, besides what every event says.
#[derive(serde::Deserialize)]
struct Row {
    call: Option<CallId>,
    hold: Option<HoldId>,
}

/// Whether the columns of a row say what its event says.
fn row_fits(event: &Event) -> bool {
    let body = Body::read(&event.body).is_ok_and(|body| {
        body.chain == *event.chain.0
            && body.seq == event.seq
            && body.at == event.at.0
            && body.event == event.name.as_str()
    });
    let row = serde_json::from_str(&event.body);
    body && row.is_ok_and(|row: Row| row.call == event.call && row.hold == event.hold)
}
