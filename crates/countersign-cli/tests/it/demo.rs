//! `countersign demo`, with its answers in a file.

use crate::bed::{Bed, Ran, read};

/// Runs the demo in a folder of its own, so that its files can be looked at.
fn demo(bed: &Bed, answers: &str) -> Ran {
    bed.write("answers.txt", answers);
    bed.say("demo --answers answers.txt --dir scene --json")
}

fn file(bed: &Bed, name: &str) -> Option<String> {
    std::fs::read_to_string(bed.work().join("scene/work").join(name)).ok()
}

fn states(ran: &Ran) -> Vec<String> {
    let calls = ran.json()["calls"].as_array().unwrap().clone();
    calls.iter().map(|call| call["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn approved_calls_really_change_files() {
    let bed = Bed::new();
    let ran = demo(&bed, "approve\napprove\napprove\napprove\napprove\n").expect(0);
    let all = ["succeeded", "denied", "succeeded", "succeeded", "succeeded", "succeeded", "succeeded"];
    assert_eq!(states(&ran), all);
    assert!(file(&bed, "README.md").unwrap().starts_with("# Demo service"));
    assert_eq!(file(&bed, "settings.toml").unwrap(), "[server]\nport = 8080\nworkers = 4\ndebug = false\n");
    assert_eq!(file(&bed, "progress.log").unwrap(), "one step done\none step done\n");
    assert_eq!(file(&bed, "old.log"), None);
    let value = ran.json();
    assert_eq!(value["verified"], true);
    assert_eq!(value["complete"], true);
    assert_eq!(value["calls"][2]["decided_by"], format!("os:{}", user()));
}

#[test]
fn denied_calls_change_nothing_and_an_equal_call_is_not_asked_again() {
    let bed = Bed::new();
    // B12: the second identical call gets the same refusal, so four answers are enough.
    let ran = demo(&bed, "deny not now\ndeny\ndeny no record please\ndeny keep it\n").expect(0);
    assert_eq!(states(&ran), ["succeeded", "denied", "denied", "denied", "denied", "denied", "failed"]);
    assert_eq!(file(&bed, "README.md"), None);
    assert_eq!(file(&bed, "progress.log"), None);
    assert!(file(&bed, "settings.toml").unwrap().contains("debug = true"));
    assert!(file(&bed, "old.log").is_some());
    let value = ran.json();
    assert_eq!(value["calls"][2]["refusal"]["reason"], "not now");
    assert_eq!(value["calls"][1]["refusal"]["kind"], "denied_by_rule");
    assert_eq!(value["calls"][5]["refusal"]["kind"], "denied_by_approver");
}

#[test]
fn edited_remembered_and_answered_calls_do_what_the_person_said() {
    let bed = Bed::new();
    let answers = concat!(
        "# answers, with a comment and a blank line\n\n",
        "respond {\"note\": \"there is one already\"}\n",
        "edit {\"path\": \"settings.toml\", \"old_text\": \"debug = true\", \"new_text\": \"debug = 0\"}\n",
        "remember session\n",
        "approve\n",
    );
    let ran = demo(&bed, answers).expect(0);
    assert_eq!(states(&ran), ["succeeded", "denied", "answered", "succeeded", "succeeded", "succeeded", "succeeded"]);
    assert_eq!(file(&bed, "README.md"), None, "an answered call never runs");
    assert!(file(&bed, "settings.toml").unwrap().contains("workers = 1\ndebug = 0\n"), "exactly the edit ran");
    assert_eq!(file(&bed, "progress.log").unwrap(), "one step done\none step done\n");
    let value = ran.json();
    assert_eq!(value["calls"][2]["response"]["note"], "there is one already");
    assert!(value["calls"][5]["grant"].is_string(), "the grant covered the second call");
}

#[test]
fn what_was_kept_verifies_and_lists_its_grant() {
    let bed = Bed::new();
    let answers = bed.write("answers.txt", "approve\napprove\nremember global\napprove\n");
    let ran = bed.run(["demo", "--dir", "scene", "--answers", answers.to_str().unwrap()]).expect(0);
    assert!(ran.stdout.contains("verified: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("hold.decided"), "{}", ran.stdout);
    let verified = bed.say("audit verify --store sqlite:scene/countersign.db --json").expect(0).json();
    assert_eq!(verified["verified"], true);
    let grants = bed.say("grants --store sqlite:scene/countersign.db --json").expect(0).json();
    assert_eq!(grants[0]["scope"], "global");
    assert_eq!(grants[0]["tool"], "append_line");
}

#[test]
fn wrong_answers_are_named_by_their_line() {
    for (answers, expected) in [
        ("approve\nmaybe\n", "answers.txt:2: `maybe` is not an answer"),
        ("approve\n\nedit nonsense\n", "answers.txt:3: `edit` needs"),
        ("remember for ever\n", "answers.txt:1: `remember` needs"),
        ("approve\napprove\n", "answers.txt:3: there is no answer left for `append_line`"),
        ("approve\napprove\napprove\napprove\napprove\n\ndeny\n", "answers.txt:7: nothing was left to answer"),
        ("edit {\"path\": \"x\"}\n", "answers.txt:1: the answer was not taken"),
        ("approve\nremember session\n", "answers.txt:2: the answer was not taken"),
        ("approve\napprove\nremember session\nrespond 1\n", "answers.txt:4: the answer was not taken"),
    ] {
        let bed = Bed::new();
        let ran = demo(&bed, answers).expect(2);
        assert!(ran.stderr.contains(expected), "{answers}: {}", ran.stderr);
    }
}

/// Answers that run out withdraw what waits.
#[test]
fn a_run_without_answers_leaves_nothing_waiting() {
    let bed = Bed::new();
    demo(&bed, "approve\n").expect(2);
    let holds = bed.say("holds --store sqlite:scene/countersign.db --json").expect(0).json();
    assert_eq!(holds.as_array().unwrap().len(), 0);
    let log = bed.say("audit log --store sqlite:scene/countersign.db").expect(0);
    assert!(log.stdout.contains("hold.cancelled"), "{}", log.stdout);
}

/// B126: input that is no terminal is refused.
#[test]
fn a_pipe_is_nobody_to_ask() {
    let bed = Bed::new();
    let ran = bed.say("demo").expect(2);
    assert!(ran.stderr.contains("nobody to ask") && ran.stderr.contains("--answers"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_full_folder_and_a_missing_file_are_refused() {
    let bed = Bed::new();
    bed.write("precious.txt", "mine");
    let answers = bed.write("answers.txt", "approve\n");
    let ran = bed.run(["demo", "--dir", ".", "--answers", answers.to_str().unwrap()]).expect(2);
    assert!(ran.stderr.contains("not empty"), "{}", ran.stderr);
    assert_eq!(read(bed.work().join("precious.txt")), "mine");
    bed.say("demo --answers nowhere.txt").expect(2);
}

/// A script gets no server, and nothing waits for a key.
#[test]
fn answers_from_a_file_need_no_server() {
    let bed = Bed::new();
    let ran = demo(&bed, "approve\napprove\napprove\napprove\napprove\n").expect(0);
    for words in ["sign-in#", "http://", "Press Enter"] {
        assert!(!ran.stderr.contains(words) && !ran.stdout.contains(words), "{words}: {}", ran.stderr);
    }
}

/// Nobody's terminal gets a control byte from the agent's words, and nobody's pipe gets colour.
#[test]
fn no_control_byte_is_printed() {
    let bed = Bed::new();
    let answers = bed.write("answers.txt", "approve\napprove\napprove\napprove\napprove\n");
    let ran = bed.run(["demo", "--answers", answers.to_str().unwrap()]).expect(0);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{text:?}");
    }
}

/// The name of the user the tests run as.
pub(crate) fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
