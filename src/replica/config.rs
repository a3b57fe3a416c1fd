//! Options of the core, documented here. The crate's `config.rs` reads them from files and flags.

use crate::base::bugs::{Bug, Bugs};
use std::time::Duration;

use crate::base::time::{Instant, Now};
use crate::base::wire::PROTOCOL_VERSION;
use crate::causal_log::Change;
use crate::lock_state::{HoldRule, MAX_AWAY_LOCKS};
use crate::membership::ServerId;
use crate::replica::members::MAX_LISTED;
use geolock_api::names::{ClusterId, DcId, DcSet};

/// Options of one datacenter's core.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// The datacenter of this process.
    pub dc: DcId,
    /// Options that must be equal in the whole cluster.
    pub agreed: AgreedConfig,
    /// Options that each process may choose.
    pub local: LocalConfig,
    /// The random id of the data directory.
    pub server: ServerId,
    /// The directory was made to join a running cluster: `agreed.members` is this datacenter alone, and the
    /// members come with the decisions.
    pub joins: bool,
    /// This server takes part in a control group: members can be evicted, and a founder that was started may
    /// not know the first decisions.
    pub has_control_group: bool,
    /// The highest version of the protocol that it speaks. [`PROTOCOL_VERSION`], but in tests also that of
    /// an earlier release, or of the next one.
    pub speaks: u16,
    /// A deliberate bug, to prove that the simulator's checks can fail.
    pub bugs: Bugs,
}

impl ReplicaConfig {
    /// Returns the options of a founder, with no id of the data directory yet.
    pub fn new(dc: DcId, agreed: AgreedConfig, local: LocalConfig) -> ReplicaConfig {
        let (server, bugs) = (ServerId::default(), Bugs::default());
        let (joins, has_control_group, speaks) = (false, false, PROTOCOL_VERSION);
        ReplicaConfig { dc, agreed, local, server, joins, has_control_group, speaks, bugs }
    }

    /// Returns the clock that measures leases: the monotonic one, which nobody sets.
    pub(super) fn lease_time(&self, now: Now) -> Instant {
        if self.bugs.has(Bug::LeaseByWallClock) {
            return Instant::from_nanos(now.wall.0 * 1_000_000);
        }
        now.mono
    }
}

/// Options that must be equal in the whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedConfig {
    /// The cluster. Entries of another one are a violation of the protocol.
    pub cluster: ClusterId,
    /// All datacenters, this one included.
    pub members: DcSet,
    /// Interval at which a datacenter sends each peer its vectors and the members that it heard. Default
    /// 500 ms, 10 ms to 10 s. A lower value does not find a dead peer sooner (see `peer_timeout`), but relays
    /// around a cut link sooner; each heartbeat costs a small message per peer.
    pub heartbeat: Duration,
    /// A datacenter from which nothing new was heard for this long, by any path, is unreachable: requests
    /// that need it are parked. Default 3 s, at least 3 heartbeats. A lower value unblocks others sooner
    /// after a crash; a value that is too low parks requests on a hiccup.
    pub peer_timeout: Duration,
    /// An entry that is stamped further ahead of our clock than this is held back. Default 5 s, 100 ms to
    /// 1 h. Bounds the effect of a wrong clock on the order of requests.
    pub max_clock_skew: Duration,
}

