//! Agents that `countersign serve` runs, as a client over HTTP meets them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use countersign_api::client::{Client, SessionEvents};
use countersign_api::wire::{NewDecision, NewSession, SessionEvent, ToolResult};
use countersign_server::limits;
use countersign_testkit::TestPostgres;
use serde_json::Value;

use crate::bed::Bed;

const SCRIPT: &str = "
turns:
  - calls: [{ tool: locate, arguments: { fine: true } }]
  - text: You are in Ghent.
  - text: You still are.
";
const CONFIG: &str = "
store: sqlite:serve.db
model: { provider: scripted, name: script.yml }
policy: { otherwise: ask }
tools: [{ name: locate, description: Where the user is., run: { client: true } }]
agents: { guide: { instructions: You know the way., tools: [locate] } }
";

/// A server that runs until it is dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(bed: &Bed, args: &[&str]) -> Serving {
        let args = ["serve", "--json", "--listen", "127.0.0.1:0"].iter().chain(args);
        let mut child = bed.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Serving { child, url: said["url"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(bed: &Bed, config: &str, role: &str, name: &str) -> String {
    let args = ["token", "create", "--json", "--role", role, "--name", name, "--config", config];
    bed.run(args).expect(0).json()["token"].as_str().unwrap().to_owned()
}

/// What the agent answers in the session `way`, where a person approves and the phone runs what is its to run.
async fn answered(phone: &Client, ann: &Client, events: &mut SessionEvents) -> String {
    let mut ran = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            SessionEvent::Held(hold) => {
                ann.decide(hold.id, &NewDecision::approve(hold.digest)).await.unwrap();
            }
            SessionEvent::State(status) => {
                // A state that was sent while the phone ran the call may still list it.
                let waiting = status.client_calls.iter().find(|waiting| !ran.contains(&waiting.call));
                if let Some(waiting) = waiting {
                    ran.push(waiting.call);
                    let taken = phone.claim(waiting.call, &Default::default()).await.unwrap();
                    assert_eq!(taken.arguments.as_str(), r#"{"fine":true}"#);
                    let output = Some(countersign::Json::string("Ghent"));
                    let result = ToolResult { call: waiting.call, fence: taken.fence, output, error: None };
                    phone.give("way", &result).await.unwrap();
                }
            }
            SessionEvent::Done(entry) => return format!("{entry:?}"),
            _ => {}
        }
    }
}

/// The whole way over HTTP: a message, a hold, a tool of the client's, the answer, and another message after a crash.
#[tokio::test]
async fn a_client_talks_to_an_agent_of_the_configuration() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bed = Bed::new();
    bed.write("script.yml", SCRIPT);
    let config = bed.write("countersign.yml", CONFIG);
    let config = config.to_str().unwrap();
    let server = Serving::start(&bed, &["--config", config]);
    let phone = Client::new(&server.url, &token(&bed, config, "agent", "phone")).unwrap();
    let ann = Client::new(&server.url, &token(&bed, config, "approver", "ann")).unwrap();
    let new = NewSession {
        agent: "guide".into(),
        message: Some("where am I?".into()),
        session: Some("way".into()),
        requester: None,
    };
    phone.begin_session(&new).await.unwrap();
    let mut events = phone.follow_session("way", None).await.unwrap();
    let answer = answered(&phone, &ann, &mut events).await;
    assert!(answer.contains("You are in Ghent."), "{answer}");
    let cursor = events.cursor().unwrap().to_owned();
    drop(server);

    let server = Serving::start(&bed, &["--config", config]);
    let phone = Client::new(&server.url, &token(&bed, config, "agent", "phone")).unwrap();
    phone.say("way", "and now?").await.unwrap();
    let mut events = phone.follow_session("way", Some(&cursor)).await.unwrap();
    loop {
        match events.next().await.unwrap().unwrap() {
            SessionEvent::Done(entry) => {
                assert!(format!("{entry:?}").contains("You still are."), "{entry:?}");
                break;
            }
            SessionEvent::Called(call) => panic!("told again: {call:?}"),
            _ => {}
        }
    }
}

