//! What each message changes, and what is to be done because of it.

use std::time::Duration;

use countersign::HoldId;
use countersign::show::escape;
use countersign_api::wire;

use super::follow::{Link, News};
use super::layout::areas;
use super::source::{Coverage, Listing, Terms};
use super::state::{Effect, Message, Mode, Shown, State, Tab};
use crate::prompt::Stage;

impl State {
    /// Takes a message that came at this moment.
    ///
    /// What is to be drawn afterwards counts as shown: whoever calls this draws before the next key is read.
    pub(crate) fn update(&mut self, message: Message, now: Duration) -> Vec<Effect> {
        self.now = self.now.max(now);
        let effects = match message {
            Message::Key(key) => self.key(key),
            Message::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Message::Resized(columns, rows) => {
                self.size = (columns, rows);
                self.disturb();
                Vec::new()
            }
            Message::Returned => {
                self.disturb();
                Vec::new()
            }
            Message::Tick => Vec::new(),
            Message::News(News::Listed(listing)) => self.listed(listing),
            Message::News(News::Lost(link)) => {
                self.link = link;
                Vec::new()
            }
            Message::Detail(id, found) => self.found(id, found),
            Message::Coverages(id, terms, found) => {
                self.covered(id, &terms, found);
                Vec::new()
            }
            Message::Written(id, written) => {
                if let Some(shown) = self.shown.as_mut().filter(|shown| shown.hold.id == id) {
                    shown.dialog.rewritten(written, self.now);
                }
                Vec::new()
            }
            Message::Decided(id, came) => self.decided(id, came),
            Message::DecidedAll(lead, came) => self.decided_all(lead, came),
            Message::History(found) => self.remembered(found),
        };
        self.settle();
        effects
    }

    /// What to do first.
    pub(crate) fn begin(&mut self) -> Vec<Effect> {
        self.settle();
        self.load()
    }

    fn disturb(&mut self) {
        if let Some(shown) = &mut self.shown {
            shown.dialog.disturbed(self.now);
        }
    }

    fn paste(&mut self, text: &str) {
        match (&mut self.mode, &mut self.shown) {
            (Mode::Filter(input), _) => input.paste(text),
            (Mode::Detail, Some(shown)) if !shown.sending && !shown.gone => shown.dialog.paste(text),
            _ => {}
        }
    }

    fn listed(&mut self, listing: Listing) -> Vec<Effect> {
        let changed = (&self.listing.policy, self.listing.halted) != (&listing.policy, listing.halted);
        self.link = Link::Live;
        self.relist(listing);
        self.regroup();
        if self.tab == Tab::Closed {
            return Vec::new();
        }
        let Some(selected) = self.selected else { return self.select_at(0) };
        let now = self.listing.holds.iter().find(|hold| hold.id == selected);
        match (now, &mut self.shown) {
            (Some(_), None) => self.load(),
            (Some(hold), Some(shown)) if changed || is_other(hold, &shown.hold) => self.load(),
            (Some(_), Some(_)) => Vec::new(),
            // Our own decision closed it, and will say so.
            (None, Some(shown)) if shown.sending || shown.gone => Vec::new(),
            (None, Some(shown)) => {
                shown.gone = true;
                self.load()
            }
            (None, None) => self.select_at(self.place_in_list),
        }
    }

    fn found(&mut self, id: HoldId, found: Result<Box<wire::HoldDetail>, String>) -> Vec<Effect> {
        if self.loading == Some(id) {
            self.loading = None;
        }
        if self.selected != Some(id) {
            return Vec::new();
        }
        let same = self.shown.as_mut().filter(|shown| shown.hold.id == id);
        match (found, same) {
            (Ok(detail), _) if self.tab == Tab::Waiting && detail.hold.state.as_str() != "pending" => {
                self.end(id);
                self.gone(how_it_ended(&detail.hold))
            }
            (Ok(detail), Some(shown)) => {
                shown.gone = false;
                shown.renew(*detail, self.now);
                Vec::new()
            }
            (Ok(detail), None) => {
                self.shown = Some(Shown::new(*detail, self.now));
                Vec::new()
            }
            (Err(_), Some(shown)) if shown.gone => self.gone("This hold is gone.".to_owned()),
            (Err(words), _) => {
                self.status = words;
                Vec::new()
            }
        }
    }

    /// The selected hold closed without the person in front of it.
    fn gone(&mut self, words: String) -> Vec<Effect> {
        let own = self.shown.as_ref().is_some_and(|shown| shown.sending);
        let id = self.selected;
        self.listing.holds.retain(|hold| Some(hold.id) != id);
        match self.mode {
            _ if own => Vec::new(),
            // SECURITY: whoever was reading or writing must not go on with the next hold without noticing.
            Mode::Detail => {
                self.mode = Mode::Gone(words);
                Vec::new()
            }
            Mode::List | Mode::Filter(_) | Mode::Help | Mode::Gone(_) => {
                self.status = words;
                self.select_at(self.place_in_list)
            }
        }
    }

