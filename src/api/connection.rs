//! A client's connection: TLS over TCP, and a place among the connections that this server has room for.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::pki::{Role, peer_identity};

/// See the top of this file.
pub(super) struct Connection {
    pub tls: TlsStream<TcpStream>,
    pub peer: Peer,
    pub _places: Places,
    /// Until HTTP/2 has begun; from then on its keep-alive looks whether anybody is there.
    beginning: Option<Beginning>,
}

/// What has to come before a connection has begun, and by when.
struct Beginning {
    missing: usize,
    timeout: Pin<Box<Sleep>>,
}

/// Bytes of the preface of HTTP/2.
const PREFACE: usize = 24;

/// Room that a connection takes while it lives.
pub(super) struct Places {
    pub _any: OwnedSemaphorePermit,
    /// Of the part that is for those who show no certificate.
    pub _stranger: Option<OwnedSemaphorePermit>,
}

/// Who is at the other end: what a service can ask about the connection that a request came by.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// The client's name in the certificate, if it showed one.
    pub client: Option<Arc<str>>,
}

impl Connection {
    /// The handshake is done, and checked the certificate if there is one. HTTP/2 has that time to begin.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        address: SocketAddr,
        client: Option<Arc<str>>,
        places: Places,
        time: Duration,
    ) -> Connection {
        let beginning = Some(Beginning { missing: PREFACE, timeout: Box::pin(sleep(time)) });
        Connection { tls, peer: Peer { address, client }, _places: places, beginning }
    }
}

/// The client's name in the certificate that it showed in this handshake.
pub(super) fn client_name(tls: &TlsStream<TcpStream>) -> Option<Arc<str>> {
    match peer_identity(tls.get_ref().1.peer_certificates()?)?.role {
        Role::Client(name) => Some(name.into()),
        // The handshake refuses it.
        Role::Dc(_) => None,
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(beginning) = &mut self.beginning
            && beginning.timeout.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was said")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tls).poll_read(cx, buffer))?;
        if let Some(beginning) = &mut self.beginning {
            beginning.missing = beginning.missing.saturating_sub(buffer.filled().len() - before);
            if beginning.missing == 0 {
                self.beginning = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
