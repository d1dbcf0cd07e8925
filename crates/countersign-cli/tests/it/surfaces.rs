//! B125: one hold on every surface. The web page has the same check in `web/e2e/surfaces.spec.ts`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use countersign::show::{Line, LineKind};
use countersign_api::client::Client;
use countersign_api::wire;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bed::Bed;
use crate::screen::Screen;
use crate::serve::{Serving, ask, token};
use crate::terminal::{ENTER, Terminal};

/// A rule with every term there is.
const POLICY: &str = "
policy:
  rules:
    - { id: big-transfers, ask: bank/transfer, risk: high, reason: Transfers need two people, approvals: 2, from: [finance],
        human: required, requester: excluded, remember: none, on_expired: stop_run, expires_after: 1h }
approvers: { groups: { finance: [ann, bo] } }
redact: { keys: ['*password*'] }
";
/// What nobody may see.
const SECRET: &str = "hunter2-is-a-canary";

/// A call with everything that a hold can have, and with what would deceive a reader.
fn call() -> Value {
    json!({
        "session": "books", "run": "run-7", "thread": "main", "agent": ["planner", "clerk"],
        "tool": "transfer", "server": "bank", "label": "toolu_1",
        "arguments": { "amount": 100, "to": "Bo\u{202e}\u{1b}[2J", "password": SECRET, "lines": "one\ntwo" },
        "hint": "this is \u{200b}harmless", "payload": { "invoice": "A-17", "total": 100 }
    })
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What the one renderer says, as terminals write it. How long there is left is another thing each second.
fn lines(detail: &wire::HoldDetail) -> Vec<String> {
    let line = |line: &wire::Line| {
        let wire::Line { kind, indent, label, text } = line.clone();
        match kind {
            LineKind::Fact => format!("{label:<11} {text}"),
            _ => Line { kind, indent, label, text }.to_string(),
        }
    };
    detail.view.iter().filter(|line| line.label != "expires").map(line).collect()
}

#[track_caller]
fn check_shown(surface: &str, shown: &str, lines: &[String]) {
    for line in lines {
        assert!(shown.contains(line.as_str()), "{surface} has no `{line}`:\n{shown}");
    }
    assert!(
        !shown.contains(SECRET) && !shown.contains('\u{202e}') && !shown.contains('\u{200b}'),
        "{surface}: {shown}"
    );
}

#[test]
fn every_surface_shows_the_same_hold() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (bed, runtime) = (Bed::new(), Runtime::new().unwrap());
    let server = Serving::under(&bed, POLICY, &bed.url());
    let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
    let submitted = runtime.block_on(async {
        let new = serde_json::from_str(&call().to_string()).unwrap();
        Client::new(&server.url, &agent).unwrap().submit(&new).await.unwrap()
    });
    let id = submitted.holds[0].id;
    let get = |path: &str| {
        let request = reqwest::Client::new().get(format!("{}{path}", server.url)).bearer_auth(&ann);
        json_of(&runtime.block_on(async { request.send().await.unwrap().text().await.unwrap() }))
    };

    // Programs read the same members everywhere.
    let hold = get("/v1/holds")["items"][0].clone();
    for member in ["principal", "session", "run", "thread", "agent", "because", "risk", "approvals", "hint", "payload"]
    {
        assert!(!hold[member].is_null(), "{member}: {hold:#}");
    }
    let (store, config) = (bed.url(), bed.work().join("policy.yml"));
    let config = config.to_str().unwrap();
    let mut watch = bed.command(["holds", "--watch", "--json", "--url", &server.url]);
    let mut watching =
        watch.env("COUNTERSIGN_TOKEN", &ann).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut watched = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut watched).unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    // Its title has the digest, too.
    let mut detailed = get(&format!("/v1/holds/{id}"))["hold"].clone();
    assert!(detailed["title"].as_str().unwrap().contains(&hold["digest"].as_str().unwrap()[..13]), "{detailed:#}");
    detailed["title"] = hold["title"].clone();
    for (surface, found) in [
        ("the detail", detailed),
        ("holds --url", ask(&bed, &ann, &server.url, &["holds", "--json"]).expect(0).json()[0].clone()),
        (
            "holds --store",
            bed.run(["holds", "--json", "--store", &store, "--config", config]).expect(0).json()[0].clone(),
        ),
        ("holds --watch", json_of(&watched)),
    ] {
        assert_eq!(found, hold, "{surface}");
    }
    assert!(!hold.to_string().contains(SECRET), "{hold}");

    // People read the same lines everywhere.
    let detail = runtime.block_on(async { Client::new(&server.url, &ann).unwrap().hold(id).await.unwrap() });
    let lines = lines(&detail);
    for words in
        ["books", "run-7", "planner > clerk", "Transfers need two people", "0 of 2 from finance", "people only"]
    {
        assert!(lines.iter().any(|line| line.contains(words)), "{words}: {lines:#?}");
    }
    for words in ["not the requester", "cannot be remembered", "the run is ended", "A-17", "\\u{202e}\\u{1b}[2J"] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words}: {lines:#?}");
    }
    let mut on_server = bed.command(["inbox", "--url", &server.url]);
    on_server.env("COUNTERSIGN_TOKEN", &ann);
    let on_store = bed.command(["inbox", "--store", &store, "--config", config]);
    for (surface, command) in [("inbox --url", on_server), ("inbox --store", on_store)] {
        let mut screen = Screen::of(command, (240, 100));
        screen.sees("1 call waits").sees("A-17");
        check_shown(surface, &screen.text(), &lines);
        screen.types("q");
        assert_eq!(screen.ends().1, 0);
    }
    let args = ["approve", &id.to_string(), "--store", &store, "--config", config];
    let mut terminal = Terminal::run(&bed, &args, (240, 100));
    terminal.sees("A-17").sees("[l Leave it]").types(ENTER);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    check_shown("approve", &anstream::adapter::strip_str(&shown).to_string(), &lines);
}
