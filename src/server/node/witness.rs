//! One whole witness, started and stopped in order: its links, journal and machine, and its part in the
//! control group. It has no client API.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn, spawn_blocking};

use super::departure::told_by_refusals;
use super::place::joined_as_witness;
use super::{NodeError, Port, udp};
use crate::base::bugs::Bugs;
use crate::control::{MemberId, Timing};
use crate::interdc::{InterdcConfig, Links};
use crate::lock_server::{
    Datacenter, LockServer, LockServerHandle, MembersView, StartError, StopError, WitnessServerConfig,
    members_port, start_witness,
};
use crate::membership::ServerId;
use crate::pki::Credentials;
use crate::replica::WitnessConfig;
use crate::runtime::tasks::joined;
use crate::server::config::Config;
use crate::server::members::{Founders, Group, GroupConfig, MembersApi, channels, kept_addresses};
use crate::server::reload::Loaded;
use crate::telemetry::Board;

/// How long a witness that was removed waits until the others need its vote no more.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running witness. It has to be ended: [`LockServerHandle::drain`], then [`WitnessNode::ended`].
pub struct WitnessNode {
    handle: LockServerHandle,
    server: JoinHandle<Result<(), StopError>>,
    group: Group,
    /// Ends when the server stops: with true if it was removed.
    removal: JoinHandle<bool>,
    keeper: JoinHandle<()>,
    stop_keeper: oneshot::Sender<()>,
}

impl WitnessNode {
    /// Binds the port for members.
    pub fn bind(address: SocketAddr) -> Result<UdpSocket, NodeError> {
        udp(address).map_err(|source| NodeError::Listen { port: Port::Quic, address, source })
    }

    /// Starts a witness on this port. Joins first, if its data directory is empty. Must be called within a
    /// runtime.
    pub async fn start(socket: UdpSocket, config: Config) -> Result<WitnessNode, NodeError> {
        let (loaded, config) =
            joined(spawn_blocking(move || Loaded::load(&config).map(|loaded| (loaded, config))).await)?;
        let board = Arc::new(Board::default());
        let (in_use, _reloader, keeper) = loaded.kept(&config, Arc::clone(&board))?;
        let tls = in_use.links;
        let credentials = tls.borrow().clone();
        let (as_witness, file) = joined_as_witness(&config, &credentials).await?;
        let millis = |millis: u32| Duration::from_millis(millis.into());
        let (me, id, options) = (as_witness.dc, as_witness.server, as_witness.options);
        let peer_timeout = millis(options.peer_timeout_ms);
        // Servers that are to join ask a member.
        let (channels, control, _joins) = channels();
        let members = as_witness.members.iter().map(|(dc, _, address)| (*dc, address.to_string()));
        let links = InterdcConfig {
            peers: members.filter(|(dc, _)| *dc != me).collect(),
            peer_timeout,
            control: Some(control),
            addresses: kept_addresses(&config.journal.dir).await,
            ..InterdcConfig::following(me, &config.cluster_name, config.listen.quic, tls.clone())
        };
        let witness = WitnessConfig {
            dc: me,
            server: id,
            heartbeat: millis(options.heartbeat_ms),
            peer_timeout,
            max_clock_skew: millis(options.max_clock_skew_ms),
            bugs: Bugs::default(),
        };
        let group = GroupConfig {
            me: MemberId { dc: me, generation: 0 },
            dir: config.journal.dir.clone(),
            file,
            founders: Founders::Joins,
            timing: Timing::for_round_trip(peer_timeout / 10),
            has_rules: false,
        };
        let server = WitnessServerConfig { witness, journal: config.journal, links, server: config.server };
        let (port, members) = members_port();
        let view = members.view.clone();
        let started = spawn_blocking(move || start_witness(server, socket, port, board)).await;
        let Datacenter { server, links } = joined(started)?;
        let handle = server.handle();
        let removed = Removed { id, tls, links: links.clone(), view, server: handle.clone() };
        let removal = spawn(removed.watch());
        let group = Group::start(group, channels, links, members);
        let group = group.map_err(|source| NodeError::Start(StartError::Thread(source)))?;
        let server = spawn(LockServer::stopped(server));
        let (stop_keeper, keeper_stopped) = oneshot::channel();
        let keeper = spawn(keeper.run(keeper_stopped));
        Ok(WitnessNode { handle, server, group, removal, keeper, stop_keeper })
    }

    /// Returns the handle with which to stop it.
    pub fn handle(&self) -> LockServerHandle {
        self.handle.clone()
    }

    /// Returns the members of its cluster, as an operator sees them.
    pub fn members(&self) -> MembersApi {
        self.group.api()
    }

    /// Waits until it has stopped. Returns true if it was removed from its cluster.
    pub async fn ended(self) -> Result<bool, NodeError> {
        let server = joined(self.server.await);
        self.group.shutdown().await;
        drop(self.stop_keeper);
        joined(self.keeper.await);
        let was_removed = joined(self.removal.await);
        server?;
        Ok(was_removed)
    }
}

/// A witness that may be removed.
struct Removed {
    id: ServerId,
    tls: watch::Receiver<Credentials>,
    links: Links,
    view: watch::Receiver<MembersView>,
    server: LockServerHandle,
}

impl Removed {
    /// Stops the server once it was removed. Returns true if it was.
    async fn watch(self) -> bool {
        let mut view = self.view.clone();
        let mut lost_to = self.links.lost_to();
        tokio::select! {
            Ok(_) = view.wait_for(|view| view.config.witnesses().is_past(self.id)) => {}
            _end = told_by_refusals(&self.links, &self.tls, self.id) => {}
            Ok(_) = lost_to.wait_for(Option::is_some) => {}
            () = self.server.stopped() => return false,
        }
        tracing::warn!(
            "this witness was removed from the cluster: stopping. Its data directory can be removed"
        );
        // Its vote may be needed until the others count it no more: then they end their links.
        let mut peers = self.links.control_peers();
        let _ = tokio::time::timeout(PATIENCE, peers.wait_for(|peers| peers.is_empty())).await;
        self.server.drain();
        true
    }
}
