//! The calls of one turn: proposed in order, brought to their ends together, told to the model in order.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::call::Path;
use countersign::limits::{AGENT_DEPTH, NAME_BYTES, PAGE_ROWS};
use countersign::store::CallFilter;
use countersign::verdict::OnExpired;
use countersign::{Call, CallId, CallState, Claimed, Gate, Proposal, Refusal, RefusalKind, ToolId};
use tokio::task::JoinSet;

use super::call::{end_without_tool, has_ended, run_by_client, run_to_end, verified, words};
use super::delegate::{Child, Parent};
use super::{Run, Thread};
use crate::agent::{Agent, Batch};
use crate::error::RunError;
use crate::event::{Place, RunEvent};
use crate::model::{Given, Wanted};
use crate::stillness::Stillness;
use crate::toolbox::{Kind, Lead, Listing, Slot};
use crate::transcript::{Entry, History, Spent, Started};

/// One turn's calls, and all that is needed to bring them to their ends.
pub(super) struct Turn {
    run: Arc<Run>,
    run_name: Arc<str>,
    place: Arc<Place>,
    agent: Agent,
    gate: Gate,
    listing: Arc<Listing>,
    path: Path,
    stillness: Arc<Stillness>,
    number: u32,
    wanted: Vec<Wanted>,
    /// Calls of this turn that a driver before us proposed, by key.
    earlier: HashMap<Arc<str>, Arc<Call>>,
}

/// A call that was proposed.
struct Begun {
    call: Arc<Call>,
    slot: Option<Arc<Slot>>,
}

/// How a call came to its end.
struct Ending {
    given: Given,
    call: CallId,
    then: Then,
    spent: Spent,
    stops: Option<RunError>,
}

/// What else follows from the end of a call.
enum Then {
    Nothing,
    /// A child worked on it: what came of that is not in the call.
    Answered,
    HandOver(Arc<str>),
    Background(Started),
}

impl Thread {
    /// Brings the calls of the last turn to their ends and writes down what came of them.
    pub(super) async fn end_calls(&mut self) -> Result<(), RunError> {
        let turn = Arc::new(Turn::of(self).await?);
        let endings = match self.agent.inner.batch {
            _ if turn.wanted.len() == 1 => turn.one_by_one().await?,
            Batch::Independent => together(&turn, turn.begin_all().await?).await?,
            Batch::Barrier => {
                let begun = turn.begin_all().await?;
                let begun = turn.until_all_holds_are_closed(begun).await?;
                together(&turn, begun).await?
            }
            Batch::Sequential => turn.one_by_one().await?,
        };
        drop(turn);
        self.conclude(endings).await
    }

    async fn conclude(&mut self, endings: Vec<Ending>) -> Result<(), RunError> {
        let (mut given, mut calls, mut started) = (Vec::with_capacity(endings.len()), Vec::new(), Vec::new());
        let (mut agent, mut spent, mut stops) = (None, Spent::default(), None);
        let mut all_in_calls = true;
        for ending in endings {
            given.push(ending.given);
            calls.push(ending.call);
            spent += ending.spent;
            stops = stops.or(ending.stops);
            all_in_calls &= matches!(ending.then, Then::Nothing);
            match ending.then {
                Then::Nothing | Then::Answered => {}
                Then::HandOver(to) => agent = Some(to),
                Then::Background(child) => started.push(child),
            }
        }
        let handed = agent.clone();
        let begun = started.clone();
        let results = Entry::Results { given, calls, agent, started, spent };
        // What the model reads of a call that ended is in the store with the call, and would be found there again.
        match all_in_calls && stops.is_none() {
            true => self.transcript.leave_for_next(results)?,
            false => self.transcript.append(results).await?,
        }
        self.resumed = false;
        if let Some(to) = handed {
            self.hand_over(&to)?;
            self.run.tell(|| RunEvent::HandedOver { place: Arc::clone(&self.place) });
        }
        for child in begun {
            self.drive_in_background(child)?;
        }
        stops.map_or(Ok(()), Err)
    }
}

