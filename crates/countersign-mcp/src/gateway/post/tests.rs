//! What a server at an address may say at once, and what is made of its silence, by either way to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Address, Budget, Heard, Wire};
use crate::gateway::link::Missing;

const BUDGET: usize = 1_000;

/// A server whose answer to the first connection is long and never ends, and to all others is short.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(is_asked(&mut first).await);
        answer(&mut first, &"x".repeat(BUDGET - 50), BUDGET).await;
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"text":"{}"}}}}"#, "x".repeat(100));
            if is_asked(&mut stream).await {
                answer(&mut stream, &body, body.len()).await;
            }
        }
        drop(first);
    });
    url
}

/// An address that is spoken to over connections of our own, and the same one as any other is: with a password in it.
fn both(url: &str) -> [Address; 2] {
    let _ = rustls::crypto::ring::default_provider().install_default();
    [url.to_owned(), url.replace("http://", "http://ann:secret@")].map(|url| Address::new(&url, []).unwrap())
}

/// Reads a request to its end; whether there is one.
async fn is_asked(stream: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    while !said.ends_with(b"}") {
        if stream.read_buf(&mut said).await.unwrap_or_default() == 0 {
            return false;
        }
    }
    true
}

async fn answer(stream: &mut TcpStream, body: &str, length: usize) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
}

fn line(id: u8) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#)
}

async fn ask(wire: &Wire, id: u8) {
    wire.send(line(id), Vec::new()).await.unwrap();
}

/// Answers that are each short enough add up: what would be too much together is not read.
#[tokio::test]
async fn answers_share_a_budget_and_give_it_back() {
    let [near, _] = both(&server().await);
    share_a_budget(near).await;
    let [_, far] = both(&server().await);
    share_a_budget(far).await;
}

async fn share_a_budget(address: Address) {
    let budget = Budget::new(BUDGET);
    let (wire, mut heard) = Wire::new(address, Arc::clone(&budget), Duration::from_secs(600));
    let first = tokio::spawn(wire.exchange(line(1), Vec::new()).unwrap());
    while budget.share().hold(51) {
        tokio::task::yield_now().await;
    }
    ask(&wire, 2).await;
    let Some(Heard::Nothing(id, Missing::Cut(why))) = heard.recv().await else { panic!("it was read") };
    assert_eq!((id.0.as_str(), why.as_str()), ("2", "the server's answers are too much at once"));
    first.abort();
    while !budget.share().hold(BUDGET) {
        tokio::task::yield_now().await;
    }
    ask(&wire, 2).await;
    let Some(Heard::Message(_, _, share)) = heard.recv().await else { panic!("it was not read") };
    assert!(!budget.share().hold(BUDGET), "a message that waits to be heard counts");
    drop(share);
    assert!(budget.share().hold(BUDGET));
}

/// What never reached the server may be sent again; what may have reached it is in doubt.
#[tokio::test]
async fn silence_before_and_after_a_request_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let asked = async |address: &Address| {
        let (wire, _heard) = Wire::new(address.clone(), Budget::new(BUDGET), Duration::from_secs(600));
        wire.exchange(line(1), Vec::new()).unwrap().await
    };
    let addresses = both(&url);
    for address in &addresses {
        let hangs_up = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(is_asked(&mut stream).await);
        };
        let (answer, ()) = tokio::join!(asked(address), hangs_up);
        assert!(matches!(answer, Err(Missing::Cut(_))));
    }
    drop(listener);
    for address in &addresses {
        let Err(Missing::Unsent(why)) = asked(address).await else { panic!("nobody listens") };
        assert!(!why.contains("secret"), "{why}");
    }
}
