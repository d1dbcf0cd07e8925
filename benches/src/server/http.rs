//! The least client of HTTP/1.1 that keeps its connection: what is measured is the server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// One connection, with one credential.
pub(super) struct Http {
    stream: BufReader<TcpStream>,
    head: String,
    line: String,
}

impl Http {
    pub(super) async fn connect(address: SocketAddr, token: &str) -> Result<Http> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let head = format!("host: {address}\r\nauthorization: Bearer {token}\r\n");
        Ok(Http { stream: BufReader::new(stream), head, line: String::new() })
    }

    /// Sends a request with a body of JSON, and reads the answer's.
    pub(super) async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.head
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.answer().await
    }

    /// Sends a request, and reads the answer's body.
    pub(super) async fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.begin_get(path).await?;
        self.answer().await
    }

    /// Sends a request whose answer comes later.
    pub(super) async fn begin_get(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\n{}\r\n", self.head);
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    pub(super) async fn post_json(&mut self, path: &str, body: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.post(path, body).await?)?)
    }

    /// Reads the answer to a request.
    pub(super) async fn answer(&mut self) -> Result<Vec<u8>> {
        let status = self.status().await?;
        let mut length = 0;
        while let Some((name, value)) = self.header().await? {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        ensure!((200..300).contains(&status), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Reads the head of an answer that has no end.
    pub(super) async fn begun(&mut self) -> Result<()> {
        let status = self.status().await?;
        while self.header().await?.is_some() {}
        ensure!(status == 200, "the stream answers {status}");
        Ok(())
    }

    /// What comes next of an answer that has no end.
    pub(super) async fn more(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self.stream.read(buffer).await? {
            0 => bail!("the stream ended"),
            count => Ok(count),
        }
    }

    async fn status(&mut self) -> Result<u16> {
        self.next_line().await?;
        Ok(self.line.split(' ').nth(1).context("no status")?.parse()?)
    }

    async fn header(&mut self) -> Result<Option<(&str, &str)>> {
        self.next_line().await?;
        Ok(self.line.trim_end().split_once(": "))
    }

    async fn next_line(&mut self) -> Result<()> {
        self.line.clear();
        ensure!(self.stream.read_line(&mut self.line).await? > 0, "the server hung up");
        Ok(())
    }
}
