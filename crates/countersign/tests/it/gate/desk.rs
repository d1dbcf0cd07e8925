//! A gate on a memory store, a tool that writes down what it gets, and short words for what tests do with them.

use std::sync::{Arc, Mutex};

use countersign::event::{Cursor, Event};
use countersign::gate::{BuildError, Decided, GateBuilder};
use countersign::grant::Remember;
use countersign::memory::MemoryStore;
use countersign::store::{CallFilter, EventFilter};
use countersign::time::Clock;
use countersign::tool::{FnTool, tool};
use countersign::{
    Answer, Call, CallId, Decision, Definition, Gate, GateError, Json, Policy, Proposal, RefusalKind, Time, Who,
};

/// The store's clock in tests: the runtime's own, so that paused time is paused here too.
pub(crate) struct RuntimeClock(tokio::time::Instant);

impl RuntimeClock {
    pub(crate) fn start() -> RuntimeClock {
        RuntimeClock(tokio::time::Instant::now())
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Time {
        Time(1_800_000_000_000_000).after(self.0.elapsed())
    }
}

/// What the tool was given, run by run.
pub(crate) type Ran = Arc<Mutex<Vec<String>>>;

/// A tool that writes down what it gets and answers `done`.
pub(crate) fn recorder(name: &str, ran: &Ran) -> FnTool {
    let ran = Arc::clone(ran);
    tool(Definition::new(name, "Writes down what it gets."), move |running| {
        let ran = Arc::clone(&ran);
        async move {
            ran.lock().unwrap().push(running.arguments().to_string());
            Ok(Json::string("done"))
        }
    })
}

pub(crate) struct Desk {
    pub(crate) gate: Gate,
    pub(crate) ran: Ran,
    pub(crate) tool: Arc<FnTool>,
}

pub(crate) fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with_clock(Arc::new(RuntimeClock::start())))
}

pub(crate) fn json(text: &str) -> Json {
    Json::arguments(text, &countersign::Limits::default()).unwrap()
}

pub(crate) fn policy(yaml: &str) -> Policy {
    Policy::from_yaml(yaml).unwrap()
}

impl Desk {
    /// A gate whose holds are decided by the test.
    pub(crate) fn new() -> Desk {
        Desk::asking(Policy::ask_all())
    }

    pub(crate) fn under(yaml: &str) -> Desk {
        Desk::asking(policy(yaml))
    }

    fn asking(policy: Policy) -> Desk {
        Desk::try_build(|builder| builder.policy(policy).decided_elsewhere()).unwrap()
    }

    pub(crate) fn build(change: impl FnOnce(GateBuilder) -> GateBuilder) -> Desk {
        Desk::try_build(change).unwrap()
    }

    pub(crate) fn try_build(change: impl FnOnce(GateBuilder) -> GateBuilder) -> Result<Desk, BuildError> {
        let ran = Ran::default();
        let gate = change(Gate::builder().store(memory()).without_sweeper()).build()?;
        Ok(Desk { gate, tool: Arc::new(recorder("deploy", &ran)), ran })
    }

    /// Puts another tool on the desk.
    pub(crate) fn with_tool(mut self, tool: FnTool) -> Desk {
        self.tool = Arc::new(tool);
        self
    }

    pub(crate) fn proposal(arguments: &str) -> Proposal {
        Proposal::new("deploy", arguments).session("s1")
    }

    pub(crate) async fn submit(&self, arguments: &str) -> Arc<Call> {
        self.propose(Desk::proposal(arguments)).await
    }

    pub(crate) async fn propose(&self, proposal: Proposal) -> Arc<Call> {
        self.gate.submit(self.tool.as_ref(), proposal).await.unwrap()
    }

    /// Submits and takes it the whole way.
    pub(crate) async fn call(&self, arguments: &str) -> Arc<Call> {
        self.gate.call(self.tool.as_ref(), Desk::proposal(arguments)).await.unwrap()
    }

    pub(crate) async fn resume(&self, call: &Call) -> Arc<Call> {
        self.gate.resume(self.tool.as_ref(), call.id).await.unwrap()
    }

    pub(crate) async fn now(&self, call: &Call) -> Arc<Call> {
        self.gate.get(call.id).await.unwrap()
    }

    /// Decides the hold that is open, for the digest it shows.
    pub(crate) async fn decide(&self, call: &Call, by: Who, answer: Answer) -> Result<Decided, GateError> {
        let call = self.now(call).await;
        let hold = call.open_hold().or(call.holds.last()).expect("a hold");
        self.gate.decide(hold.id, Decision::new(by, "test", hold.digest, answer)).await
    }

    pub(crate) async fn ann(&self, call: &Call, answer: Answer) -> Result<Decided, GateError> {
        self.decide(call, Who::person("ann"), answer).await
    }

    pub(crate) async fn approve(&self, call: &Call) -> Arc<Call> {
        self.ann(call, Answer::approve()).await.unwrap().call
    }

    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    pub(crate) async fn log(&self) -> Vec<Event> {
        let filter = EventFilter { limit: Some(1_000), ..EventFilter::default() };
        self.gate.store().events(Cursor::default(), filter).await.unwrap()
    }

    /// The names of all events, in order.
    pub(crate) async fn events(&self) -> Vec<&'static str> {
        self.log().await.iter().map(|event| event.name.as_str()).collect()
    }

    pub(crate) async fn count(&self, name: &str) -> usize {
        self.events().await.iter().filter(|found| **found == name).count()
    }

    pub(crate) async fn waiting(&self) -> Vec<CallId> {
        let filter = CallFilter { holding: true, ..CallFilter::default() };
        self.gate.store().calls(filter).await.unwrap().iter().map(|call| call.id).collect()
    }
}

/// The kind of a call's refusal.
pub(crate) fn kind(call: &Call) -> Option<RefusalKind> {
    call.refusal.as_ref().map(|refusal| refusal.kind)
}

/// An approval that is remembered.
pub(crate) fn remember(remember: Remember) -> Answer {
    Answer::Approve { arguments: None, payload: None, remember: Some(remember) }
}

/// An approval of other arguments.
pub(crate) fn edit(arguments: &str) -> Answer {
    Answer::Approve { arguments: Some(json(arguments)), payload: None, remember: None }
}
