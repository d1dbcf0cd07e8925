//! The question as a person meets it: keys in, screen and answer out.

use std::time::Duration;

use countersign::grant::{Remember, RememberCovers};
use countersign::show::{Line, LineKind, View};
use countersign::{Answer, Json};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::choice::Choice;
use super::dialog::{Dialog, Offer, Question, SLEEP, Step};
use super::draw::draw;

const SIZE: (usize, usize) = (80, 24);
/// A moment when nothing sleeps any more.
const LATER: Duration = Duration::from_secs(1);

fn question(lines: usize) -> Question {
    let line = |index: usize| Line {
        kind: LineKind::Argument,
        indent: 0,
        label: format!("line{index}"),
        text: format!("{index}"),
    };
    let view = View { title: "delete_file".into(), lines: (0..lines).map(line).collect(), warnings: Vec::new() };
    let offer = |remember, rule: &str| Offer { remember, lines: vec![rule.to_owned()] };
    let whole = Remember { covers: RememberCovers::Tool, ..Remember::global() };
    Question {
        view,
        arguments: Json::of(&serde_json::json!({"path": "a"})).unwrap(),
        payload: None,
        choices: vec![Choice::Deny, Choice::Approve, Choice::Edit, Choice::Payload, Choice::Respond, Choice::Remember],
        offers: vec![
            offer(Remember::session(), "allow delete_file here"),
            offer(Remember::global(), "allow delete_file everywhere"),
            offer(whole, "allow delete_file with any arguments"),
        ],
        fields: vec!["path".to_owned(), "mode 2".to_owned()],
        notice: None,
    }
}

/// A person in front of a question, at a clock that only the test moves.
struct Person {
    dialog: Dialog,
    now: Duration,
    size: (usize, usize),
}

impl Person {
    fn before(lines: usize) -> Person {
        let mut person =
            Person { dialog: Dialog::new(question(lines), Duration::ZERO), now: Duration::ZERO, size: SIZE };
        person.look();
        person
    }

    fn look(&mut self) -> String {
        let left = Some(Duration::from_secs(299));
        let screen = draw(&mut self.dialog, self.size, left, self.now);
        assert!(screen.rows.len() <= self.size.1, "the screen has {} rows", screen.rows.len());
        let rows: Vec<String> = screen.rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect();
        for row in &rows {
            let width = unicode_width::UnicodeWidthStr::width(row.as_str());
            assert!(width <= self.size.0, "{width} columns: {row}");
        }
        rows.join("\n")
    }

    fn wait(&mut self, time: Duration) -> &mut Person {
        self.now += time;
        self
    }

    fn press(&mut self, code: KeyCode) -> Step {
        let step = self.dialog.key(KeyEvent::new(code, KeyModifiers::NONE), self.now);
        self.look();
        step
    }

    fn write(&mut self, text: &str) {
        for char in text.chars() {
            assert_eq!(self.press(KeyCode::Char(char)), Step::Stay);
        }
    }
}

/// B126: deny has the focus, so that Enter alone never approves; the first Enter asks why.
#[test]
fn enter_alone_denies() {
    let mut person = Person::before(3);
    assert!(person.look().contains("[d Deny]"), "{}", person.look());
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Enter), Step::Stay);
    person.write("no thanks");
    assert_eq!(person.press(KeyCode::Enter), Step::Done(Answer::deny("no thanks")));
}

/// B126: arrow keys and Enter approve, once the first moment is over.
#[test]
fn arrow_and_enter_approve_after_the_first_moment() {
    let mut person = Person::before(3);
    person.press(KeyCode::Right);
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Enter), Step::Done(Answer::approve()));
    let mut person = Person::before(3);
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(Answer::approve()));
}

