//! Identical calls, decided at once: every one by its own digest, after everything that differs between them was shown.

use countersign::digest::CallDigest;
use countersign::show::{Line, LineKind, escape};
use countersign::verdict::Risk;
use countersign::{Answer, HoldId};
use countersign_api::wire;

use super::state::{Effect, Mode, Shown, State, question};
use crate::prompt::{Choice, Question};

/// What came of deciding several holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// Those that a decision was recorded for.
    pub(crate) decided: Vec<HoldId>,
    /// Those of them that are closed by it.
    pub(crate) closed: Vec<HoldId>,
    /// Why the rest was left, safe to draw.
    pub(crate) stopped: Option<String>,
}

impl State {
    /// Shows the selected hold together with all that wait with the same arguments, or alone again.
    pub(super) fn together(&mut self) -> Vec<Effect> {
        if self.shown.as_ref().is_some_and(|shown| !shown.others.is_empty()) {
            return self.apart();
        }
        let others: Vec<wire::Hold> = self.others().into_iter().cloned().collect();
        if others.is_empty() {
            self.status = "No other call with exactly these arguments waits.".to_owned();
            return Vec::new();
        }
        let now = self.now;
        let Some(shown) = self.shown.as_mut().filter(|shown| !shown.gone && !shown.sending) else { return Vec::new() };
        shown.others = others;
        shown.dialog.restart(now);
        shown.dialog.renew(shown.question(), now);
        self.mode = Mode::Detail;
        self.status.clear();
        Vec::new()
    }

    /// Leaves the others alone. The one in focus is read anew.
    pub(super) fn apart(&mut self) -> Vec<Effect> {
        if self.shown.as_ref().is_none_or(|shown| shown.others.is_empty()) {
            return Vec::new();
        }
        self.shown = None;
        self.load_again()
    }

    /// The list changed: whatever closed meanwhile is not decided, and what is left is read again.
    pub(super) fn regroup(&mut self) {
        let now = self.now;
        let Some(shown) = self.shown.as_mut().filter(|shown| !shown.others.is_empty() && !shown.sending) else {
            return;
        };
        let before = shown.others.len();
        let listed = &self.listing.holds;
        shown.others.retain(|other| listed.iter().any(|hold| hold.id == other.id && hold.digest == other.digest));
        if shown.others.len() != before {
            shown.dialog.renew(shown.question(), now);
        }
    }

    /// What came of deciding them all.
    pub(super) fn decided_all(&mut self, lead: HoldId, came: Outcomes) -> Vec<Effect> {
        let Outcomes { decided, closed, stopped } = came;
        closed.iter().for_each(|id| self.end(*id));
        self.status = match stopped {
            None => format!("{} calls decided together", decided.len()),
            Some(why) => format!("{} calls decided, then: {why}", decided.len()),
        };
        if self.selected != Some(lead) {
            return Vec::new();
        }
        self.mode = Mode::List;
        self.shown = None;
        if closed.contains(&lead) { self.select_at(self.place_in_list) } else { self.load_again() }
    }

    /// The other holds of the row in focus.
    fn others(&self) -> Vec<&wire::Hold> {
        let Some(lead) = self.shown.as_ref().map(|shown| shown.hold.id) else { return Vec::new() };
        self.row_of(lead).into_iter().filter(|hold| hold.id != lead && !hold.in_run).collect()
    }
}

impl Shown {
    /// What is asked: about this hold, or about all that are shown together.
    pub(super) fn question(&self) -> Question {
        let mut question = question(self.detail.clone());
        if self.others.is_empty() {
            return question;
        }
        // What is risky is approved one by one, as in every inbox.
        let may_approve = matches!(self.hold.risk, Risk::Low | Risk::Medium);
        question.choices.retain(|choice| *choice == Choice::Deny || (*choice == Choice::Approve && may_approve));
        let facts = question.view.lines.iter().take_while(|line| line.kind == LineKind::Fact).count();
        question.view.lines.splice(facts..facts, lines(&self.hold, &self.others));
        question
    }

    /// Everything a decision is about, each as it was drawn.
    pub(super) fn decides(&self, answer: Answer) -> Effect {
        if self.others.is_empty() {
            return Effect::Decide(self.hold.id, self.hold.digest, answer);
        }
        let all: Vec<(HoldId, CallDigest)> =
            std::iter::once(&self.hold).chain(&self.others).map(|hold| (hold.id, hold.digest)).collect();
        Effect::DecideAll(all, answer)
    }
}

/// How many there are, and what differs between them; those that differ in the same share a line.
fn lines(lead: &wire::Hold, others: &[wire::Hold]) -> Vec<Line> {
    let fact = |label: &str, text: String| Line { kind: LineKind::Fact, indent: 0, label: label.to_owned(), text };
    let mut found: Vec<(String, usize)> = Vec::new();
    for other in others {
        let text = differences(lead, other);
        match found.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => found.push((text, 1)),
        }
    }
    let all = others.len() + 1;
    let head = fact("together", format!("{all} calls with these arguments: this one, and"));
    let more = found.into_iter().map(|(text, count)| fact(&format!("{count} more"), text));
    std::iter::once(head).chain(more).collect()
}

/// What the other has and the first has not, safe to draw.
fn differences(lead: &wire::Hold, other: &wire::Hold) -> String {
    let (lead, other) = (facts(lead), facts(other));
    let differing = other.into_iter().zip(lead).filter(|(other, lead)| other != lead);
    let texts: Vec<String> = differing
        .map(|((label, text), _)| match text {
            Some(text) => format!("{label} {}", escape(&text)),
            None => format!("no {label}"),
        })
        .collect();
    if texts.is_empty() { "the same in everything".to_owned() } else { texts.join(" · ") }
}

/// Everything about a hold that calls with the same arguments may differ in.
fn facts(hold: &wire::Hold) -> [(&'static str, Option<String>); 9] {
    let rules: Vec<&str> = hold.because.iter().map(|because| &*because.rule).collect();
    [
        ("principal", Some(hold.principal.clone())),
        ("requester", hold.requester.clone()),
        ("session", hold.session.clone()),
        ("run", hold.run.clone()),
        ("thread", hold.thread.clone()),
        ("agent", Some(hold.agent.join(" › "))),
        ("rules", Some(rules.join(", "))),
        ("hint", hold.hint.clone()),
        ("given along", hold.payload.as_ref().map(ToString::to_string)),
    ]
}
