//! I6, I7: every call of the store fails, hangs, loses its answer or gives it late once; nothing runs that is not on
//! record or whose lease is over, nothing hangs, and once the fault is over everything comes to an end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::event::{Cursor, EventName};
use countersign::memory::MemoryStore;
use countersign::store::{CallFilter, EventFilter, Store};
use countersign::testing::{Fault, FaultStore};
use countersign::tool::tool;
use countersign::{Answer, Call, CallState, Decision, Definition, Gate, Json, Policy, Proposal, Who, limits};

use crate::gate::desk::RuntimeClock;

/// What the tool did: which call, with which bytes.
type Effects = Arc<Mutex<Vec<(countersign::CallId, String)>>>;

const POLICY: &str = "
otherwise: ask
rules:
  - { id: reads, allow: read }
";

/// Almost as long as the store is waited for, and as a lease lasts.
const LATE: Duration = limits::STORE_ANSWERS_WITHIN.saturating_sub(Duration::from_millis(1));

struct Run {
    memory: Arc<MemoryStore>,
    faulty: Arc<FaultStore>,
    gate: Gate,
    effects: Effects,
}

impl Run {
    fn new(plan: impl Fn(u64, &'static str) -> Fault + Send + Sync + 'static) -> Run {
        let memory = Arc::new(MemoryStore::with_clock(Arc::new(RuntimeClock::start())));
        let faulty = Arc::new(FaultStore::new(memory.clone(), plan));
        let builder = Gate::builder().store(faulty.clone()).policy(Policy::from_yaml(POLICY).unwrap());
        let gate = builder.decided_elsewhere().without_sweeper().build().unwrap();
        Run { memory, faulty, gate, effects: Effects::default() }
    }

    /// A tool that asks once while it runs, and then acts.
    fn tool(&self, name: &str) -> countersign::tool::FnTool {
        let (effects, memory) = (Arc::clone(&self.effects), Arc::clone(&self.memory));
        let asks = name == "deploy";
        tool(Definition::new(name, ""), move |running| {
            let (effects, memory) = (Arc::clone(&effects), Arc::clone(&memory));
            async move {
                if asks {
                    running.confirm("go on?", &1).await?;
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
            for call in memory.calls(filter).await.unwrap() {
                let Some(hold) = call.open_hold() else { continue };
                let decision = Decision::new(Who::person("ann"), "test", hold.digest, Answer::approve());
                let _ = gate.decide(hold.id, decision).await;
            }
        }
    }

    /// What an agent does in a day: each error is read and the next thing is tried.
    async fn script(&self) {
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

    /// Runs the script against the clock of the runtime: it ends, whatever the store does.
    async fn to_the_end(&self, story: &str) {
        let approver = tokio::spawn(Run::approver(self.gate.clone(), self.memory.clone()));
        let hours = Duration::from_secs(6 * 3600);
        assert!(tokio::time::timeout(hours, self.script()).await.is_ok(), "{story}: it hangs");
        approver.abort();
        let clean = Gate::builder().store(self.memory.clone()).decided_elsewhere().without_sweeper().build().unwrap();
        tokio::time::advance(hours).await;
        clean.sweep().await.unwrap();
    }

    async fn check(&self, story: &str) {
        let effects = self.effects.lock().unwrap().clone();
        for (index, (id, arguments)) in effects.iter().enumerate() {
            let call = self.memory.call(*id).await.unwrap().expect("what acted is on record");
            assert_eq!(call.facts.arguments.as_str(), arguments, "{story}: exactly the recorded bytes");
            assert!(effects[..index].iter().all(|(earlier, _)| earlier != id), "{story}: {id} acted twice");
            self.explained(&call, story).await;
        }
        for call in self.memory.calls(CallFilter { limit: Some(1_000), ..CallFilter::default() }).await.unwrap() {
            let ended = call.state.is_final() || call.state == CallState::InDoubt;
            assert!(ended, "{story}: {} is {} for ever", call.id, call.state);
        }
    }

    /// The log holds an allow or an approval, and a claim, for what acted.
    async fn explained(&self, call: &Call, story: &str) {
        let filter = EventFilter { call: Some(call.id), limit: Some(1_000), ..EventFilter::default() };
        let names: Vec<EventName> =
            self.memory.events(Cursor::default(), filter).await.unwrap().iter().map(|event| event.name).collect();
        let yes = [EventName::CallAllowed, EventName::HoldDecided];
        let said = names.iter().position(|name| yes.contains(name));
        let claimed = names.iter().position(|name| *name == EventName::CallClaimed);
        assert!(said.is_some() && said < claimed, "{story}: acted without a yes and a claim on record: {names:?}");
    }
}

/// I6: every call site of the store × every way to fail.
#[tokio::test(start_paused = true)]
async fn a_fault_at_any_store_call_runs_nothing_unrecorded() {
    let healthy = Run::new(|_, _| Fault::None);
    healthy.to_the_end("no fault").await;
    healthy.check("no fault").await;
    assert_eq!(healthy.effects.lock().unwrap().len(), 3, "without faults the script does its work");
    let calls = healthy.faulty.count();
    let sites = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let faults = [
        ("fails", Fault::Fail),
        ("hangs", Fault::Hang),
        ("loses its answer", Fault::Lose),
        ("is mute", Fault::Mute),
        ("is late", Fault::Late(LATE)),
    ];
    for (what, fault) in faults {
        // A fault makes the script take other ways, so some more than the healthy run had.
        for number in 1..=calls + 10 {
            let seen = Arc::clone(&sites);
            let run = Run::new(move |at, site| {
                seen.lock().unwrap().insert(site);
                if at == number { fault } else { Fault::None }
            });
            let story = format!("call {number} of the store {what}");
            run.to_the_end(&story).await;
            run.check(&story).await;
        }
    }
    println!("{} calls of the store x 5 faults at {:?}", calls + 10, sites.lock().unwrap());
}

/// I6: a store that is late with everything lets nothing run after its lease, and nothing that is not on record.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_always_late_runs_nothing_after_its_lease() {
    for seconds in [1, 9, 11, 19, 21, 29] {
        let run = Run::new(move |_, _| Fault::Late(Duration::from_secs(seconds)));
        let story = format!("every answer takes {seconds} seconds");
        run.to_the_end(&story).await;
        run.check(&story).await;
    }
}

/// I6: a store that is down from some moment on lets nothing run from then on.
#[tokio::test(start_paused = true)]
async fn a_store_that_stays_down_lets_nothing_run() {
    for from in 1..40 {
        let run = Run::new(move |at, _| if at >= from { Fault::Fail } else { Fault::None });
        let story = format!("down from call {from} on");
        run.to_the_end(&story).await;
        run.check(&story).await;
    }
}
