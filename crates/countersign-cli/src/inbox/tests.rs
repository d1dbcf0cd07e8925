//! The inbox as a person meets it: messages in, screen and effects out, at a clock that only the test moves.

use std::time::Duration;

use countersign::{Answer, HoldId};
use countersign_api::wire;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::follow::{Link, News};
use super::source::{Closed, Coverage, Listing, Terms};
use super::state::{Effect, Message, Mode, State};
use super::view::view;
use crate::prompt::Offer;

mod screens;
mod together;

const AT: &str = "2026-01-02T03:04:05Z";
/// Long enough for what sleeps to wake.
const LATER: Duration = Duration::from_secs(1);

fn id(number: u8) -> HoldId {
    HoldId::from_bytes([number; 16])
}

fn hold(number: u8, tool: &str, arguments: serde_json::Value) -> wire::Hold {
    let digest = format!("cs1c:{}", format!("{number:02x}").repeat(32));
    let value = json!({
        "id": id(number), "call": countersign::CallId::from_bytes([number; 16]), "state": "pending",
        "tool": tool, "server": null, "arguments": arguments, "masked": false, "digest": digest,
        "argument_digest": null, "title": tool, "principal": "bot", "requester": null, "session": "s1", "run": null,
        "thread": null, "agent": ["planner"], "because": [], "risk": "medium",
        "approvals": [{"approvals": 1, "from": [], "have": 0}], "human_required": false, "requester_excluded": false,
        "remember": "global", "on_expired": "refuse", "in_run": false, "hint": null, "payload": null, "decisions": [],
        "refusal": null, "opened_at": AT, "expires_at": "2026-01-02T03:14:05Z"
    });
    serde_json::from_str(&value.to_string()).unwrap()
}

/// A hold with this many lines of arguments.
fn detail(hold: &wire::Hold, lines: usize) -> wire::HoldDetail {
    let line = |kind: &str, label: &str, text: String| json!({"kind": kind, "indent": 0, "label": label, "text": text});
    let mut view = vec![line("fact", "tool", hold.tool.clone()), line("fact", "session", "s1".to_owned())];
    view.extend((0..lines).map(|at| line("argument", &format!("line{at}"), at.to_string())));
    let value = json!({
        "hold": hold, "arguments_text": hold.arguments.as_str(),
        "verdict": {"effect": "ask", "because": [], "matched": [], "policy": "p1"},
        "view": view, "warnings": [], "definition": null, "superseded_by": null, "siblings": [], "halted": false,
        "now": AT
    });
    serde_json::from_str(&value.to_string()).unwrap()
}

fn listing(holds: &[wire::Hold]) -> Listing {
    let now: Timestamp = AT.parse().unwrap();
    Listing { holds: holds.to_vec(), more: false, now, halted: false, policy: "p1".to_owned() }
}

fn decided(hold: &wire::Hold, state: &str) -> Box<wire::Decided> {
    let call = json!({
        "id": hold.call, "state": "approved", "principal": "bot", "requester": null, "session": "s1", "run": null,
        "thread": null, "agent": [], "tool": hold.tool, "server": null, "arguments": {}, "masked": false,
        "digest": hold.digest, "label": null, "verdict": {"effect": "ask", "because": [], "matched": [], "policy": "p1"},
        "holds": [], "grant": null, "decided_by": null, "outcome": null, "response": null, "resolution": null,
        "refusal": null, "words": null, "created_at": AT, "updated_at": AT
    });
    let value = json!({
        "hold": hold.id, "state": state, "replayed": false, "grant": null, "released": 0, "superseded_by": null,
        "call": call
    });
    Box::new(serde_json::from_str(&value.to_string()).unwrap())
}

/// What ann said in the browser.
fn said_no(reason: &str) -> wire::Decision {
    let value = json!({
        "by": "ann", "kind": "person", "channel": "web", "answer": "deny", "reason": reason, "at": AT
    });
    serde_json::from_value(value).unwrap()
}

/// A person in front of the inbox.
struct Person {
    state: State,
    now: Duration,
}

impl Person {
    /// In front of these holds, the first of which was read.
    fn before(holds: &[wire::Hold]) -> Person {
        Person::at(holds, (80, 24), 3)
    }