/// Options that each process may choose.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalConfig {
    /// When a lock leaves, by prefix of the lock name; the longest matching prefix counts.
    pub hold: Vec<HoldRule>,
    /// Longest time to live that a lease may have; also bounds the grace period after a restart. Default
    /// 60 s, 1 s to 1 h. A higher value lengthens the wait after a crash for locks of clients that died, too.
    pub max_lease_ttl: Duration,
    /// Most waiting requests of one lease. Default 10 000. Bounds the memory that one client can take.
    pub max_waiting_per_lease: usize,
    /// Most bytes of lock names in the requests of one lease, held and waiting. Default 64 MiB. Bounds the
    /// memory that one client can take, too: a request may have 1 MiB of names.
    pub max_names_per_lease: usize,
    /// The same over all leases of one client: one certificate, one token, or one address with neither.
    /// Default 256 MiB: about half of what the names of `max_held` locks take if they are short. Reclaims
    /// count, and are never refused by it.
    pub max_names_per_client: usize,
    /// Most requests of clients that wait in this server. Default 1 000 000. A request for one lock with a
    /// short name takes some 400 bytes; names, labels and further locks are extra.
    pub max_waiting: usize,
    /// Most requests held in this server. Default 4 000 000. A request for one lock with a short name takes
    /// some 600 bytes. Further locks of a request count like requests, held or waiting.
    pub max_held: usize,
    /// Most locks with parts here that have their homes in other datacenters. Beyond it, those that were
    /// unused for longest return these parts (idle return): the next exclusive use here costs a round trip.
    /// Default 1 000 000. A lock with a short name takes some 200 bytes in every member, whichever has the
    /// parts; one with a longer name counts once for each 256 bytes of it. It may be exceeded by locks in
    /// use, and while a member is away.
    pub max_away_locks: usize,
    /// Most leases of this server. Default 1 000 000.
    pub max_leases: usize,
    /// Longest time that a transaction is open, from when it has its locks and its snapshot. Default 20 s,
    /// 1 s to 1 h. Bounds how long a client that hangs keeps locks and old versions of values.
    pub max_transaction: Duration,
    /// Most transactions that are open or waiting in this server, also for a majority. Default 100 000.
    pub max_transactions: usize,
    /// Most bytes kept for transactions and reads: the changes of uncommitted transactions, and the keys that
    /// waiting transactions and reads are to read; also the values in answers that wait for a majority.
    /// Default 256 MiB.
    pub max_transaction_bytes: usize,
    /// When the entries that some member lacks weigh more than this many bytes, members that are far behind
    /// are given up: they get a state transfer when they are back. Default 256 MiB, 1 MiB to 16 GiB. It is
    /// memory, and twice that on disk. If no quorum of members has the entries, this server stops commits and
    /// moves of locks at four times this value.
    pub max_log: usize,
    /// Approximate bound of the bytes of all names that watches of this server follow. Default 64 MiB: some
    /// 100 000 watches of one name each.
    pub max_watch_bytes: usize,
    /// How long a description waits for the holders in other datacenters. Also how long before the end of a
    /// wait (at most half of the wait) they are asked, for the reply to a timeout. Default 1 s, 10 ms to 5 s:
    /// clients give up after 7 s.
    pub describe_timeout: Duration,
    /// Interval at which this datacenter compares its data with one other. Default 5 s, 100 ms to 1 h. A
    /// lower value finds a replica that differs sooner; a round costs two small messages.
    pub anti_entropy_interval: Duration,
    /// Buckets whose commits wait for a majority, also if their call does not ask for it. Default none.
    pub majority_buckets: Vec<BucketPattern>,
    /// Number of rows that one step copies into a checkpoint. Default 1024: some hundred microseconds.
    pub checkpoint_rows: usize,
    /// Decisions of the control group that are kept one by one, for members that lack some and for operators.
    /// Default 1000: as many as one answer lists. Older ones are compacted once all members have entered
    /// them.
    pub kept_decisions: usize,
    /// Most messages queued on a link; further ones wait here. Default 64.
    pub link_window: usize,
    /// Seed of the hash tables that contain names from clients: random per process, so that no client can
    /// choose names that collide. No decision depends on it.
    pub hash_seed: u64,
}

/// Some buckets of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketPattern {
    /// The bucket of this name.
    Named(Vec<u8>),
    /// All buckets whose names begin with this.
    Prefix(Vec<u8>),
}

impl BucketPattern {
    /// Returns true if the bucket of this name matches.
    pub fn has(&self, bucket: &[u8]) -> bool {
        match self {
            BucketPattern::Named(name) => bucket == name,
            BucketPattern::Prefix(prefix) => bucket.starts_with(prefix),
        }
    }
}

/// Shortest time to live of a lease.
pub const MIN_LEASE_TTL: Duration = Duration::from_secs(1);
/// Longest time to live that a server may permit (`limits.max_lease_ttl`).
pub const MAX_LEASE_TTL: Duration = Duration::from_secs(3_600);
/// How far ahead readings of the hybrid clock are reserved, at most; a restarted datacenter stamps nothing
/// for this long.
pub const CLOCK_RESERVATION: Duration = Duration::from_millis(500);

const _: () = assert!(
    CLOCK_RESERVATION.as_millis() < MIN_LEASE_TTL.as_millis(),
    "a lease outlives the wait of a restart for its clock"
);

impl AgreedConfig {
    /// Returns the default options for these members.
    pub fn new(cluster: ClusterId, members: DcSet) -> AgreedConfig {
        AgreedConfig {
            cluster,
            members,
            heartbeat: Duration::from_millis(500),
            peer_timeout: Duration::from_secs(3),
            max_clock_skew: Duration::from_secs(5),
        }
    }
}

impl LocalConfig {
    /// Returns true if a change is in a bucket whose commits always wait for a majority.
    pub fn needs_majority(&self, changes: &[Change]) -> bool {
        let buckets = &self.majority_buckets;
        !buckets.is_empty()
            && changes.iter().any(|change| buckets.iter().any(|bucket| bucket.has(change.key.bucket())))
    }
}

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig {
            hold: vec![HoldRule::default()],
            max_lease_ttl: Duration::from_secs(60),
            max_waiting_per_lease: 10_000,
            max_names_per_lease: 64 << 20,
            max_names_per_client: 256 << 20,
            max_waiting: 1_000_000,
            max_held: 4_000_000,
            max_away_locks: MAX_AWAY_LOCKS,
            max_leases: 1_000_000,
            max_transaction: Duration::from_secs(20),
            max_transactions: 100_000,
            max_transaction_bytes: 256 << 20,
            max_log: 256 << 20,
            max_watch_bytes: 64 << 20,
            describe_timeout: Duration::from_secs(1),
            anti_entropy_interval: Duration::from_secs(5),
            majority_buckets: Vec::new(),
            checkpoint_rows: 1024,
            kept_decisions: MAX_LISTED,
            link_window: 64,
            hash_seed: 0,
        }
    }
}
