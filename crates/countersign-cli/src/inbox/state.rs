//! What the inbox knows. Reads no clock and no terminal; [`State::update`](super::update) is the only thing that
//! changes it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use countersign::digest::{ArgumentDigest, CallDigest};
use countersign::show::{Line, LineKind, View, escape};
use countersign::verdict::{Memory, Risk};
use countersign::{Answer, HoldId, Json};
use countersign_api::wire;
use crossterm::event::KeyEvent;
use jiff::Timestamp;

use super::follow::{Link, News};
use super::source::{Closed, Coverage, Listing, Terms};
use super::together::Outcomes;
use crate::out::safe_piece;
use crate::prompt::{Choice, Dialog, Input, Question};

/// One for each digit but zero.
const KEYS_FOR_FIELDS: usize = 9;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Message {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The window has this size now: columns and rows.
    Resized(u16, u16),
    /// The window came back into view.
    Returned,
    /// A moment passed.
    Tick,
    /// The holds that wait, or why they are not known.
    News(News),
    /// What there is to see of a hold, or why not.
    Detail(HoldId, Result<Box<wire::HoldDetail>, String>),
    /// What may be remembered of a hold on these terms, or why that is not known.
    Coverages(HoldId, Terms, Result<Vec<Coverage>, String>),
    /// What the person wrote in their own editor.
    Written(HoldId, Result<String, String>),
    /// What came of a decision.
    Decided(HoldId, Result<Box<wire::Decided>, String>),
    /// What came of deciding several, of which this one was in focus.
    DecidedAll(HoldId, Outcomes),
    /// The closed holds, or why they are not known.
    History(Result<Vec<Closed>, String>),
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Read a hold.
    Load(HoldId),
    /// Find out what may be remembered of a hold on these terms.
    Cover(HoldId, Vec<wire::Folder>, Terms),
    /// Let the person write the arguments of a hold anew in their own editor.
    Editor(HoldId, String),
    /// Decide a hold that was drawn with this digest.
    Decide(HoldId, CallDigest, Answer),
    /// Decide holds that were drawn together, each with its digest.
    DecideAll(Vec<(HoldId, CallDigest)>, Answer),
    /// Read the closed holds.
    History,
    /// End.
    Quit,
    /// End, because of Ctrl-C.
    Interrupt,
}

/// Which holds are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    /// Those that wait.
    Waiting,
    /// Those that are closed.
    Closed,
}

/// Where keys go.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// To the list.
    List,
    /// To the hold that is shown.
    Detail,
    /// Into the filter.
    Filter(Input),
    /// To the list of keys.
    Help,
    /// Nowhere, until it is acknowledged that the hold in front of the person is gone. Says why, safe to draw.
    Gone(String),
}

/// A hold that is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The hold as it was drawn. Its digest goes with every decision.
    pub(crate) hold: wire::Hold,
    /// All there is to see of it.
    pub(super) detail: wire::HoldDetail,
    /// The others that are decided with it, as they were drawn; mostly none.
    pub(super) others: Vec<wire::Hold>,
    /// Where its arguments lead.
    pub(crate) folders: Vec<wire::Folder>,
    /// Whether claims were halted for it.
    pub(crate) halted: bool,
    /// The question.
    pub(crate) dialog: Dialog,
    /// A decision is on its way.
    pub(crate) sending: bool,
    /// It is not in the list any more.
    pub(crate) gone: bool,
    /// What may be remembered, by coverage, and which coverage is shown.
    pub(crate) coverages: Vec<Coverage>,
    pub(crate) coverage: usize,
    /// On which terms it would be remembered.
    pub(crate) terms: Terms,
}

/// Everything the inbox knows.
#[derive(Debug)]
pub(crate) struct State {
    /// Where the holds are, safe to draw.
    pub(crate) place: String,
    /// Whether to use colour.
    pub(crate) colour: bool,
    /// Columns and rows of the window.
    pub(crate) size: (u16, u16),
    /// The moment of the last message.
    pub(crate) now: Duration,
    pub(crate) link: Link,
    pub(crate) listing: Listing,
    /// Holds that closed since the listing was made. A listing that was under way may still name them.
    pub(super) ended: HashSet<HoldId>,
    /// When the listing was made.
    pub(crate) listed_at: Duration,
    /// The closed holds, where they were asked for.
    pub(crate) closed: Option<Vec<Closed>>,
    pub(crate) tab: Tab,
    pub(crate) mode: Mode,
    pub(crate) filter: String,
    /// The hold that has the focus in the list.
    pub(crate) selected: Option<HoldId>,
    /// The hold that is being read.
    pub(super) loading: Option<HoldId>,
    /// Where the selected hold stands in the list, or stood before it closed.
    pub(super) place_in_list: usize,
    /// The first row of the list that is drawn.
    pub(crate) top: usize,
    pub(crate) shown: Option<Shown>,
    /// The last thing there was to say, safe to draw.
    pub(crate) status: String,
}

