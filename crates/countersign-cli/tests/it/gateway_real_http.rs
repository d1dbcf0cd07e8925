//! The gateway over streamable HTTP with clients that others made: the SDKs of two languages, in every way they can wait.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use countersign_testkit::mcp::{Era, McpFixture};
use serde_json::{Value, json};

use crate::bed::{Ran, read};
use crate::gateway_peer::Stage;
use crate::gateway_real::{Files, installed};
use crate::gateway_web::Door;
use crate::serve::{Serving, ask, token};

const ASK: &str = "{ preset: allow-all, rules: [{ id: writes, ask: [files/write_file, far/writes] }] }";
const IN_CLIENT: &str = "{ preset: allow-all, in_client: allow, rules: [{ id: writes, ask: [files/write_file, \
                         far/writes], requester: allowed }] }";

/// How long to leave a processor to whoever is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A client that others made.
#[derive(Clone, Copy, Debug)]
enum Sdk {
    Python,
    /// The TypeScript client of the second generation, and of the first.
    Node(&'static str),
}

const SDKS: [Sdk; 3] = [Sdk::Python, Sdk::Node("client"), Sdk::Node("sdk")];

/// A call on its way.
struct Calling<'a> {
    tool: &'a str,
    arguments: &'a Value,
    url: &'a str,
    /// `legacy`, or `auto` for a client that prefers the newer era.
    mode: &'a str,
    /// What its user says to a form; `none` where it cannot ask.
    answer: &'a str,
    token: &'a str,
}