    fn covered(&mut self, id: HoldId, terms: &Terms, found: Result<Vec<Coverage>, String>) {
        let reading = matches!(self.mode, Mode::Detail);
        let Some(shown) = self.shown.as_mut().filter(|shown| shown.hold.id == id && !shown.sending) else { return };
        // SECURITY: an answer about other terms than those on the screen must not be offered under them.
        if !reading || !matches!(shown.dialog.stage(), Stage::Choosing | Stage::Remembering(_)) || shown.terms != *terms
        {
            return;
        }
        match found {
            Err(words) => shown.dialog.notify(words),
            Ok(coverages) => match coverages.get(shown.coverage).or(coverages.first()) {
                None => shown.dialog.notify("Nothing about this call may be remembered.".to_owned()),
                Some(first) => {
                    shown.coverage = shown.coverage.min(coverages.len() - 1);
                    shown.dialog.offer(first.offers.clone(), self.now);
                    shown.dialog.notify(how_to_change(shown));
                    shown.coverages = coverages;
                }
            },
        }
    }

    fn decided(&mut self, id: HoldId, came: Result<Box<wire::Decided>, String>) -> Vec<Effect> {
        let here = self.selected == Some(id);
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.hold.id == id) {
            shown.sending = false;
            if let Err(words) = &came {
                shown.dialog.notify(words.clone());
            }
        }
        let decided = match came {
            Ok(decided) => decided,
            // It may have been recorded all the same: look again.
            Err(words) => {
                self.status = words;
                return if here { self.load_again() } else { Vec::new() };
            }
        };
        self.status = what_came(&decided);
        if decided.state.as_str() != "pending" {
            self.end(id);
        }
        match here {
            false => Vec::new(),
            true if decided.state.as_str() == "pending" => {
                self.mode = Mode::List;
                self.load_again()
            }
            true => {
                self.mode = Mode::List;
                self.select_at(self.place_in_list)
            }
        }
    }

    fn remembered(&mut self, found: Result<Vec<super::source::Closed>, String>) -> Vec<Effect> {
        match found {
            Ok(closed) => self.closed = Some(closed),
            Err(words) => self.status = words,
        }
        match self.tab {
            Tab::Closed if self.index().is_none() => self.select_at(0),
            Tab::Closed | Tab::Waiting => Vec::new(),
        }
    }

    /// Selects what stands at a place of the list, or the last before it.
    pub(super) fn select_at(&mut self, place: usize) -> Vec<Effect> {
        let ids = self.ids();
        let id = ids.get(place).or(ids.last()).copied();
        if id.is_some() && id == self.selected && self.shown.as_ref().map(|shown| shown.hold.id) == id {
            return Vec::new();
        }
        self.selected = id;
        self.shown = None;
        self.loading = None;
        self.load()
    }

    pub(super) fn load_again(&mut self) -> Vec<Effect> {
        self.loading = None;
        self.load()
    }

    /// Reads the selected hold, unless that is under way.
    fn load(&mut self) -> Vec<Effect> {
        match self.selected {
            Some(id) if self.loading != Some(id) => {
                self.loading = Some(id);
                vec![Effect::Load(id)]
            }
            _ => Vec::new(),
        }
    }

    /// Lays out what is drawn next. What is in it counts as shown.
    fn settle(&mut self) {
        if let Some(index) = self.index() {
            self.place_in_list = index;
        }
        let Some(areas) = areas(self) else {
            // Too small to show anything whole: nothing counts as shown, and nothing can be approved.
            return self.shown.iter_mut().for_each(|shown| shown.dialog.forget());
        };
        let listed = areas.listed().max(1);
        let last = self.place_in_list;
        self.top = self.top.clamp(last.saturating_sub(listed - 1), last);
        let is_drawn = matches!(self.mode, Mode::List | Mode::Detail | Mode::Filter(_));
        if let Some(shown) = self.shown.as_mut().filter(|_| is_drawn) {
            shown.dialog.lay_out(areas.columns());
            shown.dialog.show(areas.rows());
        }
    }
}

/// Which keys change what is remembered. Not yet escaped.
fn how_to_change(shown: &Shown) -> String {
    let fields = shown.fields();
    let names: Vec<String> = fields.iter().zip(1..).map(|(name, digit)| format!("{digit} {name}")).collect();
    let equal = if names.is_empty() { String::new() } else { format!("; equal in {}", names.join(", ")) };
    format!("c coverage, l time, u calls{equal}")
}

/// Whether something happened to a hold since it was drawn.
fn is_other(now: &wire::Hold, drawn: &wire::Hold) -> bool {
    (now.state, now.digest, &now.decisions, now.expires_at)
        != (drawn.state, drawn.digest, &drawn.decisions, drawn.expires_at)
}

/// How a hold closed, and by whom. Safe to draw.
fn how_it_ended(hold: &wire::Hold) -> String {
    let by = hold.decisions.last().map(|last| {
        let reason = last.reason.as_deref().map(|reason| format!(": {}", escape(reason))).unwrap_or_default();
        format!(" by {} via {}{reason}", escape(&last.by), escape(&last.channel))
    });
    format!("{} was {}{}", crate::out::safe_piece(&hold.title), hold.state.as_str(), by.unwrap_or_default())
}

/// What came of a decision made here. Safe to draw.
fn what_came(decided: &wire::Decided) -> String {
    let tool = escape(&decided.call.tool);
    let mut words = match (decided.superseded_by, decided.state.as_str()) {
        (Some(_), _) => format!("{tool}: the edit needs a decision of its own"),
        (None, "pending") => format!("{tool}: recorded; more approvals are needed before it runs"),
        (None, state) => format!("{tool}: {state}"),
    };
    if decided.replayed {
        words.push_str(" (as decided before)");
    }
    if let Some(grant) = &decided.grant {
        words.push_str(&format!("; remembered: {}", escape(&grant.rule)));
    }
    if decided.released > 0 {
        words.push_str(&format!("; {} other holds are released by it", decided.released));
    }
    words
}