impl Turn {
    pub(super) async fn of(thread: &Thread) -> Result<Turn, RunError> {
        let history = &thread.transcript.history;
        let mut turn = Turn {
            run: Arc::clone(&thread.run),
            run_name: Arc::clone(&thread.run_name),
            place: Arc::clone(&thread.place),
            agent: thread.agent.clone(),
            gate: thread.gate.clone(),
            listing: thread.agent.inner.tools.listing(&thread.gate),
            path: thread.path(),
            stillness: Arc::clone(&thread.stillness),
            number: history.turn(),
            wanted: history.said().map(|said| said.calls.clone()).unwrap_or_default(),
            earlier: HashMap::new(),
        };
        if thread.resumed {
            turn.earlier = open_calls(&thread.gate, &turn.path, history).await?;
        }
        Ok(turn)
    }

    /// The name of a call's place in its run: proposing it again is the same call.
    fn key(&self, index: usize) -> Arc<str> {
        format!("{}.{}.{index}", self.place.thread, self.number).into()
    }

    async fn begin_all(&self) -> Result<Vec<Begun>, RunError> {
        let mut begun = Vec::with_capacity(self.wanted.len());
        for (index, wanted) in self.wanted.iter().enumerate() {
            begun.push(self.begin(index, wanted).await?);
        }
        Ok(begun)
    }

    async fn one_by_one(&self) -> Result<Vec<Ending>, RunError> {
        let mut endings = Vec::with_capacity(self.wanted.len());
        for (index, wanted) in self.wanted.iter().enumerate() {
            let begun = self.begin_alone(index, wanted).await?;
            endings.push(self.end(wanted, begun).await?);
        }
        Ok(endings)
    }

    /// Proposes one call. Never waits for a person.
    async fn begin(&self, index: usize, wanted: &Wanted) -> Result<Begun, RunError> {
        let slot = self.listing.find(&wanted.name).cloned();
        let key = self.key(index);
        if let Some(call) = self.earlier.get(&key) {
            return Ok(Begun { call: Arc::clone(call), slot });
        }
        let refusal = slot.as_ref().and_then(|slot| self.refused_before_asking(index, slot));
        let proposal = self.proposal(wanted, slot.as_deref(), key);
        let call = match (&slot, refusal) {
            (Some(slot), None) => self.gate.submit(&*slot.tool, proposal).await?,
            (Some(slot), Some(refusal)) => self.gate.refuse(&*slot.tool, proposal, refusal).await?,
            (None, _) => self.gate.refuse_unknown(proposal).await?,
        };
        Ok(Begun { call, slot })
    }

    /// Proposes a call that no other waits for. Where it is allowed, its proposal is its claim, and it runs at once.
    async fn begin_alone(&self, index: usize, wanted: &Wanted) -> Result<Begun, RunError> {
        let key = self.key(index);
        let may_claim = |slot: &&Arc<Slot>| {
            let is_new = !self.earlier.contains_key(&key) && self.refused_before_asking(index, slot).is_none();
            is_new && !matches!(slot.kind, Kind::Client)
        };
        let Some(slot) = self.listing.find(&wanted.name).filter(may_claim) else {
            return self.begin(index, wanted).await;
        };
        let proposal = self.proposal(wanted, Some(slot), key);
        let _busy = self.stillness.begin().await;
        let call = match self.gate.submit_and_claim(&*slot.tool, proposal).await? {
            Claimed::Permit(permit) => self.gate.run(permit, &*slot.tool).await?,
            Claimed::Not(call) => call,
        };
        Ok(Begun { call, slot: Some(Arc::clone(slot)) })
    }

    /// A thread goes over to one agent at a time, agents nest only so deep, and a client's tool needs a client. Nobody is
    /// asked about more.
    fn refused_before_asking(&self, index: usize, slot: &Slot) -> Option<Refusal> {
        if matches!(slot.kind, Kind::Client) && !self.agent.inner.has_client {
            return Some(Refusal::new(RefusalKind::Error).because("a client runs this tool, and none is connected"));
        }
        let next = slot.kind.lead()?;
        let joins = !matches!(slot.kind, Kind::Handoff(_)) || !self.place.agents.contains(next.name());
        if joins && self.place.agents.len() >= AGENT_DEPTH {
            let text = format!("more than {AGENT_DEPTH} agents would work inside one another");
            return Some(Refusal::new(RefusalKind::Limit).because(text));
        }
        let handoff =
            |name: &str| matches!(self.listing.find(name), Some(slot) if matches!(slot.kind, Kind::Handoff(_)));
        let second =
            matches!(slot.kind, Kind::Handoff(_)) && self.wanted.iter().take(index).any(|wanted| handoff(&wanted.name));
        second.then(|| Refusal::new(RefusalKind::Superseded).because("one turn hands over to one agent only"))
    }

