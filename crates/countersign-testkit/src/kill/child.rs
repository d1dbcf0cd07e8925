//! The worker that is killed: submits, decides, claims, runs and finishes, as fast as it can.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::call::Repeat;
use countersign::grant::Remember;
use countersign::store::CallFilter;
use countersign::testing::races::Dice;
use countersign::testing::{Fault, FaultStore};
use countersign::tool::{FnTool, tool};
use countersign::{
    Answer, Call, CallState, Decision, Definition, Gate, Hold, Json, Policy, Proposal, Running, Store, ToolError, Who,
};

use super::{effects, hash, journal};

/// How long a claim holds: short, so that the next life finds its doubts at once.
const LEASE: Duration = Duration::from_millis(200);
/// Calls in flight at once.
const WORKERS: usize = 4;

const POLICY: &str = "
otherwise: ask
rules:
  - { id: free, allow: [free, again] }
  - { id: unanswered, ask: [fleeting, broken], expires_after: 1s }
";

/// The tool whose holds nobody decides: they expire.
const FLEETING: &str = "fleeting";
/// The tool whose approver fails: its holds are closed.
const BROKEN: &str = "broken";

/// Whether a life works or only brings everything to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Works until it is killed.
    Work,
    /// Decides what waits, runs what may run, and exits when nothing is left.
    Drain,
}

struct Worker {
    gate: Gate,
    /// The same store, asked through an approver that always fails.
    failing: Gate,
    journal: Mutex<File>,
    tools: Vec<Arc<FnTool>>,
    next: AtomicU64,
    name: String,
}

/// Lives one life. `ready` is called when the store is open.
///
/// # Errors
///
/// When the store or the files fail.
pub async fn run(url: &str, folder: &Path, life: Life, seed: u64, crash: Option<&str>, ready: fn()) -> Result<()> {
    let store = with_crash(connect(url).await?, crash)?;
    let policy = Policy::from_yaml(POLICY).context("the policy of the worker")?;
    let builder = || {
        let builder = Gate::builder().store(Arc::clone(&store)).policy(policy.clone()).without_sweeper();
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
    ];
    let tools = tools.map(|(name, repeat)| Arc::new(acting(name, repeat, &effects))).into();
    let journal = Mutex::new(append(&journal(folder))?);
    let name = format!("{}-{seed}", std::process::id());
    let worker = Arc::new(Worker { gate, failing, journal, tools, next: AtomicU64::new(0), name });
    ready();
    match life {
        Life::Work => worker.work(seed).await,
        Life::Drain => worker.drain().await,
    }
}

/// Opens the store at an address.
pub(super) async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    if url.starts_with("postgres") {
        use countersign_store::postgres::{PostgresOptions, PostgresStore};
        let options = PostgresOptions { readers: 2, ..PostgresOptions::default() };
        return Ok(Arc::new(PostgresStore::connect(url, options).await?));
    }
    Ok(countersign_store::connect(url).await?)
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
            std::process::abort();
        }
        Fault::After(|| std::process::abort())
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
        let mut workers = Vec::new();
        for index in 0..WORKERS {
            let worker = Arc::clone(self);
            workers.push(tokio::spawn(async move { worker.submit_on(Dice::new(seed + index as u64)).await }));
        }
        for worker in workers {
            worker.await??;
        }
        Ok(())
    }

    async fn submit_on(&self, mut dice: Dice) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            // The two whose holds nobody answers come seldom, or they alone would fill the sessions.
            let which = match dice.roll(10) {
                0 => 3,
                1 => 4,
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
            let (Some(hold), Some(answer)) = (call.open_hold(), answer(call)) else { continue };
            let decision = Decision::new(Who::person("ann"), "kill", hold.digest, answer.clone());
            if self.gate.decide(hold.id, decision).await.is_ok() {
                let line = format!("{} {} {} {}", call.id, hold.id, hold.digest, answer.as_str());
                let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
                note(&mut journal, &line)?;
            }
        }
        Ok(calls.len())
    }

    /// Brings everything to an end: nothing waits, nothing may run, and every lost lease is a doubt.
    async fn drain(self: &Arc<Self>) -> Result<()> {
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

/// Three of four are approved, some with memory; the fourth is denied. The same call always gets the same answer, and
/// some get none.
fn answer(call: &Call) -> Option<Answer> {
    if [FLEETING, BROKEN].contains(&&*call.facts.tool.name) {
        return None;
    }
    let number: u64 = call.facts.arguments.field("n").and_then(|n| n.read().ok()).unwrap_or_default();
    let in_run = call.state == CallState::Executing;
    Some(match number % 4 {
        0 => Answer::deny("no"),
        1 if !in_run => {
            let uses = Some(1);
            let remember = Some(Remember { uses, ..Remember::session() });
            Answer::Approve { arguments: None, payload: None, remember }
        }
        _ => Answer::approve(),
    })
}
