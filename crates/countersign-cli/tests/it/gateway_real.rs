//! The gateway between a server and clients that others made: the SDKs of three languages, and the inspector.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::bed::{Ran, read};
use crate::gateway_peer::{Peer, Stage};

/// Where `cargo xtask setup` installs the packages that `tests/parts` lists.
pub(crate) fn installed(folder: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_countersign")).parent().and_then(Path::parent).unwrap();
    let path = target.join("xtask").join(folder);
    assert!(
        path.join("installed.json").exists() || path.join("installed.txt").exists(),
        "run `cargo xtask setup` first"
    );
    path
}

fn package(path: &str) -> PathBuf {
    installed("mcp").join("node_modules/@modelcontextprotocol").join(path)
}

/// The command of a reference server.
pub(crate) fn reference(server: &str, argument: &str) -> Vec<String> {
    let program = package(server).join("dist/index.js").display().to_string();
    vec!["node".into(), program, argument.into()]
}

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: files/write_file }] }";

/// A user with the filesystem server on a folder of theirs.
pub(crate) struct Files {
    pub(crate) stage: Stage,
}

impl Files {
    pub(crate) fn new(policy: &str) -> Files {
        let stage = Stage::new(policy);
        std::fs::create_dir(stage.bed.work().join("files")).unwrap();
        Files { stage }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        // Without links: the server names paths so, too.
        self.stage.bed.work().join("files").canonicalize().unwrap().join(name).display().to_string()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.stage.bed.work().join("files")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn server(&self) -> Vec<String> {
        reference("server-filesystem", &self.stage.bed.work().join("files").display().to_string())
    }

    /// The gateway in front of the server, as one command line.
    pub(crate) fn gateway(&self) -> Vec<String> {
        let policy = self.stage.bed.work().join("policy.yml").display().to_string();
        let url = self.stage.bed.url();
        let options = ["gateway", "--server", "files", "--config", &policy, "--store", &url, "--"];
        let program = env!("CARGO_BIN_EXE_countersign").to_owned();
        let options = options.into_iter().map(str::to_owned);
        std::iter::once(program).chain(options).chain(self.server()).collect()
    }

    pub(crate) fn start(&self, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.stage.bed.work()).env("HOME", self.stage.bed.work());
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    }
}

/// A client that calls one tool and says what came of it.
#[derive(Clone, Copy, Debug)]
enum RealClient {
    Python,
    /// The TypeScript client of the first generation, and of the second.
    Sdk(&'static str),
    Inspector,
    Rmcp,
}

impl RealClient {
    fn call(self, files: &Files, arguments: &Value) -> Child {
        let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parts");
        let gateway = files.gateway();
        let words = |first: Vec<PathBuf>| first.into_iter().map(|path| path.display().to_string()).collect();
        let tool = [String::from("write_file"), arguments.to_string(), "--".into()];
        let line: Vec<String> = match self {
            RealClient::Python => {
                let first: Vec<String> =
                    words(vec![installed("mcp-python").join("bin/python"), parts.join("client.py")]);
                [first, tool.to_vec(), gateway].concat()
            }
            RealClient::Sdk(generation) => {
                let first: Vec<String> = words(vec!["node".into(), parts.join("client.mjs"), installed("mcp")]);
                [first, vec![generation.into()], tool.to_vec(), gateway].concat()
            }
            RealClient::Rmcp => {
                let first: Vec<String> =
                    words(vec![Path::new(env!("CARGO_BIN_EXE_countersign")).with_file_name("mcp-client")]);
                [first, tool.to_vec(), gateway].concat()
            }
            RealClient::Inspector => {
                let program = installed("mcp").join("node_modules/.bin/mcp-inspector");
                let first: Vec<String> = [words(vec![program]), vec!["--cli".into()]].concat();
                let options = ["--method", "tools/call", "--format", "json", "--tool-name", "write_file"];
                let given =
                    arguments.as_object().unwrap().iter().flat_map(|(key, value)| {
                        ["--tool-arg".to_owned(), format!("{key}={}", value.as_str().unwrap())]
                    });
                let options = options.into_iter().map(str::to_owned).chain(given).collect();
                [first, options, vec!["--".into()], gateway].concat()
            }
        };
        let mut command = files.start(&line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// Waits for the call's hold, decides, and waits for the client.
fn decided(files: &Files, client: RealClient, arguments: &Value, decide: impl FnOnce(&Stage)) -> Ran {
    let mut child = client.call(files, arguments);
    while files.stage.holds().is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
        // Whoever is waited for needs the processor, too.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    decide(&files.stage);
    child.wait_with_output().unwrap().into()
}

/// What the client made of it: whether the tool failed, and what it said.
fn told(ran: &Ran) -> (bool, String) {
    let line = ran.stdout.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{ran:#?}"));
    let told: Value = serde_json::from_str(line).unwrap();
    let result = &told["result"];
    (result["isError"] == true, result["content"].to_string())
}

/// Deny leaves the folder untouched and tells the model why; an edit is what is written.
fn is_held(client: RealClient) {
    let files = Files::new(ASK_WRITES);
    let arguments = json!({"path": files.path("a.txt"), "content": "theirs"});
    let denied = decided(&files, client, &arguments, |stage| stage.deny("not in this folder"));
    assert!(format!("{denied:?}").contains("not in this folder"), "{denied:#?}");
    assert_eq!(files.names(), [""; 0], "nothing was written");

    let ours = json!({"path": files.path("a.txt"), "content": "ours"}).to_string();
    let edited = decided(&files, client, &arguments, |stage| stage.approve(&["--arguments", &ours]));
    let (error, text) = told(&edited);
    assert!(!error && text.contains("A person changed the arguments"), "{edited:#?}");
    assert_eq!(read(files.path("a.txt")), "ours");
}

#[test]
fn calls_of_the_python_sdk_are_held() {
    is_held(RealClient::Python);
}

#[test]
fn calls_of_the_typescript_client_are_held() {
    is_held(RealClient::Sdk("client"));
}

#[test]
fn calls_of_the_first_typescript_sdk_are_held() {
    is_held(RealClient::Sdk("sdk"));
}

#[test]
fn calls_of_the_inspector_are_held() {
    is_held(RealClient::Inspector);
}

#[test]
fn calls_of_rmcp_are_held() {
    is_held(RealClient::Rmcp);
}

/// B132: a gateway that is killed between asking and approval loses nothing, and the file is written once.
#[test]
fn a_killed_gateway_loses_no_question_and_no_approval() {
    let files = Files::new(ASK_WRITES);
    let arguments = json!({"path": files.path("a.txt"), "content": "x"});
    let mut peer = Peer::start(files.start(&files.gateway()));
    peer.call(1, "write_file", &arguments);
    peer.held();
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    files.stage.approve(&[]);
    assert_eq!(files.names(), [""; 0], "nothing runs for a caller that is gone");
    let mut peer = Peer::start(files.start(&files.gateway()));
    peer.call(2, "write_file", &arguments);
    assert!(!peer.answer(2).0);
    assert_eq!(read(files.path("a.txt")), "x");
}
