//! The question as a state: keys go in, an answer comes out. Knows no terminal and reads no clock.

use std::time::Duration;

use countersign::grant::{Remember, RememberCovers};
use countersign::json::Bounds;
use countersign::show::{View, escape};
use countersign::{Answer, Json, Limits};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::body::{self, Row};
use super::choice::Choice;
use super::input::Input;
use super::pretty::pretty;

/// How long what lets a call run sleeps after it was drawn, so that a key meant for something else hits nothing.
pub(crate) const SLEEP: Duration = Duration::from_millis(700);

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// What the approver sees.
    pub(crate) view: View,
    /// The arguments as shown, to begin an edit with.
    pub(crate) arguments: Json,
    /// What the tool or agent gave along, to begin with what is given back.
    pub(crate) payload: Option<Json>,
    /// What may be chosen; the first has the focus.
    pub(crate) choices: Vec<Choice>,
    /// What may be remembered.
    pub(crate) offers: Vec<Offer>,
    /// Fields of the arguments that a grant may name; none where it may name none.
    pub(crate) fields: Vec<String>,
    /// Why the last answer was not taken.
    pub(crate) notice: Option<String>,
}

/// A grant that could be made, as a rule.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// What would be asked for.
    pub(crate) remember: Remember,
    /// How it reads, and what it would have covered. Safe to print.
    pub(crate) lines: Vec<String>,
}

/// What a key did.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// The question still stands.
    Stay,
    /// The person answered.
    Done(Answer),
    /// The person decides nothing.
    Left,
    /// The person wants to see what may be remembered, and nobody has looked yet.
    Offers,
    /// The person wants to see what would be remembered by these fields. What comes of it goes to [`Dialog::named`].
    Fields(Vec<String>),
    /// The person wants to write this text anew in their own editor. What comes of it goes to [`Dialog::rewritten`].
    Editor(String),
    /// The person wants everything to stop.
    Stop,
}

/// Where the person is.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Reading and choosing.
    Choosing,
    /// Writing why not.
    Denying(Input),
    /// Writing an answer.
    Responding(Input),
    /// Writing other arguments.
    Editing(Input),
    /// Writing what the tool gets along with a yes.
    Adding(Input),
    /// Looking at what was written.
    Checking,
    /// Writing which fields must stay the same.
    Naming(Input),
    /// Looking at the rules that could be made and cover so much.
    Remembering(RememberCovers),
}

/// What a person wrote to go along with their yes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Other arguments.
    pub(super) arguments: Option<Json>,
    /// Something for the tool.
    pub(super) payload: Option<Json>,
}

/// A question in front of a person.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub(super) question: Question,
    pub(super) stage: Stage,
    pub(super) change: Change,
    pub(super) focus: usize,
    pub(super) notice: Option<String>,
    /// The rows of the present stage at the present width.
    pub(super) rows: Vec<Row>,
    pub(super) width: usize,
    /// The first row drawn, and how many rows were drawn at once.
    pub(super) top: usize,
    pub(super) page: usize,
    /// How many rows from the first on have been drawn.
    pub(super) seen: usize,
    awake_at: Duration,
}

impl Dialog {
    /// Puts a question, at this moment.
    pub(crate) fn new(question: Question, now: Duration) -> Dialog {
        let notice = question.notice.clone();
        let mut dialog = Dialog {
            question,
            stage: Stage::Choosing,
            change: Change::default(),
            focus: 0,
            notice: None,
            rows: Vec::new(),
            width: 0,
            top: 0,
            page: 1,
            seen: 0,
            awake_at: Duration::ZERO,
        };
        dialog.enter(Stage::Choosing, now);
        dialog.notice = notice;
        dialog
    }

