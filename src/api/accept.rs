//! Takes connections: TCP, then a TLS handshake in which the client shows its certificate.
//!
//! Our own loop rather than the library's: that one gives up when the process runs out of file descriptors, and
//! bounds neither connections nor handshakes. Handshakes run beside each other, so a client that stalls in one
//! keeps nobody waiting; each has a time limit and counts as a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::options::ApiOptions;

/// After an error of the listener, such as no file descriptor left.
const BACK_OFF: Duration = Duration::from_millis(100);

/// See the top of this file.
pub(super) struct Acceptor {
    pub listener: TcpListener,
    pub tls: TlsAcceptor,
    pub ready: mpsc::Sender<io::Result<Connection>>,
    pub options: ApiOptions,
}

impl Acceptor {
    /// Takes connections until nobody wants them any more. Handshakes are dropped with the future.
    pub(super) async fn run(self) {
        let places = Arc::new(Semaphore::new(self.options.max_connections));
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                () = self.ready.closed() => return,
                Some(done) = handshakes.join_next() => propagate_panic(done),
                (place, stream, peer) = self.accept(&places) => {
                    let handshake = handshake(self.tls.clone(), stream, peer, place, self.options.handshake_timeout);
                    let ready = self.ready.clone();
                    handshakes.spawn(async move {
                        if let Some(connection) = handshake.await {
                            // Nobody wants it when the server is stopping.
                            ready.send(Ok(connection)).await.ok();
                        }
                    });
                }
            }
        }
    }

    /// The next TCP connection, once there is a place for it. May be dropped while it waits.
    async fn accept(&self, places: &Arc<Semaphore>) -> (OwnedSemaphorePermit, TcpStream, SocketAddr) {
        loop {
            let place = Arc::clone(places).acquire_owned().await.expect("this semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, peer)) => return (place, stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection");
                    sleep(BACK_OFF).await;
                }
            }
        }
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    limit: Duration,
) -> Option<Connection> {
    // Answers are small and each is waited for.
    stream.set_nodelay(true).ok();
    match timeout(limit, tls.accept(stream)).await {
        Ok(Ok(tls)) => Some(Connection { tls, peer, _place: place }),
        Ok(Err(error)) => {
            tracing::warn!(%peer, %error, "refused a connection");
            None
        }
        Err(_) => {
            tracing::warn!(%peer, "refused a connection: its handshake took too long");
            None
        }
    }
}

fn propagate_panic(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