/// Keys in the first moment, and keys held down through it, approve nothing.
#[test]
fn stray_keys_never_approve() {
    let keys = [
        KeyCode::Char('a'),
        KeyCode::Enter,
        KeyCode::Right,
        KeyCode::Char('A'),
        KeyCode::Tab,
        KeyCode::Char('m'),
        KeyCode::Char('s'),
        KeyCode::Char('g'),
        KeyCode::Char(' '),
        KeyCode::Esc,
        KeyCode::Char('y'),
    ];
    let mut seed = 7u64;
    for round in 0..400 {
        let mut person = Person::before(1 + round % 40);
        for _ in 0..50 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = keys[(seed >> 33) as usize % keys.len()];
            let step = person.press(key);
            assert!(!matches!(step, Step::Done(Answer::Approve { .. })), "round {round}: {key:?} approved");
            person.wait(Duration::from_millis(13));
        }
    }
    let mut person = Person::before(3);
    for _ in 0..300 {
        assert_eq!(person.press(KeyCode::Char('a')), Step::Stay, "a key held down never gets through");
        person.wait(Duration::from_millis(30));
    }
    person.wait(SLEEP);
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(Answer::approve()), "released, and pressed again");
}

/// Approve sleeps until every row was on the screen, also where a key would jump.
#[test]
fn approve_needs_the_whole_view() {
    let mut person = Person::before(100);
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('a')), Step::Stay);
    assert!(person.look().contains("more to read"), "{}", person.look());
    let mut pages = 0;
    while !person.dialog.all_seen() {
        person.wait(LATER);
        assert_eq!(person.press(KeyCode::Char(' ')), Step::Stay);
        pages += 1;
        assert!(pages < 10, "every page shows something new");
    }
    assert!(pages >= 4, "100 rows do not fit on {pages} pages of 18");
    assert_eq!(person.press(KeyCode::Char('a')), Step::Stay, "the last page, too, is looked at first");
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(Answer::approve()));
}

/// Another width is another picture: what was read there does not count here.
#[test]
fn a_narrower_window_is_read_again() {
    let mut person = Person::before(14);
    person.wait(LATER);
    assert!(person.dialog.all_seen());
    person.size = (60, 12);
    person.look();
    assert!(!person.dialog.all_seen());
    assert_eq!(person.press(KeyCode::Char('a')), Step::Stay);
    person.size = (20, 5);
    assert!(person.look().contains("Make the window"), "{}", person.look());
    assert!(!person.dialog.all_seen());
    assert_eq!(person.press(KeyCode::Char('a')), Step::Stay, "what cannot be shown is not approved");
}

#[test]
fn edited_arguments_are_shown_before_they_are_approved() {
    let mut person = Person::before(3);
    assert_eq!(person.press(KeyCode::Char('e')), Step::Stay);
    let save = KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL);
    assert_eq!(person.dialog.key(save, person.now), Step::Stay);
    assert!(person.look().contains("Nothing is changed"), "{}", person.look());
    person.press(KeyCode::Down);
    person.press(KeyCode::End);
    person.press(KeyCode::Backspace);
    assert_eq!(person.dialog.key(save, person.now), Step::Stay);
    assert!(person.look().contains("Not yet"), "{}", person.look());
    person.write("b\"");
    person.dialog.key(save, person.now);
    let screen = person.look();
    assert!(screen.contains("-   \"path\": \"a\"") && screen.contains("+   \"path\": \"ab\""), "{screen}");
    assert!(screen.contains("[b Back]"), "{screen}");
    person.wait(LATER);
    let arguments = Some(Json::of(&serde_json::json!({"path": "ab"})).unwrap());
    let expected = Answer::Approve { arguments, payload: None, remember: None };
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(expected));
}

