//! `countersign run` on a real terminal, driven by keys.

use countersign_store::testing::Busy;

use crate::bed::{Bed, read};
use crate::run::{ASKS, SCRIPT, scene};
use crate::terminal::{CONTROL_C, ENTER, RIGHT, Terminal};

const CONTROL_O: &str = "\x0f";
const CONTROL_S: &str = "\x13";
const DOWN: &str = "\x1b[B";

fn begin(bed: &Bed, rest: &[&str]) -> Terminal {
    Terminal::run(bed, &[&["run", "--config", "run.yml"], rest].concat(), (120, 40))
}

fn deny(terminal: &mut Terminal, reason: &str) {
    terminal.sees("[d Deny]").types(ENTER).sees("Why not?").types(reason).sees(reason).types(ENTER);
}

fn last_decision(bed: &Bed) -> (String, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let calls = bed.store().await.calls(countersign::store::CallFilter::default()).await.unwrap();
        let decision = calls[0].holds.last().unwrap().decisions.last().unwrap().clone();
        (decision.by.id.to_string(), decision.channel.to_string())
    })
}

/// B126: the hold is prompted in place, and approving it is recorded as this person's, here.
#[test]
fn an_approved_call_runs_and_the_answer_goes_on() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("Writing it.").sees("Approve this call?").sees("write_file").sees("hello");
    terminal.sees("a Approve").types(RIGHT).sees("[a Approve]").types(ENTER);
    terminal.sees("you approve").sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("✓ done"), "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
    let (by, channel) = last_decision(&bed);
    assert!(by.starts_with("os:") && channel == "cli", "{by} {channel}");
}

/// The reason of a denial is what the model reads next; the conversation goes on after it.
#[test]
fn the_reason_of_a_denial_reaches_the_model() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["--manual"]);
    terminal.sees("you> ").types("tidy up\r").sees("model> ").types("write_file path=a.txt content=hi\r");
    deny(&mut terminal, "too risky");
    terminal.sees("you deny: too risky").sees("write_file gave:").sees("too risky");
    terminal.sees("model> ").types("say as you wish\r").sees("as you wish").sees("you> ").types("/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!bed.work().join("a.txt").exists());
}

/// Exactly the edited arguments run.
#[test]
fn edited_arguments_run_as_they_were_shown() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["helper", "go"]);
    // To the end of the text inside the quotes, behind `"content": "hello`.
    terminal.sees("[d Deny]").types("e").sees("The arguments, as JSON:").types("\x1b[B\x1b[F\x1b[D\x1b[D there");
    terminal.sees("hello there").types("\x13").sees("This is what changes:").sees("a Approve as edited").types("a");
    terminal.sees("with other arguments").sees("✓ done");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "hello there");
}

#[test]
fn a_remembered_call_is_not_asked_again() {
    let call = "calls: [{ tool: write_file, arguments: { path: a.txt, content: hello } }]";
    let bed = scene(ASKS, &format!("turns: [{{ {call} }}, {{ {call} }}, {{ text: Twice. }}]\n"));
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]").types("m").sees("s For this session").types("s").sees("remembered: allow");
    terminal.sees("Twice.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("done (remembered)"), "{shown}");
    assert_eq!(shown.matches("you approve").count(), 1, "{shown}");
}

/// B63, B66: a whole tool is remembered by a second act, and a shell is not offered one.
#[test]
fn a_whole_tool_is_remembered_by_a_second_act() {
    let call = |path: &str| format!("calls: [{{ tool: write_file, arguments: {{ path: {path}, content: x }} }}]");
    let shell = "calls: [{ tool: bash, arguments: { command: ls } }]";
    let script = format!("turns: [{{ {} }}, {{ {} }}, {{ {shell} }}, {{ text: Ended. }}]\n", call("a"), call("b"));
    let bed = scene(ASKS, &script);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]").types("m").sees("t The whole tool").types("t").sees("with any arguments");
    terminal.sees("s For this session").types("s").sees("remembered: allow").sees("done (remembered)");
    terminal.sees("[d Deny]").types("m").sees("g For every session");
    let shown = terminal.shown();
    assert!(!shown[shown.rfind("Choose what").unwrap()..].contains("whole tool"), "{shown}");
    terminal.types("b");
    deny(&mut terminal, "no");
    terminal.sees("Ended.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("you approve").count(), 1, "{shown}");
}

