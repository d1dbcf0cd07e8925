//! A server over HTTP that answers as badly as its tools are called, and a client of a gateway in front of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::memory::MemoryStore;
use countersign::store::CallFilter;
use countersign::{CallState, Gate, Policy};
use countersign_mcp::gateway::{Address, Gateway, Identity, Upstream};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex,
    split,
};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Every way in which it answers a call, by the name of the tool.
const TOOLS: [&str; 12] =
    ["good", "huge", "endless", "event", "cut", "half", "silent", "flood", "closed", "headless", "after", "resumed"];

/// The server.
pub(crate) struct Hostile {
    url: String,
    connections: Arc<AtomicUsize>,
    called: Arc<Mutex<Vec<Value>>>,
    cut: mpsc::UnboundedReceiver<usize>,
}

impl Hostile {
    pub(crate) async fn start() -> Hostile {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let (cuts, cut) = mpsc::unbounded_channel();
        let count = Arc::clone(&connections);
        let called: Arc<Mutex<Vec<Value>>> = Arc::default();
        let calls = Arc::clone(&called);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(converse(stream, cuts.clone(), Arc::clone(&calls)));
            }
        });
        Hostile { url, connections, called, cut }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The tools that were called, in order.
    pub(crate) fn called(&self) -> Vec<String> {
        let called = self.called.lock().unwrap();
        called.iter().map(|message| message["params"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until nobody reads an answer without end any more; how many bytes of it could be sent.
    pub(crate) async fn cut(&mut self) -> usize {
        self.cut.recv().await.unwrap()
    }
}

async fn converse(stream: TcpStream, cuts: mpsc::UnboundedSender<usize>, called: Arc<Mutex<Vec<Value>>>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some(message) = request(&mut read).await {
        if message["method"] == "tools/call" {
            called.lock().unwrap().push(message.clone());
        }
        let (head, body, endless) = match message["resumes"].is_string() {
            true => resumed(called.lock().unwrap().last().unwrap()),
            false => answer(&message),
        };
        let is_sent = write.write_all(&[head.as_bytes(), &body].concat()).await.is_ok();
        let Some(piece) = endless.filter(|_| is_sent) else { continue };
        let mut sent = 0;
        while !piece.is_empty() && write.write_all(&piece).await.is_ok() {
            sent += piece.len();
        }
        // A test that does not ask has ended.
        let _ = cuts.send(sent);
        return;
    }
}

/// The next message that was posted; null for anything else.
async fn request(read: &mut BufReader<OwnedReadHalf>) -> Option<Value> {
    let (mut length, mut resumes) = (0, None);
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("last-event-id") => resumes = Some(value.to_owned()),
            None if line == "\r\n" => break,
            _ => {}
        }
    }
    if let Some(last) = resumes {
        return Some(json!({ "resumes": last }));
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await.ok()?;
    Some(serde_json::from_slice(&body).unwrap_or_default())
}

/// The head and the body of an answer, and what follows them again and again before the connection is closed.
fn answer(message: &Value) -> (String, Vec<u8>, Option<Vec<u8>>) {
    let empty = |status: &str| (format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"), Vec::new(), None);
    let result = match (message["method"].as_str(), message.get("id")) {
        (None, _) => return empty("405 Method Not Allowed"),
        (Some(_), None) => return empty("202 Accepted"),
        (Some("initialize"), _) => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"}}),
        (Some("tools/list"), _) => {
            let tools = TOOLS.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            json!({ "tools": tools })
        }
        (Some(_), _) => return called(message),
    };
    whole(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn whole(answer: &Value) -> (String, Vec<u8>, Option<Vec<u8>>) {
    let body = answer.to_string().into_bytes();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\r\n", body.len());
    (head, body, None)
}

/// The rest of a stream that was cut.
fn resumed(message: &Value) -> (String, Vec<u8>, Option<Vec<u8>>) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {EVENTS}\r\nconnection: close\r\n\r\n");
    (head, format!("data: {}\n\n", done(message)).into_bytes(), Some(Vec::new()))
}

fn done(message: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}})
}

