//! Datacenters for tests, and a raw peer that can send anything.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, Endpoint};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::interdc::{Interdc, InterdcConfig, Lane, LinkEvent, LinkId, PeerStats, QueueBound, transport};
use crate::pki::{Authority, Credentials, Existing, Leaf, Role, Validity};
use geolock_api::names::DcId;

/// No event takes longer, unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn dc(id: u8) -> DcId {
    DcId::new(id).unwrap()
}

/// A directory with an authority, and a port for each of two datacenters.
pub(super) struct World {
    dir: TempDir,
    authority: Authority,
    sockets: [UdpSocket; 2],
}

impl World {
    pub(super) fn new() -> World {
        let dir = TempDir::new().unwrap();
        let authority =
            Authority::create(&dir.path().join("ca"), "test", Validity::days(1), Existing::Refuse).unwrap();
        let bind = |_| UdpSocket::bind("127.0.0.1:0").unwrap();
        World { dir, authority, sockets: [0, 1].map(bind) }
    }

    pub(super) fn address(&self, id: u8) -> SocketAddr {
        self.sockets[usize::from(id)].local_addr().unwrap()
    }

    pub(super) fn credentials(&self, role: Role) -> Credentials {
        Credentials::load(&self.issue(role, Validity::days(1))).unwrap()
    }

    pub(super) fn issue(&self, role: Role, validity: Validity) -> std::path::PathBuf {
        let folder = self.dir.path().join(format!("{role} {validity:?}"));
        let leaf = Leaf { role, hosts: vec!["127.0.0.1".into()], validity };
        self.authority.issue(&folder, &leaf, Existing::Replace).unwrap();
        folder
    }

    /// Returns the configuration of datacenter `id`, 0 or 1, with the other one as peer.
    pub(super) fn config(&self, id: u8) -> InterdcConfig {
        let other = 1 - id;
        let tls = self.credentials(Role::Dc(dc(id)));
        InterdcConfig {
            peers: vec![(dc(other), self.address(other).to_string())],
            queue: QueueBound { messages: 100_000, bytes: 64 << 20 },
            ..InterdcConfig::new(dc(id), "test", self.address(id), tls)
        }
    }

    pub(super) fn start(&self, id: u8) -> Node {
        self.start_with(self.config(id))
    }

    pub(super) fn start_with(&self, config: InterdcConfig) -> Node {
        let socket = self.sockets[usize::from(config.me.get())].try_clone().unwrap();
        Node::start(socket, config)
    }

    /// Returns an endpoint that is not geolock, on the port of datacenter `id`, with the given credentials.
    pub(super) fn raw(&self, id: u8, credentials: &Credentials) -> Raw {
        let transport = transport::transport(Duration::from_secs(3)).unwrap();
        let socket = self.sockets[usize::from(id)].try_clone().unwrap();
        let server = transport::server(credentials, &transport).unwrap();
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = Endpoint::new(transport::endpoint(), Some(server), socket, runtime).unwrap();
        Raw { endpoint, credentials: credentials.clone() }
    }
}

/// A running datacenter's links, with their events.
pub(super) struct Node {
    pub interdc: Interdc,
    pub events: mpsc::Receiver<LinkEvent>,
}

impl Node {
    pub(super) fn start(socket: UdpSocket, config: InterdcConfig) -> Node {
        let (sender, events) = mpsc::channel(64);
        Node { interdc: Interdc::start_on(socket, config, sender).unwrap(), events }
    }

