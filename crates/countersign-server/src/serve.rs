//! Listening: where it may, with TLS where it must, and to the last request when it ends.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::{BoxError, http};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use crate::again::Again;
use crate::limits;
use crate::room::{Open, Place, Room, Stay};
use crate::site::Site;

/// Who is at the other end.
#[derive(Clone)]
pub(crate) struct Peer(pub(crate) Arc<Place>);

/// A certificate chain and its key, ready to serve with.
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<rustls::ServerConfig>);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the certificate or its key cannot be used: {0}")]
pub struct TlsError(String);

impl Tls {
    /// Reads a chain and its key from PEM texts. The process must have installed a provider of cryptography.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Tls, TlsError> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let bad = |error: &dyn std::fmt::Display| TlsError(error.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad(&error))?;
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(chain.map_err(|error| bad(&error))?, key).map_err(|error| bad(&error))?;
        let mut config = config;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls(Arc::new(config)))
    }
}

/// Why the server cannot listen there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Others on the network could read and change what goes over the wire.
    #[error(
        "`{0}` can be reached from other machines, and without TLS they could read and change every decision; listen on \
         127.0.0.1, or give a certificate with --tls-cert and --tls-key"
    )]
    NotPrivate(SocketAddr),
    /// A server on every address must be told by which names it is reached.
    #[error("`{0}` stands for every address of this machine; say with --host by which names the server is reached")]
    NoHost(SocketAddr),
    /// Whoever reaches the address could call tools.
    #[error("`{0}` can be reached from other machines, so callers must show a token; leave out --no-token")]
    NoToken(SocketAddr),
    /// The address is taken or not ours.
    #[error("cannot listen on `{0}`: {1}")]
    Bind(SocketAddr, io::Error),
}

/// Refuses addresses beyond this machine without TLS.
pub(crate) fn check_address(address: SocketAddr, tls: bool) -> Result<(), ListenError> {
    match tls || address.ip().is_loopback() {
        true => Ok(()),
        false => Err(ListenError::NotPrivate(address)),
    }
}

/// The Host headers by which an address is reached, with its port.
pub(crate) fn hosts_of(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    match address.ip() {
        ip if ip.is_unspecified() => Vec::new(),
        ip if ip.is_loopback() => {
            vec![format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")]
        }
        _ => vec![address.to_string()],
    }
}

/// Where connections come in.
pub(crate) struct Door {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    room: Arc<Room>,
}

impl Door {
    /// A door with room for so many connections.
    pub(crate) fn new(listener: TcpListener, tls: Option<Tls>, most: usize) -> Door {
        Door { listener, tls: tls.map(|tls| TlsAcceptor::from(tls.0)), room: Room::for_most(most) }
    }

    /// The next connection that there is room for.
    async fn accept(&self) -> (TcpStream, Stay) {
        loop {
            match self.listener.accept().await {
                // Without room the stream is dropped, and with it the connection.
                Ok((stream, peer)) => match self.room.enter(peer) {
                    Some(stay) => return (stream, stay),
                    None => tracing::warn!("all connections are in use by those who oversee; one more was refused"),
                },
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted; one is cut to make room");
                    self.room.make_room();
                    tokio::time::sleep(limits::ACCEPT_AGAIN).await;
                }
            }
        }
    }
}

/// Whether an error is about one connection, which is gone; else the system has no more to give.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves until told to end, then lets open requests finish, but not for ever.
pub(crate) async fn serve(door: Door, site: Site, end: impl Future<Output = ()>) {
    let site = Arc::new(site);
    let mut attended = JoinSet::new();
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(_) = attended.join_next() => {}
            (stream, stay) = door.accept() => {
                attended.spawn(Again::new(attend(stream, stay, door.tls.clone(), Arc::clone(&site))));
            }
        }
    }
    door.room.end();
    drop(door);
    let drained = async { while attended.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::DRAIN_WITHIN, drained).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut");
    }
}

