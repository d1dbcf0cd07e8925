//! A gate, a model that says what it was told to say, tools that write down what they get, and short words for both.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign::gate::GateBuilder;
use countersign::memory::MemoryStore;
use countersign::store::CallFilter;
use countersign::time::Clock;
use countersign::tool::FnTool;
use countersign::{Answer, Definition, Gate, Hold, Json, Policy, Store, Time, Who};
use countersign_agent::model::{self, Given, Message, Model, ModelError, Piece, Prompt, Stop, Usage, Wanted};
use countersign_agent::{Agent, AgentBuilder};
use countersign_testkit::stores::Kind;

/// What a scripted model does in one turn.
#[derive(Clone)]
pub(crate) enum Turn {
    Say(&'static str),
    Call(Vec<(&'static str, &'static str)>),
    /// Gives a piece of an answer and is cut.
    Cut,
    /// Reaches the bound on tokens.
    Short(&'static str),
    /// Wants a call, and then its provider refuses to go on.
    Refuse(&'static str),
}

pub(crate) fn says(text: &'static str) -> Turn {
    Turn::Say(text)
}

pub(crate) fn calls<const N: usize>(calls: [(&'static str, &'static str); N]) -> Turn {
    Turn::Call(calls.to_vec())
}

/// Says what it was told to, in order, and remembers what it was asked. With nothing left to say it fails.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<(VecDeque<Turn>, Vec<Prompt>)>>);

impl Script {
    pub(crate) fn new<const N: usize>(turns: [Turn; N]) -> Script {
        Script(Arc::new(Mutex::new((turns.into(), Vec::new()))))
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        self.0.lock().unwrap().1.clone()
    }

    pub(crate) fn asked(&self) -> usize {
        self.prompts().len()
    }

    /// The results in the last prompt.
    pub(crate) fn results(&self) -> Vec<Given> {
        match self.prompts().last().and_then(|prompt| prompt.messages.last().cloned()) {
            Some(Message::Results { results }) => results,
            _ => Vec::new(),
        }
    }

    pub(crate) fn result(&self) -> Given {
        let mut results = self.results();
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }
}

#[async_trait]
impl Model for Script {
    fn name(&self) -> Arc<str> {
        "script".into()
    }

    async fn answer(&self, prompt: Prompt) -> Result<model::Answer, ModelError> {
        check_whole(&prompt);
        let turn = {
            let mut script = self.0.lock().unwrap();
            script.1.push(prompt);
            script.0.pop_front().ok_or_else(|| ModelError::Settings("the script is over".into()))?
        };
        let usage = Piece::Usage(Usage { input: 10, output: 5, micro_dollars: 100, ..Usage::default() });
        let pieces = match turn {
            Turn::Say(text) => vec![Piece::Text(text.into()), usage, Piece::End(Stop::Done)],
            Turn::Call(calls) => {
                let wanted = calls.into_iter().map(|(name, arguments)| {
                    Piece::Call(Wanted { label: "same-label".into(), name: name.into(), arguments: arguments.into() })
                });
                wanted.chain([usage, Piece::End(Stop::Calls)]).collect()
            }
            Turn::Short(text) => vec![Piece::Text(text.into()), usage, Piece::End(Stop::Length)],
            Turn::Cut => vec![Piece::Text("half an".into())],
            Turn::Refuse(name) => {
                let wanted = Wanted { label: "same-label".into(), name: name.into(), arguments: "{}".into() };
                vec![Piece::Text("I would".into()), Piece::Call(wanted), usage, Piece::End(Stop::Refused)]
            }
        };
        Ok(Box::pin(futures::stream::iter(pieces.into_iter().map(Ok))))
    }
}

/// B111: whenever a model is asked, every call has exactly one result, right after it.
fn check_whole(prompt: &Prompt) {
    check_messages(&prompt.messages);
}

/// B111: every call has exactly one result, right after it.
pub(crate) fn check_messages(messages: &[Message]) {
    let mut messages = messages.iter();
    while let Some(message) = messages.next() {
        match message {
            Message::Model(said) if !said.calls.is_empty() => match messages.next() {
                Some(Message::Results { results }) => assert_eq!(results.len(), said.calls.len()),
                other => panic!("calls without results: {other:?}"),
            },
            Message::Results { .. } => panic!("results without calls"),
            Message::Model(_) | Message::User { .. } => {}
        }
    }
}

/// The store's clock in tests: the runtime's own, so that paused time is paused here too.
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Time {
        Time(1_800_000_000_000_000).after(self.0.elapsed())
    }
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_clock(Arc::new(RuntimeClock(tokio::time::Instant::now()))))
}

/// What tools were given, run by run.
pub(crate) type Ran = Arc<Mutex<Vec<String>>>;

/// A tool that writes down its name and answers `NAME done`.
pub(crate) fn recorder(name: &'static str, ran: &Ran) -> FnTool {
    let ran = Arc::clone(ran);
    countersign::tool::tool(Definition::new(name, "Writes down that it ran."), move |running| {
        let ran = Arc::clone(&ran);
        async move {
            ran.lock().unwrap().push(format!("{name} {}", running.arguments()));
            Ok(Json::string(&format!("{name} done")))
        }
    })
}

/// A gate whose holds the test decides, and what ran behind it.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) gate: Gate,
    pub(crate) ran: Ran,
}

