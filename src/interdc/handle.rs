//! The public interface of links: start, send, close, statistics, shutdown.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::config::InterdcConfig;
use super::endpoint::Setup;
use super::error::{DownReason, InterdcError, SendError};
use super::event::{Lane, LinkEvent, LinkId};
use super::link::Link;
use super::queue::Unqueued;
use super::shared::Context;
use super::stats::InterdcStats;
use crate::base::wire::MAX_FRAME;
use geolock_api::names::{DcId, DcSet};

/// The links of one datacenter, on a thread of their own. Dropping it stops that thread without waiting for
/// it; [`Interdc::shutdown`] waits.
pub struct Interdc {
    links: Links,
    local_address: SocketAddr,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// The live links, for sending messages and reading statistics. Cheap to clone.
#[derive(Clone)]
pub struct Links {
    context: Arc<Context>,
}

impl Interdc {
    /// Starts to listen and to dial every peer. Events go to `events`, which must be read: a slow reader
    /// slows the peers down, and links end when the receiver is dropped.
    pub fn start(config: InterdcConfig, events: mpsc::Sender<LinkEvent>) -> Result<Interdc, InterdcError> {
        let address = config.listen;
        let socket = UdpSocket::bind(address).map_err(|source| InterdcError::Listen { address, source })?;
        Interdc::start_on(socket, config, events)
    }

    /// As [`Interdc::start`], on a socket that is already bound (`config.listen` is ignored): for callers
    /// that need to know all ports before anything starts.
    pub fn start_on(
        socket: UdpSocket,
        config: InterdcConfig,
        events: mpsc::Sender<LinkEvent>,
    ) -> Result<Interdc, InterdcError> {
        let name = format!("interdc-{}", config.me);
        let setup = Setup::new(config, socket)?;
        let links = Links { context: setup.context.clone() };
        let local_address = setup.local_address;
        let (stop, stopping) = watch::channel(false);
        let (ending, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            setup.run(events, stopping);
            // The receiver may be dropped.
            let _ = ending.send(());
        })?;
        Ok(Interdc { links, local_address, stop, ended, thread })
    }

    /// Returns the address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns a handle for other users of the links.
    pub fn links(&self) -> Links {
        self.links.clone()
    }

    /// As [`Links::send`].
    pub fn send(&self, link: LinkId, lane: Lane, message: Bytes) -> Result<(), SendError> {
        self.links.send(link, lane, message)
    }

    /// As [`Links::close`].
    pub fn close(&self, link: LinkId, reason: &str) {
        self.links.close(link, reason);
    }

    /// As [`Links::stats`].
    pub fn stats(&self) -> InterdcStats {
        self.links.stats()
    }

    /// Returns true if the socket has failed: no link works any more.
    pub fn has_failed(&self) -> bool {
        self.links.context.has_failed.load(Ordering::Relaxed)
    }

    /// Sets if messages of other lanes than [`Lane::Urgent`] are received; at first they are. While they are
    /// not, QUIC's flow control stops their senders, and heartbeats overtake them.
    pub fn take_bulk(&self, takes: bool) {
        self.links.context.takes_bulk.send_replace(takes);
    }

