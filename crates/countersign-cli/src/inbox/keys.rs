//! What each key does, depending on where the person is.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::layout::areas;
use super::state::{Effect, Mode, Shown, State, Tab};
use crate::prompt::{Choice, Input, Stage, Step};

/// How long a grant may be made to last, one key press after the other. None: as the policy says.
const LIVES: [Option<Duration>; 6] = [
    None,
    Some(Duration::from_secs(15 * 60)),
    Some(Duration::from_secs(60 * 60)),
    Some(Duration::from_secs(8 * 60 * 60)),
    Some(Duration::from_secs(24 * 60 * 60)),
    Some(Duration::from_secs(30 * 24 * 60 * 60)),
];
/// For how many calls a grant may be made. None: for any number.
const USES: [Option<u32>; 5] = [None, Some(1), Some(5), Some(20), Some(100)];

impl State {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return vec![Effect::Interrupt];
        }
        if areas(self).is_none() {
            return if key.code == KeyCode::Char('q') { vec![Effect::Quit] } else { Vec::new() };
        }
        match &mut self.mode {
            Mode::List => self.key_in_list(key),
            Mode::Detail => self.key_in_detail(key),
            Mode::Filter(_) => self.key_in_filter(key),
            Mode::Help => {
                if matches!(key.code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?')) {
                    self.mode = Mode::List;
                }
                Vec::new()
            }
            Mode::Gone(_) if matches!(key.code, KeyCode::Esc | KeyCode::Enter) => {
                self.mode = Mode::List;
                self.select_at(self.place_in_list)
            }
            Mode::Gone(_) => Vec::new(),
        }
    }

    fn key_in_list(&mut self, key: KeyEvent) -> Vec<Effect> {
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        match key.code {
            KeyCode::Down => self.go_to(self.place_in_list + 1),
            KeyCode::Up => self.go_to(self.place_in_list.saturating_sub(1)),
            KeyCode::Home => self.go_to(0),
            KeyCode::End => self.go_to(usize::MAX),
            KeyCode::Enter | KeyCode::Tab | KeyCode::Right => self.engage(None),
            KeyCode::PageDown | KeyCode::PageUp => self.turn(key.code),
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                Vec::new()
            }
            KeyCode::Esc if self.tab == Tab::Closed => self.switch(),
            KeyCode::Char(letter) if plain => self.letter_in_list(letter, key),
            _ => Vec::new(),
        }
    }

    fn letter_in_list(&mut self, letter: char, key: KeyEvent) -> Vec<Effect> {
        match letter.to_ascii_lowercase() {
            'j' => self.go_to(self.place_in_list + 1),
            'k' => self.go_to(self.place_in_list.saturating_sub(1)),
            ' ' => self.turn(KeyCode::PageDown),
            'a' => self.confirm(),
            'd' | 'e' | 'p' | 'r' | 'm' => self.engage(Some(key)),
            'g' if self.tab == Tab::Waiting => self.together(),
            'h' => self.switch(),
            '/' => {
                let mut input = Input::line();
                input.paste(&self.filter);
                self.mode = Mode::Filter(input);
                Vec::new()
            }
            '?' => {
                self.mode = Mode::Help;
                Vec::new()
            }
            'q' => vec![Effect::Quit],
            _ => Vec::new(),
        }
    }

    fn key_in_detail(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(shown) = self.shown.as_mut() else {
            self.mode = Mode::List;
            return Vec::new();
        };
        // A decision is on its way, or there is nothing left to decide.
        if shown.sending || shown.gone {
            return Vec::new();
        }
        let choosing = matches!(shown.dialog.stage(), Stage::Choosing);
        let writing = matches!(
            shown.dialog.stage(),
            Stage::Denying(_) | Stage::Responding(_) | Stage::Editing(_) | Stage::Adding(_)
        );
        match key.code {
            _ if writing => return self.key_for_dialog(key),
            KeyCode::Esc if choosing => {
                self.mode = Mode::List;
                return self.apart();
            }
            KeyCode::Tab | KeyCode::BackTab => {
                shown.dialog.restart(self.now);
                self.mode = Mode::List;
                return self.apart();
            }
            KeyCode::Char('g') if choosing && self.tab == Tab::Waiting => return self.together(),
            KeyCode::Down | KeyCode::Char('j') => shown.dialog.scroll(1, self.now),
            KeyCode::Up | KeyCode::Char('k') => shown.dialog.scroll(-1, self.now),
            KeyCode::PageDown | KeyCode::PageUp | KeyCode::Char(' ') => return self.turn(key.code),
            KeyCode::Char('q') if choosing => return vec![Effect::Quit],
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char(letter) if matches!(shown.dialog.stage(), Stage::Remembering(_)) => {
                return self.letter_in_remembering(letter, key);
            }
            _ => return self.key_for_dialog(key),
        }
        Vec::new()
    }

    fn key_for_dialog(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(shown) = self.shown.as_mut() else { return Vec::new() };
        match shown.dialog.key(key, self.now) {
            // Here the coverage is chosen by `c`, fields among others.
            Step::Stay | Step::Fields(_) => Vec::new(),
            Step::Left => {
                self.mode = Mode::List;
                Vec::new()
            }
            Step::Stop => vec![Effect::Interrupt],
            Step::Editor(text) => vec![Effect::Editor(shown.hold.id, text)],
            Step::Offers => {
                shown.dialog.notify("Looking up what may be remembered…".to_owned());
                vec![Effect::Cover(shown.hold.id, shown.folders.clone(), shown.terms.clone())]
            }
            Step::Done(answer) => {
                shown.sending = true;
                shown.dialog.notify("Sending your decision…".to_owned());
                vec![shown.decides(answer)]
            }
        }
    }

    fn key_in_filter(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Mode::Filter(input) = &mut self.mode else { return Vec::new() };
        match key.code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            _ => {
                input.key(key);
                self.filter = input.text();
            }
        }
        match self.index() {
            Some(_) => Vec::new(),
            None => self.select_at(0),
        }
    }

    fn go_to(&mut self, place: usize) -> Vec<Effect> {
        self.status.clear();
        self.select_at(place)
    }

    /// Turns the page of the hold, whoever has the keys.
    fn turn(&mut self, key: KeyCode) -> Vec<Effect> {
        let rows = areas(self).map_or(1, |areas| areas.rows());
        if let Some(shown) = &mut self.shown {
            match key {
                KeyCode::PageUp => shown.dialog.scroll(-isize::try_from(rows).unwrap_or(1), self.now),
                _ => shown.dialog.next_page(self.now),
            }
        }
        Vec::new()
    }

    /// Hands the keys to the hold that is shown, and one of them at once. Deny has the focus.
    fn engage(&mut self, key: Option<KeyEvent>) -> Vec<Effect> {
        let now = self.now;
        let Some(shown) = self.shown.as_mut().filter(|shown| !shown.gone && !shown.sending) else { return Vec::new() };
        self.mode = Mode::Detail;
        self.status.clear();
        shown.dialog.restart(now);
        match key {
            Some(key) => self.key_for_dialog(key),
            None => Vec::new(),
        }
    }

    /// Asks once more before it approves: in a list, the key may have been meant for another hold.
    fn confirm(&mut self) -> Vec<Effect> {
        let effects = self.engage(None);
        if let (Mode::Detail, Some(shown)) = (&self.mode, &mut self.shown)
            && shown.dialog.bar().contains(&Choice::Approve)
        {
            shown.dialog.notify("Look at it, then press a again: exactly this runs, once.".to_owned());
        }
        effects
    }

    /// Changes what would be remembered; any other key is the dialog's.
    fn letter_in_remembering(&mut self, letter: char, key: KeyEvent) -> Vec<Effect> {
        match letter {
            'c' => {
                self.next_coverage();
                Vec::new()
            }
            'l' => self.on_other_terms(|shown| shown.terms.expires_after = after(&LIVES, shown.terms.expires_after)),
            'u' => self.on_other_terms(|shown| shown.terms.uses = after(&USES, shown.terms.uses)),
            '1'..='9' => self.on_other_terms(|shown| shown.toggle(letter)),
            _ => self.key_for_dialog(key),
        }
    }

    /// SECURITY: nothing is on offer until it is known, and shown, how the grant would read now.
    fn on_other_terms(&mut self, change: impl FnOnce(&mut Shown)) -> Vec<Effect> {
        let Some(shown) = self.shown.as_mut() else { return Vec::new() };
        change(shown);
        shown.coverages.clear();
        shown.dialog.offer(Vec::new(), self.now);
        shown.dialog.notify("Looking up what may be remembered…".to_owned());
        vec![Effect::Cover(shown.hold.id, shown.folders.clone(), shown.terms.clone())]
    }

    fn next_coverage(&mut self) {
        let Some(shown) = self.shown.as_mut() else { return };
        shown.coverage = (shown.coverage + 1) % shown.coverages.len().max(1);
        if let Some(coverage) = shown.coverages.get(shown.coverage) {
            shown.dialog.offer(coverage.offers.clone(), self.now);
        }
    }

    /// Goes over to the closed holds, or back.
    fn switch(&mut self) -> Vec<Effect> {
        self.status.clear();
        self.filter.clear();
        match self.tab {
            Tab::Waiting => {
                self.tab = Tab::Closed;
                let mut effects = self.select_at(0);
                effects.push(Effect::History);
                effects
            }
            Tab::Closed => {
                self.tab = Tab::Waiting;
                self.select_at(0)
            }
        }
    }
}

/// What follows a value in a row that begins anew after its end.
fn after<T: Copy + PartialEq>(row: &[Option<T>], value: Option<T>) -> Option<T> {
    row.iter().copied().skip_while(|other| *other != value).nth(1).flatten()
}
