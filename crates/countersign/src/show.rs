//! The one renderer: what an approver sees, built from the frozen bytes, for every surface to draw.
//!
//! Facts come first and are never cut. The words of tool and agent stand apart, labelled as theirs, and are the only
//! thing that is shortened. All text in a [`View`] is safe to print as it is.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::hold::{Answer, HoldRow};
use crate::json::Json;
use crate::limits;
use crate::place::Place;
use crate::policy::Policy;
use crate::time::Time;
use crate::verdict::{Effect, Memory, OnExpired, Risk};

mod escape;
mod notable;
mod paint;

use escape::{escape_folded, name};
use notable::notable;
use paint::Painter;

pub use escape::{Warning, WarningKind, escape, warnings, wrap};

/// What a line is, so that a surface can choose its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// Something the gate knows.
    Fact,
    /// Something about the call that might deceive the reader.
    Warning,
    /// One member or item of the arguments.
    Argument,
    /// One line of a longer text in the arguments.
    Text,
    /// An argument, or a part of one, that is kept secret.
    Masked,
    /// A line that the new text has and the old has not.
    DiffAdd,
    /// A line that the old text has and the new has not.
    DiffRemove,
    /// A line of both texts.
    DiffSame,
    /// The words of tool, server or agent. Untrusted.
    Note,
}

/// One line to draw. It may be wider than the surface: see [`wrap`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What it is.
    pub kind: LineKind,
    /// How far it is set in, in levels.
    pub indent: usize,
    /// What stands before the text: a name, a position, a line number, `+` or `-`.
    pub label: String,
    /// The text.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:indent$}{}", "", self.label, indent = self.indent * 2)?;
        match self.kind {
            LineKind::Fact | LineKind::Warning | LineKind::Argument | LineKind::Masked => write!(f, ": {}", self.text),
            LineKind::DiffAdd | LineKind::DiffRemove | LineKind::DiffSame => write!(f, " {}", self.text),
            LineKind::Text => write!(f, "| {}", self.text),
            LineKind::Note => write!(f, "> {}", self.text),
        }
    }
}

/// What an approver sees of one hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The tool and where it runs, in one line.
    pub title: String,
    /// Everything, in the order to show it: facts, warnings, arguments, notes.
    pub lines: Vec<Line>,
    /// What might deceive the reader, for surfaces that mark it.
    pub warnings: Vec<Warning>,
}

impl View {
    /// Renders a hold. The same call, hold and moment give the same view everywhere.
    pub fn of(call: &Call, hold: &HoldRow, now: Time) -> View {
        let mut facts = Facts { lines: Vec::new(), warnings: Vec::new() };
        facts.identity(call, hold);
        facts.places(call);
        facts.question(hold, now);
        facts.add("digest", hold.digest.to_string());
        let mut arguments = Painter::new(LineKind::Argument);
        arguments.root(&call.shown_arguments().tree(), &call.facts.arguments.tree());
        let notes = notes(call, hold);

        let warnings: Vec<Warning> = [facts.warnings, arguments.warnings, notable(call)].concat();
        let mut lines = facts.lines;
        lines.extend(warnings.iter().map(warning_line));
        lines.extend(arguments.lines);
        lines.extend(notes);
        View { title: title(call, hold), lines, warnings }
    }
}

impl View {
    /// Says, where another policy is in force than the one that asked, what it makes of the call: at claim it counts.
    #[must_use]
    pub fn under(mut self, call: &Call, policy: &Policy) -> View {
        if call.verdict.policy == *policy.version() {
            return self;
        }
        let verdict = policy.judge(&call.facts);
        let rules: Vec<String> = verdict.rules().iter().map(|rule| name(rule)).collect();
        let now = match verdict.effect {
            Effect::Allow => "it would be allowed",
            Effect::Ask => "it is still asked about",
            Effect::Deny => "it is denied, and will not run even if approved",
        };
        let text = format!("changed since this was asked; now {now}, by {}", rules.join(", "));
        let line = Line { kind: LineKind::Fact, indent: 0, label: "policy".to_owned(), text };
        let facts = self.lines.iter().take_while(|line| line.kind == LineKind::Fact).count();
        self.lines.insert(facts, line);
        self
    }
}

impl View {
    /// Adds what only a gate can know: see [`Gate::view`](crate::Gate::view).
    #[must_use]
    pub(crate) fn warned(mut self, kind: WarningKind, sample: &str) -> View {
        let warning = Warning { sample: sample.to_owned(), ..Warning::whole(kind) };
        let before = |line: &&Line| matches!(line.kind, LineKind::Fact | LineKind::Warning);
        self.lines.insert(self.lines.iter().take_while(before).count(), warning_line(&warning));
        self.warnings.push(warning);
        self
    }
}