/// I2: tools that would run as the server's own user stop the start, and say what to do.
#[test]
fn tools_that_would_run_as_the_server_stop_the_start() {
    let bed = Bed::new();
    bed.write("script.yml", SCRIPT);
    let config = CONFIG.replace("tools: [locate]", "tools: [locate, bash]");
    let config = bed.write("countersign.yml", &config);
    let config = config.to_str().unwrap();
    let refused = bed.run(["serve", "--listen", "127.0.0.1:0", "--config", config]).expect(3);
    for word in ["`guide`", "`bash`", "--dangerously-run-tools-as-server", "--no-agents"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    let server = Serving::start(&bed, &["--config", config, "--no-agents"]);
    assert!(server.url.starts_with("http://127.0.0.1:"));
}

/// Tools run as the server's own user only if somebody at a terminal, or the configuration, says so, too; then it is on the
/// record, and whoever oversees is told.
#[tokio::test]
async fn tools_run_as_the_server_only_if_said_twice_and_then_it_shows() {
    const FLAG: &str = "--dangerously-run-tools-as-server";
    let bed = Bed::new();
    bed.write("script.yml", SCRIPT);
    let config = CONFIG.replace("tools: [locate]", "tools: [locate, bash]");
    let once = bed.write("once.yml", &config);
    let twice = bed.write("twice.yml", &format!("server: {{ dangerously_run_tools_as_server: true }}\n{config}"));
    let serve = |config: &Path, more: &[&str]| {
        let args = ["serve", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()];
        bed.run(args.iter().chain(more)).expect(3).stderr
    };
    let said = serve(&once, &[FLAG]);
    assert!(said.contains("dangerously_run_tools_as_server: true"), "{said}");
    let said = serve(&twice, &[]);
    assert!(said.contains(FLAG), "the configuration alone is not enough either: {said}");

    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = twice.to_str().unwrap();
    let server = Serving::start(&bed, &["--config", config, FLAG]);
    for (role, shown) in [("approver", true), ("operator", true), ("agent", false)] {
        let me = Client::new(&server.url, &token(&bed, config, role, "sam")).unwrap().me().await.unwrap();
        assert_eq!(me.tools_as_server, shown, "{role}");
    }
    let log = bed.run(["audit", "log", "--json", "--config", config]).expect(0).stdout;
    let recorded =
        log.lines().filter(|line| line.contains("access.changed")).any(|line| line.contains("tools_as_server"));
    assert!(recorded, "{log}");
}

/// A session that a server drives when it is killed is driven on by another on the same database, once its lease is over.
#[tokio::test]
async fn a_killed_servers_session_goes_on_at_another() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestPostgres::shared_durable().unwrap().create_database().unwrap();
    let bed = Bed::new();
    bed.write("script.yml", SCRIPT);
    let config = bed.write("countersign.yml", &CONFIG.replace("sqlite:serve.db", database.url()));
    let config = config.to_str().unwrap();
    let (first, second) = (Serving::start(&bed, &["--config", config]), Serving::start(&bed, &["--config", config]));
    let (phone, ann) = (token(&bed, config, "agent", "phone"), token(&bed, config, "approver", "ann"));
    let client = |server: &Serving, token: &str| Client::new(&server.url, token).unwrap();
    let message = Some("where am I?".into());
    let new = NewSession { agent: "guide".into(), message, session: Some("way".into()), requester: None };
    client(&first, &phone).begin_session(&new).await.unwrap();
    let mut events = client(&first, &phone).follow_session("way", None).await.unwrap();
    while !matches!(events.next().await.unwrap().unwrap(), SessionEvent::Held(_)) {}
    drop(first);

    let (phone, ann) = (client(&second, &phone), client(&second, &ann));
    let mut events = phone.follow_session("way", None).await.unwrap();
    let within = limits::SESSION_LEASE + limits::SESSIONS_SWEPT + Duration::from_secs(30);
    let answer = tokio::time::timeout(within, answered(&phone, &ann, &mut events)).await.expect("nobody took it up");
    assert!(answer.contains("You are in Ghent."), "{answer}");
}
