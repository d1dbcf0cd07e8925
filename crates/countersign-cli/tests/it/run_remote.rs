//! `countersign run` at a server: the agent runs here, its calls are judged and held there.

use std::process::{Child, Command, Stdio};

use countersign::signer::Signer;
use countersign_api::client::Client;
use serde_json::Value;

use crate::bed::{Bed, Ran, read};
use crate::run::{SCRIPT, scene};
use crate::serve::{Serving, ask, token};

const ASK_WRITES: &str = "policy: { rules: [{ id: writes, ask: 'write_*' }] }";

/// An agent whose own rules deny everything, a server that asks about writes, and its people.
struct Office {
    bed: Bed,
    server: Serving,
    bot: String,
    ann: String,
}

impl Office {
    fn open() -> Office {
        // The rules here are not asked: whatever happens comes from the server.
        let bed = scene("  otherwise: deny\n", SCRIPT);
        let server = Serving::under(&bed, ASK_WRITES, &bed.url());
        let (bot, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
        Office { bed, server, bot, ann }
    }

    /// Runs on a store of its own, which is not the server's.
    fn here(&self, args: &[&str]) -> Command {
        let own = format!("sqlite:{}", self.bed.work().join("own.db").display());
        self.bed.command([args, &["--config", "run.yml", "--store", &own]].concat())
    }

    fn command(&self, token: &str, rest: &[&str]) -> Command {
        let mut command = self.here(&[&["run"], rest].concat());
        command.env("COUNTERSIGN_URL", &self.server.url).env("COUNTERSIGN_TOKEN", token);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, rest: &[&str]) -> Child {
        self.command(&self.bot, rest).spawn().unwrap()
    }

    fn run(&self, token: &str, rest: &[&str]) -> Ran {
        self.command(token, rest).output().unwrap().into()
    }

    fn ask(&self, args: &[&str]) -> Ran {
        ask(&self.bed, &self.ann, &self.server.url, args)
    }

    /// Waits for the one hold of a run that is under way.
    fn hold(&self, running: &mut Child) -> Value {
        loop {
            if let Some(hold) = self.ask(&["holds", "--json"]).expect(0).json().get(0) {
                return hold.clone();
            }
            assert!(running.try_wait().unwrap().is_none(), "it ended without a hold");
        }
    }

    fn approve(&self, hold: &Value) {
        self.ask(&["approve", hold["id"].as_str().unwrap(), "--digest", hold["digest"].as_str().unwrap()]).expect(0);
    }
}

/// The tool runs here, after people of the server said yes; its record has the call, the store here has none.
#[test]
fn a_run_at_a_server_waits_for_its_people() {
    let office = Office::open();
    let mut running = office.start(&["helper", "go"]);
    let hold = office.hold(&mut running);
    assert_eq!((&hold["principal"], &hold["tool"]), (&"bot".into(), &"write_file".into()));
    assert!(!office.bed.work().join("a.txt").exists());
    office.approve(&hold);
    let ran = Ran::from(running.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.stdout, "Writing it.\nFinished.\n");
    let id = hold["id"].as_str().unwrap();
    let told =
        format!("countersign approve {id} --digest {} --url {}", hold["digest"].as_str().unwrap(), office.server.url);
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    assert!(ran.stderr.contains("approved elsewhere by ann") && ran.stderr.contains("✓ done"), "{}", ran.stderr);
    assert_eq!(read(office.bed.work().join("a.txt")), "hello");
    let here = Ran::from(office.here(&["audit", "log"]).output().unwrap()).expect(0).stdout;
    assert!(!here.contains("call.submitted"), "{here}");
}

/// A no is a refusal that the model reads; nothing runs.
#[test]
fn a_no_of_the_server_reaches_the_model() {
    let office = Office::open();
    let mut running = office.start(&["helper", "go", "--json"]);
    let hold = office.hold(&mut running);
    office.ask(&["deny", hold["id"].as_str().unwrap(), "--reason", "not today"]).expect(0);
    let ran = Ran::from(running.wait_with_output().unwrap()).expect(0);
    let events: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event.to_string().contains("not today")), "{ran:?}");
    assert!(!office.bed.work().join("a.txt").exists());
}

/// A session that was killed goes on at the server with the decision made meanwhile, and nowhere else: there its calls
/// would be new, and could run twice.
#[test]
fn a_session_goes_on_where_its_calls_are() {
    let office = Office::open();
    let mut running = office.start(&["--session", "s1", "helper", "go"]);
    let hold = office.hold(&mut running);
    running.kill().unwrap();
    running.wait().unwrap();
    office.approve(&hold);
    let here = Ran::from(office.here(&["run", "--resume", "s1"]).output().unwrap()).expect(3);
    assert!(here.stderr.contains(&office.server.url) && here.stderr.contains("`bot`"), "{here:?}");
    let other = office.run(&token(&office.bed, "agent", "other"), &["--resume", "s1"]).expect(3);
    assert!(other.stderr.contains("`bot`"), "{other:?}");
    assert!(!office.bed.work().join("a.txt").exists());
    let ran = office.run(&office.bot, &["--resume", "s1"]).expect(0);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
    assert_eq!(read(office.bed.work().join("a.txt")), "hello");

    Ran::from(office.here(&["run", "--session", "local", "helper", "go"]).output().unwrap()).expect(0);
    let moved = office.run(&office.bot, &["--resume", "local"]).expect(3);
    assert!(moved.stderr.contains("in the store here"), "{moved:?}");
}

/// Without the server, or with a token that is no agent's, nothing begins.
#[test]
fn a_server_that_is_away_or_refuses_lets_nothing_begin() {
    let mut office = Office::open();
    assert_eq!(office.run("cs_agent_wrong", &["helper", "go"]).code, 3);
    assert_eq!(office.run(&office.ann, &["helper", "go"]).code, 3);
    office.server.stop();
    office.run(&office.bot, &["helper", "go"]).expect(4);
    assert!(!office.bed.work().join("a.txt").exists());
}

/// Where a key is pinned, nothing is run for a server that signs with another one.
#[tokio::test]
async fn a_server_with_another_key_than_the_pinned_one_runs_nothing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let office = Office::open();
    let run = |key: &str| {
        let mut command = office.command(&office.bot, &["helper", "go"]);
        command.env("COUNTERSIGN_SERVER_KEY", key).spawn().unwrap()
    };
    let junk = Ran::from(run("junk").wait_with_output().unwrap()).expect(2);
    assert!(junk.stderr.contains("COUNTERSIGN_SERVER_KEY is no public key"), "{junk:?}");

    let mut strange = run(&Signer::generate().unwrap().public_key());
    office.approve(&office.hold(&mut strange));
    let strange = Ran::from(strange.wait_with_output().unwrap());
    assert_ne!(strange.code, 0);
    assert!(strange.stderr.contains("a receipt of another key than the one that is wanted"), "{strange:?}");
    assert!(!office.bed.work().join("a.txt").exists());

    let auditor = token(&office.bed, "auditor", "eve");
    let keys = Client::new(&office.server.url, &auditor).unwrap().keys().await.unwrap().keys;
    let mut right = run(&keys[0].key);
    office.approve(&office.hold(&mut right));
    Ran::from(right.wait_with_output().unwrap()).expect(0);
    assert_eq!(read(office.bed.work().join("a.txt")), "hello");
}