fn title(call: &Call, hold: &HoldRow) -> String {
    let tool = name(&call.facts.tool.name);
    let place = call.facts.tool.server.as_ref().map(|server| format!(" on {}", name(server))).unwrap_or_default();
    let digest = hold.digest.to_string();
    format!("{tool}{place} ({})", digest.get(..13).unwrap_or(&digest))
}

fn warning_line(warning: &Warning) -> Line {
    let times = if warning.count > 1 { format!(", {} times", count(warning.count)) } else { String::new() };
    let label = match warning.place.as_str() {
        "" => "warning".to_owned(),
        place => format!("warning at {place}"),
    };
    Line { kind: LineKind::Warning, indent: 0, label, text: format!("{}{times}", warning.text()) }
}

/// Collects what the gate knows about a hold.
struct Facts {
    lines: Vec<Line>,
    warnings: Vec<Warning>,
}

impl Facts {
    fn add(&mut self, label: &str, text: String) {
        self.lines.push(Line { kind: LineKind::Fact, indent: 0, label: label.to_owned(), text });
    }

    /// A name somebody else chose.
    fn name(&mut self, label: &str, text: &str) {
        self.warnings.extend(warnings(text).into_iter().map(|warning| Warning { place: label.to_owned(), ..warning }));
        self.add(label, name(text));
    }

    fn identity(&mut self, call: &Call, hold: &HoldRow) {
        let path = &call.facts.path;
        self.name("tool", &call.facts.tool.name);
        match &call.facts.tool.server {
            Some(server) => self.name("server", server),
            None => self.add("server", "none, a local tool".to_owned()),
        }
        if hold.in_run() {
            self.add("stage", "already running, asks to go on".to_owned());
            call.holds.iter().take_while(|earlier| earlier.id != hold.id).for_each(|earlier| self.checkpoint(earlier));
        }
        let agents: Vec<String> = path.agents.iter().map(|agent| name(agent)).collect();
        if !agents.is_empty() {
            let found = path.agents.iter().flat_map(|agent| warnings(agent));
            self.warnings.extend(found.map(|warning| Warning { place: "agent".to_owned(), ..warning }));
            self.add("agent", agents.join(" > "));
        }
        self.name("principal", &path.principal);
        let optional = [
            ("requester", &path.requester),
            ("session", &path.session),
            ("run", &path.run),
            ("thread", &path.thread),
            ("toolset", &call.facts.toolset),
        ];
        for (label, text) in optional {
            if let Some(text) = text {
                self.name(label, text);
            }
        }
    }

    /// What was asked about the same call before, and how that ended.
    fn checkpoint(&mut self, earlier: &HoldRow) {
        let by: Vec<String> = earlier.decisions.iter().map(|decision| name(&decision.by.id)).collect();
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.join(", ")) };
        let state = earlier.state.as_str();
        match (earlier.in_run(), &earlier.hint) {
            (true, Some(hint)) => self.add("asked before", format!("\"{}\": {state}{by}", escape_folded(hint))),
            (true, None) => self.add("asked before", format!("while it ran: {state}{by}")),
            (false, _) => self.add("asked before", format!("whether to run it: {state}{by}")),
        }
    }

    /// Where the tool says that its arguments lead, since a link makes that another path than the one written.
    fn places(&mut self, call: &Call) {
        for (field, place) in call.facts.places.iter() {
            let what = match place {
                Place::File(_) => "leads to",
                Place::Folder(_) => "leads to the folder",
            };
            self.name(&format!("{} {what}", name(field)), place.path());
        }
    }

    fn question(&mut self, hold: &HoldRow, now: Time) {
        for because in hold.because.iter() {
            self.add("rule", name(&because.rule));
            if let Some(reason) = &because.reason {
                self.add("reason", escape_folded(reason));
            }
        }
        self.add("risk", risk(hold.terms.risk).to_owned());
        for (index, quorum) in hold.terms.quorums.iter().enumerate() {
            let approvals = hold.decisions.iter().filter(|decision| {
                matches!(decision.answer, Answer::Approve { .. }) && decision.counts_for.contains(&index)
            });
            let from: Vec<String> = quorum.from.iter().map(|from| name(from)).collect();
            let from = if from.is_empty() { String::new() } else { format!(" from {}", from.join(" or ")) };
            self.add("approvals", format!("{} of {}{from}", approvals.count(), quorum.approvals));
        }
        if hold.terms.human_required {
            self.add("approvers", "people only".to_owned());
        }
        if hold.terms.requester_excluded {
            self.add("approvers", "not the requester".to_owned());
        }
        if hold.terms.remember == Memory::None {
            self.add("memory", "cannot be remembered".to_owned());
        }
        if hold.terms.on_expired == OnExpired::StopRun {
            self.add("on expiry", "the run is ended".to_owned());
        }
        for decision in &hold.decisions {
            let what =
                format!("{} by {} via {}", decision.answer.as_str(), name(&decision.by.id), name(&decision.channel));
            self.add("decision", format!("{what} at {}", decision.at));
        }
        self.add("state", hold.state.as_str().to_owned());
        self.add("expires", expiry(hold, now));
    }
}