/// What goes along with a yes is shown before it goes, alone or beside other arguments, and is JSON where it looks so.
#[test]
fn what_goes_along_is_shown_before_it_is_approved() {
    let save = KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL);
    let mut person = Person::before(3);
    assert_eq!(person.press(KeyCode::Char('p')), Step::Stay);
    for (typed, notice) in [("", "Not yet"), ("{\"only\": 3", "Not yet")] {
        person.write(typed);
        assert_eq!(person.dialog.key(save, person.now), Step::Stay);
        assert!(person.look().contains(notice), "{}", person.look());
    }
    person.write("}");
    person.dialog.key(save, person.now);
    let screen = person.look();
    assert!(screen.contains("gets this along") && screen.contains("+   \"only\": 3"), "{screen}");
    assert!(screen.contains("[b Back]") && !screen.contains("This is what changes"), "{screen}");
    assert_eq!(person.press(KeyCode::Char('a')), Step::Stay, "it is looked at first");
    // Other arguments join what was written already.
    person.press(KeyCode::Char('e'));
    person.dialog.paste("");
    person.press(KeyCode::Down);
    person.press(KeyCode::End);
    person.press(KeyCode::Backspace);
    person.write("b\"");
    person.dialog.key(save, person.now);
    let screen = person.look();
    assert!(screen.contains("+   \"path\": \"ab\"") && screen.contains("+   \"only\": 3"), "{screen}");
    person.wait(LATER);
    let json = |value: serde_json::Value| Some(Json::of(&value).unwrap());
    let (arguments, payload) = (json(serde_json::json!({"path": "ab"})), json(serde_json::json!({"only": 3})));
    let both = Answer::Approve { arguments, payload, remember: None };
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(both));
    // Gone back, nothing of it is left.
    let mut person = Person::before(3);
    person.press(KeyCode::Char('p'));
    person.write("plain words");
    person.dialog.key(save, person.now);
    person.wait(LATER);
    let payload = Some(Json::string("plain words"));
    assert_eq!(person.dialog.change.payload, payload);
    assert_eq!(person.press(KeyCode::Esc), Step::Stay);
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('a')), Step::Done(Answer::approve()));
}

/// B65: the rule is shown before it is made.
#[test]
fn a_grant_is_shown_as_a_rule_first() {
    let mut person = Person::before(3);
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('m')), Step::Stay);
    assert!(person.look().contains("allow delete_file"), "{}", person.look());
    assert_eq!(person.press(KeyCode::Char('s')), Step::Stay, "the rule, too, is looked at first");
    person.wait(LATER);
    let expected = Answer::Approve { arguments: None, payload: None, remember: Some(Remember::session()) };
    assert_eq!(person.press(KeyCode::Char('s')), Step::Done(expected));
}

/// B63: a whole tool is remembered by a second, explicit act, which shows its rule first.
#[test]
fn the_whole_tool_takes_a_second_act() {
    let mut person = Person::before(3);
    person.press(KeyCode::Char('m'));
    let screen = person.look();
    assert!(screen.contains("delete_file everywhere") && !screen.contains("with any arguments"), "{screen}");
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('t')), Step::Stay);
    let screen = person.look();
    assert!(screen.contains("with any arguments") && !screen.contains("delete_file everywhere"), "{screen}");
    assert_eq!(person.press(KeyCode::Char('g')), Step::Stay, "it is looked at first");
    person.wait(LATER);
    let remember = Some(Remember { covers: RememberCovers::Tool, ..Remember::global() });
    let expected = Answer::Approve { arguments: None, payload: None, remember };
    assert_eq!(person.press(KeyCode::Char('s')), Step::Stay, "what may not be made is not on the bar");
    assert_eq!(person.press(KeyCode::Char('g')), Step::Done(expected));
}

/// B65: fields are named by number or name; the rule and its predicate are shown before they are made.
#[test]
fn a_grant_by_fields_is_shown_before_it_is_made() {
    let mut person = Person::before(3);
    person.press(KeyCode::Char('m'));
    person.wait(LATER);
    assert_eq!(person.press(KeyCode::Char('f')), Step::Stay);
    let screen = person.look();
    assert!(screen.contains("1 path") && screen.contains("2 mode 2"), "{screen}");
    for (typed, words) in [("", "at least one"), ("3", "no field `3`"), ("x", "no field `3x`")] {
        person.write(typed);
        assert_eq!(person.press(KeyCode::Enter), Step::Stay);
        assert!(person.look().contains(words), "{}", person.look());
    }
    person.press(KeyCode::Backspace);
    person.press(KeyCode::Backspace);
    person.write("path, 2 1");
    let fields = vec!["path".to_owned(), "mode 2".to_owned()];
    assert_eq!(person.press(KeyCode::Enter), Step::Fields(fields.clone()));
    person.dialog.named(fields.clone(), Err("a shell is never remembered so".to_owned()), person.now);
    assert!(person.look().contains("never remembered so"), "{}", person.look());
    let remember = Remember { covers: RememberCovers::Fields(fields.clone()), ..Remember::session() };
    let lines =
        vec!["allow delete_file whenever the same in path, mode 2".to_owned(), "where path is \"a\"".to_owned()];
    person.dialog.named(fields, Ok(vec![Offer { remember: remember.clone(), lines }]), person.now);
    let screen = person.look();
    assert!(screen.contains("the same in path") && screen.contains("where path is \"a\""), "{screen}");
    assert_eq!(person.press(KeyCode::Char('s')), Step::Stay, "it is looked at first");
    person.wait(LATER);
    let expected = Answer::Approve { arguments: None, payload: None, remember: Some(remember) };
    assert_eq!(person.press(KeyCode::Char('s')), Step::Done(expected));
}