    pub(super) async fn event(&mut self) -> LinkEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("links run")
    }

    /// Returns the next event, which is `Up`.
    pub(super) async fn up(&mut self) -> LinkId {
        match self.event().await {
            LinkEvent::Up { link, .. } => link,
            other => panic!("up expected, not {other:?}"),
        }
    }

    /// Returns the reason of the next event apart from `Flushed`, which is `Down`.
    pub(super) async fn down(&mut self) -> super::super::DownReason {
        loop {
            match self.event().await {
                LinkEvent::Down { reason, .. } => return reason,
                LinkEvent::Flushed { .. } => {}
                other => panic!("down expected, not {other:?}"),
            }
        }
    }

    /// Returns the next message.
    pub(super) async fn message(&mut self) -> (Lane, Bytes) {
        loop {
            match self.event().await {
                LinkEvent::Received { lane, bytes, .. } => return (lane, bytes),
                LinkEvent::Flushed { .. } => {}
                other => panic!("a message expected, not {other:?}"),
            }
        }
    }

    /// Reads events, as every sender has to, until that many messages have left their queue.
    pub(super) async fn flushed(&mut self, mut wanted: usize) {
        while wanted > 0 {
            match self.event().await {
                LinkEvent::Flushed { messages, .. } => wanted -= messages,
                other => panic!("flushed expected, not {other:?}"),
            }
        }
    }

    pub(super) fn stats(&self) -> PeerStats {
        self.interdc.stats().peers.swap_remove(0)
    }

    /// Waits until the last error about the only peer satisfies `wanted`; checks whenever the links had time
    /// to run.
    pub(super) async fn peer_error(&self, wanted: &str) -> String {
        self.until(|node| node.stats().last_error.filter(|error| error.contains(wanted)), wanted).await
    }

    /// As `peer_error`, for connections refused before their peer was identified.
    pub(super) async fn refusal(&self, wanted: &str) -> String {
        let find = |node: &Node| node.interdc.stats().last_refusal.filter(|error| error.contains(wanted));
        self.until(find, wanted).await
    }

    async fn until(&self, find: impl Fn(&Node) -> Option<String>, wanted: &str) -> String {
        let polling = async {
            loop {
                match find(self) {
                    Some(found) => return found,
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        let seen = || format!("{:?}", self.interdc.stats());
        timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("{wanted:?} expected, not {}", seen()))
    }
}

/// A peer that speaks QUIC and has a certificate, and otherwise does anything.
pub(super) struct Raw {
    pub endpoint: Endpoint,
    credentials: Credentials,
}

impl Raw {
    /// Opens a connection to datacenter `id` of `world`.
    pub(super) async fn connect(&self, world: &World, id: u8) -> Connection {
        timeout(PATIENCE, self.dial(world.address(id), id)).await.unwrap().unwrap()
    }

    /// Begins a connection to datacenter `id`, which may or may not be at that address.
    pub(super) fn dial(&self, address: SocketAddr, id: u8) -> quinn::Connecting {
        let transport = transport::transport(Duration::from_secs(3)).unwrap();
        let config = transport::client(&self.credentials, dc(id), &transport).unwrap();
        self.endpoint.connect_with(config, address, "any").unwrap()
    }
}

/// Returns the reason with which the other side closes the connection.
pub(super) async fn close_reason(connection: &Connection) -> String {
    timeout(PATIENCE, connection.closed()).await.expect("closed in time").to_string()
}

/// A way to an address that swallows all packets from one port.
pub(super) struct Way {
    pub address: SocketAddr,
    _tasks: JoinSet<std::io::Result<()>>,
}

impl Way {
    pub(super) async fn to(target: SocketAddr, swallowed: SocketAddr) -> Way {
        let front = Arc::new(tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let back = Arc::new(tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap());
        back.connect(target).await.unwrap();
        let address = front.local_addr().unwrap();
        let (from, last) = watch::channel(swallowed);
        let mut tasks = JoinSet::new();
        let (front_in, back_out) = (front.clone(), back.clone());
        tasks.spawn(async move {
            let mut packet = [0; 2048];
            loop {
                let (len, sender) = front_in.recv_from(&mut packet).await?;
                if sender != swallowed {
                    from.send_replace(sender);
                    back_out.send(&packet[..len]).await?;
                }
            }
        });
        tasks.spawn(async move {
            let mut packet = [0; 2048];
            loop {
                let len = back.recv(&mut packet).await?;
                let sender = *last.borrow();
                front.send_to(&packet[..len], sender).await?;
            }
        });
        Way { address, _tasks: tasks }
    }
}
