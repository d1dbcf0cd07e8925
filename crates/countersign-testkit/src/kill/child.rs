//! The worker that is killed: submits, decides, claims, runs and finishes, as fast as it can, with an operator beside it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::call::Repeat;
use countersign::grant::Remember;
use countersign::signer::Signer;
use countersign::store::CallFilter;
use countersign::store::Op;
use countersign::testing::races::Dice;
use countersign::testing::{Fault, FaultStore};
use countersign::tool::{FnTool, tool};
use countersign::{
    Answer, Call, CallState, Decision, Definition, Gate, GateError, Hold, Json, Policy, Proposal, Running, Store,
    ToolError, Who,
};
use tokio::task::JoinSet;

use super::{SIGNER, effects, hash, journal};

/// Nothing may take longer to come to its end than this.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);
/// How long a claim holds: short, so that the next life finds its doubts at once.
const LEASE: Duration = Duration::from_millis(200);
/// Calls in flight at once.
const WORKERS: usize = 4;

/// Two that say the same, for the operator to change between.
pub(super) const POLICIES: [&str; 2] = [
    "
otherwise: ask
rules:
  - { id: free, allow: [free, again] }
  - { id: pair, ask: pair, approvals: 2 }
  - { id: unanswered, ask: [fleeting, broken], expires_after: 1s }
",
    "
otherwise: ask
rules:
  - { id: still-free, allow: [free, again] }
  - { id: pair, ask: pair, approvals: 2 }
  - { id: unanswered, ask: [fleeting, broken], expires_after: 1s }
",
];

/// The tool that one person alone cannot approve.
const PAIR: &str = "pair";
/// The tool that the operator makes grants for.
pub(super) const LENT: &str = "lent";

/// The tool whose holds nobody decides: they expire.
const FLEETING: &str = "fleeting";
/// The tool whose approver fails: its holds are closed.
const BROKEN: &str = "broken";

/// Dies inside a migration: `migration:after:3` is after the third statement that changes the schema.
pub(super) const MIGRATION: &str = "migration:after:";
static STATEMENTS_LEFT: AtomicU64 = AtomicU64::new(0);

/// Whether a life works or only brings everything to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Works until it is killed.
    Work,
    /// Decides what waits, runs what may run, and exits when nothing is left.
    Drain,
}

pub(super) struct Worker {
    pub(super) gate: Gate,
    /// The same store, asked through an approver that always fails.
    failing: Gate,
    journal: Mutex<File>,
    pub(super) tools: Vec<Arc<FnTool>>,
    next: AtomicU64,
    pub(super) name: String,
}

/// Lives one life. `ready` is called when the store is open.
///
/// # Errors
///
/// When the store or the files fail.
pub async fn run(url: &str, folder: &Path, life: Life, seed: u64, crash: Option<&str>, ready: fn()) -> Result<()> {
    if let Some(number) = crash.and_then(|crash| crash.strip_prefix(MIGRATION)) {
        STATEMENTS_LEFT.store(number.parse()?, Ordering::SeqCst);
        countersign_store::testing::after_each_migration_statement(|| {
            if STATEMENTS_LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
                die();
            }
        });
    }
    let store = with_crash(connect(url).await?, crash)?;
    let policy = Policy::from_yaml(POLICIES[0]).context("the policy of the worker")?;
    let signer = Arc::new(Signer::from_secret(SIGNER)?);
    let builder = || {
        let builder = Gate::builder().store(Arc::clone(&store)).policy(policy.clone()).without_sweeper();
        let builder = builder.signer(Arc::clone(&signer));
        builder.owner(format!("life-{}", std::process::id())).lease(LEASE)
    };
    let gate = builder().decided_elsewhere().build()?;
    let failing = builder().approver(|_: Hold| async { Err("nobody is there".to_owned()) }).build()?;
    let effects = Arc::new(effects(folder));
    let tools = [
        ("asked", Repeat::AtMostOnce),
        ("free", Repeat::AtMostOnce),
        ("again", Repeat::Idempotent),
        (FLEETING, Repeat::AtMostOnce),
        (BROKEN, Repeat::AtMostOnce),
        (PAIR, Repeat::AtMostOnce),
        (LENT, Repeat::AtMostOnce),
    ];
    let tools = tools.map(|(name, repeat)| Arc::new(acting(name, repeat, &effects))).into();
    let journal = Mutex::new(append(&journal(folder))?);
    let name = format!("{}-{seed}", std::process::id());
    let worker = Arc::new(Worker { gate, failing, journal, tools, next: AtomicU64::new(0), name });
    ready();
    let (version, source) = (Arc::clone(policy.version()), POLICIES[0].into());
    store.run(Op::OfferPolicy { version, source, by: worker.name.as_str().into() }).await?;
    match life {
        Life::Work => worker.work(seed).await,
        Life::Drain => tokio::time::timeout(DRAINED_WITHIN, worker.drain()).await.context("it never ends")?,
    }
}

