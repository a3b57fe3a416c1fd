//! A UDP relay in the test's own process: a link between real servers that can be cut and healed.
//!
//! One socket represents the server behind it; each client address gets an upstream socket of its own, for as
//! long as the relay lives. So a client that restarts at its old address keeps the address that the server
//! has always seen, and a server that restarts at its old address is reached there: as through a router,
//! which knows nothing of connections.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// The largest possible datagram.
const MAX_DATAGRAM: usize = 64 << 10;

/// A path to one server. Ends when dropped.
pub struct Relay {
    /// Datagrams sent to this address go to the server.
    pub address: SocketAddr,
    gate: Arc<Gate>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// State that both directions check before each datagram.
struct Gate {
    is_cut: AtomicBool,
    dropped: watch::Sender<u64>,
}

impl Gate {
    /// Returns true if a datagram may pass now; counts those that may not.
    fn passes(&self) -> bool {
        let is_cut = self.is_cut.load(Ordering::SeqCst);
        if is_cut {
            self.dropped.send_modify(|dropped| *dropped += 1);
        }
        !is_cut
    }
}

impl Relay {
    /// Starts a relay to the server at `to`, which need not run yet.
    pub fn start(to: SocketAddr) -> Relay {
        let listen = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        listen.set_nonblocking(true).expect("a socket can be made so");
        let address = listen.local_addr().expect("it is bound");
        let gate = Arc::new(Gate { is_cut: AtomicBool::new(false), dropped: watch::channel(0).0 });
        let (stop, stopped) = oneshot::channel();
        let passing = Arc::clone(&gate);
        // Apart from the runtime of the test, which may be blocked while it waits for a process.
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            runtime.expect("a runtime can be made").block_on(async {
                tokio::select! {
                    ended = pass_all(listen, to, &passing) => ended.expect("loopback works"),
                    _ = stopped => {}
                }
            });
        });
        Relay { address, gate, stop: Some(stop), thread: Some(thread) }
    }

    /// Drops every datagram from now on, in both directions.
    pub fn cut(&self) {
        self.gate.is_cut.store(true, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.gate.is_cut.store(false, Ordering::SeqCst);
    }

    /// Returns how many datagrams were dropped so far.
    pub fn dropped(&self) -> watch::Receiver<u64> {
        self.gate.dropped.subscribe()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || thread::panicking(), "a relay failed");
    }
}

/// Relays from the clients to the server, and each answer back to its client.
async fn pass_all(listen: std::net::UdpSocket, to: SocketAddr, gate: &Arc<Gate>) -> io::Result<()> {
    let listen = Arc::new(UdpSocket::from_std(listen)?);
    let mut upstreams: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    let mut answers = JoinSet::new();
    let mut datagram = vec![0; MAX_DATAGRAM];
    loop {
        let (len, client) = listen.recv_from(&mut datagram).await?;
        if !gate.passes() {
            continue;
        }
        let upstream = match upstreams.get(&client) {
            Some(upstream) => Arc::clone(upstream),
            None => {
                // Not connected: a connected socket would report an unreachable server, which no router does.
                let upstream = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
                upstreams.insert(client, Arc::clone(&upstream));
                let back =
                    pass_back(Arc::clone(&upstream), to, Arc::clone(&listen), client, Arc::clone(gate));
                answers.spawn(back);
                upstream
            }
        };
        // A datagram that cannot be sent is lost, as on any network.
        let _ = upstream.send_to(&datagram[..len], to).await;
    }
}

/// Relays the server's answers to one client.
async fn pass_back(
    upstream: Arc<UdpSocket>,
    server: SocketAddr,
    listen: Arc<UdpSocket>,
    client: SocketAddr,
    gate: Arc<Gate>,
) -> io::Result<()> {
    let mut datagram = vec![0; MAX_DATAGRAM];
    loop {
        let (len, from) = upstream.recv_from(&mut datagram).await?;
        if from == server && gate.passes() {
            let _ = listen.send_to(&datagram[..len], client).await;
        }
    }
}
