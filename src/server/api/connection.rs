//! A client's connection: TLS over TCP, and a slot among the server's connections.

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

/// A connection whose handshake is done.
pub(super) struct Connection {
    pub tls: TlsStream<TcpStream>,
    pub peer: Peer,
    pub _places: Places,
    takes: Takes,
    /// Set until HTTP/2 has begun; from then on the keep-alive of HTTP/2 detects dead connections.
    beginning: Option<Beginning>,
}

/// The bytes that must come before HTTP/2 has begun, and the deadline.
struct Beginning {
    missing: usize,
    timeout: Pin<Box<Sleep>>,
}

/// Fewest bytes that a connection must accept in a period in which bytes are queued for it.
const LEAST_TAKEN: u64 = 64 << 10;
/// Most health checks in progress on a connection: a client makes one after the other.
const MAX_CHECKS: usize = 4;
/// Bytes of the preface of HTTP/2.
const PREFACE: usize = 24;

/// The slots that a connection holds while it lives.
pub(super) struct Places {
    pub _any: OwnedSemaphorePermit,
    /// A slot of those for connections without a certificate.
    pub _stranger: Option<OwnedSemaphorePermit>,
}

/// The client of a connection, for a service that handles a request of that connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// The client's name in the certificate, if it presented one.
    pub client: Option<Arc<str>>,
    /// Bytes of large answers that this connection has not accepted yet.
    pub untaken: Arc<Untaken>,
    /// Slots for health checks.
    pub checks: Arc<Semaphore>,
}

/// Bytes of large answers that a connection has not accepted yet.
#[derive(Debug, Default)]
pub(super) struct Untaken(AtomicUsize);

/// A part of these bytes. Dropping it marks them as accepted.
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

/// Checks that a connection accepts its answers. The client controls the flow, and answers pings in any case,
/// so the connection must accept at least [`LEAST_TAKEN`] bytes in each period.
struct Takes {
    period: Duration,
    written: u64,
    /// When a period began in which bytes were queued, and how many had been written then.
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
    /// Creates a connection whose handshake is done; the handshake has checked the certificate if there is
    /// one. HTTP/2 must begin within the time of another handshake.
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

/// Returns the client's name in the certificate that it presented in this handshake.
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