/// B65: remembered by a field, a call with the same value there is not asked about, and one with another value is.
#[test]
fn a_call_is_remembered_by_its_fields() {
    let call = |path: &str, content: &str| {
        format!("{{ calls: [{{ tool: write_file, arguments: {{ path: {path}, content: {content} }} }}] }}")
    };
    let script = format!(
        "turns: [{}, {}, {}, {{ text: Ended. }}]\n",
        call("a.txt", "one"),
        call("a.txt", "two"),
        call("b.txt", "two")
    );
    let bed = scene(ASKS, &script);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]").types("m").sees("f By fields").types("f").sees("2 path").types("path").types(ENTER);
    terminal.sees("whenever the same in path").sees("where path is \"a.txt\"");
    terminal.sees("s For this session").types("s").sees("remembered: allow").sees("done (remembered)");
    deny(&mut terminal, "no");
    terminal.sees("Ended.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("you approve").count(), 1, "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "two");
    assert!(!bed.work().join("b.txt").exists());
}

/// The person's words are the result of a call that does not run.
#[test]
fn an_answer_instead_is_what_the_model_reads() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["--manual"]);
    terminal.sees("you> ").types("tidy up\r").sees("model> ").types("write_file path=a.txt content=hi\r");
    terminal.sees("[d Deny]").types("r").sees("Your answer in place of").types("it is tidy").sees("it is tidy");
    terminal.types(ENTER).sees("✓ answered instead").sees("write_file gave: it is tidy");
    terminal.sees("model> ").types("say good\r").sees("good").sees("you> ").types("/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!bed.work().join("a.txt").exists());
}

/// What the person's own editor leaves is shown as a change, and runs.
#[test]
fn arguments_are_edited_in_ones_own_editor() {
    let bed = scene(ASKS, SCRIPT);
    let mut command = bed.command(["run", "--config", "run.yml", "helper", "go"]);
    command.env_remove("VISUAL").env("EDITOR", "sed -i s/hello/goodbye/");
    let mut terminal = Terminal::of(command, (120, 40));
    terminal.sees("[d Deny]").types("e").sees("The arguments, as JSON:").types(CONTROL_O).sees("goodbye");
    terminal.types(CONTROL_S).sees("This is what changes:").sees("a Approve as edited").types("a").sees("✓ done");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "goodbye");
}

/// B63: remembered for every session, the call is not asked about in the next one.
#[test]
fn what_is_remembered_globally_holds_in_the_next_session() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["--session", "s1", "helper", "go"]);
    terminal.sees("[d Deny]").types("m").sees("g For every session").types("g").sees("remembered: allow");
    terminal.sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    let mut terminal = begin(&bed, &["--session", "s2", "helper", "go"]);
    terminal.sees("done (remembered)").sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("Approve this call?"), "{shown}");
}

/// B128: arguments that would paint, hide or turn the line around are shown in the box as what they are.
#[test]
fn hostile_arguments_paint_nothing_in_the_box() {
    let script = "turns:\n  - calls: [{ tool: write_file, arguments: { path: \"a\\u202etxt.exe\", content: \"x\\e[2J\\e[1;1H\\u200bApproved\" } }]\n  \
                  - text: Finished.\n";
    let bed = scene(ASKS, script);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("Approve this call?");
    deny(&mut terminal, "no");
    terminal.sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    for safe in ["a\\u{202e}txt.exe", "x\\u{1b}[2J\\u{1b}[1;1H\\u{200b}Approved", "turn the direction of writing"] {
        assert!(shown.contains(safe), "{safe}: {shown:?}");
    }
    assert!(!shown.contains('\u{202e}') && !shown.contains('\u{200b}'), "{shown:?}");
    assert!(!shown.contains("\x1b[1;1HApproved") && !shown.contains("x\x1b[2J"), "{shown:?}");
}

/// Nobody decides in time: the question closes by itself, says so, and nothing runs.
#[test]
fn an_expired_hold_closes_the_question() {
    let bed = scene("  otherwise: ask\n  expires_after: 8s\n", SCRIPT);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]").sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("in time; it does not run"), "{shown}");
    assert!(!bed.work().join("a.txt").exists());
}

/// Several at once are a list; each is looked at and decided by itself.
#[test]
fn two_pending_calls_are_a_list() {
    let script = "turns: [{ calls: [{ tool: write_file, arguments: { path: a.txt, content: one } }, \
                  { tool: write_file, arguments: { path: b.txt, content: two } }] }, { text: Finished. }]\n";
    let bed = scene(ASKS, script);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("2 calls wait for a decision").sees("› 1 ").types(DOWN).sees("› 2 ").types(ENTER);
    terminal.sees("\"two\"").sees("a Approve").types("a").sees("you approve");
    terminal.sees("Approve this call?").sees("\"one\"");
    deny(&mut terminal, "not this one");
    terminal.sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(bed.work().join("b.txt").exists() && !bed.work().join("a.txt").exists());
}