#[test]
fn an_answer_is_json_where_it_is_json() {
    for (typed, expected) in [("[1, 2]", "[1,2]"), ("it is done", "\"it is done\"")] {
        let mut person = Person::before(3);
        person.press(KeyCode::Char('r'));
        assert_eq!(person.press(KeyCode::Enter), Step::Stay, "nothing is no answer");
        person.write(typed);
        let Step::Done(Answer::Respond { response }) = person.press(KeyCode::Enter) else { panic!("no answer") };
        assert_eq!(response.as_str(), expected);
    }
}

/// Pasted text decides nothing where a choice is wanted.
#[test]
fn pasted_text_is_never_a_key() {
    let mut person = Person::before(3);
    person.wait(LATER);
    person.dialog.paste("a\r\na\r\n");
    assert!(person.look().contains("[d Deny]"));
}

/// B126: the countdown is on the box, and no sign is a colour alone.
#[test]
fn the_box_says_everything_without_colour() {
    let mut person = Person::before(30);
    let screen = person.look();
    assert!(screen.contains("4:59 left"), "{screen}");
    assert!(screen.contains("(Approve)"), "what sleeps is in brackets: {screen}");
    assert!(screen.contains("Space for more"), "{screen}");
    for size in [(40, 10), (80, 24), (160, 50)] {
        person.size = size;
        person.look();
    }
}

/// B126: in a narrow window, too, the choice in focus is on the screen, and a notice says all it has to say.
#[test]
fn a_narrow_window_cuts_neither_choices_nor_notices() {
    let whole = |screen: &str| screen.lines().map(|row| row.trim_matches(['│', ' '])).collect::<String>();
    for size in [(40, 10), (40, 14), (60, 12)] {
        let mut person = Person::before(30);
        person.size = size;
        for (stage, keys) in [(None, 6), (Some('m'), 5)] {
            stage.map(|stage| person.press(KeyCode::Char(stage)));
            for _ in 0..keys {
                let screen = person.look();
                let focus = screen.find('[').unwrap_or_else(|| panic!("nothing has the focus: {screen}"));
                assert!(screen[focus..].split('\n').next().unwrap().contains(']'), "{screen}");
                person.press(KeyCode::Right);
            }
        }
    }
    let notice = "Not taken: somebody else has decided about this call, and their decision stands.";
    for size in [(40, 14), (60, 12)] {
        let mut person = Person::before(30);
        person.size = size;
        person.dialog.notify(notice.to_owned());
        let screen = whole(&person.look());
        assert!(screen.replace(' ', "").contains(&notice.replace(' ', "")), "{screen}");
        person.dialog.notify("x".repeat(10_000));
        assert!(person.look().contains('…'), "what does not fit is cut with a sign");
    }
    for stage in ['d', 'e', 'p', 'r'] {
        let mut person = Person::before(3);
        person.size = (40, 10);
        person.press(KeyCode::Char(stage));
        person.write("some words that are longer than one row of so narrow a window");
    }
}

#[test]
fn control_c_stops_at_every_stage() {
    for stage in ['d', 'e', 'p', 'r', 'm'] {
        let mut person = Person::before(3);
        person.press(KeyCode::Char(stage));
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(person.dialog.key(stop, person.now), Step::Stop);
    }
}