    fn at(holds: &[wire::Hold], size: (u16, u16), lines: usize) -> Person {
        let state = State::new("sqlite:a.db".to_owned(), true, size, listing(holds), Duration::ZERO);
        let mut person = Person { state, now: Duration::ZERO };
        let effects = person.state.begin();
        if let Some(first) = holds.first() {
            assert_eq!(effects, [Effect::Load(first.id)]);
            person.gets(Message::Detail(first.id, Ok(Box::new(detail(first, lines)))));
        }
        person
    }

    fn gets(&mut self, message: Message) -> Vec<Effect> {
        let effects = self.state.update(message, self.now);
        self.look();
        effects
    }

    fn press(&mut self, code: KeyCode) -> Vec<Effect> {
        self.gets(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn types(&mut self, text: &str) -> Vec<Effect> {
        text.chars().flat_map(|char| self.press(KeyCode::Char(char))).collect()
    }

    fn wait(&mut self, time: Duration) -> &mut Person {
        self.now += time;
        self.gets(Message::Tick);
        self
    }

    /// What is on the screen: one text, a line for each row.
    fn look(&self) -> String {
        let (columns, rows) = self.state.size;
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| view(frame, &self.state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |row: u16| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..rows).map(|at| row(at).trim_end().to_owned() + "\n").collect()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        assert!(self.look().contains(text), "`{text}` is not on\n{}", self.look());
    }

    #[track_caller]
    fn sees_not(&self, text: &str) {
        assert!(!self.look().contains(text), "`{text}` is on\n{}", self.look());
    }
}

fn two() -> [wire::Hold; 2] {
    [hold(1, "write_file", json!({"path": "a/b", "n": 1})), hold(2, "pay", json!({"to": "Bo"}))]
}

fn approve(hold: &wire::Hold) -> Effect {
    Effect::Decide(hold.id, hold.digest, Answer::approve())
}

/// B126: approving from the list asks once more, with deny in focus; the decision names hold and digest as drawn.
#[test]
fn approve_is_confirmed_and_carries_what_was_drawn() {
    let holds = two();
    let mut person = Person::before(&holds);
    assert_eq!(person.wait(LATER).types("a"), []);
    person.sees("[d Deny]");
    person.sees("a (Approve)");
    person.sees("press a again");
    assert_eq!(person.types("a"), [], "too soon");
    person.sees("Too soon");
    assert_eq!(person.wait(LATER).types("a"), [approve(&holds[0])]);
    assert_eq!(person.wait(LATER).types("aaddq"), [], "a decision is on its way");
    assert_eq!(person.gets(Message::Decided(id(1), Ok(decided(&holds[0], "approved")))), [Effect::Load(id(2))]);
    person.sees("write_file: approved");
    person.sees("1 call waits");
}

/// B126: arrow keys and Enter do the same; Enter alone denies, and asks why first.
#[test]
fn enter_alone_denies_with_a_reason() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.wait(LATER).press(KeyCode::Enter);
    assert_eq!(person.wait(LATER).press(KeyCode::Enter), []);
    person.sees("Why not?");
    assert_eq!(person.types("no, a bad q"), []);
    let deny = Effect::Decide(id(1), holds[0].digest, Answer::deny("no, a bad q"));
    assert_eq!(person.press(KeyCode::Enter), [deny]);

    let mut person = Person::before(&holds);
    person.press(KeyCode::Enter);
    person.press(KeyCode::Right);
    assert_eq!(person.wait(LATER).press(KeyCode::Enter), [approve(&holds[0])]);
}

/// safety.md: the next hold never gets the last answer, whatever comes while a person writes.
#[test]
fn a_hold_that_closes_elsewhere_takes_the_keys_away() {
    let holds = two();
    for engaged in ["d", "e", "a"] {
        let mut person = Person::before(&holds);
        person.wait(LATER).types(engaged);
        let effects = person.gets(Message::News(News::Listed(listing(&holds[1..]))));
        assert_eq!(effects, [Effect::Load(id(1))], "who was it?");
        assert_eq!(person.types("a"), [], "nothing is decided about what is gone");
        let mut closed = holds[0].clone();
        closed.state = serde_json::from_value(json!("denied")).unwrap();
        closed.decisions = vec![said_no("no\u{1b}[2J")];
        assert_eq!(person.gets(Message::Detail(id(1), Ok(Box::new(detail(&closed, 3))))), []);
        person.sees("was denied by ann via web: no\\u{1b}[2J");
        assert_eq!(person.wait(LATER).types("aaadqq"), [], "letters go nowhere");
        assert_eq!(person.press(KeyCode::Enter), [Effect::Load(id(2))]);
        person.gets(Message::Detail(id(2), Ok(Box::new(detail(&holds[1], 3)))));
        person.sees("pay");
        assert!(matches!(person.state.mode, Mode::List));
    }
}

/// A hold that closes while nobody reads it makes room for the next, and the status line says why.
#[test]
fn a_list_moves_on_by_itself_when_nobody_reads() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.gets(Message::News(News::Listed(listing(&holds[1..]))));
    let mut closed = holds[0].clone();
    closed.state = serde_json::from_value(json!("expired")).unwrap();
    let effects = person.gets(Message::Detail(id(1), Ok(Box::new(detail(&closed, 3)))));
    assert_eq!(effects, [Effect::Load(id(2))]);
    person.sees("write_file was expired");
}

