//! A proxy that loses requests, or the answers to them, when it is told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The request: it never arrives.
    Request,
    /// The answer: what was asked for is done, and nobody hears of it.
    Answer,
}

/// Which requests to lose, and how often.
#[derive(Clone, Debug)]
struct Cut {
    /// How the first line begins, and how its path ends.
    method: &'static str,
    path_ends: &'static str,
    lost: Lost,
    times: usize,
}

/// One request a connection, passed on to the server.
pub(super) struct Proxy {
    pub(super) url: String,
    cuts: Arc<Mutex<Vec<Cut>>>,
    /// First lines of all requests, also of those that were lost.
    seen: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Before the server of this host and port.
    pub(super) async fn before(host: &str) -> Proxy {
        let server: SocketAddr = host.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (cuts, seen) = (Arc::<Mutex<Vec<Cut>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let serving = {
            let (cuts, seen) = (Arc::clone(&cuts), Arc::clone(&seen));
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(pass(client, server, Arc::clone(&cuts), Arc::clone(&seen)));
                }
            })
        };
        Proxy { url, cuts, seen, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Loses the next requests of this kind, or their answers.
    pub(super) fn lose(&self, lost: Lost, method: &'static str, path_ends: &'static str, times: usize) {
        self.cuts.lock().unwrap().push(Cut { method, path_ends, lost, times });
    }

    /// How many requests of this kind came, lost ones included.
    pub(super) fn seen(&self, method: &str, path_ends: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|line| is(line, method, path_ends)).count()
    }

    /// Whether everything that was to be lost was.
    pub(super) fn is_done(&self) -> bool {
        self.cuts.lock().unwrap().iter().all(|cut| cut.times == 0)
    }
}

fn is(line: &str, method: &str, path_ends: &str) -> bool {
    let mut words = line.split(' ');
    let (found, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    found == method && path.split('?').next().unwrap_or_default().ends_with(path_ends)
}

async fn pass(mut client: TcpStream, server: SocketAddr, cuts: Arc<Mutex<Vec<Cut>>>, seen: Arc<Mutex<Vec<String>>>) {
    let Some((head, body)) = request(&mut client).await else { return };
    let line = head.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(line.clone());
    let lost = {
        let mut cuts = cuts.lock().unwrap();
        let cut = cuts.iter_mut().find(|cut| cut.times > 0 && is(&line, cut.method, cut.path_ends));
        cut.map(|cut| {
            cut.times -= 1;
            cut.lost
        })
    };
    if lost == Some(Lost::Request) {
        return;
    }
    let mut upstream = TcpStream::connect(server).await.unwrap();
    let mut text = line + "\r\n";
    let ours =
        |line: &&str| !line.to_lowercase().starts_with("host:") && !line.to_lowercase().starts_with("connection:");
    for line in head.lines().skip(1).filter(ours).filter(|line| !line.is_empty()) {
        text += &format!("{line}\r\n");
    }
    text += &format!("host: {server}\r\nconnection: close\r\n\r\n");
    upstream.write_all(text.as_bytes()).await.unwrap();
    upstream.write_all(&body).await.unwrap();
    let mut answer = Vec::new();
    let _ = upstream.read_to_end(&mut answer).await;
    if lost.is_none() {
        let _ = client.write_all(&answer).await;
        let _ = client.shutdown().await;
    }
}

/// Head and body of the one request of a connection.
async fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = body;
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}