fn called(message: &Value) -> (String, Vec<u8>, Option<Vec<u8>>) {
    let text = |text: &str| {
        let content = json!([{"type": "text", "text": text}]);
        json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})
    };
    let open = |kind: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    let half = |kind: &str, before: &str| {
        let answer = format!("{before}{}", text("done"));
        (open(kind), answer.as_bytes()[..answer.len() / 2].to_vec(), Some(Vec::new()))
    };
    let endless = |kind: &str, begin: &str, piece: &str| {
        (open(kind), begin.as_bytes().to_vec(), Some(piece.repeat(64 * 1024 / piece.len()).into_bytes()))
    };
    match message["params"]["name"].as_str().unwrap() {
        "huge" => whole(&text(&"x".repeat(countersign_mcp::limits::SERVER_MESSAGE_BYTES))),
        "endless" => endless(JSON, r#"{"jsonrpc":"2.0","result":""#, "x"),
        "event" => endless(EVENTS, "data: ", "x"),
        "cut" => half(EVENTS, "data: "),
        "half" => half(JSON, ""),
        // Closed before anything, after the head, after the answer, and where the rest can be asked for.
        "closed" => (String::new(), Vec::new(), Some(Vec::new())),
        "headless" => (open(EVENTS), Vec::new(), Some(Vec::new())),
        "after" => (open(EVENTS), format!("data: {}\n\n", done(message)).into_bytes(), Some(Vec::new())),
        "resumed" => (open(EVENTS), b"id: 7\nretry: 1\ndata:\n\n".to_vec(), Some(Vec::new())),
        "silent" => endless(EVENTS, "", ": nothing yet\n\n"),
        "flood" => endless(EVENTS, "", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"),
        _ => whole(&text("done")),
    }
}

/// A client on pipes, shaken hands with.
pub(crate) struct Client {
    gate: Gate,
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl Client {
    /// Of a gateway that allows everything, in front of a server that may take this long.
    pub(crate) async fn of(server: &Hostile, run_within: Duration) -> Client {
        let gate = Gate::builder().store(Arc::new(MemoryStore::new())).policy(Policy::allow_all());
        let gate = gate.decided_elsewhere().without_sweeper().build().unwrap();
        Client::through(gate, server, |gateway| gateway.run_within(run_within)).await
    }

    /// Of a gateway with this gate, made so.
    pub(crate) async fn through(gate: Gate, server: &Hostile, made: impl FnOnce(Gateway) -> Gateway) -> Client {
        let gateway = made(Gateway::new(gate.clone(), "hostile", Identity::of_command(["hostile"])));
        let upstream = Upstream::at(Address::new(&server.url, []).unwrap());
        let (ours, theirs) = duplex(64 * 1024);
        tokio::spawn(gateway.serve(split(theirs), upstream, std::future::pending()));
        let (read, write) = split(ours);
        let mut client = Client { gate, read: BufReader::new(read), write };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        client.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
        client.answer(0).await;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The answer to a request, whatever comes before it.
    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.read.read_line(&mut line).await.unwrap(), 0, "the gateway has ended");
            let told: Value = serde_json::from_str(&line).unwrap();
            if told["id"] == id {
                return told;
            }
        }
    }

    /// Asks for something by its name; the answer.
    pub(crate) async fn ask(&mut self, id: u64, method: &str, name: &str) -> Value {
        let params = json!({"name": name, "arguments": {}});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        self.answer(id).await
    }

    /// Calls a tool: whether the answer is an error, and its text.
    pub(crate) async fn call(&mut self, id: u64, tool: &str) -> (bool, String) {
        let told = self.ask(id, "tools/call", tool).await;
        (told["result"]["isError"] == true, told["result"]["content"][0]["text"].as_str().unwrap().to_owned())
    }

    /// Calls a tool whose answer cannot be had: nobody knows whether it ran, and the next call is answered as ever.
    pub(crate) async fn doubts(&mut self, tool: &str) {
        let (error, text) = self.call(1, tool).await;
        assert!(error && text.starts_with("Outcome unknown"), "{tool}: {text}");
        let doubts = CallFilter { state: Some(CallState::InDoubt), ..CallFilter::default() };
        assert_eq!(self.gate.store().calls(doubts).await.unwrap().len(), 1, "{tool}");
        assert_eq!(self.call(2, "good").await, (false, "done".to_owned()), "after {tool}");
    }
}