/// A listing that was made before a decision and comes after it brings nothing back.
#[test]
fn an_older_listing_reopens_nothing() {
    let [first, second] = two();
    let mut person = Person::before(std::slice::from_ref(&first));
    person.wait(LATER).types("a");
    assert_eq!(person.wait(LATER).types("a"), [approve(&first)]);
    person.gets(Message::Decided(first.id, Ok(decided(&first, "approved"))));
    assert_eq!(person.gets(Message::News(News::Listed(listing(std::slice::from_ref(&first))))), []);
    person.sees("approved");
    person.sees("nothing waits");
    // The next one names what is new.
    let effects = person.gets(Message::News(News::Listed(listing(&[first, second.clone()]))));
    assert_eq!(effects, [Effect::Load(second.id)]);
    person.sees("1 call waits");
}

/// B128: approve sleeps until every row was on the screen.
#[test]
fn approve_needs_the_whole_view() {
    let holds = two();
    let mut person = Person::at(&holds, (80, 24), 100);
    person.wait(LATER).types("a");
    assert_eq!(person.wait(LATER).types("a"), []);
    person.sees("more to read");
    for _ in 0..10 {
        person.wait(LATER).types(" ");
    }
    person.sees("that is all");
    assert_eq!(person.wait(LATER).types("a"), [approve(&holds[0])]);
}

/// safety.md: stray keys never approve: not in the first moment of a hold, and not when held down.
#[test]
fn stray_keys_never_approve() {
    let keys: Vec<KeyCode> = "aadAsgmjky er\u{7f}".chars().map(KeyCode::Char).collect();
    let others = [KeyCode::Enter, KeyCode::Right, KeyCode::Tab, KeyCode::Esc, KeyCode::Down];
    let keys: Vec<KeyCode> = keys.into_iter().chain(others).collect();
    let (holds, mut seed) = (two(), 11u64);
    for round in 0..300 {
        let mut person = Person::before(&holds);
        for _ in 0..50 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = KeyEvent::new(keys[(seed >> 33) as usize % keys.len()], KeyModifiers::NONE);
            let effects = person.state.update(Message::Key(key), person.now);
            let approves = |effect: &Effect| matches!(effect, Effect::Decide(_, _, Answer::Approve { .. }));
            assert!(!effects.iter().any(approves), "round {round}: {effects:?}");
            person.now += Duration::from_millis(13);
        }
    }
}

/// Another hold, another size, or a window that comes back is looked at first.
#[test]
fn every_change_of_the_picture_puts_approve_to_sleep() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.press(KeyCode::Enter);
    person.wait(LATER);
    let mut other = holds[0].clone();
    other.risk = serde_json::from_value(json!("high")).unwrap();
    let changes: [fn(wire::HoldDetail) -> Message; 3] =
        [|_| Message::Resized(90, 30), |_| Message::Returned, |detail| Message::Detail(id(1), Ok(Box::new(detail)))];
    for change in changes {
        person.gets(change(detail(&other, 3)));
        assert_eq!(person.types("a"), []);
        person.sees("a (Approve)");
        person.wait(LATER);
        person.sees("a Approve");
    }
    assert_eq!(person.types("a"), [approve(&other)]);
}

