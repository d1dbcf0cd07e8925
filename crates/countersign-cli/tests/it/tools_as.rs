//! Tools of agents that the server runs, as another user than the server's.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use countersign_api::client::Client;
use countersign_api::wire::{NewSession, SessionEvent};
use rustix::process::geteuid;
use serde_json::Value;

use crate::bed::{Bed, read};

const SCRIPT: &str = "
turns:
  - calls:
      - { tool: bash, arguments: { command: 'id -u > by-bash; cat ../data/countersign/signing.key' } }
      - { tool: write_file, arguments: { path: by-file, content: hello } }
      - { tool: who, arguments: {} }
      - { tool: list_files, arguments: { path: shut } }
  - text: Done.
";
const CONFIG: &str = "
store: sqlite:../serve.db
model: { provider: scripted, name: script.yml }
policy: { preset: allow-all }
server: { tools_as: nobody }
tools: [{ name: who, description: Says who runs it., run: { command: [sh, -c, 'id -u > by-command'] } }]
agents: { hand: { instructions: You work., tools: [builtin, who] } }
";

fn config(bed: &Bed, text: &str) -> String {
    bed.write("script.yml", SCRIPT);
    bed.write("countersign.yml", text).to_str().unwrap().to_owned()
}

fn user_of(path: std::path::PathBuf) -> u32 {
    fs::metadata(&path).unwrap_or_else(|error| panic!("{error}: {}", path.display())).uid()
}

/// The server's own user owns the record and the keys: programs, shells and file tools run as another one. Needs an
/// administrator, who alone may become somebody else; the rest of us get the refusal below.
async fn tools_run_as_nobody(bed: &Bed, config: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    fs::set_permissions(bed.work(), Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(bed.work().parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(bed.work().join("shut")).unwrap();
    fs::set_permissions(bed.work().join("shut"), Permissions::from_mode(0o700)).unwrap();
    let mut command = bed.command(["serve", "--json", "--listen", "127.0.0.1:0", "--config", config]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let made = bed.run(["token", "create", "--json", "--role", "agent", "--name", "phone", "--config", config]);
    let token = made.expect(0).json()["token"].as_str().unwrap().to_owned();
    let phone = Client::new(said["url"].as_str().unwrap(), &token).unwrap();
    let new =
        NewSession { agent: "hand".into(), message: Some("work".into()), session: Some("s".into()), requester: None };
    phone.begin_session(&new).await.unwrap();
    let mut events = phone.follow_session("s", None).await.unwrap();
    let mut told = String::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            SessionEvent::Done(_) => break,
            event => told.push_str(&format!("{event:?}\n")),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let nobody = user_of(bed.work().join("by-bash"));
    assert_ne!(nobody, 0, "{told}");
    assert_eq!((user_of(bed.work().join("by-file")), user_of(bed.work().join("by-command"))), (nobody, nobody));
    assert_eq!(read(bed.work().join("by-bash")).trim(), nobody.to_string());
    assert_eq!(read(bed.work().join("by-command")).trim(), nobody.to_string());
    assert!(told.contains("Permission denied"), "the key and the shut folder stay shut: {told}");
    assert!(!told.contains("PRIVATE KEY"), "{told}");
}

#[tokio::test]
async fn tools_run_as_the_user_that_the_configuration_names() {
    let bed = Bed::new();
    let config = config(&bed, CONFIG);
    if geteuid().is_root() {
        return tools_run_as_nobody(&bed, &config).await;
    }
    let refused = bed.run(["serve", "--listen", "127.0.0.1:0", "--config", &config]).expect(3);
    assert!(refused.stderr.contains("`nobody`") && refused.stderr.contains("as root"), "{}", refused.stderr);
}

/// What starts MCP servers becomes that user before it becomes the server, and does not come back.
#[test]
fn a_program_is_started_as_another_user_or_not_at_all() {
    let bed = Bed::new();
    let ran = bed.run(["run-as", "65534:65534", "sh", "-c", "id -u; id -G"]);
    match geteuid().is_root() {
        true => assert_eq!(ran.expect(0).stdout, "65534\n65534\n"),
        false => assert!(ran.expect(1).stdout.is_empty()),
    }
    bed.run(["run-as", "no-such-user", "true"]).expect(1);
}

/// A user who is not there, or who may do everything, stops the start; nothing falls back to the server's own.
#[test]
fn a_user_that_keeps_nothing_from_tools_stops_the_start() {
    for (name, why) in [("no-such-user", "no user"), ("root", "administrator"), ("0:0", "administrator")] {
        let bed = Bed::new();
        let config = config(&bed, &CONFIG.replace("nobody", &format!("'{name}'")));
        let refused = bed.run(["serve", "--listen", "127.0.0.1:0", "--config", &config]).expect(3);
        assert!(refused.stderr.contains(why), "{name}: {}", refused.stderr);
    }
}
