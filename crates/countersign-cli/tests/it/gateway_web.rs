//! Clients and doors over HTTP, for tests of the gateway.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::gateway_peer::{Stage, plain};

/// A gateway that listens until it is dropped.
pub(crate) struct Door {
    child: Child,
    pub(crate) url: String,
}

impl Door {
    /// In front of the plain server.
    pub(crate) fn open(stage: &Stage, options: &[&str]) -> Door {
        let plain = plain();
        Door::named("plain", stage, options, &["--", plain.to_str().unwrap(), "log"])
    }

    /// In front of an address, which is another server than the plain one.
    pub(crate) fn before(stage: &Stage, options: &[&str], address: &str) -> Door {
        Door::named("far", stage, options, &["--upstream", address])
    }

    pub(crate) fn named(server: &str, stage: &Stage, options: &[&str], upstream: &[&str]) -> Door {
        let args = ["gateway", "--json", "--listen", "127.0.0.1:0", "--config", "policy.yml", "--server", server];
        let mut command = stage.bed.command(args);
        command.args(["--store", &stage.bed.url()]).args(options).args(upstream);
        Door::of(command)
    }

    /// One that is started so.
    pub(crate) fn of(mut command: Command) -> Door {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Door { url: said["url"].as_str().unwrap().to_owned(), child }
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether a gateway refuses to listen there.
    pub(crate) fn refuses(stage: &Stage, address: &str) -> bool {
        stage.bed.run(["gateway", "--listen", address, "--store", &stage.bed.url(), "--", "cat"]).code == 3
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that speaks raw HTTP.
#[derive(Clone)]
pub(crate) struct Web {
    pub(crate) http: Client,
    url: String,
    token: String,
    session: Option<String>,
}

impl Web {
    pub(crate) fn new(url: &str, token: &str) -> Web {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Web { http: Client::new(), url: url.to_owned(), token: token.to_owned(), session: None }
    }

    /// One that has shaken hands.
    pub(crate) async fn greeted(url: &str, token: &str) -> Web {
        Web::able(url, token, json!({})).await
    }

    /// The same with these capabilities.
    pub(crate) async fn able(url: &str, token: &str, capabilities: Value) -> Web {
        Web::speaking(url, token, "2025-11-25", capabilities).await
    }

    /// The same in this revision.
    pub(crate) async fn speaking(url: &str, token: &str, version: &str, capabilities: Value) -> Web {
        let mut web = Web::new(url, token);
        let params = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = web.post(&hello.to_string()).await;
        web.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        assert!(response.text().await.unwrap().contains("\"protocolVersion\""));
        let taken = web.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(taken.status(), 202);
        web
    }

    /// Speaks as if another's session were its own.
    pub(crate) fn borrow_session(&mut self, other: &Web) {
        self.session.clone_from(&other.session);
    }

    /// Opens the stream for what belongs to no request, or takes one up again after an event.
    pub(crate) async fn listen(&self, last: Option<&str>) -> Response {
        let mut request = self.http.get(&self.url).header("accept", "text/event-stream");
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        request.send().await.unwrap()
    }

    /// Posts one message.
    pub(crate) async fn post(&self, line: &str) -> Response {
        self.post_for("application/json, text/event-stream", line).await
    }

    /// The same, for an answer of these kinds.
    pub(crate) async fn post_for(&self, kinds: &str, line: &str) -> Response {
        let mut request = self.http.post(&self.url).header("content-type", "application/json");
        request = request.header("accept", kinds);
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        request.body(line.to_owned()).send().await.unwrap()
    }

    /// Calls a tool without a handshake; the whole answer.
    pub(crate) async fn modern(&self, tool: &str, arguments: Value, state: Option<&str>) -> Value {
        let mut more = json!({});
        if let Some(state) = state {
            more["requestState"] = state.into();
        }
        self.modern_with(tool, arguments, more).await
    }

    /// The same, as a client that can put forms before its user and has more to say.
    pub(crate) async fn modern_with(&self, tool: &str, arguments: Value, more: Value) -> Value {
        let mut params = json!({"name": tool, "arguments": arguments});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.stateless("tools/call", tool, params, json!({"elicitation": {"form": {}}})).await
    }

    /// Asks without a handshake, as a client with these capabilities; the whole answer.
    pub(crate) async fn stateless(&self, method: &str, name: &str, params: Value, capabilities: Value) -> Value {
        let version = "2026-07-28";
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": capabilities});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.http.post(&self.url).bearer_auth(&self.token).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", version).header("mcp-method", method);
        let response = request.header("mcp-name", name).body(body.to_string()).send().await.unwrap();
        serde_json::from_str(&last(&response.text().await.unwrap())).unwrap()
    }

    /// Asks, and reads to the end: the last message is the answer.
    pub(crate) async fn ask(&self, line: &str) -> String {
        last(&self.post(line).await.text().await.unwrap())
    }

    /// Calls a tool: whether the answer is an error, and its text.
    pub(crate) async fn call(&self, id: u64, tool: &str, arguments: Value) -> (bool, String) {
        read(&self.ask(&call(id, tool, arguments)).await)
    }
}

/// An answer that is read while it comes.
pub(crate) struct Coming {
    response: Response,
    text: String,
    /// The id of the last event.
    pub(crate) last: Option<String>,
}

impl Coming {
    pub(crate) fn new(response: Response) -> Coming {
        Coming { response, text: String::new(), last: None }
    }

    /// Waits for the first event, which says where the stream can be taken up again.
    pub(crate) async fn primed(&mut self) -> String {
        while !self.text.contains("\n\n") {
            let chunk = self.response.chunk().await.unwrap().expect("the answer has ended");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let (event, rest) = self.text.split_once("\n\n").unwrap();
        assert!(event.lines().any(|line| line.trim_end() == "data:"), "{event}");
        let id = event.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim().to_owned();
        self.text = rest.to_owned();
        self.last = Some(id.clone());
        id
    }

    /// Reads on to the answer of this id: whether it is an error, and its text.
    pub(crate) async fn answer(&mut self, id: u64) -> (bool, String) {
        loop {
            let told = self.next().await;
            if told["id"] == id && told.get("method").is_none() {
                return read(&told.to_string());
            }
        }
    }

    /// Whether nothing more comes.
    pub(crate) async fn is_over(&mut self) -> bool {
        if !self.text.trim().is_empty() {
            return false;
        }
        let Some(chunk) = self.response.chunk().await.unwrap() else { return true };
        self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        false
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                let id = event.lines().find_map(|line| line.strip_prefix("id:")).map(|id| id.trim().to_owned());
                self.text = rest.to_owned();
                self.last = id.or(self.last.take());
                if !data.trim().is_empty() {
                    return serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap().expect("the answer has ended");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

/// A call as a message, with a token to report progress under.
pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The last message of an answer, whether it came as one or as a stream.
pub(crate) fn last(body: &str) -> String {
    let mut events = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    events.rfind(|data| !data.is_empty()).unwrap_or(body).to_owned()
}

/// What the result of a call says.
#[track_caller]
pub(crate) fn read(answer: &str) -> (bool, String) {
    let told: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let content = told["result"]["content"].as_array().unwrap_or_else(|| panic!("{told}"));
    let texts: Vec<&str> = content.iter().map(|block| block["text"].as_str().unwrap()).collect();
    (told["result"]["isError"] == true, texts.join("|"))
}

/// Waits until there is a hold.
pub(crate) async fn held(stage: &Stage) {
    while stage.holds().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
