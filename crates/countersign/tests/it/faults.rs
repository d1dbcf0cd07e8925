//! I6, I7: every call of the store fails, hangs, loses its answer or gives it late once; nothing runs that is not on
//! record or whose lease is over, nothing hangs, and once the fault is over everything comes to an end.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use countersign::audit::{VerifyOptions, verify_store};
use countersign::call::{Resolution, ResolvedAs};
use countersign::event::{Cursor, Event, EventName};
use countersign::gate::Decided;
use countersign::grant::{Grant, Remember};
use countersign::memory::MemoryStore;
use countersign::signer::Signer;
use countersign::store::{CallFilter, EventFilter, Op, Store};
use countersign::testing::{Fault, FaultStore, OP_NAMES};
use countersign::tool::{FnTool, Tool as _, tool};
use countersign::{
    Answer, Call, CallId, CallState, Claimed, Decision, Definition, Gate, GrantId, Json, Policy, Proposal, Time, Who,
    limits,
};

use crate::gate::desk::{RuntimeClock, edit, policy, remember};

/// What the tool did: which call, with which bytes.
type Effects = Arc<Mutex<Vec<(CallId, String)>>>;

static POLICY: LazyLock<Policy> =
    LazyLock::new(|| policy("otherwise: ask\nrules: [{ id: reads, allow: read }, { id: slow, allow: slow }]"));
/// The policy that all nodes follow after it changed.
static NEXT: LazyLock<Policy> =
    LazyLock::new(|| policy("otherwise: ask\nrules: [{ id: reads, allow: read }, { id: never, deny: drop }]"));
static SIGNER: LazyLock<Arc<Signer>> = LazyLock::new(|| Arc::new(Signer::generate().unwrap()));

/// The session of calls about which only an approver that fails is asked.
const PAGED: &str = "paged";

/// Almost as long as the store is waited for, and as a lease lasts.
const LATE: Duration = limits::STORE_ANSWERS_WITHIN.saturating_sub(Duration::from_millis(1));

/// What is done with a gate. Each is replayed by itself, so that none makes the others longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    /// An agent calls, is asked about, cancels and repeats itself.
    Calls,
    /// People remember, edit and revoke.
    Grants,
    /// An operator halts, settles a doubt, changes the policy and has the log signed.
    Operation,
    /// An approver fails.
    Pager,
}

impl Script {
    const ALL: [Script; 4] = [Script::Calls, Script::Grants, Script::Operation, Script::Pager];

    /// How often a tool acts where nothing goes wrong.
    fn acts(self) -> usize {
        match self {
            Script::Calls => 3,
            // The first, its twin, the edited one, and one under the second grant. Not the one that was revoked.
            Script::Grants => 4,
            Script::Operation => 3,
            Script::Pager => 0,
        }
    }

    /// Where the store is to fail, after a run without faults made so many calls of it.
    fn places(self, calls: u64) -> Vec<Place> {
        match self {
            // A fault makes the script take other ways, so some more than the healthy run had.
            Script::Calls | Script::Grants | Script::Operation => (1..=calls + 10).map(Place::Number).collect(),
            // Two threads call the store, in an order that is another one in each run.
            Script::Pager => ["put record", "submit", "read call", "now", "close"].map(Place::Site).to_vec(),
        }
    }
}

/// Where the store fails.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At this call of it, from 1.
    Number(u64),
    /// At every call of this name.
    Site(&'static str),
}

impl Place {
    fn is(self, number: u64, site: &str) -> bool {
        match self {
            Place::Number(wanted) => wanted == number,
            Place::Site(wanted) => wanted == site,
        }
    }
}

struct Run {
    script: Script,
    story: String,
    memory: Arc<MemoryStore>,
    faulty: Arc<FaultStore>,
    gate: Gate,
    effects: Effects,
    /// The names of all calls of the store.
    met: Arc<Mutex<BTreeSet<&'static str>>>,
    /// What the after-hook was told.
    told: Arc<Mutex<Vec<Arc<Call>>>>,
    /// Calls that must not act.
    barred: Mutex<Vec<CallId>>,
}

