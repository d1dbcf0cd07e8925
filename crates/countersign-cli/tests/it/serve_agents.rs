//! Agents that `countersign serve` runs, as a client over HTTP meets them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use countersign_api::client::Client;
use countersign_api::wire::{NewDecision, NewSession, SessionEvent, ToolResult};
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
    let mut ran = Vec::new();
    let answer = loop {
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
            SessionEvent::Done(entry) => break entry,
            _ => {}
        }
    };
    assert!(format!("{answer:?}").contains("You are in Ghent."), "{answer:?}");
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
    for way in ["--dangerously-run-tools-as-server", "--no-agents"] {
        let server = Serving::start(&bed, &["--config", config, way]);
        assert!(server.url.starts_with("http://127.0.0.1:"), "{way}");
    }
}
