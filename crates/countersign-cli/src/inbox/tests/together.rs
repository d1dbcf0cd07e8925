//! Identical calls, decided at once.

use super::*;
use crate::inbox::together::Outcomes;

/// This many calls with the same arguments, each of a session of its own.
fn alike(count: u8) -> Vec<wire::Hold> {
    let one = |number: u8| {
        let mut hold = hold(number, "pay", json!({"to": "Bo"}));
        hold.argument_digest = Some(format!("cs1a:{}", "77".repeat(32)).parse().unwrap());
        hold.session = Some(format!("s{number}"));
        hold
    };
    (1..=count).map(one).collect()
}

fn all(holds: &[wire::Hold], answer: Answer) -> Effect {
    Effect::DecideAll(holds.iter().map(|hold| (hold.id, hold.digest)).collect(), answer)
}

fn page_to_the_end(person: &mut Person) {
    for _ in 0..40 {
        person.wait(LATER).types(" ");
    }
}

/// B128: every difference is on the screen before all are approved, and each decision names its own digest.
#[test]
fn a_group_is_approved_only_after_all_its_differences_were_shown() {
    let holds = alike(60);
    let mut person = Person::before(&holds);
    person.sees("pay ×60");
    assert_eq!(person.wait(LATER).types("g"), []);
    person.sees("[d Deny]");
    person.sees("60 calls with these arguments");
    assert_eq!(person.wait(LATER).types("a"), [], "not all was shown");
    person.sees("more to read");
    page_to_the_end(&mut person);
    assert_eq!(person.wait(LATER).types("a"), [all(&holds, Answer::approve())]);
    assert_eq!(person.wait(LATER).types("aagd"), [], "the decisions are on their way");
    let ids: Vec<HoldId> = holds.iter().map(|hold| hold.id).collect();
    let came = Outcomes { decided: ids.clone(), closed: ids, stopped: None };
    assert_eq!(person.gets(Message::DecidedAll(id(1), came)), []);
    person.sees("60 calls decided together");
    person.sees("nothing waits");
}

/// Whatever closed meanwhile is not decided, and the rest is looked at again.
#[test]
fn a_group_that_changes_is_read_again() {
    let holds = alike(3);
    let mut person = Person::before(&holds);
    person.wait(LATER).types("g");
    page_to_the_end(&mut person);
    person.sees("session s2");
    let left = [holds[0].clone(), holds[2].clone()];
    person.gets(Message::News(News::Listed(listing(&left))));
    person.sees_not("session s2");
    assert_eq!(person.types("a"), [], "the picture is new");
    page_to_the_end(&mut person);
    assert_eq!(person.wait(LATER).types("a"), [all(&left, Answer::approve())]);
}

/// A group is left by Esc, and after that one hold is decided at a time.
#[test]
fn leaving_a_group_leaves_the_others_alone() {
    let holds = alike(3);
    let mut person = Person::before(&holds);
    person.wait(LATER).types("g");
    assert_eq!(person.press(KeyCode::Esc), [Effect::Load(id(1))]);
    person.gets(Message::Detail(id(1), Ok(Box::new(detail(&holds[0], 3)))));
    person.sees_not("3 calls with these arguments");
    person.wait(LATER).types("a");
    assert_eq!(person.wait(LATER).types("a"), [approve(&holds[0])]);
}

/// What is risky is approved one by one; a reason goes to all that are denied.
#[test]
fn risky_calls_are_denied_together_and_never_approved_together() {
    let mut holds = alike(3);
    for hold in &mut holds {
        hold.risk = countersign::verdict::Risk::High;
    }
    let mut person = Person::before(&holds);
    person.wait(LATER).types("g");
    page_to_the_end(&mut person);
    person.sees_not("Approve");
    assert_eq!(person.wait(LATER).types("a"), []);
    person.types("dno");
    assert_eq!(person.press(KeyCode::Enter), [all(&holds, Answer::deny("no"))]);
}

/// Calls that are not known to be the same are no group: masked ones have no digest to compare.
#[test]
fn masked_calls_are_never_a_group() {
    let mut holds = alike(2);
    for hold in &mut holds {
        hold.argument_digest = None;
    }
    let mut person = Person::before(&holds);
    assert_eq!(person.wait(LATER).types("g"), []);
    person.sees("No other call");
}