/// Opens the store at an address.
pub(super) async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    if url.starts_with("postgres") {
        use countersign_store::postgres::{PostgresOptions, PostgresStore};
        let options =
            PostgresOptions { readers: 4, reconnect_within: Duration::from_secs(20), ..PostgresOptions::default() };
        return Ok(Arc::new(PostgresStore::connect(url, options).await?));
    }
    Ok(countersign_store::connect(url).await?)
}

/// Kills this process, as anybody else would. Whatever comes after it never happens.
fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

/// Wraps the store so that the process dies at a named step: `claim:before:2` is before the second claim.
fn with_crash(store: Arc<dyn Store>, crash: Option<&str>) -> Result<Arc<dyn Store>> {
    let Some(crash) = crash else { return Ok(store) };
    let mut parts = crash.split(':').map(str::to_owned);
    let (site, side, number) = (parts.next(), parts.next(), parts.next());
    let site = site.context("CRASH_AT=step:side:n")?;
    let number: u64 = number.context("CRASH_AT=step:side:n")?.parse()?;
    let before = side.as_deref() == Some("before");
    let seen = AtomicU64::new(0);
    Ok(Arc::new(FaultStore::new(store, move |_, at| {
        // From that one on: whoever asked may not have waited for the answer.
        if at != site || seen.fetch_add(1, Ordering::SeqCst) + 1 < number {
            return Fault::None;
        }
        if before {
            die();
        }
        Fault::After(die)
    })))
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())
}

/// Writes one line and syncs it.
fn note(file: &mut File, line: &str) -> std::io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_data()
}

/// A tool that acts: one synced line for each run. Some runs ask first, some take longer than a third of the lease.
fn acting(name: &str, repeat: Repeat, effects: &Arc<PathBuf>) -> FnTool {
    let mut definition = Definition::new(name, "Writes a line.");
    definition.repeat = repeat;
    let effects = Arc::clone(effects);
    tool(definition, move |running| {
        let effects = Arc::clone(&effects);
        async move { act(&running, &effects).await }
    })
}

async fn act(running: &Running, effects: &Path) -> Result<Json, ToolError> {
    let number: u64 = running.arguments().field("n").and_then(|n| n.read().ok()).unwrap_or_default();
    if number % 5 == 3 {
        running.confirm("go on?", &number).await?;
    }
    let line = format!("{} {} {}", running.id(), hash(running.arguments()), running.attempt());
    let mut file = append(effects).map_err(|error| ToolError::Failed(error.to_string()))?;
    note(&mut file, &line).map_err(|error| ToolError::NoAnswer(error.to_string()))?;
    if number % 7 == 2 {
        tokio::time::sleep(LEASE / 2).await;
    }
    if number % 11 == 6 {
        return Err(ToolError::NoAnswer("it was cut".to_owned()));
    }
    Ok(Json::string("done"))
}