impl Sdk {
    fn start(self, calling: &Calling<'_>) -> Child {
        let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parts");
        let words: Vec<PathBuf> = match self {
            Sdk::Python => vec![installed("mcp-python").join("bin/python"), parts.join("client.py")],
            Sdk::Node(generation) => {
                vec!["node".into(), parts.join("client.mjs"), installed("mcp"), generation.into()]
            }
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([calling.tool, &calling.arguments.to_string(), "--"]);
        command.args([calling.url, calling.mode, calling.answer]).env("TOKEN", calling.token);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// What a client made of it.
#[derive(Debug)]
struct Told {
    error: bool,
    text: String,
    calls: u64,
    asked: Vec<Value>,
}

#[track_caller]
fn told(child: Child) -> Told {
    let ran: Ran = child.wait_with_output().unwrap().into();
    let line = ran.stdout.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{ran:#?}"));
    let told: Value = serde_json::from_str(line).unwrap();
    Told {
        error: told["result"]["isError"] == true,
        text: told["result"]["content"].to_string(),
        calls: told["calls"].as_u64().unwrap(),
        asked: told["asked"].as_array().unwrap().clone(),
    }
}

#[track_caller]
fn held(stage: &Stage, child: &mut Child) {
    while stage.holds().is_empty() {
        if child.try_wait().unwrap().is_some() {
            let mut said = String::new();
            let _ = child.stdout.take().unwrap().read_to_string(&mut said);
            panic!("it ended without a hold: {said}");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Waits until the client was told to call again: that is written over what was written when it came.
fn sent_away(stage: &Stage) {
    let key = format!("files/{}", stage.holds()[0]["call"].as_str().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = stage.bed.store().await;
        while store.record("gateway-callers", &key).await.unwrap().is_none_or(|record| record.version < 2) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
}

/// The filesystem server on pipes, which knows the older era only, behind a door.
fn door(files: &Files, options: &[&str]) -> Door {
    let server = files.server();
    let words: Vec<&str> = std::iter::once("--").chain(server.iter().map(String::as_str)).collect();
    Door::named("files", &files.stage, &[&["--no-token"], options].concat(), &words)
}

/// A server of every era at an address, which writes its files where the stage is.
async fn fixture(stage: &Stage) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(McpFixture::new(stage.bed.work(), Era::Every).serve_http(listener));
    url
}

fn write_file<'a>(url: &'a str, arguments: &'a Value, answer: &'a str) -> Calling<'a> {
    Calling { tool: "write_file", arguments, url, mode: "auto", answer, token: "" }
}

/// Kept waiting, and told to call again: deny leaves the folder untouched, an edit is what is written.
#[test]
fn sdks_wait_over_http() {
    for sdk in SDKS {
        for options in [&[][..], &["--wait", "1s"]] {
            let files = Files::new(ASK);
            let door = door(&files, options);
            let theirs = json!({"path": files.path("a.txt"), "content": "theirs"});
            let mut child = sdk.start(&Calling { mode: "legacy", ..write_file(&door.url, &theirs, "none") });
            held(&files.stage, &mut child);
            files.stage.deny("not in this folder");
            let denied = told(child);
            assert!(denied.error && denied.text.contains("not in this folder"), "{sdk:?}: {denied:?}");
            assert_eq!(files.names(), [""; 0], "{sdk:?}");

            let ours = json!({"path": files.path("a.txt"), "content": "ours"}).to_string();
            let mut child = sdk.start(&Calling { mode: "legacy", ..write_file(&door.url, &theirs, "none") });
            held(&files.stage, &mut child);
            if !options.is_empty() {
                sent_away(&files.stage);
            }
            files.stage.approve(&["--arguments", &ours]);
            let edited = told(child);
            assert!(!edited.error && edited.text.contains("A person changed the arguments"), "{sdk:?}: {edited:?}");
            assert_eq!(edited.calls > 1, !options.is_empty(), "{sdk:?}: {edited:?}");
            assert_eq!(read(files.path("a.txt")), "ours", "{sdk:?}");
        }
    }
}

/// Asked by a form in their own client, where the policy accepts that: with a handshake, and without one.
#[tokio::test(flavor = "multi_thread")]
async fn sdks_answer_forms_over_http() {
    for sdk in SDKS {
        let files = Files::new(IN_CLIENT);
        let near = door(&files, &[]);
        let far = Door::before(&files.stage, &["--no-token"], &fixture(&files.stage).await);
        for (name, answer) in [("no", "deny"), ("yes", "allow")] {
            let arguments = json!({"path": files.path(name), "content": "x"});
            let near = told(sdk.start(&write_file(&near.url, &arguments, answer)));
            let arguments = json!({ "file": name });
            let calling =
                Calling { tool: "writes", arguments: &arguments, url: &far.url, mode: "auto", answer, token: "" };
            let far = told(sdk.start(&calling));
            for told in [near, far] {
                assert_eq!((told.error, told.asked.len()), (answer == "deny", 1), "{sdk:?}: {told:?}");
                assert!(told.asked[0]["message"].as_str().unwrap().contains("Countersign asks"), "{sdk:?}: {told:?}");
            }
            assert_eq!(files.stage.bed.work().join(name).exists(), answer == "allow", "{sdk:?}");
        }
        assert_eq!(files.names(), ["yes"], "{sdk:?}");
    }
}

/// Given a link to the server's own app: accepting it decides nothing, the person there does.
#[tokio::test(flavor = "multi_thread")]
async fn sdks_are_given_links_over_http() {
    let stage = Stage::new("{}");
    let config = format!("policy: {ASK}\nmcp_servers: {{ far: {{ url: '{}' }} }}\n", fixture(&stage).await);
    let serving = Serving::under(&stage.bed, &config, &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let url = format!("{}/mcp/far", serving.url);
    for (number, (sdk, mode)) in SDKS.into_iter().flat_map(|sdk| [(sdk, "legacy"), (sdk, "auto")]).enumerate() {
        for (name, decision) in [(format!("no{number}"), "deny"), (format!("yes{number}"), "approve")] {
            let arguments = json!({ "file": name });
            let calling =
                Calling { tool: "writes", arguments: &arguments, url: &url, mode, answer: "allow", token: &bot };
            let mut child = sdk.start(&calling);
            held(&stage, &mut child);
            let hold = stage.holds()[0].clone();
            let (id, digest) = (hold["id"].as_str().unwrap(), hold["digest"].as_str().unwrap());
            let args: &[&str] = if decision == "deny" { &["deny", id] } else { &["approve", id, "--digest", digest] };
            assert!(!stage.bed.work().join(&name).exists(), "{sdk:?} {mode}");
            ask(&stage.bed, &ann, &serving.url, args).expect(0);
            let told = told(child);
            assert_eq!(told.error, decision == "deny", "{sdk:?} {mode}: {told:?}");
            let link = format!("{}/#/inbox/{id}", serving.url);
            assert!(told.asked.iter().all(|asked| asked["url"] == link.as_str()), "{sdk:?} {mode}: {told:?}");
            assert_eq!(stage.bed.work().join(&name).exists(), decision == "approve", "{sdk:?} {mode}");
        }
    }
}

/// B132: a gateway that is killed between asking and approval loses neither, and the file is written once.
#[test]
fn sdks_lose_nothing_by_a_killed_gateway() {
    for sdk in SDKS {
        let files = Files::new(ASK);
        let first = door(&files, &[]);
        let arguments = json!({"path": files.path("a.txt"), "content": "x"});
        let mut child = sdk.start(&write_file(&first.url, &arguments, "none"));
        held(&files.stage, &mut child);
        first.kill();
        let _ = child.kill();
        let _ = child.wait();
        files.stage.approve(&[]);
        assert_eq!(files.names(), [""; 0], "{sdk:?}: nothing runs for a caller that is gone");
        let second = door(&files, &[]);
        let again = told(sdk.start(&write_file(&second.url, &arguments, "none")));
        assert!(!again.error && again.calls == 1, "{sdk:?}: {again:?}");
        assert_eq!(read(files.path("a.txt")), "x", "{sdk:?}");
        let log = files.stage.say("audit log --json").expect(0).stdout;
        assert_eq!(log.matches("call.claimed").count(), 1, "{sdk:?}");
    }
}