    /// What may be chosen at this stage.
    pub(crate) fn bar(&self) -> Vec<Choice> {
        match &self.stage {
            Stage::Choosing => self.question.choices.clone(),
            Stage::Checking => {
                let yes = if self.change.arguments.is_some() { Choice::ApproveEdited } else { Choice::ApproveAlong };
                let more =
                    [Choice::Edit, Choice::Payload].into_iter().filter(|more| self.question.choices.contains(more));
                [Choice::Back, yes].into_iter().chain(more).collect()
            }
            Stage::Remembering(covers) => {
                let offers = self.offers(covers).map(|offer| Choice::RememberIn(offer.remember.scope));
                let mut bar: Vec<Choice> = std::iter::once(Choice::Back).chain(offers).collect();
                if *covers == RememberCovers::Exact && !self.question.fields.is_empty() {
                    bar.push(Choice::Fields);
                }
                if *covers == RememberCovers::Exact && self.offers(&RememberCovers::Tool).next().is_some() {
                    bar.push(Choice::Widen);
                }
                bar
            }
            Stage::Denying(_) | Stage::Responding(_) | Stage::Editing(_) | Stage::Adding(_) | Stage::Naming(_) => {
                Vec::new()
            }
        }
    }

    /// The grants that could be made and cover so much.
    pub(super) fn offers(&self, covers: &RememberCovers) -> impl Iterator<Item = &Offer> {
        self.question.offers.iter().filter(move |offer| offer.remember.covers == *covers)
    }

    /// Whether everything there is to see was drawn.
    pub(crate) fn all_seen(&self) -> bool {
        self.seen >= self.rows.len() && self.width > 0
    }

    /// How long until a choice that lets something run may be taken; none where it may.
    pub(crate) fn sleeps(&self, now: Duration) -> Option<Duration> {
        self.awake_at.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Whether a choice cannot be taken yet: it lets something run, and not all was shown, or only just now.
    pub(crate) fn asleep(&self, choice: Choice, now: Duration) -> bool {
        choice.approves() && (!self.all_seen() || self.sleeps(now).is_some())
    }

    /// Where the person is.
    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Which of the choices has the focus.
    pub(crate) fn focus(&self) -> usize {
        self.focus
    }

    /// Why the last key did nothing; else what the choice in focus does; else nothing. Not yet escaped.
    pub(crate) fn explanation(&self, now: Duration) -> String {
        if let Some(notice) = &self.notice {
            return notice.clone();
        }
        let Some(choice) = self.bar().get(self.focus).copied() else { return String::new() };
        let why = match (choice.approves(), self.all_seen(), self.sleeps(now)) {
            (false, ..) | (true, true, None) => "",
            (true, false, _) => " Asleep until all was shown: Space turns the page.",
            (true, true, Some(_)) => " Asleep for a moment, so that no stray key approves.",
        };
        format!("{}{why}", choice.about())
    }

    /// Says why something did not work.
    pub(crate) fn notify(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    /// The rows that [`Dialog::show`] put on the screen.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().skip(self.top).take(self.page)
    }

    /// Which rows are on the screen, out of how many: none where all of them are.
    pub(crate) fn part(&self) -> Option<String> {
        let (total, end) = (self.rows.len(), (self.top + self.page).min(self.rows.len()));
        let more = if self.seen < total { "Space for more" } else { "that is all" };
        (total > self.page).then(|| format!(" rows {}-{end} of {total}: {more} ", self.top + 1))
    }

    /// Puts a page of this many rows on the screen. What is on it counts as shown.
    pub(crate) fn show(&mut self, height: usize) {
        self.page = height.max(1);
        self.top = self.top.min(self.rows.len().saturating_sub(1));
        if self.top <= self.seen {
            self.seen = self.seen.max((self.top + self.page).min(self.rows.len()));
        }
    }

    /// Moves the page by a few rows. What is new on it must be looked at, too.
    pub(crate) fn scroll(&mut self, down: isize, now: Duration) {
        let last = self.rows.len().saturating_sub(self.page);
        self.top = self.top.saturating_add_signed(down).min(last);
        if !self.all_seen() {
            self.disturbed(now);
        }
    }

    /// Turns to the next page.
    pub(crate) fn next_page(&mut self, now: Duration) {
        self.turn(now);
    }

    /// Shows the rules that could be made.
    pub(crate) fn offer(&mut self, offers: Vec<Offer>, now: Duration) {
        self.question.offers = offers;
        self.enter(Stage::Remembering(covered_by(&self.question.offers)), now);
    }

    /// Shows the rules that name these fields, or says why there are none.
    pub(crate) fn named(&mut self, fields: Vec<String>, offers: Result<Vec<Offer>, String>, now: Duration) {
        match offers {
            Err(words) => self.notice = Some(words),
            Ok(offers) => {
                let by_fields = |offer: &Offer| matches!(offer.remember.covers, RememberCovers::Fields(_));
                self.question.offers.retain(|offer| !by_fields(offer));
                self.question.offers.extend(offers);
                self.enter(Stage::Remembering(RememberCovers::Fields(fields)), now);
            }
        }
    }

    /// What is asked where fields are to be named.
    pub(crate) fn naming(&self) -> String {
        let fields: Vec<String> =
            self.question.fields.iter().enumerate().map(|(at, name)| format!("{} {}", at + 1, escape(name))).collect();
        format!("Which must stay the same? Type their numbers or names: {}", fields.join(" · "))
    }

    /// The fields somebody named, by number or by name.
    fn fields_in(&self, text: &str) -> Result<Vec<String>, String> {
        let fields = &self.question.fields;
        let mut named: Vec<String> = Vec::new();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let numbered = word.parse::<usize>().ok().and_then(|number| fields.get(number.checked_sub(1)?));
            let found = fields.iter().find(|name| *name == word).or(numbered);
            let found = found.ok_or_else(|| format!("There is no field `{}`.", escape(word)))?;
            if !named.contains(found) {
                named.push(found.clone());
            }
        }
        match named.is_empty() {
            true => Err("Name at least one, or press Esc to go back.".to_owned()),
            false => Ok(named),
        }
    }

