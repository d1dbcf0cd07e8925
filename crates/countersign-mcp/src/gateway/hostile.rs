//! I15: no bytes of a client or a server crash what reads them, none are read in two ways, and none overflow the stack of
//! a worker.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use countersign::{CallId, HoldId, Json};
use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};

use super::able::Able;
use super::frame::{Frame, Lines};
use super::message::{Envelope, Id, pick};
use super::request::{Renamed, Request, meta};
use super::state::{self, Leg};
use super::{task, words};

const INPUTS: usize = 50_000;

const MESSAGES: [&str; 7] = [
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"a":[1,{"b":"\u0041"}]},"_meta":{"progressToken":1}}}"#,
    r#"{"id":"a-1","params":{"arguments":{},"name":"t","task":{}},"method":"tools/call","odd":[1, 2]}"#,
    r#"{"jsonrpc":"2.0","id":1.5e3,"result":{"content":[{"type":"text","text":"é"}],"isError":false}}"#,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
    r#"{"id":8,"method":"tools/call","params":{"name":"t","requestState":"countersign.x","inputResponses":{"countersign":{"action":"accept"}},"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}"#,
    r#"{"id":2,"method":"tools/list","params":{"cursor":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
];

const TOKENS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b",",
    b":",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00",
    b"\xff",
    b"\"id\":1,",
    b"\"METHOD\":\"x\",",
    b"1e999",
    b"null",
    "\u{2028}\u{17f}".as_bytes(),
];

/// Numbers from a seed: the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

/// Cuts, doubles, swaps and sprinkles bytes.
fn mutated(random: &mut Random) -> Vec<u8> {
    let bytes = MESSAGES[random.below(MESSAGES.len())].as_bytes().to_vec();
    changed(random, bytes)
}

fn changed(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = random.below(12).min(bytes.len() - at);
        match random.below(5) {
            0 => drop(bytes.drain(at..at + length)),
            1 => {
                let copy = bytes[at..at + length].to_vec();
                bytes.splice(at..at, copy);
            }
            2 => {
                let times = if random.below(50) == 0 { 2_000 } else { 1 };
                let token = TOKENS[random.below(TOKENS.len())].repeat(times);
                bytes.splice(at..at, token);
            }
            3 => bytes.truncate(at),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        }
    }
    bytes
}

/// What is kept of a wait reads back only as it was written and under its own binding; nothing that is close to it does.
#[test]
fn nothing_but_a_state_reads_as_one() {
    let binding = "files/local/cs1a:00/write 1";
    let mut random = Random(0x7374_6174_6521_2121);
    let mut kept = 0;
    for _ in 0..100_000 {
        let asked = (random.below(2) == 0).then(HoldId::new);
        let more = (random.below(2) == 0).then(|| Json::string("theirs"));
        let leg = Leg { call: CallId::new(), round: random.below(20), asked, more };
        let written = leg.clone().write(binding).unwrap();
        assert_eq!(Leg::read(&written, binding), Some(leg));
        assert_eq!(Leg::read(&written, "files/eve/cs1a:00/write 1"), None);
        let changed = changed(&mut random, written);
        if let Some(read) = Leg::read(&changed, binding) {
            kept += 1;
            assert_eq!(Leg::read(&read.clone().write(binding).unwrap(), binding), Some(read));
        }
    }
    assert!(kept > 1_000, "the changes leave too little: {kept}");
}

/// The name of a task is exactly what we draw: nothing else is looked up, let alone found.
#[test]
fn nothing_but_a_name_of_ours_is_a_tasks() {
    let mut random = Random(0x7461_736b_2121_2121);
    for _ in 0..100_000 {
        let name = format!("t{}", state::random());
        assert!(task::is_name(&name));
        let changed = changed(&mut random, name.into_bytes());
        let Ok(changed) = String::from_utf8(changed) else { continue };
        let is_plain = changed.len() == 65 && changed.bytes().skip(1).all(|byte| byte.is_ascii_hexdigit());
        assert_eq!(task::is_name(&changed), is_plain && changed.starts_with('t'), "{changed}");
        let line = serde_json::json!({"id": 1, "method": "tasks/get", "params": {"taskId": changed}}).to_string();
        assert!(task::About::read(&Envelope::read(&line).unwrap(), "countersign.").is_none(), "{line}");
    }
}

