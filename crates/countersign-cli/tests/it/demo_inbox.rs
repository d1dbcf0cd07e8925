//! The demo's inbox: decided in the browser or in the terminal, whichever comes first.

use std::net::TcpListener;

use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bed::{Bed, read};
use crate::demo::user;
use crate::terminal::{CONTROL_C, ENTER, Terminal};

const SIZE: (u16, u16) = (160, 50);

/// The demo in a terminal, up to its pause, and the link it showed.
fn demo(bed: &Bed, more: &[&str]) -> (Terminal, String) {
    let mut terminal = Terminal::run(bed, &[&["demo", "--dir", "scene"], more].concat(), SIZE);
    terminal.sees("/sign-in#").sees("\r\n");
    let link = terminal.shown().lines().last().unwrap().to_owned();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    terminal.sees("Press Enter to begin");
    (terminal, link)
}

/// A browser that signed in with the link.
struct Browser {
    runtime: Runtime,
    client: reqwest::Client,
    url: String,
    cookie: String,
    csrf: String,
}

impl Browser {
    fn sign_in(link: &str) -> Browser {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, secret) = link.split_once("/sign-in#").unwrap();
        let (runtime, client) = (Runtime::new().unwrap(), reqwest::Client::builder().no_proxy().build().unwrap());
        let (cookie, said) = runtime.block_on(async {
            let request = client.post(format!("{url}/v1/sign-in")).json(&json!({ "link": secret }));
            let answered = request.send().await.unwrap().error_for_status().unwrap();
            let set = answered.headers()[SET_COOKIE].to_str().unwrap().to_owned();
            (set.split(';').next().unwrap().to_owned(), answered.json::<Value>().await.unwrap())
        });
        let csrf = said["csrf"].as_str().unwrap().to_owned();
        Browser { runtime, client, url: url.to_owned(), cookie, csrf }
    }

    fn send(&self, method: Method, path: &str, body: Option<&Value>) -> reqwest::Result<(StatusCode, Value)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).header(COOKIE, &self.cookie);
        request = request.header("x-countersign-csrf", &self.csrf);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.runtime.block_on(async {
            let answered = request.send().await?;
            Ok((answered.status(), answered.json().await?))
        })
    }

    /// The one hold that waits.
    #[track_caller]
    fn hold(&self) -> Value {
        let (_, holds) = self.send(Method::GET, "/v1/holds", None).unwrap();
        let items = holds["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{holds}");
        items[0].clone()
    }

    fn decide(&self, hold: &Value, mut decision: Value) -> StatusCode {
        decision["digest"] = hold["digest"].clone();
        let path = format!("/v1/holds/{}/decisions", hold["id"].as_str().unwrap());
        self.send(Method::POST, &path, Some(&decision)).unwrap().0
    }
}

/// Who answers first closes the question for the other, and the record says who it was and where.
#[test]
fn the_browser_and_the_terminal_decide_together() {
    let bed = Bed::new();
    let (mut terminal, link) = demo(&bed, &[]);
    let browser = Browser::sign_in(&link);
    let by = format!("decided in the browser by os:{}", user());

    terminal.types(ENTER).sees("Approve this call?").sees("write_file");
    assert_eq!(browser.decide(&browser.hold(), json!({ "answer": "approve" })), 200);
    terminal.sees("\u{1b}[?1049l").sees(&format!("{by}: approved")).sees("done");

    // A reason half written in the terminal does not count.
    terminal.sees("Approve this call?").sees("[d Deny]").types("d").sees("Why not?").types("too").sees("too");
    assert_eq!(browser.decide(&browser.hold(), json!({ "answer": "deny", "reason": "not today" })), 200);
    terminal.sees(&format!("{by}: denied")).sees("not today");

    terminal.sees("Approve this call?").sees("append_line").sees("[d Deny]");
    let decided = browser.hold();
    terminal.types("d").sees("Why not?").types(ENTER).sees("you deny").sees("Approve this call?").sees("delete_file");
    assert_eq!(browser.decide(&decided, json!({ "answer": "approve" })), 409);

    // A question from inside a run.
    assert_eq!(browser.decide(&browser.hold(), json!({ "answer": "approve" })), 200);
    terminal.sees(&format!("{by}: approved")).sees("verified:").sees("Press Enter to end");
    assert_eq!(browser.send(Method::GET, "/v1/me", None).unwrap().0, 200, "the inbox stays open");
    let (shown, code) = {
        terminal.types(ENTER);
        terminal.ends()
    };
    assert_eq!(code, 0, "{shown}");
    assert!(browser.send(Method::GET, "/v1/me", None).unwrap_err().is_connect(), "the inbox ended with the demo");
    let work = bed.work().join("scene/work");
    assert!(work.join("README.md").exists() && !work.join("old.log").exists() && !work.join("progress.log").exists());
    assert!(read(work.join("settings.toml")).contains("debug = true"));
    bed.say("audit verify --store sqlite:scene/countersign.db").expect(0);
}

/// Stopped before it began, nothing was proposed.
#[test]
fn the_demo_can_be_stopped_before_it_begins() {
    let bed = Bed::new();
    let (mut terminal, _) = demo(&bed, &["--port", "0"]);
    terminal.types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!(code, 1, "{shown}");
    assert!(!shown.contains("agent:"), "{shown}");
}

/// The usual port is a wish: where it is taken, any other will do.
#[test]
fn another_port_is_found_when_the_usual_one_is_taken() {
    // Either this takes it or somebody has it already.
    let _taken = TcpListener::bind("127.0.0.1:7117");
    let bed = Bed::new();
    let (mut terminal, link) = demo(&bed, &[]);
    assert!(!link.contains(":7117/"), "{link}");
    Browser::sign_in(&link);
    terminal.types(CONTROL_C);
    terminal.ends();
}

/// An inbox that cannot be had is no reason to ask nobody.
#[test]
fn a_port_that_is_taken_leaves_the_terminal() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let bed = Bed::new();
    let mut terminal = Terminal::run(&bed, &["demo", "--dir", "scene", "--port", &port], SIZE);
    terminal.sees("no inbox in the browser: cannot listen on").sees("Approve this call?").sees("a Approve");
    terminal.types("a").sees("you approve").sees("Approve this call?").sees("edit_file").types(CONTROL_C);
    let (shown, _) = terminal.ends();
    assert!(!shown.contains("sign-in#") && bed.work().join("scene/work/README.md").exists(), "{shown}");
}

#[test]
fn no_server_is_started_where_none_is_wanted() {
    let bed = Bed::new();
    let mut terminal = Terminal::run(&bed, &["demo", "--no-server"], SIZE);
    terminal.sees("Approve this call?").types(CONTROL_C);
    let (shown, _) = terminal.ends();
    assert!(!shown.contains("http://"), "{shown}");
}
