//! Connections to a server on this machine, each seen to by whoever asks over it.
//!
//! A client for the whole web gives every connection a task of its own, and a request goes to that task and back. Between
//! two programs on one machine that costs more than what they say to each other. Here nobody is woken but the one who
//! asks, and a connection that nobody asks over does nothing.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::{FutureExt as _, Stream, StreamExt as _};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::address::{AGENT, Answer};
use crate::gateway::link::Missing;
use crate::limits;

/// A server on this machine, and the connections to it that nobody uses now.
pub(super) struct Nearby {
    host: String,
    port: u16,
    named: HeaderValue,
    path: Uri,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// Those that were used last come last.
    lines: Vec<(Instant, Box<Line>)>,
    /// Whether somebody comes to close those that nobody uses any more.
    is_swept: bool,
}

impl Nearby {
    /// The server at an address, if it is on this machine and nothing but its address is needed to speak to it.
    pub(super) fn at(url: &Url) -> Option<Nearby> {
        let named = url.host_str()?;
        let host = named.trim_start_matches('[').trim_end_matches(']');
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if url.scheme() != "http" || !is_here || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(Nearby {
            host: host.to_owned(),
            port: url.port_or_known_default()?,
            named: HeaderValue::try_from(format!("{named}{port}")).ok()?,
            path: path.parse().ok()?,
            idle: Mutex::default(),
        })
    }

    /// Sends a request. Dropped before its answer came, its connection is closed.
    pub(super) async fn ask(self: &Arc<Self>, mut request: Request<String>) -> Result<Answer, Missing> {
        *request.uri_mut() = self.path.clone();
        request.headers_mut().entry(HOST).or_insert_with(|| self.named.clone());
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        while let Some(mut line) = self.take() {
            match line.ask(request).await {
                Ok(response) => return Ok(self.answer(line, response)),
                Err(mut failed) => match failed.take_message() {
                    // The server had closed the connection. SECURITY: what comes back was not sent, not even in part.
                    Some(back) => request = back,
                    None => return Err(cut(failed)),
                },
            }
        }
        let unsent = |why: String| Missing::Unsent(format!("it cannot be reached: {why}"));
        let connected = timeout(limits::BACK_WITHIN, Line::to(&self.host, self.port)).await;
        let connected = connected.map_err(|late| unsent(late.to_string()))?;
        let mut line = connected.map_err(|error| unsent(error.to_string()))?;
        let response = line.ask(request).await.map_err(cut)?;
        Ok(self.answer(line, response))
    }

    fn answer(self: &Arc<Self>, line: Box<Line>, response: Response<Incoming>) -> Answer {
        response.map(|body| Saying { body: Some(body), line: Some(line), nearby: Arc::clone(self) }.boxed())
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Box<Line>> {
        self.idle().lines.pop().map(|(_, line)| line)
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Self>, line: Box<Line>) {
        // Without a runtime everything has ended.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = self.idle();
        if !idle.is_swept {
            idle.is_swept = true;
            runtime.spawn(Nearby::sweep(Arc::downgrade(self)));
        }
        idle.lines.push((Instant::now(), line));
    }

    /// Closes connections that nobody used for long, until there are none.
    async fn sweep(nearby: Weak<Nearby>) {
        loop {
            sleep(limits::IDLE_CONNECTION).await;
            let Some(nearby) = nearby.upgrade() else { return };
            let mut idle = nearby.idle();
            idle.lines.retain(|(since, _)| since.elapsed() < limits::IDLE_CONNECTION);
            if idle.lines.is_empty() {
                idle.is_swept = false;
                return;
            }
        }
    }
}

fn cut(failed: TrySendError<Request<String>>) -> Missing {
    Missing::Cut(failed.into_error().to_string())
}

/// A connection, and what requests are put on it by.
struct Line {
    sender: SendRequest<String>,
    wire: Wire,
}

impl Line {
    async fn to(host: &str, port: u16) -> io::Result<Box<Line>> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        Ok(Box::new(Line { sender, wire: Wire(Some(connection)) }))
    }

    async fn ask(&mut self, request: Request<String>) -> Result<Response<Incoming>, TrySendError<Request<String>>> {
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            self.wire.advance(context);
            response.as_mut().poll(context)
        })
        .await
    }
}

