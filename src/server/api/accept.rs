//! Accepts connections: TCP, then a TLS handshake in which the client presents its certificate, if it has
//! one.
//!
//! The library's accept loop does not suffice: it stops when the process runs out of file descriptors, and
//! bounds neither connections nor handshakes. Handshakes run concurrently, so a client that stalls in one
//! blocks no other; each has a time limit and counts as a connection. Connections without a certificate,
//! where those are allowed, get at most half of the slots once their handshake is done: the server does not
//! know yet if they have a token, and unauthenticated clients must not keep others out. During the handshake
//! the server cannot distinguish clients, so handshakes take slots too, for at most their time limit.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connection::{Connection, Places, client_name};
use super::options::ApiOptions;
use crate::access::LogLimit;
use geolock_api::native::{NATIVE_PROTOCOL, NATIVE_PROTOCOL_1, bound_kernel};

/// Pause after an error of the listener, such as no free file descriptor.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The accept loop of the client API.
pub(super) struct Acceptor {
    pub listener: TcpListener,
    /// For connections from now on.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    pub ready: mpsc::Sender<io::Result<Connection>>,
    /// Receives connections that speak the native protocol.
    pub native: mpsc::Sender<Connection>,
    pub options: ApiOptions,
    /// Slots for connections, including handshakes.
    pub places: Arc<Semaphore>,
    /// Limits the log lines about connections that could not be accepted.
    pub failures: LogLimit,
}

/// The reason why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// A probe of a balancer does this each second.
    #[error("it ended before it had sent a byte")]
    NothingSent,
    #[error("its TLS handshake failed: {0}")]
    Handshake(#[from] io::Error),
    #[error("its TLS handshake took too long")]
    TimedOut,
    #[error("it shows no certificate, and half of all connections show none")]
    TooManyStrangers,
}

#[derive(Default)]
struct Refusals {
    count: u64,
    logged: LogLimit,
}

impl Acceptor {
    /// Accepts connections until the receivers are gone. Handshakes in progress are dropped with the future.
    pub(super) async fn run(self) {
        let places = Arc::clone(&self.places);
        let for_strangers = Arc::new(Semaphore::new(self.options.max_connections.div_ceil(2)));
        let mut handshakes = JoinSet::new();
        let mut refusals = Refusals::default();
        loop {
            tokio::select! {
                () = self.ready.closed() => return,
                Some(done) = handshakes.join_next() => refusals.note(done),
                (place, stream, peer) = self.accept(&places) => {
                    let options = self.options.clone();
                    let tls = TlsAcceptor::from(Arc::clone(&self.tls.borrow()));
                    let handshake = handshake(tls, stream, (options.handshake_timeout, options.keep_alive));
                    let (ready, native) = (self.ready.clone(), self.native.clone());
                    let for_strangers = Arc::clone(&for_strangers);
                    handshakes.spawn(async move {
                        let tls = handshake.await.map_err(|failed| (peer, failed))?;
                        let client = client_name(&tls);
                        let stranger = stranger(client.is_none(), for_strangers);
                        let stranger = stranger.map_err(|failed| (peer, failed))?;
                        let places = Places { _any: place, _stranger: stranger };
                        let spoken = tls.get_ref().1.alpn_protocol();
                        let is_native = [NATIVE_PROTOCOL, NATIVE_PROTOCOL_1].map(Some).contains(&spoken);
                        let connection = Connection::new(tls, peer, client, places, &options);
                        // The receiver is gone when the server is stopping.
                        match is_native {
                            true => native.send(connection).await.ok(),
                            false => ready.send(Ok(connection)).await.ok(),
                        };
                        Ok(())
                    });
                }
            }
        }
    }

    /// Accepts the next TCP connection, once there is a slot for it. Cancel-safe.
    async fn accept(&self, places: &Arc<Semaphore>) -> (OwnedSemaphorePermit, TcpStream, SocketAddr) {
        loop {
            let place = Arc::clone(places).acquire_owned().await.expect("this semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, peer)) => return (place, stream, peer),
                Err(error) => {
                    if self.failures.allows(Instant::now()) {
                        tracing::warn!(%error, "cannot take a connection");
                    }
                    sleep(BACK_OFF).await;
                }
            }
        }
    }
}

/// Takes a slot for a connection without a certificate.
fn stranger(is_one: bool, places: Arc<Semaphore>) -> Result<Option<OwnedSemaphorePermit>, Failed> {
    let place = is_one.then(|| places.try_acquire_owned());
    place.transpose().map_err(|_| Failed::TooManyStrangers)
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    (limit, keep_alive): (Duration, Duration),
) -> Result<TlsStream<TcpStream>, Failed> {
    set_options(&stream, keep_alive)?;
    let accept = async {
        if !sends(&stream).await {
            return Err(Failed::NothingSent);
        }
        Ok(tls.accept(stream).await?)
    };
    timeout(limit, accept).await.unwrap_or(Err(Failed::TimedOut))
}

/// Waits for the first byte, and leaves it there. Returns false if the connection ends before that.
async fn sends(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).await.is_ok_and(|bytes| bytes > 0)
}

fn set_options(stream: &TcpStream, keep_alive: Duration) -> io::Result<()> {
    // Answers are small, and the client waits for each.
    stream.set_nodelay(true)?;
    // Bytes in the kernel's buffer are sent before every later answer, such as that to a renewal.
    bound_kernel(stream)?;
    // Unacknowledged bytes end the connection in the time in which it would be found silent.
    let patience = u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX).saturating_mul(2);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, patience)?)
}

impl Refusals {
    fn note(&mut self, done: Result<Result<(), (SocketAddr, Failed)>, JoinError>) {
        match done {
            Ok(Ok(())) => {}
            Ok(Err((peer, reason @ Failed::NothingSent))) => tracing::debug!(%peer, %reason, "no connection"),
            Ok(Err((peer, reason))) => {
                self.count += 1;
                if self.logged.allows(Instant::now()) {
                    tracing::warn!(%peer, %reason, refused_so_far = self.count, "connection refused");
                }
            }
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    resume_unwind(panic);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn bytes_that_nobody_acknowledges_end_a_connection_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.expect("the client connects");
        set_options(&stream, Duration::from_secs(7)).expect("the system knows these options");
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(&stream), Ok(14_000));
        assert!(stream.nodelay().expect("it can be read back"));
        drop(client);
    }

    /// The probe of a balancer ends its connection in order, or resets it.
    #[tokio::test]
    async fn a_connection_that_ends_before_its_first_byte_is_no_handshake() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        for (is_reset, sent) in [(false, ""), (true, ""), (false, "G")] {
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (mut client, (server, _)) = (client.expect("it listens"), accepted.expect("it connects"));
            client.write_all(sent.as_bytes()).await.expect("there is room");
            if is_reset {
                rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("it is known");
            }
            drop(client);
            assert_eq!(sends(&server).await, !sent.is_empty(), "{is_reset}, {sent:?}");
        }
    }
}