    /// Sends queued messages for up to a second, closes every link, and returns when all tasks have ended.
    pub async fn shutdown(self) {
        // Fails only if everything has ended already.
        let _ = self.stop.send(true);
        // An error means that the thread panicked; joining it propagates the panic.
        let _ = self.ended.await;
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Links {
    /// Queues a message on a lane of a link. Never blocks. A message that cannot be queued would leave a gap
    /// in its lane, so the link is reset then, and its `Down` follows; gaps in [`Lane::Control`] do no harm.
    pub fn send(&self, link: LinkId, lane: Lane, message: Bytes) -> Result<(), SendError> {
        let link = self.live(link).ok_or(SendError::Gone)?;
        let size = message.len();
        if !(1..=MAX_FRAME).contains(&size) {
            link.end(DownReason::MessageSize(size));
            return Err(SendError::Size(size));
        }
        if !link.has(lane) {
            return Err(SendError::NoLane { lane });
        }
        link.queue(lane).push(message).map_err(|unqueued| match unqueued {
            Unqueued::Finished => SendError::Gone,
            Unqueued::Full if lane == Lane::Control => SendError::Full { lane },
            Unqueued::Full => {
                link.end(DownReason::QueueFull { lane });
                SendError::Full { lane }
            }
        })
    }

    /// Closes a link and tells the peer the reason: it broke the protocol. The peer is dialled again after a
    /// back-off. Does nothing if the link is down.
    pub fn close(&self, link: LinkId, reason: &str) {
        if let Some(link) = self.live(link) {
            link.end(DownReason::ClosedHere(reason.into()));
        }
    }

    /// Returns the time to `peer` and back on its present link, as QUIC measures it; `None` without a link.
    pub fn round_trip(&self, peer: DcId) -> Option<Duration> {
        let link = self.context.peer(peer).and_then(|peer| peer.link());
        link.map(|link| link.connection.rtt())
    }

    /// Queues a frame of the control group on the present link to `peer`. Never blocks. Returns false if
    /// there is no such link, or no room.
    pub fn send_control(&self, peer: DcId, frame: Bytes) -> bool {
        let link = self.context.peer(peer).and_then(|peer| peer.link());
        link.is_some_and(|link| self.send(link.id, Lane::Control, frame).is_ok())
    }

    /// Closes the present link to `peer`, which broke the protocol of the control group.
    pub fn close_to(&self, peer: DcId, reason: &str) {
        if let Some(link) = self.context.peer(peer).and_then(|peer| peer.link()) {
            link.end(DownReason::ClosedHere(reason.into()));
        }
    }

    /// Returns the peers with a link that has [`Lane::Control`], to be watched for changes.
    pub fn control_peers(&self) -> watch::Receiver<DcSet> {
        self.context.control_peers.subscribe()
    }

    /// Returns the last datacenter of this cluster that wanted a link and is no peer here, to be watched for
    /// changes. It takes this server for a member that knows it.
    pub fn stranger(&self) -> watch::Receiver<Option<DcId>> {
        self.context.stranger.subscribe()
    }

    /// Returns the address of the last peer that refused a link because this datacenter is no member as that
    /// peer knows it, to be watched for changes: each refusal is one.
    pub fn disowned_by(&self) -> watch::Receiver<Option<String>> {
        self.context.disowned_by.subscribe()
    }

    /// Dials one more peer, and accepts links from it, from now on. Does nothing if it is known already, or
    /// is this datacenter. `generation`: the number of servers that had its id before. The link to one of
    /// these ends, and it is refused from now on.
    pub fn add_peer(&self, peer: DcId, address: &str, generation: u16) {
        self.context.add_peer(peer, address, Some(generation));
    }

    /// Ends the link to a peer for good: it is dialled and accepted no more. Does nothing if it is no peer,
    /// or if more than `generation` servers had its id before.
    pub fn remove_peer(&self, peer: DcId, generation: u16, reason: &str) {
        self.context.remove_peer(peer, generation, reason);
    }

    /// As [`Links::remove_peer`], since the cluster was recovered by force without it: it gets that reason
    /// whenever it dials.
    pub fn lose_peer(&self, peer: DcId, generation: u16) {
        self.context.lose_peer(peer, generation);
    }

    /// Returns the last peer that said that its cluster was recovered by force without this datacenter, to be
    /// watched for changes.
    pub fn lost_to(&self) -> watch::Receiver<Option<DcId>> {
        self.context.lost_to.subscribe()
    }

    /// Returns the last peer that said that two servers run at the same time with the identity of this one,
    /// to be watched for changes.
    pub fn runs_twice(&self) -> watch::Receiver<Option<DcId>> {
        self.context.runs_twice.subscribe()
    }

    /// Returns statistics since the start.
    pub fn stats(&self) -> InterdcStats {
        self.context.stats()
    }

    fn live(&self, link: LinkId) -> Option<Arc<Link>> {
        self.context.peer(link.peer())?.link().filter(|live| live.id == link)
    }
}
