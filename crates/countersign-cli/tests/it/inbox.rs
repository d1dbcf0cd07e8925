//! The full-screen inbox on a real terminal, over a real server and over a file.

use countersign::{CallState, Gate};
use expectrl::process::unix::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bed::{Bed, gate, hold, submit};
use crate::screen::Screen;
use crate::serve::{Serving, ask, propose, token};
use crate::terminal::{CONTROL_C, ENTER};

const ESCAPE: &str = "\u{1b}";
const SMALL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (160, 45);

/// A server with an agent, an approver, and an inbox.
struct Office {
    runtime: Runtime,
    bed: Bed,
    server: Serving,
    agent: String,
    ann: String,
}

impl Office {
    fn open() -> Office {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bed = Bed::new();
        let server = Serving::start(&bed);
        let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
        Office { runtime: Runtime::new().unwrap(), bed, server, agent, ann }
    }

    fn inbox(&self, size: (u16, u16)) -> Screen {
        let mut command = self.bed.command(["inbox", "--url", &self.server.url]);
        command.env("COUNTERSIGN_TOKEN", &self.ann);
        Screen::of(command, size)
    }

    fn propose(&self, tool: &str, n: u32) -> Value {
        self.runtime.block_on(propose(&self.server.url, &self.agent, tool, n))
    }

    /// The call as the server has it.
    fn call(&self, submitted: &Value) -> Value {
        let client = countersign_api::client::Client::new(&self.server.url, &self.agent).unwrap();
        let id = submitted["id"].as_str().unwrap().parse().unwrap();
        serde_json::to_value(self.runtime.block_on(client.call(id)).unwrap()).unwrap()
    }
}

/// A store in a file, and an agent that waits for its decisions.
fn file(bed: &Bed, runtime: &Runtime) -> Gate {
    runtime.block_on(async { gate(&bed.store().await, "otherwise: ask\n") })
}

fn inbox_of(bed: &Bed, size: (u16, u16)) -> Screen {
    Screen::of(bed.command(["inbox", "--store", &bed.url()]), size)
}

/// B126: two calls wait; one is approved, after it was asked once more with deny in focus, and the next comes up.
#[test]
fn a_call_is_approved_on_a_server_and_the_next_one_comes_up() {
    let office = Office::open();
    let (first, second) = (office.propose("write_file", 1), office.propose("write_note", 2));
    let mut screen = office.inbox(WIDE);
    screen.sees("2 calls wait").sees("● live").sees("as they would run").types("a").sees("[d Deny]");
    screen.sees(" a Approve ").types("a").sees("write_file: approved").sees("1 call waits").sees("write_note (cs1c:");
    assert_eq!(office.call(&first)["state"], "approved");
    assert_eq!(office.call(&first)["decided_by"], "ann");
    assert_eq!(office.call(&second)["state"], "pending");
    // One that is submitted now shows up by itself.
    office.propose("write_more", 3);
    screen.sees("write_more").sees("2 calls wait").types("q");
    let (raw, code) = screen.ends();
    assert_eq!(code, 0, "{raw}");
    assert!(raw.contains("\u{1b}[?1049l"), "the screen is given back");
}