impl State {
    /// An inbox with these holds.
    pub(crate) fn new(place: String, colour: bool, size: (u16, u16), listing: Listing, now: Duration) -> State {
        State {
            place,
            colour,
            size,
            now,
            link: Link::Live,
            selected: listing.holds.first().map(|hold| hold.id),
            listing,
            ended: HashSet::new(),
            listed_at: now,
            closed: None,
            tab: Tab::Waiting,
            mode: Mode::List,
            filter: String::new(),
            loading: None,
            place_in_list: 0,
            top: 0,
            shown: None,
            status: String::new(),
        }
    }

    /// The ids of the holds that are listed, in order.
    pub(crate) fn ids(&self) -> Vec<HoldId> {
        match self.tab {
            Tab::Waiting => self.groups().into_iter().map(|group| group.lead.id).collect(),
            Tab::Closed => self.closed().map(|hold| hold.id).collect(),
        }
    }

    /// The holds that wait and pass the filter.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &wire::Hold> {
        let wanted = self.filter.to_lowercase();
        self.listing.holds.iter().filter(move |hold| {
            let texts = [&hold.title, &hold.principal, hold.session.as_ref().unwrap_or(&hold.title)];
            let mut texts = texts.into_iter().chain(&hold.agent).map(String::as_str).chain([hold.arguments.as_str()]);
            texts.any(|text| text.to_lowercase().contains(&wanted))
        })
    }

    /// The same, with identical calls in one group: the oldest leads.
    pub(crate) fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut places: HashMap<GroupKey<'_>, usize> = HashMap::new();
        for hold in self.waiting() {
            let next = groups.len();
            let at = group_key(hold).map_or(next, |key| *places.entry(key).or_insert(next));
            match groups.get_mut(at) {
                Some(group) => group.count += 1,
                None => groups.push(Group { lead: hold, count: 1 }),
            }
        }
        groups
    }

    /// The holds that are in one row with this one, itself too.
    pub(super) fn row_of(&self, id: HoldId) -> Vec<&wire::Hold> {
        let Some(key) = self.waiting().find(|hold| hold.id == id).and_then(group_key) else { return Vec::new() };
        self.waiting().filter(|hold| group_key(hold).as_ref() == Some(&key)).collect()
    }

    /// The closed holds that pass the filter.
    pub(crate) fn closed(&self) -> impl Iterator<Item = &Closed> {
        let wanted = self.filter.to_lowercase();
        self.closed.iter().flatten().filter(move |hold| {
            let texts = [hold.tool.as_str(), hold.state, hold.by.as_deref().unwrap_or_default()];
            texts.into_iter().any(|text| text.to_lowercase().contains(&wanted))
        })
    }

    /// Takes a newer listing, without what is known to have closed: no hold opens again.
    pub(super) fn relist(&mut self, listing: Listing) {
        let (ended, waiting): (Vec<_>, Vec<_>) =
            listing.holds.into_iter().partition(|hold| self.ended.contains(&hold.id));
        // Listings come in their order: what this one does not name, no later one will.
        self.ended = ended.into_iter().map(|hold| hold.id).collect();
        self.listing = Listing { holds: waiting, ..listing };
        self.listed_at = self.now;
    }

    /// A hold closed: it waits no more, whatever a listing says that is older than that.
    pub(super) fn end(&mut self, id: HoldId) {
        self.listing.holds.retain(|hold| hold.id != id);
        self.ended.insert(id);
    }

    /// The place of the selected hold in the list.
    pub(crate) fn index(&self) -> Option<usize> {
        let selected = self.selected?;
        self.ids().iter().position(|id| *id == selected)
    }

    /// How long a hold still has; none where it waits for ever.
    pub(crate) fn left(&self, expires_at: Option<Timestamp>) -> Option<Duration> {
        // The store's clock counts, not ours: it was this late when the list was made.
        let since = self.now.saturating_sub(self.listed_at);
        let left = expires_at?.duration_since(self.listing.now);
        Some(Duration::try_from(left).unwrap_or_default().saturating_sub(since))
    }
}

impl Shown {
    /// A hold to be looked at from now on.
    pub(crate) fn new(detail: wire::HoldDetail, now: Duration) -> Shown {
        let (hold, folders, halted) = (detail.hold.clone(), detail.folders.clone(), detail.halted);
        let dialog = Dialog::new(question(detail.clone()), now);
        Shown {
            hold,
            detail,
            others: Vec::new(),
            folders,
            halted,
            dialog,
            sending: false,
            gone: false,
            coverages: Vec::new(),
            coverage: 0,
            terms: Terms::default(),
        }
    }

