//! Tells a run as it happens: the answer on stdout, one line for each call on stderr; or one event a line.

use std::collections::HashMap;
use std::sync::Arc;

use countersign::call::Outcome;
use countersign::show::escape;
use countersign::{Call, CallId, CallState, RefusalKind};
use countersign_agent::model::{Stop, Usage};
use countersign_agent::{Place, Reply, RunEvent};

use crate::commands::Form;
use crate::fault::Fault;
use crate::out::{self, BAD, BOLD, DIM, GOOD, WAIT};
use crate::prompt::on_one_line;

/// Columns kept free for how a call ended.
const END: usize = 24;
/// Bytes of a line without an end that are kept before they are shown all the same.
const LINE: usize = 4096;

/// Prints events.
pub(crate) struct Teller {
    form: Form,
    /// Whether a call may be shown before it has ended, to be completed on the same line.
    live: bool,
    /// The call whose line is not ended yet.
    begun: Option<CallId>,
    /// Whether the answer stands in the middle of a line.
    in_answer: bool,
    /// Who spoke last.
    speaker: Arc<[Arc<str>]>,
    /// What agents that work for the session have begun to say, by thread.
    asides: HashMap<Arc<str>, Aside>,
    /// Calls refused because nobody answered.
    pub(crate) unanswered: usize,
}

/// A line that an agent has begun.
struct Aside {
    agents: Arc<[Arc<str>]>,
    text: String,
}

impl Teller {
    /// Tells in this form; `live` where somebody watches.
    pub(crate) fn new(form: Form, live: bool) -> Teller {
        let (speaker, asides) = (Arc::from([]), HashMap::new());
        Teller { form, live, begun: None, in_answer: false, speaker, asides, unanswered: 0 }
    }

    /// Tells one event.
    pub(crate) fn tell(&mut self, event: &RunEvent) -> Result<(), Fault> {
        if let RunEvent::Ended { call } = event {
            self.count(call);
        }
        if self.form == Form::Json {
            return Ok(out::json(event)?);
        }
        match event {
            RunEvent::Text { place, text, .. } if &*place.thread == "main" => self.answer(place, text)?,
            RunEvent::Text { place, text, .. } => self.aside(place, text)?,
            RunEvent::Turn { place, stop, .. } => self.end_turn(place, *stop)?,
            RunEvent::Done(reply) => self.done(reply)?,
            RunEvent::Failed { .. } => self.end_all()?,
            RunEvent::Called { call } => self.called(call)?,
            RunEvent::Ended { call } => self.ended(call)?,
            RunEvent::HandedOver { place } => {
                self.say(format_args!("{} {}", out::paint(BOLD, "→"), out::paint(BOLD, names(&place.agents))))?;
            }
            RunEvent::ChildBegan { place } => {
                self.say(format_args!("{} begins", out::paint(BOLD, names(&place.agents))))?;
            }
            RunEvent::ChildEnded { place, .. } => {
                self.say(format_args!("{} is done", out::paint(BOLD, names(&place.agents))))?;
            }
            RunEvent::Missed { events } => self.say(format_args!("({events} events were too fast to be shown)"))?,
            _ => {}
        }
        Ok(())
    }

    /// Prints a line of talk on a line of its own.
    pub(crate) fn say(&mut self, line: impl std::fmt::Display) -> Result<(), Fault> {
        self.end_line()?;
        out::say(line);
        Ok(())
    }