    /// Begins anew with the first choice in focus. What was shown stays shown.
    pub(crate) fn restart(&mut self, now: Duration) {
        match self.stage {
            Stage::Choosing => (self.focus, self.notice) = (0, None),
            _ => self.enter(Stage::Choosing, now),
        }
        self.disturbed(now);
    }

    /// Takes another picture of the same question: somebody else said something, or the policy changed. It is read again.
    pub(crate) fn renew(&mut self, question: Question, now: Duration) {
        self.question = question;
        if matches!(self.stage, Stage::Choosing) {
            self.enter(Stage::Choosing, now);
        }
    }

    /// Notes that the screen was drawn anew: the size changed, or the window came back.
    pub(crate) fn disturbed(&mut self, now: Duration) {
        self.awake_at = now + SLEEP;
    }

    /// Lays the present stage out for a width. Another width is another picture, to be read again.
    pub(crate) fn lay_out(&mut self, width: usize) {
        if self.width != width {
            self.width = width;
            self.rows = body::rows(self);
            (self.top, self.seen) = (0, 0);
        }
    }

    /// Forgets what was laid out and shown: the window became too small for it.
    pub(crate) fn forget(&mut self) {
        self.width = 0;
    }

    /// Takes pasted text, where text is wanted. Anywhere else it does nothing.
    pub(crate) fn paste(&mut self, text: &str) {
        match &mut self.stage {
            Stage::Denying(input)
            | Stage::Responding(input)
            | Stage::Editing(input)
            | Stage::Adding(input)
            | Stage::Naming(input) => {
                input.paste(text);
            }
            Stage::Choosing | Stage::Checking | Stage::Remembering(_) => {}
        }
    }

