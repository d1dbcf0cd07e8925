//! Runs the demo's agent: proposes each call, asks where there is something to ask, and goes on.

use std::sync::Arc;

use countersign::gate::Decided;
use countersign::show::escape;
use countersign::store::Op;
use countersign::tool::FnTool;
use countersign::transition::Rejection;
use countersign::{
    Answer, Call, CallState, Effect, Gate, GateError, Hold, Path, Proposal, Refusal, RefusalKind, Tool as _,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answers::Answers;
use super::script::{Move, moves};
use crate::commands::open_holds;
use crate::fault::Fault;
use crate::out;
use crate::person::person;
use crate::prompt::{self, Asked};
use crate::signals::Signals;

/// The session all of the demo's calls belong to.
pub(crate) const SESSION: &str = "demo";

/// Who answers.
pub(crate) enum Answering {
    /// The person at the terminal.
    Person,
    /// A file.
    File(Answers),
}

/// How the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The agent came to its end.
    Whole,
    /// Somebody stopped it.
    Stopped,
}

/// The demo in the making.
pub(crate) struct Run {
    pub(crate) gate: Gate,
    pub(crate) holds: UnboundedReceiver<Hold>,
    pub(crate) tools: Vec<Arc<FnTool>>,
    pub(crate) answering: Answering,
    pub(crate) calls: Vec<Arc<Call>>,
}

impl Run {
    /// Makes every move. An error withdraws what still waits, too.
    pub(crate) async fn go(&mut self, signals: &mut Signals) -> Result<Ended, Fault> {
        for (index, wish) in moves().into_iter().enumerate() {
            say_wish(index + 1, &wish);
            match self.make(wish, signals).await? {
                Some(call) => {
                    say_end(&call);
                    self.calls.push(call);
                }
                None => return Ok(Ended::Stopped),
            }
        }
        if let Answering::File(answers) = &self.answering {
            answers.end()?;
        }
        Ok(Ended::Whole)
    }

    /// Makes one move. None: the person wants everything to stop.
    async fn make(&mut self, wish: Move, signals: &mut Signals) -> Result<Option<Arc<Call>>, Fault> {
        let tool = self.tools.iter().find(|tool| &*tool.definition().tool.name == wish.tool).map(Arc::clone);
        let tool = tool.ok_or_else(|| Fault::failed(format!("the demo has no tool `{}`", wish.tool)))?;
        let path = Path { agents: ["tidier".into()].into(), ..Path::session(SESSION) };
        let mut proposal = Proposal::new(wish.tool, wish.arguments).path(path);
        proposal.hint = wish.hint.map(Arc::from);
        let gate = self.gate.clone();
        // On a task of its own: a lease must be renewed while the person thinks.
        let mut call = tokio::spawn(async move { gate.call(&*tool, proposal).await });
        let made = self.attend(&mut call, signals).await;
        if !matches!(made, Ok(Some(_))) {
            self.wind_down(&mut call).await?;
        }
        made
    }

    /// Answers what a call asks until it ends. None: the person wants everything to stop.
    async fn attend(&mut self, call: &mut OnItsWay, signals: &mut Signals) -> Result<Option<Arc<Call>>, Fault> {
        loop {
            let open = tokio::select! {
                // Holds before the end: one that somebody was quick to decide still belongs to this call.
                biased;
                () = signals.any() => return Ok(None),
                open = self.holds.recv() => open.ok_or_else(|| Fault::failed("the gate is gone"))?,
                ended = &mut *call => return ended_call(ended).map(Some),
            };
            if !self.decide(open, signals).await? {
                return Ok(None);
            }
        }
    }

    /// Withdraws whatever a stopped call still asks, until it has ended.
    async fn wind_down(&mut self, call: &mut OnItsWay) -> Result<(), Fault> {
        loop {
            self.withdraw().await?;
            if call.is_finished() {
                return Ok(());
            }
            tokio::select! {
                ended = &mut *call => {
                    self.calls.push(ended_call(ended)?);
                    return Ok(());
                }
                Some(_) = self.holds.recv() => {}
            }
        }
    }

    /// Gets an answer and records it. False: the person wants everything to stop.
    async fn decide(&mut self, open: Hold, signals: &mut Signals) -> Result<bool, Fault> {
        match &mut self.answering {
            Answering::File(answers) => by_file(&self.gate, &open, answers).await.map(|()| true),
            Answering::Person => by_person(&self.gate, &open, signals).await,
        }
    }

