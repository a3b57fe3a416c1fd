//! State shared by the network thread and its users: the peers, the live links, and the counters.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::accept::Candidate;
use super::addresses::LastAddresses;
use super::config::{ControlFrame, InterdcConfig, JoinCall, QueueBound};
use super::error::{AttemptError, DownReason, Refusal};
use super::event::{Lane, LinkId};
use super::link::Link;
use super::runs::Runs;
use super::stats::{InterdcStats, LaneStats, PeerStats, WireStats};
use geolock_api::names::{ClusterId, DcId, DcSet, MAX_DCS};

/// Most incoming connections that wait for a peer's task.
const WAITING_CANDIDATES: usize = 2;
/// The reason to end the link to a server whose id another one has.
const ANOTHER_SERVER: &str = "its id was given to another server";
/// Least time between two log lines about refused connections: a stranger must not fill the log.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Settings that do not change while links run, the peers, and shared counters.
pub(super) struct Context {
    pub me: DcId,
    pub cluster: ClusterId,
    pub generation: u16,
    pub versions: RangeInclusive<u16>,
    /// Identifies this run of the server.
    pub incarnation: u64,
    /// How long a connection attempt or a hello may take.
    pub timeout: Duration,
    pub queue: QueueBound,
    peers: RwLock<Vec<Arc<Peer>>>,
    /// Those that are no peers any more, the last one of each id: their tasks may not have ended yet.
    former: Mutex<BTreeMap<DcId, Arc<Peer>>>,
    /// Peers that became known while the endpoint runs: each id at most once.
    new_peers: mpsc::Sender<NewPeer>,
    /// The last datacenter that wanted a link and is no peer here.
    pub stranger: watch::Sender<Option<DcId>>,
    /// The address of the last peer that refused a link because this datacenter is no member there.
    pub disowned_by: watch::Sender<Option<String>>,
    /// The last peer that said that its cluster was recovered by force without this datacenter.
    pub lost_to: watch::Sender<Option<DcId>>,
    /// The last peer that said that two servers run with the identity of this one.
    pub runs_twice: watch::Sender<Option<DcId>>,
    /// The generations of datacenters without which this cluster was recovered by force.
    lost: Mutex<BTreeMap<DcId, u16>>,
    /// The peers with a link that has [`Lane::Control`].
    pub control_peers: watch::Sender<DcSet>,
    pub control: Option<mpsc::Sender<ControlFrame>>,
    pub joins: Option<mpsc::Sender<JoinCall>>,
    pub refusals: Mutex<Refusals>,
    /// Where peers were reached last.
    pub addresses: LastAddresses,
    /// The socket has failed: no link works any more.
    pub has_failed: AtomicBool,
    /// True while messages of other lanes than [`Lane::Urgent`] are passed on.
    pub takes_bulk: watch::Sender<bool>,
}

/// Connections that were refused before their peer was identified.
#[derive(Default)]
pub(super) struct Refusals {
    count: u64,
    last: Option<String>,
    logged: Option<Instant>,
}