fn risk(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
        Risk::Critical => "critical",
    }
}

fn expiry(hold: &HoldRow, now: Time) -> String {
    match hold.expires_at {
        None => "never".to_owned(),
        Some(end) if end <= now => format!("{end}, now over"),
        Some(end) => format!("{end}, in {}", length(now.until(end))),
    }
}

fn length(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// The words of tool, server and agent: shown apart, and shortened where they are long.
fn notes(call: &Call, hold: &HoldRow) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(hint) = &hold.hint {
        note(&mut lines, "hint", "the tool says", hint);
    }
    if let Some(description) = &call.description {
        note(&mut lines, "description", "the tool's author says", description);
    }
    if let Some(claims) = &call.facts.annotations {
        structure(&mut lines, "claims", "the server claims", claims, limits::SHOWN_PAYLOAD_BYTES);
    }
    let Some(payload) = &hold.payload else { return lines };
    if let Some(before) = payload.field("before").and_then(|before| before.read::<String>().ok())
        && let Some(content) = call.shown_arguments().field("content").and_then(|text| text.read::<String>().ok())
    {
        let mut painter = Painter::new(LineKind::Note);
        painter.changes(&before, &content);
        lines.push(heading("the tool gives a text from before; `content` differs from it in", String::new()));
        cut(&mut lines, "difference", painter.lines, limits::SHOWN_PAYLOAD_BYTES);
    }
    // SECURITY: inside a run the payload is what is being asked about, so it is shown whole.
    let limit = if hold.in_run() { usize::MAX } else { limits::SHOWN_PAYLOAD_BYTES };
    structure(&mut lines, "payload", "tool or agent gave along", payload, limit);
    lines
}

fn heading(label: &str, text: String) -> Line {
    Line { kind: LineKind::Note, indent: 0, label: label.to_owned(), text }
}

fn note(lines: &mut Vec<Line>, what: &str, whose: &str, text: &str) {
    let shown = text.get(..text.floor_char_boundary(limits::SHOWN_NOTE_BYTES)).unwrap_or_default();
    lines.push(heading(whose, escape_folded(shown)));
    let rest = text.len() - shown.len();
    if rest > 0 {
        lines.push(heading("", format!("… {} more bytes in the {what}", count(rest))));
    }
    deceptions(lines, warnings(text), what);
}

fn structure(lines: &mut Vec<Line>, what: &str, whose: &str, json: &Json, limit: usize) {
    let tree = json.tree();
    let mut painter = Painter::new(LineKind::Note);
    painter.value(what.to_owned(), &tree, Some(&tree));
    lines.push(heading(whose, String::new()));
    cut(lines, what, painter.lines, limit);
    deceptions(lines, painter.warnings, what);
}

fn deceptions(lines: &mut Vec<Line>, warnings: Vec<Warning>, what: &str) {
    for warning in warnings {
        let line = warning_line(&Warning { place: format!("{what}{}", warning.place), ..warning });
        lines.push(Line { kind: LineKind::Note, ..line });
    }
}

/// Adds lines while they fit, then says how much is left out.
fn cut(lines: &mut Vec<Line>, what: &str, add: Vec<Line>, limit: usize) {
    let mut room = limit;
    let mut left_out = 0;
    for mut line in add {
        let length = line.label.len() + line.text.len();
        match room.checked_sub(length) {
            Some(rest) if left_out == 0 => {
                room = rest;
                line.indent += 1;
                lines.push(line);
            }
            _ => left_out += length,
        }
    }
    if left_out > 0 {
        lines.push(heading("", format!("… {} more bytes in the {what}", count(left_out))));
    }
}

/// A number in groups of three digits.
fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