/// Speaks on one connection until either side ends it. Handshakes are done here, so a slow one keeps nobody waiting.
async fn attend(stream: TcpStream, stay: Stay, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    let _ = stream.set_nodelay(true);
    let place = Arc::clone(&stay.place);
    let stream = Stream { tcp: stream, stay };
    let Some(tls) = tls else { return by_http1(stream, place, site).await };
    match tokio::time::timeout(limits::HANDSHAKE_WITHIN, tls.accept(stream)).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => by_http2(stream, place, site).await,
        Ok(Ok(stream)) => by_http1(stream, place, site).await,
        Ok(Err(_)) | Err(_) => {}
    }
}

async fn by_http1(stream: impl Wire, place: Arc<Place>, site: Arc<Site>) {
    let mut builder = http1::Builder::new();
    // Headers that do not come in time are a connection that is idle for too long. The builder's own timeout would set
    // a timer for every request.
    builder.header_read_timeout(None).max_buf_size(limits::HEADER_BYTES);
    let served = Arc::clone(&place);
    let service = service_fn(move |request| answer(request, &served, &site));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // What goes wrong on a connection ends it; whoever asked asks again.
    let _ = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = place.idle_for(limits::HEADERS_WITHIN) => return,
        () = poll_fn(|context| place.ending.poll(context)) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

async fn by_http2(stream: impl Wire, place: Arc<Place>, site: Arc<Site>) {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(limits::KEEP_ALIVE)
        .keep_alive_timeout(limits::HEADERS_WITHIN)
        .max_concurrent_streams(limits::REQUESTS_PER_CONNECTION)
        .max_header_list_size(u32::try_from(limits::HEADER_BYTES).unwrap_or(u32::MAX));
    let served = Arc::clone(&place);
    let service = service_fn(move |request| answer(request, &served, &site));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let _ = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        // Pings keep a connection open whose other end is alive and says nothing.
        () = place.idle_for(limits::HEADERS_WITHIN) => return,
        () = poll_fn(|context| place.ending.poll(context)) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

/// Answers one request.
fn answer(
    request: http::Request<Incoming>,
    place: &Arc<Place>,
    site: &Arc<Site>,
) -> impl Future<Output = Result<http::Response<Answering>, Infallible>> + Send + use<> {
    let open = place.open();
    let mut request = request.map(|body| Body::new(Timely { body, late: None }));
    request.extensions_mut().insert(ConnectInfo(Peer(Arc::clone(place))));
    let (place, site) = (Arc::clone(place), Arc::clone(site));
    async move {
        let response = site.answer(request).await;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            // A WebSocket is an open request for as long as its connection lasts.
            place.stay_open();
        }
        Ok(response.map(|body| Answering { body, _open: open }))
    }
}

/// A request's body, which must come in time.
struct Timely {
    body: Incoming,
    /// Resolves when it is too late; none while nobody had to wait for it.
    late: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(limits::BODY_WITHIN)));
        late.as_mut().poll(context).map(|()| Some(Err("the body took too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body. The request is open until it ends.
struct Answering {
    body: Body,
    _open: Open,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What a connection is spoken on, with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Wire for T {}

/// A connection that can be cut, and its place among those that may be open.
struct Stream {
    tcp: TcpStream,
    stay: Stay,
}

impl Stream {
    /// Does something with the connection, unless it was cut. Whoever waits for it is woken when it is.
    fn unless_cut<T>(
        &mut self,
        context: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let cut = &self.stay.place.cut;
        if cut.is_given() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match act(Pin::new(&mut self.tcp), context) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => cut.poll(context).map(|()| Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.unless_cut(context, |tcp, context| tcp.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.unless_cut(context, |tcp, context| tcp.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.unless_cut(context, |tcp, context| tcp.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_cut(context, |tcp, context| tcp.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_only_this_machine_is_served() {
        for (address, tls, allowed) in [
            ("127.0.0.1:7117", false, true),
            ("[::1]:7117", false, true),
            ("0.0.0.0:7117", false, false),
            ("192.168.1.5:7117", false, false),
            ("[::]:7117", false, false),
            ("192.168.1.5:7117", true, true),
        ] {
            assert_eq!(check_address(address.parse().unwrap(), tls).is_ok(), allowed, "{address} {tls}");
        }
    }
}
