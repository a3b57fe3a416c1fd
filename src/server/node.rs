//! One datacenter's server, from its configuration to its end: puts the modules together.
//!
//! Start order: ports, so that an occupied one is found before anything is changed; certificates, rules and
//! tokens; the HTTP port, so that probes see a server that recovers; the admission of a server that joins
//! (`place.rs`); journal, recovery, links and actor; the control group, which nothing waits for; last the
//! client API, so that clients are admitted only to a running server. The end is in reverse order, except
//! that the HTTP port is served to the last: the actor drains and stops, which ends the API.
//!
//! Nothing here is global, so a process can run several servers: `geolock dev` does, and so can tests.

mod departure;
mod error;
mod evictions;
mod lost_history;
mod place;
mod witness;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use rustix::net::sockopt;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn, spawn_blocking};

use crate::base::access_digests::AccessDigests;
pub use crate::interdc::Wan;
use crate::lock_server::{
    Datacenter, LockServer, LockServerHandle, StartError, StopError, members_port, start_datacenter,
};
use crate::pki::Credentials;
use crate::runtime::memory::return_freed_pages;
use crate::runtime::tasks::joined;
use crate::server::api::{self, ServeError, ServerInfo};
use crate::server::config::{Config, Listen};
use crate::server::members::{Group, MembersApi, kept_addresses};
use crate::server::reload::{InUse, Loaded, Reloader};
use crate::telemetry::{self, Board};
use departure::Departing;
pub use departure::Departure;
pub use error::{NodeError, Port, Remedy};
use geolock_api::names::DcId;
use place::Place;
pub(crate) use place::{check as check_directory, check_witness};
pub use witness::WitnessNode;

/// Most connections that wait to be accepted, as after a restart when all clients reconnect at once.
const BACKLOG: i32 = 1_024;
/// The requested size of each UDP buffer, in bytes: 40 ms of a gigabit.
const UDP_BUFFER: usize = 4 << 20;

/// The bound sockets of one server.
#[derive(Debug)]
pub struct Sockets {
    grpc: TcpListener,
    quic: UdpSocket,
    http: TcpListener,
}

impl Sockets {
    /// Binds all three ports, or none.
    pub fn bind(listen: &Listen) -> Result<Sockets, NodeError> {
        let failed = |port, address| move |source| NodeError::Listen { port, address, source };
        Ok(Sockets {
            grpc: tcp(listen.client).map_err(failed(Port::Client, listen.client))?,
            quic: udp(listen.quic).map_err(failed(Port::Quic, listen.quic))?,
            http: tcp(listen.http).map_err(failed(Port::Http, listen.http))?,
        })
    }

    /// Returns the address of the client API.
    pub fn grpc(&self) -> io::Result<SocketAddr> {
        self.grpc.local_addr()
    }

    /// Returns the address of metrics and probes.
    pub fn http(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }
}

// The socket options are set through `rustix`, which the server has for files and signals, and not through
// `socket2`: both make the same calls to the kernel, and one dependency is enough.