    /// The arguments that a grant may name, as far as there are keys for them.
    pub(super) fn fields(&self) -> Vec<String> {
        let arguments = serde_json::from_str(&self.detail.arguments_text);
        let names = arguments.map(|arguments: serde_json::Map<String, serde_json::Value>| {
            arguments.into_iter().map(|(name, _)| name).take(KEYS_FOR_FIELDS).collect()
        });
        names.unwrap_or_default()
    }

    /// Names an argument in which later calls must be equal, or no longer.
    pub(super) fn toggle(&mut self, digit: char) {
        let place = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
        let Some(name) = place.and_then(|place| self.fields().into_iter().nth(place)) else { return };
        match self.terms.fields.iter().position(|field| *field == name) {
            Some(at) => drop(self.terms.fields.remove(at)),
            None => self.terms.fields.push(name),
        }
        // The coverage by fields stands behind the one by all arguments.
        self.coverage = usize::from(!self.terms.fields.is_empty());
    }

    /// Takes another picture of the same hold, if it is another.
    pub(crate) fn renew(&mut self, detail: wire::HoldDetail, now: Duration) {
        if self.hold != detail.hold || self.halted != detail.halted {
            (self.hold, self.halted) = (detail.hold.clone(), detail.halted);
            self.detail = detail;
            self.dialog.renew(self.question(), now);
        }
    }
}

/// Identical calls that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    /// The oldest.
    pub(crate) lead: &'a wire::Hold,
    /// How many there are.
    pub(crate) count: usize,
}

type GroupKey<'a> = (ArgumentDigest, Risk, bool, Vec<(u32, &'a [String])>);

/// What makes calls identical; none where a secret in them is masked.
///
/// SECURITY: what must be decided on other terms is never hidden in the same row.
fn group_key(hold: &wire::Hold) -> Option<GroupKey<'_>> {
    let terms = hold.approvals.iter().map(|quorum| (quorum.approvals, quorum.from.as_slice())).collect();
    Some((hold.argument_digest?, hold.risk, hold.in_run, terms))
}

/// A hold as a question. Deny comes first, and so has the focus.
pub(crate) fn question(detail: wire::HoldDetail) -> Question {
    let hold = &detail.hold;
    let mut choices = Vec::new();
    if hold.state.as_str() == "pending" {
        choices.extend([Choice::Deny, Choice::Approve]);
        // Masked arguments cannot be edited: the mask would run in the secret's place.
        choices.extend([Choice::Edit].into_iter().filter(|_| !hold.in_run && !hold.masked));
        choices.push(Choice::Payload);
        choices.extend([Choice::Respond].into_iter().filter(|_| !hold.in_run));
        choices.extend([Choice::Remember].into_iter().filter(|_| !hold.in_run && hold.remember != Memory::None));
    }
    let (title, arguments, payload) = (safe_piece(&hold.title), arguments(&detail), hold.payload.clone());
    let (view, offers, fields) = (view(title, detail), Vec::new(), Vec::new());
    Question { view, arguments, payload, choices, offers, fields, notice: None }
}

/// The exact text of the arguments, where it is one; a reader of JSON would have rounded its numbers.
fn arguments(detail: &wire::HoldDetail) -> Json {
    let exact = Json::ingest(&detail.arguments_text, countersign::json::Bounds::STORED);
    exact.unwrap_or_else(|_| detail.hold.arguments.clone())
}

/// The lines of the one renderer, and what it does not know.
fn view(title: String, detail: wire::HoldDetail) -> View {
    // SECURITY: the renderer's lines are safe. A server that sends others paints nothing either.
    let line = |line: wire::Line| Line {
        kind: line.kind,
        indent: line.indent.min(40),
        label: safe_piece(&line.label).replace('\n', "\\n"),
        text: safe_piece(&line.text).replace('\n', "\\n"),
    };
    let mut lines: Vec<Line> = detail.view.into_iter().map(line).collect();
    let halted = detail.halted.then(|| "halted: an approved call waits until the operator lets calls go on".to_owned());
    let facts = lines.iter().take_while(|line| line.kind == LineKind::Fact).count();
    let labelled = |kind, label: &str, text| Line { kind, indent: 0, label: label.to_owned(), text };
    let reasons = detail.hold.decisions.iter().filter_map(|decision| decision.reason.as_deref());
    let reasons = reasons.map(|reason| labelled(LineKind::Fact, "denied for", escape(reason)));
    let halted = halted.map(|text| labelled(LineKind::Warning, "warning", text));
    let more: Vec<Line> = reasons.chain(halted).collect();
    lines.splice(facts..facts, more);
    View { title, lines, warnings: Vec::new() }
}