/// What cannot be shown is not approved; when there is room again, it is read again.
#[test]
fn a_window_that_is_too_small_takes_no_decision() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.press(KeyCode::Enter);
    person.wait(LATER).gets(Message::Resized(49, 13));
    person.sees("Make the window larger");
    assert_eq!(person.wait(LATER).types("aadm"), []);
    person.gets(Message::Resized(80, 24));
    assert_eq!(person.types("a"), []);
    assert_eq!(person.wait(LATER).types("a"), [approve(&holds[0])]);
    person.gets(Message::Resized(1, 1));
    assert_eq!(person.types("q"), [Effect::Quit]);
}

/// A server that goes away is said so, and what was decided meanwhile is not lost on the screen.
#[test]
fn a_lost_connection_is_shown_until_it_is_back() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.sees("● live");
    person.gets(Message::News(News::Lost(Link::Lost("the server cannot be reached".to_owned()))));
    person.sees("○ no connection, trying again");
    person.sees("the server cannot be reached");
    person.wait(LATER).types("a");
    assert_eq!(person.wait(LATER).types("a"), [approve(&holds[0])], "the server has the last word");
    assert_eq!(person.gets(Message::Decided(id(1), Err("not reached".to_owned()))), [Effect::Load(id(1))]);
    person.sees("not reached");
    person.gets(Message::News(News::Listed(listing(&holds))));
    person.sees("● live");
}

/// B65: the stored predicate is shown before it is made, and each coverage is looked at first.
#[test]
fn a_grant_is_shown_as_a_rule_and_its_coverage_can_be_changed() {
    use countersign::grant::{Remember, RememberCovers};
    let holds = two();
    let mut person = Person::before(&holds);
    assert_eq!(person.wait(LATER).types("m"), [Effect::Cover(id(1), Vec::new(), Terms::default())]);
    let coverage = |covers: &RememberCovers| Coverage {
        words: format!("{covers:?}"),
        offers: vec![Offer {
            remember: Remember { covers: covers.clone(), ..Remember::session() },
            lines: vec![format!("allow {covers:?}")],
        }],
    };
    let both = [RememberCovers::Exact, RememberCovers::Tool];
    person.gets(Message::Coverages(id(1), Terms::default(), Ok(both.iter().map(coverage).collect())));
    person.sees("allow Exact");
    assert_eq!(person.wait(LATER).types("c"), []);
    person.sees("allow Tool");
    assert_eq!(person.types("s"), [], "it is looked at first");
    let remember = Some(Remember { covers: RememberCovers::Tool, ..Remember::session() });
    let answer = Answer::Approve { arguments: None, payload: None, remember };
    assert_eq!(person.wait(LATER).types("s"), [Effect::Decide(id(1), holds[0].digest, answer)]);

    // What may not be remembered is said; a late answer about another hold changes nothing.
    let mut person = Person::before(&holds);
    person.wait(LATER).types("m");
    person.gets(Message::Coverages(id(2), Terms::default(), Ok(both.iter().map(coverage).collect())));
    person.sees_not("allow Exact");
    person.gets(Message::Coverages(id(1), Terms::default(), Ok(Vec::new())));
    person.sees("Nothing about this call may be remembered.");
}