impl Context {
    /// Returns a context without peers, and the receiver of those that become known.
    pub(super) fn new(config: &InterdcConfig) -> (Context, mpsc::Receiver<NewPeer>) {
        let (new_peers, receiver) = mpsc::channel(MAX_DCS);
        let context = Context {
            me: config.me,
            cluster: ClusterId::of(&config.cluster),
            generation: config.generation,
            versions: config.versions.clone(),
            incarnation: nonce(),
            timeout: config.peer_timeout,
            queue: config.queue,
            peers: RwLock::default(),
            former: Mutex::default(),
            new_peers,
            stranger: watch::Sender::new(None),
            disowned_by: watch::Sender::new(None),
            lost_to: watch::Sender::new(None),
            runs_twice: watch::Sender::new(None),
            lost: Mutex::default(),
            control_peers: watch::Sender::new(DcSet::EMPTY),
            control: config.control.clone(),
            joins: config.joins.clone(),
            addresses: config.addresses.clone(),
            refusals: Mutex::default(),
            has_failed: AtomicBool::new(false),
            takes_bulk: watch::Sender::new(true),
        };
        (context, receiver)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_fuzz() -> Context {
        Context {
            me: DcId::new(0).expect("a small id"),
            cluster: ClusterId::of("fuzz"),
            generation: 0,
            versions: 1..=3,
            incarnation: 1,
            timeout: Duration::ZERO,
            queue: QueueBound::default(),
            peers: RwLock::default(),
            former: Mutex::default(),
            new_peers: mpsc::channel(1).0,
            stranger: watch::Sender::new(None),
            disowned_by: watch::Sender::new(None),
            lost_to: watch::Sender::new(None),
            runs_twice: watch::Sender::new(None),
            lost: Mutex::default(),
            control_peers: watch::Sender::new(DcSet::EMPTY),
            control: None,
            joins: None,
            addresses: LastAddresses::default(),
            refusals: Mutex::default(),
            has_failed: AtomicBool::new(false),
            takes_bulk: watch::Sender::new(true),
        }
    }

    pub(super) fn peer(&self, dc: DcId) -> Option<Arc<Peer>> {
        self.peers().iter().find(|peer| peer.id == dc).cloned()
    }

    fn peers(&self) -> RwLockReadGuard<'_, Vec<Arc<Peer>>> {
        self.peers.read().expect("nothing panics while it holds the peers")
    }

    /// Makes a peer known, unless it is, or is this datacenter. The endpoint starts its task. `generation`:
    /// the number of servers that had its id before, if that is known. One of these that is a peer is
    /// replaced.
    pub(super) fn add_peer(&self, id: DcId, address: &str, generation: Option<u16>) {
        if id == self.me {
            return;
        }
        let mut peers = self.peers.write().expect("nothing panics while it holds the peers");
        if let Some(place) = peers.iter().position(|known| known.id == id) {
            if generation.is_none_or(|generation| peers[place].learn_generation(generation, address)) {
                return;
            }
            self.forget(peers.remove(place), ANOTHER_SERVER);
        }
        self.lost().remove(&id);
        let former = self.former.lock().expect("nothing panics while it holds the peers").remove(&id);
        let links = former.as_ref().map_or(0, |former| former.links.load(Ordering::Relaxed));
        let (peer, candidates) = Peer::new(id, address.into(), generation, links);
        let peer = Arc::new(peer);
        // There is room for each id; without a receiver the endpoint has stopped.
        let _ = self.new_peers.try_send(NewPeer { peer: Arc::clone(&peer), candidates, former });
        peers.push(peer);
        peers.sort_by_key(|peer| peer.id);
    }

    /// Forgets a peer: ends its link and its task, and accepts no link from it. A later generation stays:
    /// the caller may know older decisions.
    pub(super) fn remove_peer(&self, id: DcId, generation: u16, reason: &str) {
        let mut peers = self.peers.write().expect("nothing panics while it holds the peers");
        let is_over = |known: &Arc<Peer>| known.generation().is_none_or(|known| known <= generation);
        let Some(place) = peers.iter().position(|known| known.id == id && is_over(known)) else { return };
        let peer = peers.remove(place);
        drop(peers);
        self.forget(peer, reason);
    }

    /// Forgets a peer without which this cluster was recovered by force, and tells it so when it dials.
    pub(super) fn lose_peer(&self, id: DcId, generation: u16) {
        self.lost().insert(id, generation);
        self.remove_peer(id, generation, "the cluster was recovered by force without it");
    }

