//! Receivers of notifications: an HTTP server and a mail server that do as they are told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// What a receiver does with the next request.
pub(crate) enum Does {
    /// Answers with this status.
    Answer(u16),
    /// Answers with this status and these seconds to wait.
    Later(u16, u64),
    /// Leads elsewhere.
    Redirect(String),
    /// Says nothing until told to go on.
    Hang(Arc<Notify>),
}

/// One request that came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Came {
    /// A header.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// The body, read.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether its signature is good for this key, by the published scheme and nothing of ours.
    pub(crate) fn is_signed_with(&self, key: &[u8]) -> bool {
        let signed = format!("{}.{}.{}", self.header("webhook-id"), self.header("webhook-timestamp"), self.body);
        let expected = format!("v1,{}", base64(&hmac(key, signed.as_bytes())));
        self.header("webhook-signature").split(' ').any(|signature| signature == expected)
    }
}

/// HMAC-SHA256 as RFC 2104 writes it down.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36), text.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..4 {
            let index = (bits >> (18 - 6 * letter)) & 63;
            out.push(if letter <= chunk.len() { LETTERS[index as usize] as char } else { '=' });
        }
    }
    out
}

/// An HTTP server that notes what comes.
pub(crate) struct Receiver {
    pub(crate) url: String,
    came: mpsc::UnboundedReceiver<Came>,
    plan: Arc<Mutex<VecDeque<Does>>>,
}

#[derive(Clone)]
struct Hand {
    came: mpsc::UnboundedSender<Came>,
    plan: Arc<Mutex<VecDeque<Does>>>,
}

impl Receiver {
    /// A receiver that says yes to everything.
    pub(crate) async fn new() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, came) = mpsc::unbounded_channel();
        let plan = Arc::<Mutex<VecDeque<Does>>>::default();
        let router = Router::new().fallback(take).with_state(Hand { came: sender, plan: Arc::clone(&plan) });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Receiver { url, came, plan }
    }

    /// What it does next; after that it says yes again.
    pub(crate) fn will(&self, does: impl IntoIterator<Item = Does>) {
        self.plan.lock().unwrap().extend(does);
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Came {
        self.came.recv().await.unwrap()
    }

    /// What came so far and nobody looked at.
    pub(crate) fn rest(&mut self) -> Vec<Came> {
        std::iter::from_fn(|| self.came.try_recv().ok()).collect()
    }
}

async fn take(State(hand): State<Hand>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let next = hand.plan.lock().unwrap().pop_front();
    let _ = hand.came.send(Came { path: uri.path().to_owned(), headers, body });
    let status = |code: u16| StatusCode::from_u16(code).unwrap();
    match next.unwrap_or(Does::Answer(204)) {
        Does::Answer(code) => status(code).into_response(),
        Does::Later(code, seconds) => (status(code), [("retry-after", seconds.to_string())]).into_response(),
        Does::Redirect(to) => (status(307), [("location", to)]).into_response(),
        Does::Hang(go_on) => {
            go_on.notified().await;
            status(200).into_response()
        }
    }
}

/// A mail server that takes one letter after the other and answers the end of each as planned.
pub(crate) struct Mailbox {
    pub(crate) port: u16,
    letters: mpsc::UnboundedReceiver<String>,
}

impl Mailbox {
    /// A mail server; `answers` are for the letters, in order, and then it takes all.
    pub(crate) async fn new(answers: &'static [&'static str]) -> Mailbox {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, letters) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut answers = answers.iter();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                converse(stream, answers.next().copied().unwrap_or("250 taken"), &sender).await;
            }
        });
        Mailbox { port, letters }
    }

    /// The next letter: the whole conversation, headers and text.
    pub(crate) async fn next(&mut self) -> String {
        self.letters.recv().await.unwrap()
    }
}

/// RFC 5321, as far as one letter needs it.
async fn converse(stream: TcpStream, answer: &str, letters: &mpsc::UnboundedSender<String>) {
    let mut stream = BufReader::new(stream);
    let (mut heard, mut in_letter) = (String::new(), false);
    stream.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        heard.push_str(&line);
        let reply = match line.trim_end() {
            "." if in_letter => {
                in_letter = false;
                let _ = letters.send(std::mem::take(&mut heard));
                answer
            }
            _ if in_letter => continue,
            "DATA" => {
                in_letter = true;
                "354 go on"
            }
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        if stream.write_all(format!("{reply}\r\n").as_bytes()).await.is_err() || reply.starts_with("221") {
            return;
        }
    }
}