impl Run {
    fn new(
        script: Script,
        story: impl std::fmt::Display,
        plan: impl Fn(u64, &'static str) -> Fault + Send + Sync + 'static,
    ) -> Run {
        let (met, told) = (Arc::<Mutex<BTreeSet<_>>>::default(), Arc::<Mutex<Vec<Arc<Call>>>>::default());
        let (meets, tells) = (Arc::clone(&met), Arc::clone(&told));
        let memory = Arc::new(MemoryStore::with_clock(Arc::new(RuntimeClock::start())));
        let faulty = Arc::new(FaultStore::new(memory.clone(), move |number, site| {
            meets.lock().unwrap().insert(site);
            plan(number, site)
        }));
        let builder = Gate::builder().store(faulty.clone()).policy(POLICY.clone()).signer(Arc::clone(&SIGNER));
        let builder = builder.decided_elsewhere().without_sweeper().after_tool(move |call| {
            tells.lock().unwrap().push(call);
            async {}
        });
        let (story, gate) = (format!("{script:?}, {story}"), builder.build().unwrap());
        let (effects, barred) = (Effects::default(), Mutex::default());
        Run { script, story, memory, faulty, gate, effects, met, told, barred }
    }

    /// A tool that acts: `deploy` asks once while it runs, `slow` takes longer than a lease goes unrenewed.
    fn tool(&self, name: &str) -> FnTool {
        let (effects, memory) = (Arc::clone(&self.effects), Arc::clone(&self.memory));
        let (asks, slow) = (name == "deploy", name == "slow");
        tool(Definition::new(name, ""), move |running| {
            let (effects, memory) = (Arc::clone(&effects), Arc::clone(&memory));
            async move {
                if asks {
                    running.confirm("go on?", &1).await?;
                }
                if slow {
                    tokio::time::sleep(limits::LEASE / 2).await;
                }
                let call = memory.call(running.id()).await.unwrap().unwrap();
                let in_time = memory.now().await.unwrap() < call.lease.as_ref().unwrap().until;
                let acted = if in_time { running.arguments().as_str() } else { "after its lease" };
                effects.lock().unwrap().push((running.id(), acted.to_owned()));
                Ok(Json::string("done"))
            }
        })
    }

    /// An approver with a connection of their own, who says yes to whatever waits and tries again after an error.
    async fn approver(gate: Gate, memory: Arc<MemoryStore>) {
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        loop {
            looks.tick().await;
            let filter = CallFilter { holding: true, ..CallFilter::default() };
            let waiting = memory.calls(filter).await.unwrap();
            for call in waiting.iter().filter(|call| call.facts.path.session.as_deref() != Some(PAGED)) {
                let Some(hold) = call.open_hold() else { continue };
                let decision = Decision::new(Who::person("ann"), "test", hold.digest, Answer::approve());
                let _ = gate.decide(hold.id, decision).await;
            }
        }
    }

    /// Decides a call's hold as that approver, if the call was submitted and waits.
    async fn decide(&self, call: Option<&Arc<Call>>, answer: Answer) -> Option<Decided> {
        let hold = call?.open_hold()?;
        let decision = Decision::new(Who::person("ann"), "test", hold.digest, answer);
        self.gate.decide(hold.id, decision).await.ok()
    }

    /// Each error is read and the next thing is tried.
    async fn play(&self) {
        match self.script {
            Script::Calls => self.calls().await,
            Script::Grants => self.grants().await,
            Script::Operation => self.operation().await,
            Script::Pager => self.pager().await,
        }
    }

    /// What an agent does in a day.
    async fn calls(&self) {
        let deploy = self.tool("deploy");
        let read = self.tool("read");
        let _ = self.gate.call(&read, Proposal::new("read", r#"{"n":1}"#).session("s1")).await;
        let _ = self.gate.call(&deploy, Proposal::new("deploy", r#"{"n":2}"#).session("s1")).await;
        if let Ok(call) = self.gate.submit(&deploy, Proposal::new("deploy", r#"{"n":3}"#).session("s1")).await {
            let _ = self.gate.cancel(call.id).await;
            let _ = self.gate.resume(&deploy, call.id).await;
        }
        let keyed = || Proposal::new("deploy", r#"{"n":4}"#).session("s1").key("k");
        if self.gate.call(&deploy, keyed()).await.is_err() {
            let _ = self.gate.call(&deploy, keyed()).await;
        }
        let _ = self.gate.sweep().await;
    }

    /// An approval is remembered and releases the twin that waits; another one is edited.
    async fn grants(&self) {
        let write = self.tool("write");
        let submit = async |n: u32| {
            let proposal = Proposal::new("write", format!(r#"{{"n":{n}}}"#)).session("s1");
            self.gate.submit(&write, proposal).await.ok()
        };
        let (twin, first) = (submit(1).await, submit(1).await);
        let decided = self.decide(first.as_ref(), remember(Remember::session())).await;
        for call in [first, twin].into_iter().flatten() {
            let _ = self.gate.resume(&write, call.id).await;
        }
        if let Some(grant) = decided.and_then(|decided| decided.grant) {
            self.revoked(&write, grant).await;
        }
        let edited = submit(2).await;
        let _ = self.decide(edited.as_ref(), edit(r#"{"n":3}"#)).await;
        if let Some(call) = edited {
            let _ = self.gate.resume(&write, call.id).await;
        }
    }

    /// A grant is revoked between allow and claim; under another one the same call runs again.
    async fn revoked(&self, write: &FnTool, grant: Grant) {
        let proposal = || Proposal::new("write", r#"{"n":1}"#).session("s1");
        let Ok(allowed) = self.gate.submit(write, proposal()).await else { return };
        let gone = self.gate.revoke(grant.id, Who::person("olga")).await.is_ok();
        if gone && allowed.grant == Some(grant.id) {
            self.barred.lock().unwrap().push(allowed.id);
        }
        let _ = self.gate.resume(write, allowed.id).await;
        let another = Grant { id: GrantId::new(), ..grant };
        let _ = self.gate.store().run(Op::Grant(Box::new(another))).await;
        let _ = self.gate.call(write, proposal()).await;
    }

    async fn operation(&self) {
        let (read, slow) = (self.tool("read"), self.tool("slow"));
        let proposal = |n: u32| Proposal::new("read", format!(r#"{{"n":{n}}}"#)).session("s1");
        self.halted(&read, proposal(1)).await;
        let _ = self.gate.call(&slow, Proposal::new("slow", "{}").session("s1")).await;
        self.doubted(&read, proposal(2)).await;
        self.ruled().await;
        let _ = self.gate.call(&read, proposal(3)).await;
        let _ = self.gate.checkpoint().await;
    }

    /// Nothing is claimed between a halt and its end; what was allowed goes on afterwards.
    async fn halted(&self, read: &FnTool, proposal: Proposal) {
        let Ok(call) = self.gate.submit(read, proposal).await else { return };
        let halted = self.gate.halt(None, "olga", None).await.is_ok();
        let claimed = self.gate.claim(call.id, Some(read.definition().digest())).await;
        assert!(!(halted && matches!(claimed, Ok(Claimed::Permit(_)))), "{}: claimed while halted", self.story);
        drop(claimed);
        if self.gate.lift(None, "olga").await.is_err() {
            let _ = self.gate.lift(None, "olga").await;
        }
        let _ = self.gate.resume(read, call.id).await;
    }

    /// An executor vanishes with its permit, and a person finds out that it did nothing.
    async fn doubted(&self, read: &FnTool, proposal: Proposal) {
        let Ok(Claimed::Permit(permit)) = self.gate.submit_and_claim(read, proposal).await else { return };
        let id = permit.call().id;
        drop(permit);
        tokio::time::advance(limits::LEASE).await;
        let _ = self.gate.sweep().await;
        let (reason, by) = ("it never began".to_owned(), "olga".into());
        let resolution = Resolution { r#as: ResolvedAs::NotApplied, reason, by, at: Time::default() };
        let _ = self.gate.resolve(id, resolution).await;
    }

    /// The policy is loaded here, and then changes in the store under the gate's feet.
    async fn ruled(&self) {
        let _ = self.gate.set_policy(POLICY.clone()).await;
        let (version, source) = shared(&POLICY);
        let _ = self.gate.store().run(Op::OfferPolicy { version, source, by: "olga".into() }).await;
        let (version, source) = shared(&NEXT);
        let _ = self.gate.store().run(Op::SetPolicy { version, source, by: "olga".into() }).await;
    }

    /// A gate asks an approver that fails, and nobody else.
    async fn pager(&self) {
        let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let builder = Gate::builder().store(self.faulty.clone()).policy(POLICY.clone()).without_sweeper();
        let builder = builder.approver(move |_| {
            let _ = asks.send(());
            async { Err::<Answer, _>("the pager is down".to_owned()) }
        });
        let (pager, write) = (builder.build().unwrap(), self.tool("write"));
        let _ = turned(pager.call(&write, Proposal::new("write", "{}").session(PAGED))).await;
        // The approver's thread keeps the gate, too. While it is there, the clock stands for whoever comes next.
        drop(pager);
        turned(async { while asked.recv().await.is_some() {} }).await;
    }

    /// Plays the script against the clock of the runtime: it ends, whatever the store does.
    async fn to_the_end(&self) {
        let approver = tokio::spawn(Run::approver(self.gate.clone(), self.memory.clone()));
        let hours = Duration::from_secs(6 * 3600);
        assert!(tokio::time::timeout(hours, self.play()).await.is_ok(), "{}: it hangs", self.story);
        approver.abort();
        let clean = Gate::builder().store(self.memory.clone()).decided_elsewhere().without_sweeper().build().unwrap();
        tokio::time::advance(hours).await;
        clean.sweep().await.unwrap();
        self.check().await;
    }

    async fn check(&self) {
        let story = &self.story;
        let (effects, barred) = (self.effects.lock().unwrap().clone(), self.barred.lock().unwrap().clone());
        for (index, (id, arguments)) in effects.iter().enumerate() {
            let call = self.memory.call(*id).await.unwrap().expect("what acted is on record");
            assert_eq!(call.facts.arguments.as_str(), arguments, "{story}: exactly the recorded bytes");
            assert!(effects[..index].iter().all(|(earlier, _)| earlier != id), "{story}: {id} acted twice");
            assert!(!barred.contains(id), "{story}: {id} acted after its grant was revoked");
            assert_ne!(call.facts.path.session.as_deref(), Some(PAGED), "{story}: {id} acted and nobody said yes");
            self.explained(&call).await;
        }
        for call in self.memory.calls(CallFilter { limit: Some(1_000), ..CallFilter::default() }).await.unwrap() {
            let ended = call.state.is_final() || call.state == CallState::InDoubt;
            assert!(ended, "{story}: {} is {} for ever", call.id, call.state);
        }
        self.told_once().await;
        let verified = verify_store(&*self.memory, &VerifyOptions::default()).await;
        assert!(verified.is_ok(), "{story}: {verified:?}");
    }

    /// The log holds an allow, an approval or a release, and then a claim, for what acted.
    async fn explained(&self, call: &Call) {
        let filter = EventFilter { call: Some(call.id), limit: Some(1_000), ..EventFilter::default() };
        let events = self.memory.events(Cursor::default(), filter).await.unwrap();
        let said = events.iter().position(is_yes);
        let claimed = events.iter().position(|event| event.name == EventName::CallClaimed);
        let names: Vec<EventName> = events.iter().map(|event| event.name).collect();
        assert!(
            said.is_some() && said < claimed,
            "{}: acted without a yes and a claim on record: {names:?}",
            self.story
        );
    }

    /// The after-hook hears of each end once at most, and of what is on record.
    async fn told_once(&self) {
        let told = self.told.lock().unwrap().clone();
        for (index, call) in told.iter().enumerate() {
            let now = self.memory.call(call.id).await.unwrap().expect("what was told is on record");
            let same = call.state.is_final() && now.state == call.state;
            // A doubt may have been settled since.
            assert!(same || call.state == CallState::InDoubt, "{}: told {call:?}, it is {now:?}", self.story);
            let twice = told[..index].iter().any(|earlier| earlier.id == call.id);
            assert!(!twice, "{}: told twice of {}", self.story, call.id);
        }
    }
}

/// A policy as nodes tell one another of it: its version and its text.
fn shared(policy: &Policy) -> (Arc<str>, Arc<str>) {
    (Arc::clone(policy.version()), policy.source().unwrap().into())
}

fn is_yes(event: &Event) -> bool {
    let approved = || event.name == EventName::HoldDecided && event.value()["answer"] == "approve";
    matches!(event.name, EventName::CallAllowed | EventName::HoldReleased) || approved()
}

/// Does something while the clock is turned by hand.
///
/// An approver is asked on a thread of its own, and as long as one is, the paused clock does not move by itself.
async fn turned<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::advance(Duration::from_millis(50)) => {}
        }
    }
}

/// I6: every call site of the store × every way to fail.
#[tokio::test(start_paused = true)]
async fn a_fault_at_any_store_call_runs_nothing_unrecorded() {
    let faults = [
        ("fails", Fault::Fail),
        ("hangs", Fault::Hang),
        ("loses its answer", Fault::Lose),
        ("is mute", Fault::Mute),
        ("is late", Fault::Late(LATE)),
    ];
    let mut met = BTreeSet::new();
    for script in Script::ALL {
        let healthy = Run::new(script, "no fault", |_, _| Fault::None);
        healthy.to_the_end().await;
        let acted = healthy.effects.lock().unwrap().len();
        assert_eq!(acted, script.acts(), "{script:?}: without faults the script does its work");
        let places = script.places(healthy.faulty.count());
        for (what, fault) in faults {
            for &place in &places {
                let run = Run::new(script, format!("the store {what} at {place:?}"), move |number, site| {
                    if place.is(number, site) { fault } else { Fault::None }
                });
                run.to_the_end().await;
                met.append(&mut run.met.lock().unwrap());
            }
        }
        println!("{script:?}: {} places in the store x 5 faults", places.len());
    }
    let unmet: Vec<&str> = OP_NAMES.into_iter().filter(|name| !met.contains(name)).collect();
    assert!(unmet.is_empty(), "no script does {unmet:?}, so no fault can come in its way");
}

/// I6: a store that is late with everything lets nothing run after its lease, and nothing that is not on record.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_always_late_runs_nothing_after_its_lease() {
    for script in Script::ALL {
        for seconds in [1, 9, 11, 19, 21, 29] {
            let late = move |_: u64, _: &'static str| Fault::Late(Duration::from_secs(seconds));
            Run::new(script, format!("every answer takes {seconds} seconds"), late).to_the_end().await;
        }
    }
}

/// I6: a store that is down from some moment on lets nothing run from then on.
#[tokio::test(start_paused = true)]
async fn a_store_that_stays_down_lets_nothing_run() {
    for script in Script::ALL {
        for from in 1..50 {
            let down = move |number: u64, _: &'static str| if number >= from { Fault::Fail } else { Fault::None };
            Run::new(script, format!("down from call {from} on"), down).to_the_end().await;
        }
    }
}