/// The terms of a grant are chosen with keys, and each change is looked up and looked at before it can be allowed.
#[test]
fn a_grant_may_name_fields_a_time_and_a_number_of_calls() {
    use countersign::grant::{Remember, RememberCovers};
    let holds = [hold(1, "send_email", json!({"to": "bo", "subject": "rent"}))];
    let mut person = Person::before(&holds);
    let coverage = |terms: &Terms, covers: RememberCovers| Coverage {
        words: format!("{covers:?}"),
        offers: vec![Offer {
            remember: Remember {
                covers: covers.clone(),
                expires_after: terms.expires_after,
                uses: terms.uses,
                ..Remember::session()
            },
            lines: vec![format!("allow {covers:?}")],
        }],
    };
    person.wait(LATER).types("m");
    let plain = Terms::default();
    person.gets(Message::Coverages(id(1), plain.clone(), Ok(vec![coverage(&plain, RememberCovers::Exact)])));
    person.sees("allow Exact");
    person.sees("equal in 1 subject, 2 to");

    let fields = Terms { fields: vec!["to".to_owned()], ..Terms::default() };
    assert_eq!(person.wait(LATER).types("2"), [Effect::Cover(id(1), Vec::new(), fields.clone())]);
    // What was on offer before is not any more, and an answer about it comes too late.
    person.sees_not("allow Exact");
    assert_eq!(person.wait(LATER).types("s"), []);
    person.gets(Message::Coverages(id(1), plain.clone(), Ok(vec![coverage(&plain, RememberCovers::Exact)])));
    person.sees_not("allow Exact");

    let hour = Duration::from_secs(3_600);
    let terms = Terms { expires_after: Some(hour), uses: Some(1), ..fields };
    assert_eq!(person.types("llu").last(), Some(&Effect::Cover(id(1), Vec::new(), terms.clone())));
    let covers = RememberCovers::Fields(vec!["to".to_owned()]);
    let both = vec![coverage(&terms, RememberCovers::Exact), coverage(&terms, covers.clone())];
    person.gets(Message::Coverages(id(1), terms, Ok(both)));
    person.sees("for 1h, at most 1 more");
    assert_eq!(person.types("s"), [], "it is looked at first");
    let remember = Some(Remember { covers, expires_after: Some(hour), uses: Some(1), ..Remember::session() });
    let answer = Answer::Approve { arguments: None, payload: None, remember };
    assert_eq!(person.wait(LATER).types("s"), [Effect::Decide(id(1), holds[0].digest, answer)]);
}

#[test]
fn edited_arguments_are_looked_at_before_they_are_approved() {
    let holds = [hold(1, "write_file", json!({"path": "a"}))];
    let mut person = Person::before(&holds);
    person.wait(LATER).types("e");
    person.press(KeyCode::Down);
    person.press(KeyCode::End);
    person.press(KeyCode::Backspace);
    person.types("b\"");
    person.press(KeyCode::F(2));
    person.sees("+   \"path\": \"ab\"");
    let effects = person.wait(LATER).types("a");
    let arguments = Some(countersign::Json::of(&json!({"path": "ab"})).unwrap());
    let answer = Answer::Approve { arguments, payload: None, remember: None };
    assert_eq!(effects, [Effect::Decide(id(1), holds[0].digest, answer)]);
}

/// A question from inside a tool is answered with what goes along with the yes, begun from what the tool gave.
#[test]
fn a_running_tool_gets_what_goes_along_with_the_yes() {
    let mut asked = hold(1, "deploy", json!({}));
    (asked.in_run, asked.masked) = (true, true);
    asked.payload = Some(countersign::Json::of(&json!({"rows": 9})).unwrap());
    let mut person = Person::before(std::slice::from_ref(&asked));
    person.wait(LATER).types("p");
    person.sees("\"rows\": 9");
    person.press(KeyCode::F(2));
    person.sees("Nothing is changed");
    person.press(KeyCode::Down);
    person.press(KeyCode::End);
    person.press(KeyCode::Backspace);
    person.types("3");
    person.press(KeyCode::F(2));
    person.sees("-   \"rows\": 9");
    person.sees("+   \"rows\": 3");
    assert_eq!(person.types("a"), [], "it is looked at first");
    let payload = Some(countersign::Json::of(&json!({"rows": 3})).unwrap());
    let answer = Answer::Approve { arguments: None, payload, remember: None };
    assert_eq!(person.wait(LATER).types("a"), [Effect::Decide(id(1), asked.digest, answer)]);
}