    fn proposal(&self, wanted: &Wanted, slot: Option<&Slot>, key: Arc<str>) -> Proposal {
        // Some models write nothing at all for "no arguments".
        let arguments = if wanted.arguments.trim().is_empty() { "{}" } else { &wanted.arguments };
        Proposal {
            tool: match slot {
                Some(slot) => slot.tool.definition().tool.clone(),
                None => ToolId::local(speakable(&wanted.name)),
            },
            arguments: arguments.to_owned(),
            path: self.path.clone(),
            key: Some(key),
            label: Some(Arc::clone(&wanted.label)).filter(|label| label.len() <= NAME_BYTES),
            hint: None,
            payload: None,
        }
    }

    /// Brings one call to its end, and whatever it began with it.
    async fn end(&self, wanted: &Wanted, begun: Begun) -> Result<Ending, RunError> {
        let Begun { call, slot } = begun;
        let before_us = self.earlier.values().any(|earlier| earlier.id == call.id);
        let call = match &slot {
            Some(slot) if before_us && has_ended(&call) => verified(&self.gate, &*slot.tool, call).await?,
            Some(slot) if matches!(slot.kind, Kind::Client) => run_by_client(&self.gate, &*slot.tool, call.id).await?,
            Some(slot) => run_to_end(&self.gate, &*slot.tool, call, &self.stillness).await?,
            None => end_without_tool(&self.gate, call).await?,
        };
        let (text, is_error) = words(&call, &self.agent.inner.wording);
        let mut ending = Ending::new(wanted, call.id, text, is_error);
        ending.stops = stops_the_run(&call);
        if let Some(slot) = slot.filter(|_| call.state == CallState::Succeeded) {
            self.follow(&slot.kind, &call, &mut ending).await?;
        }
        Ok(ending)
    }

    /// A hand-over or a task was let through: now it happens.
    async fn follow(&self, kind: &Kind, call: &Call, ending: &mut Ending) -> Result<(), RunError> {
        match kind {
            Kind::Here | Kind::Client => {}
            Kind::Handoff(lead) => {
                ending.given.text = format!("The conversation is now with `{}`.", lead.name()).into();
                ending.then = Then::HandOver(Arc::clone(lead.name()));
            }
            Kind::Sub(lead) => {
                let answer = self.child(lead, call)?.work(Some(call)).await?;
                ending.given.text = answer.for_a_model();
                ending.spent = answer.spent;
                ending.then = Then::Answered;
            }
            Kind::Background(lead) => {
                self.child(lead, call)?.write_task_down(call).await?;
                ending.given.text = format!("`{}` works on it and will report before the end.", lead.name()).into();
                let thread = call.id.to_string().into();
                ending.then = Then::Background(Started { agent: Arc::clone(lead.name()), thread });
            }
        }
        Ok(())
    }

    /// The child that a call began.
    fn child(&self, lead: &Lead, call: &Call) -> Result<Child, RunError> {
        let unknown = || RunError::Damaged(format!("`{}` knows no agent `{}`", self.agent.name(), lead.name()));
        let agent = self.agent.led_to(lead).ok_or_else(unknown)?;
        let parent = Parent {
            run: Arc::clone(&self.run),
            run_name: Arc::clone(&self.run_name),
            place: Arc::clone(&self.place),
            gate: self.gate.clone(),
            stillness: Arc::clone(&self.stillness),
        };
        Ok(parent.child(&agent, call.id))
    }