    /// Returns the reason to refuse a server that is no peer. A later one with the id of a lost one may be a
    /// member by a decision that is not known here yet.
    pub(super) fn unknown(&self, dc: DcId, generation: u32) -> Refusal {
        let is_lost = self.lost().get(&dc).is_some_and(|lost| generation <= u32::from(*lost));
        if is_lost { Refusal::Lost(dc) } else { Refusal::UnknownDc(dc) }
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<DcId, u16>> {
        self.lost.lock().expect("nothing panics while it holds a map")
    }

    fn forget(&self, peer: Arc<Peer>, reason: &str) {
        peer.removed.send_replace(true);
        if let Some(link) = peer.link() {
            link.end(DownReason::ClosedHere(reason.into()));
        }
        self.former.lock().expect("nothing panics while it holds the peers").insert(peer.id, peer);
    }

    /// Notes if there is a link to `peer` that has [`Lane::Control`].
    pub(super) fn note_control(&self, peer: DcId, is_up: bool) {
        self.control_peers.send_if_modified(|peers| {
            let before = *peers;
            *peers = peers.difference(DcSet::only(peer));
            if is_up {
                peers.insert(peer);
            }
            *peers != before
        });
    }

    /// Returns true if this side decides which connection to `peer` is the link. Of each pair, that is the
    /// datacenter with the lower id.
    pub(super) fn arbitrates(&self, peer: DcId) -> bool {
        self.me < peer
    }

    /// Notes that an attempt from that address failed.
    pub(super) fn failed(&self, from: SocketAddr, error: &AttemptError) {
        if *error != AttemptError::Superseded {
            self.refused(from, &error.to_string());
        }
    }

    pub(super) fn refused(&self, from: SocketAddr, reason: &str) {
        let mut refusals = self.refusals();
        refusals.count += 1;
        refusals.last = Some(reason.into());
        if refusals.logged.is_none_or(|at| at.elapsed() >= REFUSAL_LOG_INTERVAL) {
            refusals.logged = Some(Instant::now());
            tracing::warn!(%from, reason, refused_so_far = refusals.count, "connection refused");
        }
    }

    pub(super) fn stats(&self) -> InterdcStats {
        let refusals = self.refusals();
        InterdcStats {
            peers: self.peers().iter().map(|peer| peer.stats()).collect(),
            refused: refusals.count,
            last_refusal: refusals.last.clone(),
        }
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().expect("nothing panics while it holds the refusals")
    }
}

/// Returns a number that no other run or connection has. It is not a secret, and never 0.
pub(super) fn nonce() -> u64 {
    RandomState::new().hash_one(0).max(1)
}

/// Another member, and the link to it while there is one.
pub(super) struct Peer {
    pub id: DcId,
    /// As configured: `host:port`.
    pub address: String,
    /// To the peer's task: connections that ask to be the link.
    pub candidates: mpsc::Sender<Candidate>,
    /// True once it is no peer any more: its task ends.
    pub removed: watch::Sender<bool>,
    /// True once its task has ended.
    pub ended: watch::Sender<bool>,
    /// The number of servers that had its id before, once that is known.
    generation: Mutex<Option<u16>>,
    /// The runs that have said hello.
    pub runs: Mutex<Runs>,
    /// The same as the peer said on the present or last link.
    said_generation: AtomicU32,
    link: Mutex<Option<Arc<Link>>>,
    /// The arbiter's number of the last link that was up; 0 for none.
    last_link: AtomicU64,
    /// Links that were up so far.
    links: AtomicU64,
    lanes: [LaneCounters; Lane::COUNT],
    /// Bytes on earlier links.
    wire: Mutex<WireStats>,
    last_error: Mutex<Option<String>>,
}

/// A peer without a task.
pub(super) struct NewPeer {
    pub peer: Arc<Peer>,
    pub candidates: mpsc::Receiver<Candidate>,
    /// An earlier peer with its id. Its task ends first.
    pub former: Option<Arc<Peer>>,
}

#[derive(Default)]
struct LaneCounters {
    messages_sent: AtomicU64,
    bytes_sent: AtomicU64,
    messages_received: AtomicU64,
    bytes_received: AtomicU64,
}

impl Peer {
    /// Returns the peer, and the receiver for its task.
    pub(super) fn new(
        id: DcId,
        address: String,
        generation: Option<u16>,
        links: u64,
    ) -> (Peer, mpsc::Receiver<Candidate>) {
        let (candidates, receiver) = mpsc::channel(WAITING_CANDIDATES);
        let peer = Peer {
            id,
            address,
            candidates,
            removed: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            generation: Mutex::new(generation),
            runs: Mutex::default(),
            said_generation: AtomicU32::new(0),
            link: Mutex::default(),
            last_link: AtomicU64::new(0),
            links: AtomicU64::new(links),
            lanes: Default::default(),
            wire: Mutex::default(),
            last_error: Mutex::default(),
        };
        (peer, receiver)
    }