    /// Ends a line that was begun.
    pub(crate) fn end_line(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.in_answer) {
            out::data("")?;
        }
        if self.begun.take().is_some() {
            out::say("");
        }
        Ok(())
    }

    fn count(&mut self, call: &Call) {
        let kind = call.refusal.as_ref().map(|refusal| refusal.kind);
        if matches!(kind, Some(RefusalKind::NoApprover | RefusalKind::Expired)) {
            self.unanswered += 1;
        }
    }

    /// The session's own words are the answer; those of agents that work for it are talk.
    fn answer(&mut self, place: &Place, text: &str) -> Result<(), Fault> {
        if self.begun.is_some() || self.speaker != place.agents {
            self.end_line()?;
        }
        self.speaker = Arc::clone(&place.agents);
        let safe = out::safe_piece(text);
        out::part(&safe)?;
        self.in_answer = !safe.is_empty() && !safe.ends_with('\n');
        Ok(())
    }

    /// Several agents may speak at once, piece by piece: each is shown in whole lines.
    fn aside(&mut self, place: &Place, text: &str) -> Result<(), Fault> {
        let begin = || Aside { agents: Arc::clone(&place.agents), text: String::new() };
        let aside = self.asides.entry(Arc::clone(&place.thread)).or_insert_with(begin);
        aside.text.push_str(text);
        let whole = match aside.text.rfind('\n') {
            Some(end) => end + 1,
            None if aside.text.len() > LINE => aside.text.len(),
            None => return Ok(()),
        };
        let lines: String = aside.text.drain(..whole).collect();
        self.show_aside(&place.agents, &lines)
    }

    /// Ends what was said, and says so where that is not all of it.
    fn end_turn(&mut self, place: &Place, stop: Stop) -> Result<(), Fault> {
        match self.asides.remove(&place.thread) {
            Some(aside) => self.show_aside(&aside.agents, &aside.text)?,
            None if &*place.thread == "main" => self.end_line()?,
            None => {}
        }
        match stop.warning() {
            Some(warning) => self.say(format_args!("{}: {}", names(&place.agents), out::paint(WAIT, warning))),
            None => Ok(()),
        }
    }

    fn done(&mut self, reply: &Reply) -> Result<(), Fault> {
        self.end_all()?;
        if self.live
            && let Some(taken) = taken(reply)
        {
            out::say(out::paint(DIM, taken));
        }
        Ok(())
    }

    /// Ends every line that was begun, whoever began it.
    fn end_all(&mut self) -> Result<(), Fault> {
        for aside in std::mem::take(&mut self.asides).into_values() {
            self.show_aside(&aside.agents, &aside.text)?;
        }
        self.end_line()
    }

    fn show_aside(&mut self, agents: &Arc<[Arc<str>]>, text: &str) -> Result<(), Fault> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.end_line()?;
        if self.speaker != *agents {
            out::say(out::paint(DIM, format_args!("{}:", names(agents))));
            self.speaker = Arc::clone(agents);
        }
        out::say(out::paint(DIM, out::safe_piece(text).trim_end()));
        Ok(())
    }

    fn called(&mut self, call: &Call) -> Result<(), Fault> {
        if self.live && !call.state.is_final() {
            self.end_line()?;
            out::say_part(format_args!("  {}", out::paint(DIM, line(call))));
            self.begun = Some(call.id);
        }
        Ok(())
    }

    fn ended(&mut self, call: &Call) -> Result<(), Fault> {
        let (style, words) = ending(call);
        if self.begun == Some(call.id) {
            self.begun = None;
            out::say(format_args!("  {}", out::paint(style, words)));
            return Ok(());
        }
        self.say(ended_line(call))
    }
}

/// What a run took, where that is known.
fn taken(reply: &Reply) -> Option<String> {
    let Usage { input, output, micro_dollars, .. } = reply.usage;
    let cost =
        (micro_dollars > 0).then(|| format!(", ${}.{:06}", micro_dollars / 1_000_000, micro_dollars % 1_000_000));
    let turns = if reply.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", reply.turns) };
    (input > 0 || output > 0)
        .then(|| format!("{turns}, {input} tokens read, {output} written{}", cost.unwrap_or_default()))
}

fn names(agents: &[Arc<str>]) -> String {
    escape(&agents.join(" › "))
}

/// The call and how it ended, on one line.
pub(super) fn ended_line(call: &Call) -> String {
    let (style, words) = ending(call);
    format!("  {}  {}", out::paint(DIM, line(call)), out::paint(style, words))
}

/// The call on one line, with room for how it ends.
fn line(call: &Call) -> String {
    let agents = call.facts.path.agents.iter().skip(1).map(|agent| format!("{} › ", escape(agent)));
    let who: String = agents.collect();
    let tool = escape(&call.facts.tool.to_string());
    let arguments = on_one_line(call.shown_arguments().as_str());
    out::fit(&format!("{who}{tool} {arguments}"), out::columns().saturating_sub(END))
}

/// How a call ended, safe to print, and how good that is.
fn ending(call: &Call) -> (anstyle::Style, String) {
    let reason = call.refusal.as_ref().and_then(|refusal| refusal.reason.as_deref());
    let because = reason.map(|reason| format!(": {}", escape(reason))).unwrap_or_default();
    let kind = call.refusal.as_ref().map(|refusal| refusal.kind);
    match (call.state, kind) {
        (CallState::Succeeded, _) if call.grant.is_some() => (GOOD, "✓ done (remembered)".to_owned()),
        (CallState::Succeeded, _) => (GOOD, "✓ done".to_owned()),
        (CallState::Answered, _) => (WAIT, "✓ answered instead".to_owned()),
        (CallState::Failed, None) => match &call.outcome {
            Some(Outcome::Failed { error, .. }) => (BAD, format!("✗ failed: {}", escape(first_line(error)))),
            Some(Outcome::MayHaveApplied { .. } | Outcome::Succeeded { .. }) | None => (BAD, "✗ failed".to_owned()),
        },
        (CallState::InDoubt, _) => (WAIT, "? in doubt: `countersign doubts` has it".to_owned()),
        (_, Some(RefusalKind::DeniedByApprover)) => (BAD, format!("✗ denied{because}")),
        (_, Some(RefusalKind::DeniedByRule)) => (BAD, format!("✗ denied by a rule{because}")),
        (_, Some(RefusalKind::Expired)) => (BAD, "✗ expired: nobody decided in time".to_owned()),
        (_, Some(RefusalKind::NoApprover)) => (BAD, "✗ refused: nobody could be asked".to_owned()),
        (_, Some(RefusalKind::Cancelled)) => (WAIT, "✗ withdrawn".to_owned()),
        (_, Some(kind)) => (BAD, format!("✗ refused ({}){because}", kind.as_str())),
        (state, None) => (WAIT, state.to_string()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