impl Worker {
    /// Goes on with what the last life left, and with new work, until killed.
    async fn work(self: &Arc<Self>, seed: u64) -> Result<()> {
        self.recover().await?;
        let sweeper = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let _ = sweeper.gate.sweep().await;
                let _ = sweeper.decide_all().await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let mut workers = JoinSet::new();
        let operator = Arc::clone(self);
        workers.spawn(async move { operator.operate().await });
        for index in 0..WORKERS {
            let worker = Arc::clone(self);
            workers.spawn(async move { worker.submit_on(Dice::new(seed + index as u64)).await });
        }
        // None of them ends by itself, unless something fails.
        while let Some(ended) = workers.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn submit_on(&self, mut dice: Dice) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            // The two whose holds nobody answers come seldom, or they alone would fill the sessions.
            let which = match dice.roll(14) {
                0 => 3,
                1 => 4,
                2 | 3 => 5,
                4 | 5 => 6,
                other => other % 3,
            };
            let tool = self.tools.get(which).context("one of the tools")?;
            let name = countersign::Tool::definition(tool.as_ref()).tool.name.clone();
            let proposal = Proposal::new(Arc::clone(&name), format!(r#"{{"n":{},"by":"{}"}}"#, number % 40, self.name));
            let proposal = proposal.session(format!("s{}", dice.roll(4)));
            let gate = if &*name == BROKEN { &self.failing } else { &self.gate };
            // The twin waits beside it: a decision that is remembered releases it.
            let twin = gate.submit(tool.as_ref(), proposal.clone().key(format!("{}-{number}-twin", self.name))).await?;
            let call = gate.submit(tool.as_ref(), proposal.key(format!("{}-{number}", self.name))).await?;
            if [FLEETING, BROKEN].contains(&&*name) {
                continue;
            }
            if dice.roll(12) == 0 {
                let _ = self.gate.cancel(call.id).await;
            }
            // A run may be refused or lapse; the record says so, and the next call is made.
            let _ = self.gate.resume(tool.as_ref(), call.id).await;
            let _ = self.gate.resume(tool.as_ref(), twin.id).await;
        }
    }

    /// Takes up every call that was left: approved and allowed ones, and repeatable ones whose lease is over.
    async fn recover(self: &Arc<Self>) -> Result<usize> {
        let mut left = 0;
        for state in [CallState::Approved, CallState::Allowed, CallState::Executing] {
            let filter = CallFilter { state: Some(state), limit: Some(1_000), ..CallFilter::default() };
            for call in self.gate.store().calls(filter).await?.into_iter().filter(|call| !is_exhausted(call)) {
                left += 1;
                let worker = Arc::clone(self);
                tokio::spawn(async move { worker.take_up(&call).await });
            }
        }
        Ok(left)
    }

    async fn take_up(&self, call: &Call) {
        let named = |tool: &&Arc<FnTool>| countersign::Tool::definition(tool.as_ref()).tool == call.facts.tool;
        if let Some(tool) = self.tools.iter().find(named) {
            let _ = self.gate.resume(tool.as_ref(), call.id).await;
        }
    }

    /// Decides every hold that is open. What the store acknowledged goes to the journal, synced, afterwards.
    async fn decide_all(&self) -> Result<usize> {
        let filter = CallFilter { holding: true, limit: Some(1_000), ..CallFilter::default() };
        let calls = self.gate.store().calls(filter).await?;
        for call in &calls {
            if let Some(answer) = answer(call) {
                self.decide(call, &answer).await?;
            }
        }
        Ok(calls.len())
    }

    /// Decides as one person, and as a second one where the hold stays open.
    async fn decide(&self, call: &Call, answer: &Answer) -> Result<()> {
        let Some(hold) = call.open_hold() else { return Ok(()) };
        for person in ["ann", "bo"] {
            let says = |answer| Decision::new(Who::person(person), "kill", hold.digest, answer);
            let mut answer = answer.clone();
            let mut decided = self.gate.decide(hold.id, says(answer.clone())).await;
            if let Err(GateError::BadEdit(_)) = decided {
                // A kill came between the call and its tool's definition, so nothing can check an edit.
                answer = Answer::approve();
                decided = self.gate.decide(hold.id, says(answer.clone())).await;
            }
            let Ok(decided) = decided else { return Ok(()) };
            let (call, answer) = (call.id, answer.as_str());
            self.acknowledge(&format!("decide {call} {} {} {answer} {person}", hold.id, hold.digest))?;
            if decided.call.open_hold().is_none_or(|open| open.id != hold.id) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes down what the store has just acknowledged.
    pub(super) fn acknowledge(&self, line: &str) -> Result<()> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(note(&mut journal, line)?)
    }

    /// Brings everything to an end: nothing waits, nothing may run, and every lost lease is a doubt.
    async fn drain(self: &Arc<Self>) -> Result<()> {
        self.gate.lift(None, &self.name).await?;
        loop {
            self.gate.sweep().await?;
            let waiting = self.decide_all().await?;
            if self.recover().await? + waiting == 0 {
                return Ok(());
            }
            tokio::time::sleep(LEASE / 3).await;
        }
    }
}

/// Whether a repeatable call has had all its attempts: it becomes a doubt by itself, minutes later.
fn is_exhausted(call: &Call) -> bool {
    let attempts = call.lease.as_ref().map_or(0, |lease| lease.attempt);
    call.repeat.may_run_again() && attempts >= countersign::Limits::default().attempts
}

/// Most are approved, some with memory, some as edited; others are denied, or answered instead. The same call always
/// gets the same answer, and some get none.
fn answer(call: &Call) -> Option<Answer> {
    if [FLEETING, BROKEN].contains(&&*call.facts.tool.name) {
        return None;
    }
    let number: u64 = call.facts.arguments.field("n").and_then(|n| n.read().ok()).unwrap_or_default();
    let plain = call.state == CallState::Executing || call.facts.arguments.field("edited").is_some();
    let alone = &*call.facts.tool.name != PAIR;
    let approve = |arguments, remember| Answer::Approve { arguments, payload: None, remember };
    Some(match number % 8 {
        0 | 4 => Answer::deny("no"),
        1 | 5 if !plain && alone => approve(None, Some(Remember { uses: Some(1), ..Remember::session() })),
        2 if !plain => approve(Some(edited(call)), None),
        6 if !plain => Answer::Respond { response: Json::string("done by hand") },
        _ => Answer::approve(),
    })
}

/// The arguments of a call, with one more.
fn edited(call: &Call) -> Json {
    let text = call.facts.arguments.as_str().replacen('{', r#"{"edited":true,"#, 1);
    Json::arguments(&text, &countersign::Limits::default()).unwrap_or_else(|_| call.facts.arguments.clone())
}