impl Bed {
    /// Asks about everything unless the policy says otherwise.
    pub(crate) fn new(policy: &str) -> Bed {
        Bed::on(memory(), policy)
    }

    pub(crate) fn on(store: Arc<dyn Store>, policy: &str) -> Bed {
        Bed::build(store, policy, GateBuilder::decided_elsewhere)
    }

    pub(crate) fn build(store: Arc<dyn Store>, policy: &str, change: impl FnOnce(GateBuilder) -> GateBuilder) -> Bed {
        let policy = Policy::from_yaml(policy).unwrap();
        let gate = change(Gate::builder().store(store).policy(policy).without_sweeper()).build().unwrap();
        Bed { gate, ran: Ran::default() }
    }

    /// An agent with the tools `read`, `send` and `drop`.
    pub(crate) fn agent(&self, script: &Script) -> Agent {
        self.agent_with(script, |builder| builder)
    }

    pub(crate) fn agent_with(&self, script: &Script, change: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
        self.named("boss", script, change)
    }

    pub(crate) fn named(
        &self,
        name: &str,
        script: &Script,
        change: impl FnOnce(AgentBuilder) -> AgentBuilder,
    ) -> Agent {
        let builder = Agent::builder(name, script.clone()).gate(self.gate.clone());
        let builder = builder.tool(recorder("read", &self.ran)).tool(recorder("send", &self.ran));
        change(builder.tool(recorder("drop", &self.ran))).build().unwrap()
    }

    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    /// All holds that are open now, oldest first.
    pub(crate) async fn holds(&self) -> Vec<Hold> {
        let filter = CallFilter { holding: true, ..CallFilter::default() };
        let calls = self.gate.store().calls(filter).await.unwrap();
        calls.iter().filter_map(|call| Hold::of(call, call.open_hold()?.id)).collect()
    }

    /// Waits until so many holds are open.
    pub(crate) async fn holds_open(&self, count: usize) -> Vec<Hold> {
        loop {
            let listener = self.gate.store().bell().listen_any();
            let holds = self.holds().await;
            if holds.len() == count {
                return holds;
            }
            listener.await;
        }
    }

    /// Waits for the one hold that opens.
    pub(crate) async fn hold(&self) -> Hold {
        self.holds_open(1).await.remove(0)
    }

    pub(crate) async fn answer(&self, hold: &Hold, answer: Answer) {
        let decision = hold.decision(Who::person("ann"), "test", answer);
        self.gate.decide(hold.id, decision).await.unwrap();
    }

    pub(crate) async fn approve(&self, hold: &Hold) {
        self.answer(hold, Answer::approve()).await;
    }

    /// The names of all events of calls and holds so far.
    pub(crate) async fn log(&self) -> Vec<&'static str> {
        let filter = countersign::store::EventFilter { limit: Some(1_000), ..Default::default() };
        let events = self.gate.store().events(Default::default(), filter).await.unwrap();
        events.iter().map(|event| event.name.as_str()).collect()
    }
}

/// Every kind of store, for what must hold on each.
pub(crate) const EVERY: [Kind; 3] = [Kind::Memory, Kind::Sqlite, Kind::Postgres];

/// Everything is asked about.
pub(crate) const ASK: &str = "otherwise: ask";
/// `read` is free, `drop` is denied, everything else is asked about.
pub(crate) const MIXED: &str = "
otherwise: ask
rules:
  - { id: reads, allow: read }
  - { id: no-drops, deny: drop, reason: it is forever }
";
/// Nothing is asked about.
pub(crate) const ALLOW: &str = "otherwise: allow\nrules: [{ id: agents, allow: 'agent:*' }]";
