//! Listening: where it may, with TLS where it must, and to the last request when it ends.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::limits;

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

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

/// Accepts connections; handshakes are done beside one another, so a slow one keeps nobody waiting.
pub(crate) struct Door {
    ready: mpsc::Receiver<(Stream, SocketAddr)>,
    address: SocketAddr,
}

impl Door {
    /// Begins to accept. Ends when dropped.
    pub(crate) fn open(listener: TcpListener, tls: Option<Tls>) -> io::Result<Door> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(16);
        tokio::spawn(accept(listener, tls.map(|tls| TlsAcceptor::from(tls.0)), sender));
        Ok(Door { ready, address })
    }
}

async fn accept(mut listener: TcpListener, tls: Option<TlsAcceptor>, ready: mpsc::Sender<(Stream, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        // Listener::accept waits and tries again by itself where the system is out of descriptors.
        let (stream, peer) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = ready.closed() => return,
        };
        let _ = stream.set_nodelay(true);
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let inner = match tls {
                None => Inner::Plain(stream),
                Some(tls) => match tokio::time::timeout(limits::HANDSHAKE_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Inner::Tls(Box::new(stream)),
                    Ok(Err(_)) | Err(_) => return,
                },
            };
            let _ = ready.send((Stream { inner, _room: permit }, peer)).await;
        });
    }
}

impl Listener for Door {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts is gone: there is nothing more to come.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection, with or without TLS, and its place among those that may be open.
pub(crate) struct Stream {
    inner: Inner,
    _room: OwnedSemaphorePermit,
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! through {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match &mut $self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Inner::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        through!(self, poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        through!(self, poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        through!(self, poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        through!(self, poll_shutdown(context))
    }
}

/// Serves until told to end, then lets open requests finish, but not for ever.
pub(crate) async fn serve(
    door: Door,
    router: axum::Router,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (ended, mut draining) = tokio::sync::watch::channel(false);
    let signal = async move {
        end.await;
        let _ = ended.send(true);
    };
    let service = router.into_make_service_with_connect_info::<Peer>();
    let serving = axum::serve(door, service).with_graceful_shutdown(signal);
    let patience = async move {
        let _ = draining.wait_for(|draining| *draining).await;
        tokio::time::sleep(limits::DRAIN_WITHIN).await;
    };
    tokio::select! {
        served = serving.into_future() => served,
        () = patience => {
            tracing::warn!("some requests did not finish in time and were cut");
            Ok(())
        }
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