/// The connection itself; none once it has ended.
struct Wire(Option<Connection<TokioIo<TcpStream>, String>>);

impl Wire {
    /// Reads and writes what can be. One that has ended is let go: whoever waits for something from it hears that then.
    fn advance(&mut self, context: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|connection| connection.poll_unpin(context).is_ready()) {
            self.0 = None;
        }
    }
}

/// What an answer says, read from its connection.
struct Saying {
    body: Option<Incoming>,
    line: Option<Box<Line>>,
    nearby: Arc<Nearby>,
}

impl Stream for Saying {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(line) = &mut self.line {
                line.wire.advance(context);
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match std::task::ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers say nothing here.
                    Err(_) => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Saying {
    fn drop(&mut self) {
        // What is left of the answer is passed over if it is there already; else the connection ends with it.
        drop(self.body.take());
        if let Some(mut line) = self.line.take() {
            line.wire.advance(&mut Context::from_waker(Waker::noop()));
            if line.sender.is_ready() {
                self.nearby.keep(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives so many answers on each connection, and then reads one more request or does not, and closes
    /// it. With it, how many requests and connections it has seen.
    async fn server(answers: usize, reads_one_more: bool) -> (Arc<Nearby>, Arc<[AtomicUsize; 2]>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
        let seen = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counts[1].fetch_add(1, Ordering::Relaxed);
                for _ in 0..answers {
                    read(&mut stream, &counts[0]).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                }
                if reads_one_more {
                    read(&mut stream, &counts[0]).await;
                }
            }
        });
        (Arc::new(Nearby::at(&url).unwrap()), seen)
    }

    async fn read(stream: &mut TcpStream, requests: &AtomicUsize) {
        let mut said = Vec::new();
        while !said.ends_with(b"}") {
            stream.read_buf(&mut said).await.unwrap();
        }
        requests.fetch_add(1, Ordering::Relaxed);
    }

    async fn ask(nearby: &Arc<Nearby>) -> Result<Vec<u8>, Missing> {
        let mut request = Request::new("{}".to_owned());
        *request.method_mut() = hyper::Method::POST;
        let pieces: Vec<_> = nearby.ask(request).await?.into_body().collect().await;
        Ok(pieces.into_iter().flat_map(|piece| piece.unwrap()).collect())
    }

    fn counts(seen: &[AtomicUsize; 2]) -> [usize; 2] {
        [seen[0].load(Ordering::Relaxed), seen[1].load(Ordering::Relaxed)]
    }

    #[tokio::test]
    async fn a_connection_is_used_until_the_server_closes_it() {
        let (nearby, seen) = server(2, false).await;
        for _ in 0..5 {
            assert_eq!(ask(&nearby).await.unwrap(), b"{}");
            // Until the server has closed what it closes, and that is seen here.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(counts(&seen), [5, 3]);
    }

    /// SECURITY: it may have run.
    #[tokio::test]
    async fn what_was_sent_is_not_sent_again() {
        let (nearby, seen) = server(1, true).await;
        ask(&nearby).await.unwrap();
        assert!(matches!(ask(&nearby).await, Err(Missing::Cut(_))));
        assert_eq!(counts(&seen), [2, 1]);
    }

    #[test]
    fn only_a_server_on_this_machine_is_near() {
        let near = |url: &str| Nearby::at(&Url::parse(url).unwrap()).map(|near| (near.host, near.port, near.named));
        for (url, host, port, named) in [
            ("http://127.0.0.1:8080/mcp", "127.0.0.1", 8080, "127.0.0.1:8080"),
            ("http://localhost/mcp?a=b", "localhost", 80, "localhost"),
            ("http://[::1]:8080", "::1", 8080, "[::1]:8080"),
        ] {
            let named = HeaderValue::from_static(named);
            assert_eq!(near(url), Some((host.to_owned(), port, named)), "{url}");
        }
        for url in ["https://localhost/", "http://example.org/", "http://ann:secret@localhost/", "http://10.0.0.1/"] {
            assert_eq!(near(url), None, "{url}");
        }
    }
}