    /// Waits for every hold of the turn. A call that was allowed at once may lapse meanwhile; it is proposed anew.
    async fn until_all_holds_are_closed(&self, begun: Vec<Begun>) -> Result<Vec<Begun>, RunError> {
        let mut ready = Vec::with_capacity(begun.len());
        for begun in begun {
            ready.push(Begun { call: self.gate.wait(begun.call.id).await?, ..begun });
        }
        for (index, (begun, wanted)) in ready.iter_mut().zip(&self.wanted).enumerate() {
            let Begun { call, slot: Some(slot) } = begun else { continue };
            let now = self.gate.store().now().await?;
            let waited_too_long = call.holds.is_empty() && call.due_at().is_some_and(|due| due <= now);
            if call.state == CallState::Allowed && waited_too_long
                || call.state == CallState::Lapsed && call.holds.is_empty()
            {
                let key = format!("{}.again", self.key(index)).into();
                *call = self.gate.submit(&*slot.tool, self.proposal(wanted, Some(slot), key)).await?;
            }
        }
        Ok(ready)
    }
}

impl Ending {
    fn new(wanted: &Wanted, call: CallId, text: Arc<str>, is_error: bool) -> Ending {
        let given = Given { label: Arc::clone(&wanted.label), name: Arc::clone(&wanted.name), text, is_error };
        Ending { given, call, then: Then::Nothing, spent: Spent::default(), stops: None }
    }
}

/// All at once. Results come in the order of the calls.
///
/// An error waits for the tools that run beside it, but not for people: what they have not decided yet stays open.
async fn together(turn: &Arc<Turn>, begun: Vec<Begun>) -> Result<Vec<Ending>, RunError> {
    let mut tasks = JoinSet::new();
    for (index, begun) in begun.into_iter().enumerate() {
        let turn = Arc::clone(turn);
        tasks.spawn(async move {
            let wanted = turn.wanted.get(index).ok_or_else(|| RunError::Lost("a call is missing".into()))?;
            Ok::<_, RunError>((index, turn.end(wanted, begun).await?))
        });
    }
    let mut endings = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        match ended.unwrap_or_else(|error| Err(RunError::Lost(error.to_string()))) {
            Ok(ending) => endings.push(ending),
            Err(error) => {
                turn.stillness.close().await;
                return Err(error);
            }
        }
    }
    endings.sort_by_key(|(index, _)| *index);
    Ok(endings.into_iter().map(|(_, ending)| ending).collect())
}

/// Calls of this thread that were proposed after the last result was written down, by key.
pub(super) async fn open_calls(
    gate: &Gate,
    path: &Path,
    history: &History,
) -> Result<HashMap<Arc<str>, Arc<Call>>, RunError> {
    // A child's thread is named by the call it began with, so nothing before that is its own.
    let began_with = || path.thread.as_ref().and_then(|thread| thread.parse().ok());
    let last = history.last_call.or_else(began_with);
    let mut found = HashMap::new();
    let mut filter = CallFilter {
        session: path.session.clone(),
        principal: Some(Arc::clone(&path.principal)),
        after: last,
        limit: Some(PAGE_ROWS),
        ..CallFilter::default()
    };
    loop {
        let calls = gate.store().calls(filter.clone()).await?;
        let Some(last) = calls.last() else { return Ok(found) };
        filter.after = Some(last.id);
        let ours = calls.iter().filter(|call| call.facts.path.run == path.run && call.facts.path.thread == path.thread);
        found.extend(ours.filter_map(|call| Some((Arc::clone(call.key.as_ref()?), Arc::clone(call)))));
    }
}

fn stops_the_run(call: &Call) -> Option<RunError> {
    let hold = call.holds.last().filter(|_| call.state == CallState::Expired)?;
    let tool = call.facts.tool.to_string().into();
    (hold.terms.on_expired == OnExpired::StopRun).then_some(RunError::Expired { call: call.id, tool })
}

/// A name that a model made up, as far as it can be written down.
fn speakable(name: &str) -> String {
    let name: String = name.chars().filter(|c| *c != '\0').collect();
    let cut = name.get(..name.floor_char_boundary(NAME_BYTES)).unwrap_or_default();
    if cut.trim().is_empty() { "(no name)".to_owned() } else { cut.to_owned() }
}