/// Bytes that arrive a few at a time.
struct Pieces<'b> {
    bytes: &'b [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bytes = self.bytes;
        let (now, later) = bytes.split_at(self.piece.min(bytes.len()).min(buffer.remaining()));
        buffer.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

/// Runs on a thread with the stack of a runtime's worker. An overflow would abort the whole test.
fn on_a_workers_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn lines_are_what_stands_between_line_breaks_however_they_arrive() {
    on_a_workers_stack(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut random = Random(0x6672_616d_696e_6721);
        for _ in 0..INPUTS / 10 {
            let mut stream = Vec::new();
            for _ in 0..random.below(5) {
                stream.extend(mutated(&mut random));
                stream.push(b'\n');
            }
            let most = 1 + random.below(300);
            let piece = 1 + random.below(40);
            let mut lines = Lines::new(Pieces { bytes: &stream, piece }, most);
            let expected = stream.split_inclusive(|byte| *byte == b'\n').map(|line| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                match String::from_utf8(line.to_vec()) {
                    _ if line.len() > most => Frame::TooLong,
                    Ok(line) => Frame::Line(line),
                    Err(_) => Frame::NotText,
                }
            });
            for expected in expected {
                assert_eq!(runtime.block_on(lines.next()).unwrap(), Some(expected));
            }
            assert_eq!(runtime.block_on(lines.next()).unwrap(), None);
        }
    });
}

/// What is read of a message is what a plain reader of JSON reads, and what goes on differs in the id alone.
#[test]
fn no_message_crashes_its_reader_or_is_read_in_another_way() {
    on_a_workers_stack(|| {
        let mut random = Random(0x656e_7665_6c6f_7065);
        let (mut read, mut calls) = (0, 0);
        for _ in 0..INPUTS {
            let Ok(text) = String::from_utf8(mutated(&mut random)) else { continue };
            let Ok(envelope) = Envelope::read(&text) else { continue };
            let Ok(plain) = serde_json::from_str::<Value>(&text) else { continue };
            read += 1;
            assert_eq!(envelope.method.as_deref(), plain.get("method").and_then(Value::as_str), "{text}");
            let same = |raw: Option<&serde_json::value::RawValue>, key: &str| {
                raw.map(|raw| serde_json::from_str::<Value>(raw.get()).unwrap()) == plain.get(key).cloned()
            };
            assert!(same(envelope.params, "params") && same(envelope.result, "result"), "{text}");
            let Ok(request) = Request::read(&text, &envelope, "countersign.") else { continue };
            calls += 1;
            let arguments = countersign::Json::empty();
            let Some(out) = request.outgoing(&Id::text("ours"), Renamed::Id, &arguments) else { panic!("{text}") };
            let out: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(out["params"]["name"], plain["params"]["name"], "{text}");
            assert_eq!(out["id"], "ours");
            let params = out["params"].as_object().unwrap();
            let is_bare = !params.contains_key("requestState") && !params.contains_key("inputResponses");
            assert!(is_bare || request.state.is_none(), "{text}");
            if let Some(kept) = request.kept() {
                let kept = Envelope::read(&kept).unwrap_or_else(|error| panic!("{error}: {text}"));
                assert!(!meta(kept.params).is_some_and(|meta| Able::declared(meta).tasks), "{text}");
            }
            assert!(pick(&words::error(Some(&request.id), -1, &text), ["id"]).is_ok(), "{text}");
        }
        assert!(read > INPUTS / 20 && calls > INPUTS / 100, "the mutations leave too little: {read}, {calls}");
    });
}

#[test]
fn nesting_never_overflows_the_stack() {
    on_a_workers_stack(|| {
        for open in ["[", "{\"a\":", "{\"params\":", "[{\"id\":"] {
            let deep = open.repeat(1_000_000 / open.len());
            let _ = Envelope::read(&deep);
            let _ = Envelope::read(&format!("{{\"params\":{deep}"));
            let _ = Envelope::read(&format!(
                "{{\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"arguments\":{deep}"
            ));
        }
    });
}