    /// Withdraws what still waits, before its run and inside it.
    async fn withdraw(&self) -> Result<(), Fault> {
        for open in open_holds(self.gate.store(), Some(SESSION)).await? {
            let refusal = Refusal::new(RefusalKind::Cancelled).because("the run was stopped");
            let op = match open.in_run() {
                true => Op::Close { hold: open.id, refusal },
                false => Op::Cancel { call: open.call.id, refusal },
            };
            match self.gate.store().run(op).await {
                Ok(_) | Err(countersign::store::Failure::Rejected(_)) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}

/// Takes the next answer of a file. One that cannot be given is the file's mistake.
async fn by_file(gate: &Gate, open: &Hold, answers: &mut Answers) -> Result<(), Fault> {
    let (line, answer) = answers.next(&format!("`{}`", open.call.facts.tool))?;
    say_answer(&answer);
    match gate.decide(open.id, open.decision(person(), "answers", answer)).await {
        Ok(decided) => say_grant(&decided),
        Err(error) => return Err(answers.refuse(line, &format!("the answer was not taken: {error}"))),
    }
    Ok(())
}

/// Asks the person until an answer is taken, theirs or one from elsewhere. False: they want everything to stop.
async fn by_person(gate: &Gate, open: &Hold, signals: &mut Signals) -> Result<bool, Fault> {
    let mut notice = None;
    loop {
        let answer = match prompt::put(gate, open, &[], notice.take(), std::future::pending(), signals).await? {
            Asked::Answer(answer) => answer,
            Asked::Closed => break,
            Asked::Left | Asked::Joined | Asked::Stop => return Ok(false),
        };
        match gate.decide(open.id, open.decision(person(), "terminal", answer.clone())).await {
            Ok(decided) => {
                say_answer(&answer);
                say_grant(&decided);
                return Ok(true);
            }
            Err(GateError::Rejected(Rejection::Closed(_))) => break,
            Err(error @ (GateError::Rejected(_) | GateError::BadEdit(_) | GateError::BadInput(_))) => {
                notice = Some(format!("Not taken: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let call = gate.get(open.call.id).await?;
    if let Some(closed) = Hold::of(&call, open.id) {
        out::say(format_args!("   {}", out::paint(out::BOLD, closed_elsewhere(&closed))));
    }
    Ok(true)
}

/// How a hold closed that was not closed here. Safe to print.
fn closed_elsewhere(hold: &Hold) -> String {
    let state = hold.state.as_str();
    match hold.decisions.last() {
        Some(last) => {
            let place = if &*last.channel == "web" { "in the browser" } else { "elsewhere" };
            format!("decided {place} by {}: {state}", escape(&last.by.id))
        }
        None => format!("nobody decided: {state}"),
    }
}

fn say_answer(answer: &Answer) {
    out::say(format_args!("   {}", out::paint(out::BOLD, prompt::in_words(answer))));
}

fn say_grant(decided: &Decided) {
    if let Some(grant) = &decided.grant {
        out::say(format_args!("  remembered: {}", escape(&grant.as_rule())));
    }
}

/// A call on its way.
type OnItsWay = tokio::task::JoinHandle<Result<Arc<Call>, GateError>>;

fn ended_call(ended: Result<Result<Arc<Call>, GateError>, tokio::task::JoinError>) -> Result<Arc<Call>, Fault> {
    Ok(ended.map_err(|error| Fault::failed(format!("the agent ended badly: {error}")))??)
}

fn say_wish(number: usize, wish: &Move) {
    out::say("");
    out::say(format_args!("{} {}", out::paint(out::BOLD, format_args!("{number}. agent:")), wish.says));
    let call = format!("{} {}", wish.tool, prompt::on_one_line(&wish.arguments));
    out::say(format_args!("   {}", out::paint(out::DIM, out::fit(&call, out::columns().saturating_sub(4)))));
}

/// Says what came of a call, and by whose word.
fn say_end(call: &Call) {
    let rules = call.verdict.rules().join(", ");
    let (style, words) = match (call.state, &call.refusal) {
        (CallState::Succeeded, _) if call.grant.is_some() => {
            (out::GOOD, "done: allowed by what you had remembered".into())
        }
        (CallState::Succeeded, _) if call.verdict.effect == Effect::Allow && call.holds.is_empty() => {
            (out::GOOD, format!("done: allowed by rule `{rules}`, nobody was asked"))
        }
        (CallState::Succeeded, _) => (out::GOOD, "done".to_owned()),
        (CallState::Answered, _) => (out::WAIT, "not run: the agent got your answer".to_owned()),
        (CallState::Denied, Some(refusal)) if refusal.kind == RefusalKind::DeniedByRule => {
            let reason = refusal.reason.as_deref().unwrap_or("no reason given");
            (out::BAD, format!("not run: denied by rule `{rules}` ({reason}), nobody was asked"))
        }
        (state, Some(refusal)) => {
            let reason = refusal.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            (out::BAD, format!("not run ({state}, {}){reason}", refusal.kind.as_str()))
        }
        (state, None) => (out::WAIT, state.to_string()),
    };
    out::say(format_args!("   {}", out::paint(style, escape(&words))));
}