    /// Takes what the person wrote in their own editor, or why they could not.
    pub(crate) fn rewritten(&mut self, written: Result<String, String>, now: Duration) {
        match (written, &mut self.stage) {
            (Err(words), Stage::Editing(_) | Stage::Adding(_)) => self.notice = Some(words),
            (Ok(text), Stage::Editing(input) | Stage::Adding(input)) => {
                // Should it be no JSON, the person goes on from there.
                *input = Input::lines(&text);
                self.look_at_it(now);
            }
            _ => return,
        }
        self.disturbed(now);
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Duration) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::Stop;
        }
        match &mut self.stage {
            Stage::Choosing | Stage::Checking | Stage::Remembering(_) => self.choosing(key, now),
            Stage::Denying(_) | Stage::Responding(_) | Stage::Naming(_) if key.code == KeyCode::Enter => self.written(),
            Stage::Editing(_) | Stage::Adding(_) if is_control(key, 's') || key.code == KeyCode::F(2) => {
                self.look_at_it(now)
            }
            Stage::Editing(input) | Stage::Adding(input) if is_control(key, 'o') || key.code == KeyCode::F(4) => {
                Step::Editor(input.text())
            }
            Stage::Denying(_) | Stage::Responding(_) | Stage::Editing(_) | Stage::Adding(_) | Stage::Naming(_)
                if key.code == KeyCode::Esc =>
            {
                self.enter(Stage::Choosing, now);
                Step::Stay
            }
            Stage::Denying(input)
            | Stage::Responding(input)
            | Stage::Editing(input)
            | Stage::Adding(input)
            | Stage::Naming(input) => {
                input.key(key);
                self.notice = None;
                Step::Stay
            }
        }
    }

    fn enter(&mut self, stage: Stage, now: Duration) {
        if matches!(stage, Stage::Choosing) {
            self.change = Change::default();
        }
        self.stage = stage;
        self.focus = 0;
        self.notice = None;
        self.width = 0;
        self.disturbed(now);
    }

    fn choosing(&mut self, key: KeyEvent, now: Duration) -> Step {
        let bar = self.bar();
        match key.code {
            KeyCode::Right | KeyCode::Down | KeyCode::Tab => self.focus = (self.focus + 1) % bar.len().max(1),
            KeyCode::Left | KeyCode::Up | KeyCode::BackTab => {
                self.focus = self.focus.checked_sub(1).unwrap_or(bar.len().saturating_sub(1));
            }
            KeyCode::Char(' ') | KeyCode::PageDown => self.turn(now),
            KeyCode::PageUp => self.top = self.top.saturating_sub(self.page),
            KeyCode::Home => self.top = 0,
            KeyCode::Esc => {
                let back = !matches!(self.stage, Stage::Choosing);
                if back {
                    self.enter(Stage::Choosing, now);
                }
                self.focus = 0;
            }
            KeyCode::Enter => {
                if let Some(choice) = bar.get(self.focus) {
                    return self.take(*choice, now);
                }
            }
            KeyCode::Char(letter) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                let letter = letter.to_ascii_lowercase();
                if let Some(at) = bar.iter().position(|choice| choice.letter() == letter) {
                    self.focus = at;
                    return bar.get(at).map_or(Step::Stay, |choice| self.take(*choice, now));
                }
            }
            _ => {}
        }
        Step::Stay
    }

    /// Turns to the next page. What is new on it must be looked at, too.
    fn turn(&mut self, now: Duration) {
        // The last page is a full one, so that the eye finds what it has read.
        let next = (self.top + self.page).min(self.rows.len().saturating_sub(self.page));
        if next > self.top {
            self.top = next;
            self.disturbed(now);
        }
    }

    /// Takes a choice. What lets something run is taken only when all was shown, and not in the first moment.
    fn take(&mut self, choice: Choice, now: Duration) -> Step {
        if choice.approves() {
            if !self.all_seen() {
                self.notice = Some("Here is more to read first; press again when you have read it all.".to_owned());
                self.top = self.seen.min(self.rows.len().saturating_sub(self.page));
                self.disturbed(now);
                return Step::Stay;
            }
            if self.sleeps(now).is_some() {
                // A key that is held down, or comes too early, never gets through by repeating itself.
                self.notice = Some("Too soon: look first, then press again.".to_owned());
                self.disturbed(now);
                return Step::Stay;
            }
        }
        self.notice = None;
        match choice {
            Choice::Leave => Step::Left,
            Choice::Approve => Step::Done(Answer::approve()),
            Choice::Deny => self.go(Stage::Denying(Input::line()), now),
            Choice::Respond => self.go(Stage::Responding(Input::line()), now),
            Choice::Edit => {
                let begun = Input::lines(&pretty(self.change.arguments.as_ref().unwrap_or(&self.question.arguments)));
                self.go(Stage::Editing(begun), now)
            }
            Choice::Payload => {
                let given = self.change.payload.as_ref().or(self.question.payload.as_ref());
                let begun = Input::lines(&given.map(pretty).unwrap_or_default());
                self.go(Stage::Adding(begun), now)
            }
            Choice::Remember if self.question.offers.is_empty() => Step::Offers,
            Choice::Remember => self.go(Stage::Remembering(covered_by(&self.question.offers)), now),
            Choice::Fields => self.go(Stage::Naming(Input::line()), now),
            Choice::Widen => self.go(Stage::Remembering(RememberCovers::Tool), now),
            Choice::Back => self.go(Stage::Choosing, now),
            Choice::ApproveEdited | Choice::ApproveAlong => {
                let Change { arguments, payload } = self.change.clone();
                Step::Done(Answer::Approve { arguments, payload, remember: None })
            }
            Choice::RememberIn(scope) => {
                let Stage::Remembering(covers) = &self.stage else { return Step::Stay };
                let Some(offer) = self.offers(covers).find(|offer| offer.remember.scope == scope) else {
                    return Step::Stay;
                };
                let remember = offer.remember.clone();
                Step::Done(Answer::Approve { arguments: None, payload: None, remember: Some(remember) })
            }
        }
    }

    fn go(&mut self, stage: Stage, now: Duration) -> Step {
        self.enter(stage, now);
        Step::Stay
    }

    fn written(&mut self) -> Step {
        match &self.stage {
            Stage::Denying(input) => {
                let reason = input.text().trim().to_owned();
                Step::Done(Answer::Deny { reason: (!reason.is_empty()).then_some(reason) })
            }
            Stage::Responding(input) if input.text().trim().is_empty() => {
                self.notice = Some("Write something, or press Esc to go back.".to_owned());
                Step::Stay
            }
            Stage::Responding(input) => Step::Done(Answer::Respond { response: said(&input.text()) }),
            Stage::Naming(input) => match self.fields_in(&input.text()) {
                Ok(fields) => Step::Fields(fields),
                Err(words) => {
                    self.notice = Some(words);
                    Step::Stay
                }
            },
            Stage::Choosing | Stage::Editing(_) | Stage::Adding(_) | Stage::Checking | Stage::Remembering(_) => {
                Step::Stay
            }
        }
    }

    /// Shows what was written, if it says something new.
    fn look_at_it(&mut self, now: Duration) -> Step {
        let written = match &self.stage {
            Stage::Editing(input) => self.edited(&input.text()),
            Stage::Adding(input) => self.added(&input.text()),
            _ => return Step::Stay,
        };
        match written {
            Ok(change) => {
                self.change = change;
                self.go(Stage::Checking, now)
            }
            Err(words) => {
                self.notice = Some(words);
                Step::Stay
            }
        }
    }

    fn edited(&self, text: &str) -> Result<Change, String> {
        let arguments = Json::arguments(text, &Limits::default()).map_err(|error| format!("Not yet: {error}"))?;
        match arguments == self.question.arguments {
            true => Err(UNCHANGED.to_owned()),
            false => Ok(Change { arguments: Some(arguments), ..self.change.clone() }),
        }
    }

    fn added(&self, text: &str) -> Result<Change, String> {
        let text = text.trim();
        // Plain words are a text. What begins like JSON is meant as JSON.
        let payload = match Json::ingest(text, Bounds::PAYLOAD) {
            Ok(payload) => payload,
            Err(error) if text.is_empty() || text.starts_with(['{', '[', '"']) => {
                return Err(format!("Not yet: {error}"));
            }
            Err(_) => Json::string(text),
        };
        match self.question.payload.as_ref() == Some(&payload) {
            true => Err(UNCHANGED.to_owned()),
            false => Ok(Change { payload: Some(payload), ..self.change.clone() }),
        }
    }
}

const UNCHANGED: &str = "Nothing is changed yet. Esc goes back.";

fn is_control(key: KeyEvent, letter: char) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char(letter)
}

/// What a person typed, as JSON where it is JSON, else as a text.
fn said(text: &str) -> Json {
    Json::ingest(text.trim(), Bounds::PAYLOAD).unwrap_or_else(|_| Json::string(text.trim()))
}

/// What the first of some grants covers.
fn covered_by(offers: &[Offer]) -> RememberCovers {
    offers.first().map_or(RememberCovers::Exact, |offer| offer.remember.covers.clone())
}