/// The filter, the history and the help change what is seen, and decide nothing.
#[test]
fn the_list_can_be_filtered_and_the_past_be_read() {
    let holds = two();
    let mut person = Person::before(&holds);
    person.types("/");
    assert_eq!(person.types("Bo\""), [Effect::Load(id(2))], "the first that passes is shown");
    person.press(KeyCode::Enter);
    person.sees("1 of 2 with `Bo\"`");
    assert_eq!(person.press(KeyCode::Esc), []);
    person.sees("2 calls wait");
    assert_eq!(person.types("h"), [Effect::History]);
    let closed = Closed {
        id: id(9),
        at: AT.parse().unwrap(),
        state: "approved",
        tool: "old\u{202e}".to_owned(),
        by: Some("ann via web".to_owned()),
    };
    assert_eq!(person.gets(Message::History(Ok(vec![closed]))), [Effect::Load(id(9))]);
    person.sees("approved   old\\u{202e}");
    let mut old = hold(9, "old", json!({}));
    old.state = serde_json::from_value(json!("denied")).unwrap();
    old.decisions = vec![said_no("not\u{1b} now")];
    person.gets(Message::Detail(id(9), Ok(Box::new(detail(&old, 3)))));
    person.wait(LATER).press(KeyCode::Enter);
    assert_eq!(person.wait(LATER).types("aadr"), [], "what is closed is not decided again");
    person.sees_not("Deny");
    person.sees("denied for  not\\u{1b} now");
    person.press(KeyCode::Esc);
    person.types("?");
    person.sees("approve: asks once more");
    assert_eq!(person.types("ad"), []);
    person.press(KeyCode::Esc);
    assert_eq!(person.types("q"), [Effect::Quit]);
}

#[test]
fn control_c_ends_it_anywhere() {
    for keys in ["", "d", "e", "r", "/", "?", "h"] {
        let mut person = Person::before(&two());
        person.wait(LATER).types(keys);
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(person.gets(Message::Key(stop)), [Effect::Interrupt], "{keys}");
    }
}

/// Pasted text decides nothing; where text is wanted it is text.
#[test]
fn pasted_text_is_never_a_key() {
    let mut person = Person::before(&two());
    person.wait(LATER);
    assert_eq!(person.gets(Message::Paste("aaa\ndq".to_owned())), []);
    assert!(matches!(person.state.mode, Mode::List));
    person.types("d");
    person.gets(Message::Paste("not\nnow".to_owned()));
    person.sees("not now");
}

/// Identical calls are one row; what is decided on other terms is not, and neither is what is masked.
#[test]
fn identical_calls_stand_in_one_row() {
    let alike = |number| {
        let digest = format!("cs1a:{}", "7".repeat(64)).parse().unwrap();
        wire::Hold { argument_digest: Some(digest), ..hold(number, "pay", json!({"to": "Bo"})) }
    };
    let graver = wire::Hold { risk: countersign::verdict::Risk::Critical, ..alike(3) };
    let holds = [alike(1), alike(2), graver, hold(4, "pay", json!({})), hold(5, "pay", json!({}))];
    let mut person = Person::before(&holds);
    assert!(person.look().contains("pay ×2"), "{}", person.look());
    assert_eq!(person.state.ids(), [id(1), id(3), id(4), id(5)]);
    // Once the first is decided, the other takes its place.
    person.gets(Message::News(News::Listed(listing(&holds[1..]))));
    assert_eq!(person.state.ids(), [id(2), id(3), id(4), id(5)]);
}

/// What was written in the person's own editor is looked at before it can be approved.
#[test]
fn an_edit_in_the_own_editor_is_shown_as_a_change() {
    let mut person = Person::before(&two());
    person.wait(LATER).types("e");
    let effects = person.gets(Message::Key(KeyEvent::new(KeyCode::Char('o'), KeyModifiers::CONTROL)));
    let [Effect::Editor(hold, text)] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(*hold == id(1) && text.contains("a/b"), "{text}");
    person.gets(Message::Written(id(1), Err("no editor".to_owned())));
    assert!(person.look().contains("no editor"), "{}", person.look());
    person.gets(Message::Written(id(1), Ok("{\"n\":".to_owned())));
    assert!(person.look().contains("Not yet"), "{}", person.look());
    person.gets(Message::Written(id(1), Ok("{\"n\":2,\"path\":\"a/b\"}".to_owned())));
    let screen = person.look();
    assert!(screen.contains("This is what changes") && screen.contains("+   \"n\": 2"), "{screen}");
    assert_eq!(person.types("a"), [], "too soon");
    let effects = person.wait(LATER).types("a");
    assert!(matches!(effects.as_slice(), [Effect::Decide(..)]), "{effects:?}");
}
