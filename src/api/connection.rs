//! A client's connection: TLS over TCP, and a place among the connections that this server has room for.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::options::ApiOptions;
use crate::pki::{Role, peer_identity};

/// See the top of this file.
pub(super) struct Connection {
    pub tls: TlsStream<TcpStream>,
    pub peer: Peer,
    pub _places: Places,
    takes: Takes,
    /// Until HTTP/2 has begun; from then on its keep-alive looks whether anybody is there.
    beginning: Option<Beginning>,
}

/// What has to come before a connection has begun, and by when.
struct Beginning {
    missing: usize,
    timeout: Pin<Box<Sleep>>,
}

/// Least bytes that a connection must take in a period while there is something for it to take.
const LEAST_TAKEN: u64 = 64 << 10;
/// Health checks under way on a connection: whoever asks asks one after the other.
const MAX_CHECKS: usize = 4;
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
    /// Large answers that this connection has not taken.
    pub untaken: Arc<Untaken>,
    /// Places for health checks.
    pub checks: Arc<Semaphore>,
}

/// Bytes of large answers that a connection has not taken.
#[derive(Debug, Default)]
pub(super) struct Untaken(AtomicUsize);

/// Some of them. Dropped, they are taken.
#[derive(Debug)]
pub(super) struct HeldBytes {
    of: Arc<Untaken>,
    bytes: usize,
}

impl Untaken {
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { of: Arc::clone(self), bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Looks whether a connection takes the answers that there are for it. Its flow control is the client's affair, and pings
/// are answered whatever it does: so it has to take so much in each period.
struct Takes {
    period: Duration,
    written: u64,
    /// When a period began with something to take, and what had been written then.
    since: Option<(Instant, u64)>,
}

impl Takes {
    fn check(&mut self, untaken: &Untaken) -> io::Result<()> {
        if untaken.0.load(Ordering::Relaxed) == 0 {
            self.since = None;
            return Ok(());
        }
        let now = Instant::now();
        match self.since {
            Some((since, _)) if now.duration_since(since) < self.period => {}
            Some((_, before)) if self.written - before < LEAST_TAKEN => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not take its answers"));
            }
            _ => self.since = Some((now, self.written)),
        }
        Ok(())
    }
}

impl Connection {
    /// The handshake is done, and checked the certificate if there is one. HTTP/2 has that time to begin.
    pub(super) fn new(
        tls: TlsStream<TcpStream>,
        address: SocketAddr,
        client: Option<Arc<str>>,
        places: Places,
        options: &ApiOptions,
    ) -> Connection {
        let beginning =
            Some(Beginning { missing: PREFACE, timeout: Box::pin(sleep(options.handshake_timeout)) });
        let takes = Takes { period: 3 * options.keep_alive, written: 0, since: None };
        let peer =
            Peer { address, client, untaken: Arc::default(), checks: Arc::new(Semaphore::new(MAX_CHECKS)) };
        Connection { tls, peer, _places: places, takes, beginning }
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
        let this = &mut *self;
        this.takes.check(&this.peer.untaken)?;
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
        let written = ready!(Pin::new(&mut self.tls).poll_write(cx, bytes))?;
        self.takes.written += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tls).poll_write_vectored(cx, slices))?;
        self.takes.written += written as u64;
        Poll::Ready(Ok(written))
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
