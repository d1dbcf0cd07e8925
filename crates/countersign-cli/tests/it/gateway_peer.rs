//! An MCP client that speaks raw lines, and a place to use it in.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, read};

/// The fixture server, built beside our own program.
pub(crate) fn plain() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_countersign")).with_file_name("mcp-plain");
    assert!(path.exists(), "build it first: cargo build -p countersign-testkit --bin mcp-plain");
    path
}

/// A user with a policy, and a server that writes down what it does.
pub(crate) struct Stage {
    pub(crate) bed: Bed,
}

impl Stage {
    pub(crate) fn new(policy: &str) -> Stage {
        let bed = Bed::new();
        bed.write("policy.yml", &format!("policy: {policy}\n"));
        bed.write("log", "");
        Stage { bed }
    }

    /// A client of the gateway, shaken hands with.
    pub(crate) fn client(&self, options: &[&str]) -> Peer {
        self.client_of("policy.yml", &self.bed.url(), options, &[])
    }

    /// The same, with a configuration, a store and variables of its own.
    pub(crate) fn client_of(&self, config: &str, store: &str, options: &[&str], variables: &[(&str, &str)]) -> Peer {
        Peer::start(self.gateway(config, store, options, variables))
    }

    /// A client with these capabilities.
    pub(crate) fn able_client(&self, options: &[&str], capabilities: &Value) -> Peer {
        Peer::able(self.gateway("policy.yml", &self.bed.url(), options, &[]), capabilities)
    }

    /// The gateway in front of the plain server.
    pub(crate) fn gateway(&self, config: &str, store: &str, options: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut args = vec!["gateway", "--config", config, "--server", "plain", "--store", store];
        args.extend(options);
        let mut command = self.bed.command(args);
        command.envs(variables.iter().copied()).arg("--").arg(plain()).arg("log");
        command
    }

    /// A client of a gateway in front of an address, which is another server than the plain one.
    pub(crate) fn client_at(&self, address: &str) -> Peer {
        let url = self.bed.url();
        let args = ["gateway", "--config", "policy.yml", "--server", "far", "--store", &url, "--upstream", address];
        Peer::start(self.bed.command(args))
    }

    /// A client of the server itself.
    pub(crate) fn direct(&self) -> Peer {
        let mut command = Command::new(plain());
        command.arg("log").current_dir(self.bed.work());
        Peer::start(command)
    }

    /// What the server ran, in order.
    pub(crate) fn ran(&self) -> Vec<String> {
        let log = read(self.bed.work().join("log"));
        log.lines().filter_map(|line| line.strip_prefix("ran ")).map(str::to_owned).collect()
    }

    /// Waits until the server has run so many calls.
    pub(crate) fn until_ran(&self, count: usize) {
        while self.ran().len() < count {
            std::thread::yield_now();
        }
    }

    /// One of our commands on the same store.
    pub(crate) fn say(&self, line: &str) -> Ran {
        let url = self.bed.url();
        let words = line.split_whitespace().map(str::to_owned);
        self.bed.run(words.chain(["--config".into(), "policy.yml".into(), "--store".into(), url]))
    }

    /// The holds that are open.
    pub(crate) fn holds(&self) -> Vec<Value> {
        // A gateway that is only just starting has not made its store yet.
        if !self.bed.work().join("agent.db").exists() {
            return Vec::new();
        }
        self.say("holds --json").expect(0).json().as_array().unwrap().clone()
    }

    /// Approves the only hold.
    pub(crate) fn approve(&self, more: &[&str]) {
        let holds = self.holds();
        assert_eq!(holds.len(), 1, "{holds:?}");
        let (id, digest) = (holds[0]["id"].as_str().unwrap(), holds[0]["digest"].as_str().unwrap());
        let url = self.bed.url();
        let args = ["approve", id, "--digest", digest, "--config", "policy.yml", "--store", &url];
        self.bed.run(args.iter().chain(more)).expect(0);
    }

    /// Denies the only hold.
    pub(crate) fn deny(&self, reason: &str) {
        let holds = self.holds();
        assert_eq!(holds.len(), 1, "{holds:?}");
        let url = self.bed.url();
        let id = holds[0]["id"].as_str().unwrap();
        self.bed.run(["deny", id, "--reason", reason, "--config", "policy.yml", "--store", &url]).expect(0);
    }
}

/// A client.
pub(crate) struct Peer {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a server and shakes hands with it.
    pub(crate) fn start(command: Command) -> Peer {
        Peer::able(command, &json!({}))
    }

    /// The same for a client with these capabilities.
    pub(crate) fn able(command: Command, capabilities: &Value) -> Peer {
        Peer::speaking(command, "2025-11-25", capabilities)
    }

    /// The same in this revision.
    pub(crate) fn speaking(command: Command, version: &str, capabilities: &Value) -> Peer {
        let mut peer = Peer::bare(command);
        let params = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params});
        let mut hello = peer.ask(&hello.to_string());
        // Some talk before they answer.
        while hello.contains("\"method\":\"notifications/") {
            hello = peer.line();
        }
        assert!(hello.contains("\"protocolVersion\""), "{hello}");
        peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        peer
    }

    /// Starts a server, and says nothing yet.
    pub(crate) fn bare(mut command: Command) -> Peer {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Peer { child, stdin, stdout }
    }

    pub(crate) fn send(&mut self, line: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_ref()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    /// Sends a piece of a line.
    pub(crate) fn send_part(&mut self, piece: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(piece).unwrap();
    }

    /// The next line, as it came.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the other side has ended: {:?}", self.child.wait());
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends a call, with a token to report its progress under.
    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    }

    /// Waits until a call is said to wait; the hold's id.
    #[track_caller]
    pub(crate) fn held(&mut self) -> String {
        let told = self.next();
        assert_eq!(told["method"], "notifications/progress", "{told}");
        let message = told["params"]["message"].as_str().unwrap();
        message[message.find("hold_").unwrap()..].trim_end_matches(')').to_owned()
    }

    /// The answer to a call: whether it is an error, and its text.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> (bool, String) {
        loop {
            let told = self.next();
            if told["method"] == "notifications/progress" {
                continue;
            }
            assert_eq!(told["id"], id, "{told}");
            let content = told["result"]["content"].as_array().unwrap_or_else(|| panic!("{told}"));
            let texts: Vec<&str> = content.iter().map(|block| block["text"].as_str().unwrap()).collect();
            return (told["result"]["isError"] == true, texts.join("|"));
        }
    }

    /// The answer to a call, while another request of ours is answered before or after it.
    #[track_caller]
    pub(crate) fn answer_beside(&mut self, id: u64, other: &str) -> (bool, String) {
        loop {
            let told = self.next();
            if told["method"] == "notifications/progress" || told["id"] == other {
                continue;
            }
            assert_eq!(told["id"], id, "{told}");
            return (told["result"]["isError"] == true, told["result"]["content"][0]["text"].to_string());
        }
    }

    /// Closes the client's end; how the other side ended.
    pub(crate) fn leave(mut self) -> i32 {
        self.stdin = None;
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
