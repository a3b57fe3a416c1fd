//! A client's connection: TLS over TCP, and a place among the connections that this server has room for.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::pki::{Role, peer_identity};

/// See the top of this file.
pub(super) struct Connection {
    pub tls: TlsStream<TcpStream>,
    pub peer: Peer,
    pub _places: Places,
}

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
    /// The handshake is done, and checked the certificate if there is one.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        address: SocketAddr,
        client: Option<Arc<str>>,
        places: Places,
    ) -> Connection {
        Connection { tls, peer: Peer { address, client }, _places: places }
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
        Pin::new(&mut self.tls).poll_read(cx, buffer)
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