    pub(super) fn next_link_id(&self) -> LinkId {
        LinkId::new(self.id, self.links.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn generation(&self) -> Option<u16> {
        *self.generation.lock().expect("nothing panics while it holds a number")
    }

    /// Learns the number of servers that had its id before. Ends the link of another one. Returns false if
    /// this peer is another one, or has another address.
    fn learn_generation(&self, generation: u16, address: &str) -> bool {
        let mut known = self.generation.lock().expect("nothing panics while it holds a number");
        // The address of a founder is that of the configuration.
        let is_moved = generation > 0 && self.address != address;
        if *known == Some(generation) || (known.is_none() && !is_moved) {
            *known = Some(generation);
            drop(known);
            self.end_link_of_another();
            return true;
        }
        false
    }

    /// Ends the link if it is that of another server with its id.
    fn end_link_of_another(&self) {
        let said = self.said_generation.load(Ordering::Relaxed);
        let is_another = self.generation().is_some_and(|known| u32::from(known) != said);
        if let Some(link) = self.link().filter(|_| is_another) {
            link.end(DownReason::ClosedHere(ANOTHER_SERVER.into()));
        }
    }

    pub(super) fn last_link(&self) -> u64 {
        self.last_link.load(Ordering::Relaxed)
    }

    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.link.lock().expect("nothing panics while it holds a link").clone()
    }

    pub(super) fn link_up(&self, link: Arc<Link>, nonce: u64, generation: u32) {
        self.said_generation.store(generation, Ordering::Relaxed);
        self.last_link.store(nonce, Ordering::Relaxed);
        tracing::info!(peer = %self.id, from = %link.connection.remote_address(), "link up");
        *self.link.lock().expect("nothing panics while it holds a link") = Some(link);
        // That may have become known since the hello.
        self.end_link_of_another();
    }

    pub(super) fn link_down(&self, reason: &DownReason) {
        let ended = self.link.lock().expect("nothing panics while it holds a link").take();
        if let Some(link) = ended {
            let mut wire = self.wire.lock().expect("nothing panics while it holds the counts");
            *wire = wire.and(&link.connection);
        }
        tracing::warn!(peer = %self.id, %reason, "link down");
        self.set_error(reason.to_string());
    }

    /// Notes that an attempt at a link failed. The same failure repeated is logged once.
    pub(super) fn failed(&self, error: &AttemptError) {
        if *error == AttemptError::Superseded {
            return;
        }
        let text = error.to_string();
        if self.set_error(text.clone()) {
            tracing::warn!(peer = %self.id, address = self.address, error = text, "no link");
        }
    }

    /// Stores the error. Returns true if it differs from the last one.
    fn set_error(&self, text: String) -> bool {
        let mut last = self.last_error.lock().expect("nothing panics while it holds an error");
        let differs = last.as_ref() != Some(&text);
        *last = Some(text);
        differs
    }

    pub(super) fn sent(&self, lane: Lane, messages: usize, bytes: usize) {
        let counters = &self.lanes[lane.index()];
        counters.messages_sent.fetch_add(messages as u64, Ordering::Relaxed);
        counters.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, lane: Lane, bytes: usize) {
        let counters = &self.lanes[lane.index()];
        counters.messages_received.fetch_add(1, Ordering::Relaxed);
        counters.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn stats(&self) -> PeerStats {
        let link = self.link();
        let [urgent, bulk, state, control] = self.lanes.each_ref().map(LaneCounters::read);
        let before = *self.wire.lock().expect("nothing panics while it holds the counts");
        PeerStats {
            peer: self.id,
            up: link.is_some(),
            rtt: link.as_ref().map(|link| link.connection.rtt()),
            urgent,
            bulk,
            state,
            control,
            wire: link.map_or(before, |link| before.and(&link.connection)),
            reconnects: self.links.load(Ordering::Relaxed).saturating_sub(1),
            last_error: self.last_error.lock().expect("nothing panics while it holds an error").clone(),
        }
    }
}

impl LaneCounters {
    fn read(&self) -> LaneStats {
        LaneStats {
            messages_sent: self.messages_sent.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            messages_received: self.messages_received.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
        }
    }
}