/// Ctrl-C at a hold withdraws it and ends the run.
#[test]
fn control_c_withdraws_the_hold() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(shown.contains("withdrawn"), "{shown}");
    assert_eq!(bed.say("holds --json --config run.yml").expect(0).json(), serde_json::json!([]));
    assert!(!bed.work().join("a.txt").exists());
}

/// Ctrl-C once more, while the store does not let the run settle, ends the process at once; nothing is lost by it.
#[test]
fn a_second_control_c_ends_at_once() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["--session", "s1", "helper", "go"]);
    terminal.sees("[d Deny]");
    let busy = Busy::keep(&bed.work().join("agent.db")).unwrap();
    terminal.types(CONTROL_C).sees("once more ends at once").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(!shown.contains("withdrawn"), "it did not wait: {shown}");
    drop(busy);
    let holds = bed.say("holds --json --config run.yml").expect(0).json();
    assert_eq!(holds.as_array().unwrap().len(), 1, "what waited still waits: {holds}");
}

/// B108: a hold that was pending when the process died is put to the person who resumes the session.
#[test]
fn what_was_pending_is_shown_on_resume() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["--session", "s1", "helper", "go"]);
    terminal.sees("Approve this call?").sees("write_file").sees("[d Deny]");
    terminal.kill();
    assert!(!bed.work().join("a.txt").exists());
    let mut terminal = begin(&bed, &["--resume", "s1"]);
    terminal.sees("Approve this call?").sees("write_file").sees("hello").sees("a Approve").types("a");
    terminal.sees("you approve").sees("Finished.").sees("you> ").types("/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
    let holds = bed.say("holds --json --config run.yml").expect(0).json();
    assert_eq!(holds, serde_json::json!([]));
}