/// Tells the server which rules are in force, at the start and after each reload, until either has ended.
async fn tell_access_rules(mut digests: watch::Receiver<AccessDigests>, server: LockServerHandle) {
    loop {
        let now = *digests.borrow_and_update();
        let told = server.show_access_rules(now).await;
        if told.is_err() || digests.changed().await.is_err() {
            return;
        }
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library passes 128; a second call replaces that.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Binds a UDP socket with buffers for bursts of all datacenters: packets that do not fit are lost, and have
/// to be sent again.
fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    // The kernel grants what its limits allow (net.core.rmem_max, wmem_max), and reports twice that, because
    // it counts its own overhead. Smaller buffers work, too.
    let asked = sockopt::set_socket_recv_buffer_size(&socket, UDP_BUFFER)
        .and_then(|()| sockopt::set_socket_send_buffer_size(&socket, UDP_BUFFER));
    let got = (sockopt::socket_recv_buffer_size(&socket), sockopt::socket_send_buffer_size(&socket));
    let got = (got.0.map(|bytes| bytes / 2), got.1.map(|bytes| bytes / 2));
    match (asked, got) {
        (Ok(()), (Ok(receive), Ok(send))) if receive.min(send) >= UDP_BUFFER => {
            tracing::debug!(receive, send, "UDP buffers");
        }
        (_, (receive, send)) => tracing::info!(
            asked = UDP_BUFFER,
            receive = receive.unwrap_or(0),
            send = send.unwrap_or(0),
            "the system gives smaller UDP buffers than asked for: bursts may be lost (net.core.rmem_max, net.core.wmem_max)"
        ),
    }
    Ok(socket)
}

/// A running server. It has to be ended: [`LockServerHandle::drain`], then [`Node::ended`].
pub struct Node {
    dc: DcId,
    handle: LockServerHandle,
    server: JoinHandle<Result<(), StopError>>,
    group: Group,
    /// Ends if the decisions of the cluster are lost here.
    lost_history: JoinHandle<Option<NodeError>>,
    /// Ends when the server stops.
    evictions: JoinHandle<()>,
    /// Ends when the server stops: with the reason if its datacenter is no member any more.
    departure: JoinHandle<Option<Departure>>,
    api: JoinHandle<Result<(), ServeError>>,
    http: JoinHandle<()>,
    stop_http: oneshot::Sender<()>,
    reloader: Reloader,
    keeper: JoinHandle<()>,
    stop_keeper: oneshot::Sender<()>,
    access_rules: JoinHandle<()>,
    memory: JoinHandle<()>,
}

impl Node {
    /// Starts a server on these ports, with the simulated distances of `wan`. Must be called within a
    /// runtime.
    pub async fn start(sockets: Sockets, config: Config, wan: Option<Wan>) -> Result<Node, NodeError> {
        let dc = config.replica.dc;
        // On a disk that does not respond this may take arbitrarily long; the caller may drop the future.
        let (loaded, config) =
            joined(spawn_blocking(move || Loaded::load(&config).map(|loaded| (loaded, config))).await)?;
        let listening = |port, address| move |source| NodeError::Listen { port, address, source };
        let grpc = tokio::net::TcpListener::from_std(sockets.grpc)
            .map_err(listening(Port::Client, config.listen.client))?;
        let http = tokio::net::TcpListener::from_std(sockets.http)
            .map_err(listening(Port::Http, config.listen.http))?;

        let board = Arc::new(Board::default());
        let (in_use, reloader, keeper) = loaded.kept(&config, Arc::clone(&board))?;
        board.show_access(Arc::clone(in_use.access.figures()));
        let (stop_http, http_stopped) = oneshot::channel();
        let stopped = async {
            // An error means that the sender was dropped, which is also a stop.
            let _ = http_stopped.await;
        };
        let http = spawn(telemetry::serve(http, Arc::clone(&board), stopped));
        let api_options = config.api.clone();
        let started = Started::start(config, in_use.links, wan, sockets.quic, board).await;
        let Started { server, group, info, lost_history, evictions, departure } = match started {
            Ok(started) => started,
            Err(error) => {
                drop(stop_http);
                joined(http.await);
                return Err(error);
            }
        };
        let handle = server.handle();
        let InUse { access, digests, api: tls, .. } = in_use;
        let access_rules = spawn(tell_access_rules(digests, handle.clone()));
        let api = spawn(api::serve(grpc, tls, access, handle.clone(), info, api_options));
        let server = spawn(LockServer::stopped(server));
        let (stop_keeper, keeper_stopped) = oneshot::channel();
        let keeper = spawn(keeper.run(keeper_stopped));
        let memory = spawn(return_freed_pages());
        Ok(Node {
            dc,
            handle,
            server,
            group,
            lost_history,
            evictions,
            departure,
            api,
            http,
            stop_http,
            reloader,
            keeper,
            stop_keeper,
            access_rules,
            memory,
        })
    }

    pub fn dc(&self) -> DcId {
        self.dc
    }

    /// Returns the board where the server publishes its status every 100 ms.
    pub fn board(&self) -> &Board {
        self.handle.board()
    }

    /// Returns the handle with which to stop it: [`LockServerHandle::drain`]. From then on it refuses new
    /// acquires and handles releases and renewals, until no lock is held or the drain timeout is over; then
    /// it stops by itself, and [`Node::ended`] returns.
    pub fn handle(&self) -> LockServerHandle {
        self.handle.clone()
    }

    /// Returns the members of its cluster, as an operator sees and changes them.
    pub fn members(&self) -> MembersApi {
        self.group.api()
    }

    /// Returns the handle with which to make it read rules, tokens and certificates again.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Waits until it has stopped: after a drain, or because it could not continue. Everything acknowledged
    /// is on disk, and every task and thread has ended. Returns the reason if its datacenter is no member any
    /// more.
    pub async fn ended(self) -> Result<Option<Departure>, NodeError> {
        // The API ends when the actor has stopped. If it fails before, there is nothing left to serve.
        let api = joined(self.api.await);
        self.handle.drain();
        let server = joined(self.server.await);
        self.memory.abort();
        self.group.shutdown().await;
        drop(self.stop_keeper);
        joined(self.keeper.await);
        joined(self.access_rules.await);
        drop(self.stop_http);
        joined(self.http.await);
        joined(self.evictions.await);
        if let Some(lost) = joined(self.lost_history.await) {
            return Err(lost);
        }
        let departure = joined(self.departure.await);
        match departure {
            Some(Departure::Left) => {
                tracing::info!(dc = %self.dc, "stopped: this datacenter has left the cluster, and its data directory can be removed");
            }
            Some(Departure::Lost) => {
                tracing::warn!(dc = %self.dc, "stopped: the cluster was recovered by force without this datacenter. Its data directory may have commits that no other member has");
            }
            Some(Departure::Evicted) => {
                tracing::warn!(dc = %self.dc, "stopped: this datacenter was evicted. Its data directory may have commits that no other member has");
            }
            Some(Departure::RunsTwice) => {
                tracing::error!(dc = %self.dc, "stopped: another server ran with the identity of this one. Start only one of them again");
            }
            // Its data is given up here, so an error of the journal does not count.
            Some(Departure::Returns) => return Ok(departure),
            None => {}
        }
        server?;
        api?;
        Ok(departure)
    }
}

/// The parts that need the place of this server in its cluster.
struct Started {
    server: LockServer,
    group: Group,
    info: ServerInfo,
    lost_history: JoinHandle<Option<NodeError>>,
    evictions: JoinHandle<()>,
    departure: JoinHandle<Option<Departure>>,
}

impl Started {
    async fn start(
        config: Config,
        tls: watch::Receiver<Credentials>,
        wan: Option<Wan>,
        socket: UdpSocket,
        board: Arc<Board>,
    ) -> Result<Started, NodeError> {
        let dc = config.replica.dc;
        let credentials = tls.borrow().clone();
        let place = Place::find(config, &credentials).await?;
        let mut info = ServerInfo::new(dc, place.names()).map_err(|_| NodeError::NoRandomness)?;
        let lost_history = place.lost_history();
        let data_dir = place.data_dir().to_owned();
        let addresses = kept_addresses(&data_dir).await;
        let (datacenter, channels, plan) = place.parts(tls.clone(), wan, addresses);
        let id = datacenter.replica.server;
        let (port, members) = members_port();
        let view = members.view.clone();
        let started_board = Arc::clone(&board);
        let started =
            spawn_blocking(move || start_datacenter(datacenter, Some(socket), port, started_board)).await;
        let Datacenter { server, links } = joined(started)?;
        let lost_history = spawn(lost_history.watch(links.clone(), view.clone(), server.handle()));
        let evictions = spawn(evictions::follow(dc, view.clone(), board));
        let (handle, inputs) = (server.handle(), members.inputs.clone());
        let departing =
            Departing { me: dc, id, data_dir, tls, links: links.clone(), view, server: handle, inputs };
        let departure = spawn(departing.watch());
        // It opens its file and looks for a leader meanwhile.
        let group = plan.start(channels, links, members);
        let group = group.map_err(|source| NodeError::Start(StartError::Thread(source)))?;
        info.members = Some(group.api());
        Ok(Started { server, group, info, lost_history, evictions, departure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// The kernel grants less than asked for if `net.core.rmem_max` or `wmem_max` is smaller, and never less
    /// than a socket has without asking.
    #[test]
    fn udp_buffers_are_as_large_as_the_system_allows() {
        let plain = UdpSocket::bind(here()).expect("there are free ports");
        let socket = udp(here()).expect("there are free ports");
        let limit = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}"));
            text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX)
        };
        let sizes = |socket: &UdpSocket| {
            let receive = sockopt::socket_recv_buffer_size(socket).expect("it can be read back");
            (receive, sockopt::socket_send_buffer_size(socket).expect("it can be read back"))
        };
        let (receive, send) = sizes(&socket);
        // The kernel counts its own overhead: twice what it grants.
        let granted = |name| 2 * UDP_BUFFER.min(limit(name));
        assert!(receive >= granted("rmem_max") && send >= granted("wmem_max"), "{receive}, {send}");
        assert!(receive >= sizes(&plain).0 && send >= sizes(&plain).1);
    }

    /// Linux shows the backlog of a listening socket in place of the bytes to send, in `/proc/net/tcp` not at
    /// all: `ss` reads it from netlink. So this counts the connections that wait.
    #[test]
    fn more_connections_wait_than_the_standard_library_asks_for() {
        let listener = tcp(here()).expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(BACKLOG);
        // No task accepts. A connection beyond the backlog would wait for its handshake.
        let many = 400.min(BACKLOG.min(limit) - 1);
        let connect = |_| {
            std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(60))
                .expect("there is room for it")
        };
        let waiting: Vec<_> = (0..many).map(connect).collect();
        assert_eq!(waiting.len(), many as usize);
    }
}
