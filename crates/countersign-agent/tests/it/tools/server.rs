//! A small HTTP server on loopback that answers as a test says.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Once};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// What it was sent, request by request.
pub(super) type Requests = Arc<Mutex<Vec<String>>>;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) requests: Requests,
}

impl Server {
    /// Answers each request with these bytes, then closes.
    pub(super) async fn start(answer: impl Into<String>) -> Server {
        Server::at([127, 0, 0, 1].into(), answer).await
    }

    pub(super) async fn at(address: IpAddr, answer: impl Into<String>) -> Server {
        install_tls();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let (kept, answer) = (Arc::clone(&requests), answer.into());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !is_whole(&request) {
                    match stream.read(&mut buffer).await {
                        Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
                        _ => break,
                    }
                }
                kept.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Server { address, requests }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

pub(super) fn ok(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

pub(super) fn status(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

pub(super) fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// Clients need a TLS provider, even for plain HTTP.
pub(super) fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| rustls::crypto::ring::default_provider().install_default().unwrap());
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}
