//! What a server tells of its work, and what it never tells.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use countersign_api::client::Client;
use countersign_api::wire::NewDecision;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, read};
use crate::serve::token;

/// Stands in arguments, outputs, reasons and hints. It must stay there.
const CANARY: &str = "canary-in-the-arguments";

/// A server whose log goes to a file.
struct Logging {
    child: Child,
    url: String,
    sign_in: String,
}

impl Logging {
    fn start(bed: &Bed, args: &[&str], variables: &[(&str, &str)]) -> Logging {
        let common = ["serve", "--json", "--listen", "127.0.0.1:0", "--store", &bed.url()];
        let mut command = bed.command(common.iter().chain(args));
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        let mut child = command.stderr(File::create(bed.work().join("log")).unwrap()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |member: &str| said[member].as_str().unwrap().to_owned();
        Logging { url: text("url"), sign_in: text("sign_in"), child }
    }

    /// Ends it as an operator does; what it logged.
    fn end(mut self, bed: &Bed) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        read(bed.work().join("log"))
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call the whole way, another that is denied, and what is refused on the way. What must not be told of it.
async fn whole_flow(bed: &Bed, server: &Logging) -> Vec<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (agent, ann) = (token(bed, "agent", "bot"), token(bed, "approver", "ann"));
    let (bot, person) = (Client::new(&server.url, &agent).unwrap(), Client::new(&server.url, &ann).unwrap());
    let new = |n: u32| {
        let body =
            json!({ "session": "s", "tool": "write_file", "arguments": { "text": CANARY, "n": n }, "hint": CANARY });
        serde_json::from_value(body).unwrap()
    };
    for n in 1..=2 {
        let call = bot.submit(&new(n)).await.unwrap();
        let hold = person.all_holds(None).await.unwrap().remove(0);
        let deny = NewDecision::deny(hold.digest, Some(CANARY.to_owned()));
        let decision = if n == 1 { NewDecision::approve(hold.digest) } else { deny };
        person.decide(hold.id, &decision).await.unwrap();
        if n == 1 {
            let claimed = bot.claim(call.id, &Default::default()).await.unwrap();
            let outcome = json!({ "outcome": "succeeded", "output": CANARY, "fence": claimed.fence });
            bot.report(call.id, &serde_json::from_value(outcome).unwrap()).await.unwrap();
        }
    }
    let stranger = format!("cs_agent_{CANARY}");
    Client::new(&server.url, &stranger).unwrap().submit(&new(3)).await.unwrap_err();
    let raw = reqwest::Client::new().post(format!("{}/v1/calls", server.url)).bearer_auth(&agent);
    let bad = raw.header("content-type", "application/json").body(format!("{{\"tool\": [\"{CANARY}\"]}}")).send().await;
    assert_eq!(bad.unwrap().status(), 400);
    vec![CANARY.to_owned(), agent, ann, server.sign_in.split_once('#').unwrap().1.to_owned()]
}

#[track_caller]
fn tells_none_of(text: &str, secrets: &[String]) {
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "{secret} is told: {text}");
    }
}

/// I14: arguments, outputs, reasons and tokens are in no log, however much is asked for.
#[tokio::test]
async fn the_log_of_a_whole_flow_holds_no_arguments_and_no_tokens() {
    let bed = Bed::new();
    let server = Logging::start(&bed, &[], &[("COUNTERSIGN_LOG", "trace,hyper=trace,h2=trace")]);
    let secrets = whole_flow(&bed, &server).await;
    let log = server.end(&bed);
    // Off a terminal a server's log is for programs; `serve` talks to people before it and after it.
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let told = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
    assert_eq!(told("the server listens"), 1, "{log}");
    assert!(told("answered") >= 8, "{log}");
    assert!(lines.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()), "{log}");
    tells_none_of(&log, &secrets);
}

#[tokio::test]
async fn the_log_is_as_long_and_of_the_form_that_was_asked_for() {
    let bed = Bed::new();
    let server = Logging::start(&bed, &["--log", "text"], &[]);
    whole_flow(&bed, &server).await;
    let log = server.end(&bed);
    assert!(log.contains("INFO countersign_server") && log.contains("the server listens"), "{log}");
    assert!(!log.contains("answered") && !log.contains('{'), "{log}");

    let server = Logging::start(&bed, &["--log-level", "error"], &[]);
    assert!(!server.end(&bed).contains("listens"));
    for wrong in ["loud", "countersign=loud", "info,loud"] {
        bed.run(["holds", "--log-level", wrong]).expect(2);
    }
    bed.run(["holds", "--log", "xml"]).expect(2);
}

/// Traces show the path of a call by its ids and states, and of a request by its route and status; nothing of what is in
/// them.
#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn traces_show_the_path_of_a_call_and_nothing_in_it() {
    let receiver = countersign_testkit::otlp::TraceReceiver::start().await.unwrap();
    let bed = Bed::new();
    let server = Logging::start(&bed, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())]);
    let secrets = whole_flow(&bed, &server).await;
    let log = tokio::task::spawn_blocking(move || server.end(&bed)).await.unwrap();
    let traces = receiver.text();
    for told in ["submit", "decide", "claim", "outcome", "call_", "hold_", "pending", "succeeded", "countersign"] {
        assert!(traces.contains(told), "{told}: {traces}\n{log}");
    }
    for told in ["POST /v1/calls/{id}/claim", "http.route", "/v1/holds/{id}/decisions", "http.request.method"] {
        assert!(traces.contains(told), "{told}: {traces}");
    }
    for status in [200, 202, 400, 401] {
        assert!(receiver.has_number("http.response.status_code", status), "{status}: {traces}");
    }
    assert!(!receiver.has_number("http.response.status_code", 500), "{traces}");
    tells_none_of(&traces, &secrets);
}