/// Whoever comes back to a session that is done sees what was said in it, and nothing in it paints.
#[test]
fn a_resumed_session_shows_what_was_said() {
    let script = "turns:\n  - text: \"Reading\\e[2J it.\"\n    calls: [{ tool: read_file, arguments: { path: \"x\\e[2J\" } }]\n  \
                  - text: All is well.\n";
    let bed = scene("  otherwise: allow\n", script);
    bed.run(["run", "--config", "run.yml", "--session", "s1", "helper", "look there"]).expect(0);
    let mut terminal = begin(&bed, &["--resume", "s1"]);
    terminal.sees("session s1").sees("you> ").sees("look there").sees("Reading\\u{1b}[2J it.").sees("read_file {");
    terminal.sees("✗ failed").sees("All is well.").sees("Ctrl-D ends").sees("you> ").types("/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("\x1b[2J"), "{shown:?}");
    assert_eq!(shown.matches("All is well.").count(), 1, "{shown}");
}

/// Every row of what was drawn fits on a screen of this size.
#[track_caller]
fn fits(drawn: &str, (columns, rows): (usize, usize)) {
    let moves: Vec<&str> = drawn.split("\x1b[").collect();
    let mut width = 0;
    for piece in moves {
        let at = piece.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        let (code, text) = piece.split_at((at + 1).min(piece.len()));
        if let Some(place) = code.strip_suffix('H') {
            let row: usize = place.split(';').next().unwrap().parse().unwrap();
            assert!(row <= rows + 1, "row {row} of {rows}: {drawn:?}");
            width = 0;
        }
        width += text.chars().filter(|c| !c.is_control()).count();
        assert!(width <= columns, "{width} columns of {columns}: {text:?}");
    }
}

/// The question stays whole on a terminal that grows and shrinks, and can still be decided.
#[test]
fn a_resized_terminal_is_drawn_whole() {
    // Without a countdown, and once approve is awake, nothing is drawn by itself.
    let bed = scene("  otherwise: ask\n  expires_after: never\n", SCRIPT);
    let mut terminal = Terminal::run(&bed, &["run", "--config", "run.yml", "helper", "go"], (160, 50));
    terminal.sees("Approve this call?").sees("write_file").sees("a Approve");
    for (size, last_row) in [((40, 12), "\x1b[12;1H"), ((160, 50), "Ctrl-C stop")] {
        let before = terminal.shown().len();
        terminal.resize(size.0, size.1).sees("\x1b[1;1H").sees("Approve").sees("[d Deny]").sees(last_row);
        let drawn = terminal.shown()[before..].to_owned();
        let frame = &drawn[drawn.find("\x1b[1;1H").unwrap()..];
        fits(frame, (size.0.into(), size.1.into()));
    }
    terminal.sees("a Approve").types("a").sees("you approve").sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
}

/// B77: identical calls are one item with a count; each still gets a decision of its own.
#[test]
fn identical_calls_are_one_item_with_a_count() {
    let call = "{ tool: read_file, arguments: { path: a.txt } }";
    let bed = scene(ASKS, &format!("turns: [{{ calls: [{call}, {call}] }}, {{ text: Finished. }}]\n"));
    bed.write("a.txt", "hello");
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("read_file ×2").types(ENTER).sees("a Approve").types("a").sees("you approve");
    terminal.sees("Approve this call?");
    deny(&mut terminal, "once is enough");
    terminal.sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!((shown.matches("you approve").count(), shown.matches("you deny").count()), (1, 1), "{shown}");
}

/// A hold that another process decides closes the question here, and the run goes on.
#[test]
fn a_decision_made_elsewhere_closes_the_question() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = begin(&bed, &["helper", "go"]);
    terminal.sees("[d Deny]");
    let holds = bed.say("holds --json --config run.yml").expect(0).json();
    let (id, digest) = (holds[0]["id"].as_str().unwrap(), holds[0]["digest"].as_str().unwrap());
    bed.run(["approve", id, "--digest", digest, "--config", "run.yml"]).expect(0);
    terminal.sees("Finished.");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("was approved elsewhere"), "{shown}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
}

const UP: &str = "\x1b[A";
const LEFT: &str = "\x1b[D";

/// Without colour, so that prompt and line stand side by side in what is written.
fn plainly(bed: &Bed, rest: &[&str]) -> Terminal {
    let mut command = bed.command([&["run", "--config", "run.yml"], rest].concat());
    command.env("NO_COLOR", "1");
    Terminal::of(command, (120, 40))
}

/// What was typed comes back with the arrow keys, is mended in place, and is there in the next conversation, too.
#[test]
fn a_line_is_edited_and_comes_back() {
    let bed = scene(ASKS, "turns: [{ text: One. }, { text: Two. }, { text: Three. }]\n");
    let mut terminal = plainly(&bed, &["--session", "s1"]);
    // The cursor goes back over `ose` to put the missing letter in.
    terminal.sees("you> ").types("clse").sees("you> clse").types(LEFT).types(LEFT).types("o").sees("you> close");
    terminal.types(ENTER).sees("One.").sees("you> ").types(" secret\r").sees("Two.").sees("you> ");
    terminal.types(UP).sees("you> close").types(" it\r").sees("Three.").sees("you> ").types("dra").sees("you> dra");
    terminal.types(UP).sees("you> close it").types(UP).sees("you> close").types(UP).types(DOWN).sees("you> close it");
    terminal.types(DOWN).sees("you> dra").types("\x15/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(said(&bed, "s1"), ["close", " secret", "close it"]);
    let mut terminal = plainly(&bed, &["--session", "s2"]);
    terminal.sees("you> ").types(UP).sees("/quit").types(UP).sees("you> close it").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    let folder = bed.data().join("history");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(read(&files[0]), "\"close\"\n\"close it\"\n\"/quit\"\n");
    for (path, mode) in [(&folder, 0o700), (&files[0], 0o600)] {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
}

/// What a person said in a session, as it is written down.
fn said(bed: &Bed, session: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let principal = countersign::Path::session("").principal;
        let reader = countersign_agent::SessionReader::open(bed.store().await, principal, session).await;
        let entries = reader.unwrap().unwrap().entries("main", 0, 100).await.unwrap();
        let said = entries.iter().filter_map(|entry| match entry {
            countersign_agent::Entry::User { text, .. } => Some(text.to_string()),
            _ => None,
        });
        said.collect()
    })
}

/// What is pasted is one thing said, however many lines it has; nothing in it paints, and nothing is left out of it.
#[test]
fn what_is_pasted_is_said_whole() {
    let bed = scene(ASKS, "turns: [{ text: One. }]\n");
    let mut terminal = plainly(&bed, &["--session", "s1"]);
    terminal
        .sees("you> ")
        .types("\x1b[200~fix\tthis:\nx\u{202e}y\x1b[201~")
        .sees("you> fix\\tthis:")
        .sees("x\\u{202e}y");
    terminal.types("\r").sees("One.").sees("you> ").types("\x04");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains('\u{202e}'), "{shown:?}");
    assert_eq!(said(&bed, "s1"), ["fix\tthis:\nx\u{202e}y"]);
}

/// A line that a person plays the model with is edited like any other, and kept apart from what they say.
#[test]
fn a_played_line_is_edited_and_kept_apart() {
    let bed = scene(ASKS, SCRIPT);
    let mut terminal = plainly(&bed, &["--manual"]);
    terminal.sees("you> ").types("hello\r").sees("model> ").types("say hy").sees("model> say hy").types("\x7fi\r");
    terminal.sees("you> ").types("again\r").sees("model> ").types(UP).sees("model> say hi").types(ENTER);
    terminal.sees("you> ").types(UP).sees("you> again").types("\x15\x04");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("hi\r\n").count(), 2, "said twice: {shown:?}");
}