/// B126: the same on a file, denied with a reason that the agent reads.
#[test]
fn a_call_is_denied_with_a_reason_on_a_file() {
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = file(&bed, &runtime);
    let call = runtime.block_on(submit(&agent, "pay", r#"{"to": "Bo"}"#));
    let mut screen = inbox_of(&bed, SMALL);
    screen.sees("1 call waits").sees("pay (cs1c:").types("d").sees("Why not?").types("too much").sees("too much");
    screen.types(ENTER).sees("pay: denied").sees("Nothing waits for a decision.");
    let call = runtime.block_on(agent.get(call.id)).unwrap();
    assert_eq!(call.refusal.as_ref().unwrap().reason.as_deref(), Some("too much"));
    // The past says who it was.
    screen.types("h").sees("denied").sees("via inbox: too much").types("q");
    assert_eq!(screen.ends().1, 0);
}

/// B35: what a person gives along with a yes reaches the tool: one that begins to run, and one that asks while it runs.
#[test]
fn what_goes_along_with_a_yes_reaches_the_tool() {
    use countersign::{Answer, Definition, Json, Policy, Proposal};
    const SAVE: &str = "\u{13}";
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = runtime.block_on(async {
        let gate = Gate::builder().policy(Policy::ask_all()).store(bed.store().await).decided_elsewhere();
        gate.build().unwrap()
    });
    let deploy = countersign::tool::tool(Definition::new("deploy", ""), |running| async move {
        let begun = running.payload().cloned();
        let asked = running.confirm("delete 9 rows?", &json!({ "rows": 9 })).await?;
        let Answer::Approve { payload, .. } = asked.answer else { panic!("a no is an error") };
        Ok(Json::of(&json!([begun, payload])).unwrap())
    });
    let called = runtime.spawn(async move { agent.call(&deploy, Proposal::new("deploy", "{}").session("s1")).await });
    let mut screen = inbox_of(&bed, WIDE);
    screen.sees("1 call waits").sees("deploy (cs1c:").types("p").sees("For the tool, beside its arguments");
    screen.types("slowly").sees("slowly").types(SAVE).sees("+ \"slowly\"").sees(" a Approve with it ").types("a");
    screen.sees("deploy: approved").sees("delete 9 rows?").types("p").sees("\"rows\": 9");
    // To the end of the number, behind `"rows": `.
    screen.types("\u{1b}[B\u{1b}[F\u{7f}3").types(SAVE).sees("+   \"rows\": 3").sees(" a Approve with it ").types("a");
    screen.sees("Nothing waits for a decision.").types("q");
    assert_eq!(screen.ends().1, 0);
    let call = runtime.block_on(called).unwrap().unwrap();
    let Some(countersign::call::Outcome::Succeeded { output }) = &call.outcome else { panic!("{call:?}") };
    assert_eq!(output.value(), json!(["slowly", { "rows": 3 }]));
}

/// The same call is read again in a window of another size; one that is too small says so and approves nothing.
#[test]
fn another_size_is_another_picture() {
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = file(&bed, &runtime);
    let text = "long words ".repeat(110);
    let call = runtime.block_on(submit(&agent, "pay", &json!({ "text": text }).to_string()));
    let mut screen = inbox_of(&bed, WIDE);
    screen.sees("1 call waits").sees("as they would run").types("a").sees(" a Approve ");
    screen.resize(80, 24).sees("Space for more").sees("a (Approve)");
    screen.resize(40, 10).sees("Make the window larger");
    screen.resize(80, 24).sees("Space for more").types("a").sees("that is all");
    assert_eq!(runtime.block_on(agent.get(call.id)).unwrap().state, CallState::Pending);
    screen.sees("[a Approve]").types("a").sees("pay: approved").types(CONTROL_C);
    let (raw, code) = screen.ends();
    assert_eq!(code, 130, "{raw}");
    assert_eq!(runtime.block_on(agent.get(call.id)).unwrap().state, CallState::Approved);
}

/// safety.md `next_hold_never_gets_the_last_answer`: what somebody else closes says so, and takes the keys away.
#[test]
fn a_hold_decided_elsewhere_closes_in_front_of_the_reader() {
    let office = Office::open();
    let (first, second) = (office.propose("write_file", 1), office.propose("write_note", 2));
    let bo = token(&office.bed, "approver", "bo");
    let mut screen = office.inbox(SMALL);
    screen.sees("2 calls wait").sees("write_file (cs1c:").types("d").sees("Why not?").types("becau").sees("becau");
    let id = first["holds"][0]["id"].as_str().unwrap();
    ask(&office.bed, &bo, &office.server.url, &["deny", id, "--reason", "mine first"]).expect(0);
    screen.sees("was denied by bo via http: mine first").types("se a d q a").types(ENTER);
    screen.sees("write_note (cs1c:").sees("1 call waits");
    assert_eq!(office.call(&second)["state"], "pending");
    // And a call that its agent withdraws while the list is looked at.
    let client = countersign_api::client::Client::new(&office.server.url, &office.agent).unwrap();
    let id = second["id"].as_str().unwrap().parse().unwrap();
    office.runtime.block_on(client.cancel(id)).unwrap();
    screen.sees("was cancelled").sees("nothing waits").types("q");
    assert_eq!(screen.ends().1, 0);
}

/// safety.md: hostile text is shown as what it is; the terminal gets no byte of it that it would obey.
#[test]
fn hostile_text_paints_nothing() {
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = file(&bed, &runtime);
    let hostile = "\u{1b}[2J\u{1b}]52;c;eA==\u{7} ok\u{202e}\u{200b}\u{e0041}\r\u{9b}31m";
    let arguments = json!({ "a": hostile, hostile: "x" }).to_string();
    runtime.block_on(submit(&agent, "pay\u{202e}\u{1b}[1m", &arguments));
    for size in [SMALL, WIDE] {
        let mut screen = inbox_of(&bed, size);
        // The screen itself fails on every control character.
        screen.sees("\\u{202e}\\u{1b}[1m").types(ENTER).types("      ").sees("\\u{1b}[2J\\u{1b}]52;c;eA==\\u{7}");
        screen.types("?").sees("Esc or ?").types(ESCAPE).sees_no("Esc or ?").types("q");
        let (raw, code) = screen.ends();
        assert_eq!(code, 0);
        for char in ['\u{202e}', '\u{200b}', '\u{e0041}', '\u{9b}', '\u{7}'] {
            assert!(!raw.contains(char), "{char:?}: {raw:?}");
        }
        assert!(!raw.contains("\u{1b}]52"), "{raw:?}");
    }
}

/// A server that goes away is said so; once it is back, the list is true again and decisions count.
#[test]
fn a_server_that_comes_back_is_followed_again() {
    let mut office = Office::open();
    let first = office.propose("write_file", 1);
    let mut screen = office.inbox(SMALL);
    screen.sees("1 call waits").sees("● live");
    office.server.stop();
    screen.sees("no connection, trying again");
    office.server = Serving::at(&office.bed, &office.server.url);
    screen.sees("● live");
    office.propose("write_note", 2);
    screen.sees("2 calls wait").sees("write_file (cs1c:").types("d").sees("Why not?").types(ENTER);
    screen.sees("write_file: denied");
    assert_eq!(office.call(&first)["state"], "denied");
    // A credential that ends is told apart from a server that is away.
    let tokens = office.bed.run(["token", "list", "--json", "--store", &office.bed.url()]).json();
    let ann = tokens.as_array().unwrap().iter().find(|token| token["name"] == "ann").unwrap();
    office.bed.run(["token", "revoke", ann["id"].as_str().unwrap(), "--store", &office.bed.url()]).expect(0);
    office.server.stop();
    office.server = Serving::at(&office.bed, &office.server.url);
    screen.sees("not let in any more").types("q");
    assert_eq!(screen.ends().1, 0);
}

/// Whatever ends it, the terminal is given back.
#[test]
fn a_signal_gives_the_terminal_back() {
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = file(&bed, &runtime);
    let call = runtime.block_on(submit(&agent, "pay", "{}"));
    let mut screen = inbox_of(&bed, SMALL);
    screen.sees("1 call waits");
    screen.signal(Signal::SIGTERM);
    let (raw, code) = screen.ends();
    assert_eq!(code, 130, "{raw}");
    let left = raw.rfind("\u{1b}[?1049l").expect("the screen is given back");
    assert!(raw[left..].contains("what waits goes on waiting"), "{raw}");
    assert!(hold(&runtime.block_on(agent.get(call.id)).unwrap()).is_pending());
}

/// NO_COLOR: no colour, and every sign is still there.
#[test]
fn no_colour_is_no_loss() {
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let agent = file(&bed, &runtime);
    runtime.block_on(submit(&agent, "pay", "{}"));
    let mut command = bed.command(["inbox", "--store", &bed.url()]);
    command.env("NO_COLOR", "1");
    let mut screen = Screen::of(command, WIDE);
    screen.sees("› ").sees("● live").sees("pay (cs1c:").types("a").sees("[d Deny]").sees(" a Approve ").types("\u{3}");
    let (raw, _) = screen.ends();
    for colour in (30..=37).chain(90..=97) {
        assert!(!raw.contains(&format!("\u{1b}[{colour}m")), "{raw:?}");
    }
    assert!(!raw.contains("\u{1b}[38;5;"), "{raw:?}");
}

/// B126: without a terminal it says what to use instead; a server that is not there is said on the plain screen.
#[test]
fn without_a_terminal_it_says_what_to_use() {
    let bed = Bed::new();
    let ran = bed.run(["inbox", "--store", &bed.url()]).expect(2);
    assert!(ran.stderr.contains("holds --json"), "{}", ran.stderr);
    let mut command = bed.command(["inbox", "--url", "http://127.0.0.1:1"]);
    command.env("COUNTERSIGN_TOKEN", "cs_approver_x");
    let (raw, code) = Screen::of(command, SMALL).ends();
    assert_eq!(code, 4, "{raw}");
    assert!(!raw.contains("\u{1b}[?1049h"), "{raw}");
}
