//! Options of the core. Read from files and flags by the crate's `config.rs`; documented here, once.

use std::time::Duration;

use crate::lock_state::HoldRule;
use crate::names::{ClusterId, DcId, DcSet};

/// Options of one datacenter's core.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// Who this is.
    pub dc: DcId,
    /// What all members must agree on.
    pub agreed: AgreedConfig,
    /// What this process may choose by itself.
    pub local: LocalConfig,
    /// A deliberate bug, for the tests of the simulator's checkers.
    #[cfg(test)]
    pub mutation: Option<crate::sim::Mutation>,
}

impl ReplicaConfig {
    pub fn new(dc: DcId, agreed: AgreedConfig, local: LocalConfig) -> ReplicaConfig {
        ReplicaConfig {
            dc,
            agreed,
            local,
            #[cfg(test)]
            mutation: None,
        }
    }
}

/// What all members of a cluster must have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedConfig {
    pub cluster: ClusterId,
    /// All datacenters, this one among them.
    pub members: DcSet,
    /// How often a datacenter tells each peer what it has and whom it heard. Default 500 ms, 10 ms to 10 s.
    /// Lower finds a dead peer no sooner (see `peer_timeout`) but relays round a cut link sooner; each costs a
    /// small message per peer.
    pub heartbeat: Duration,
    /// A datacenter of which nothing new was heard for that long, by whatever path, is unreachable: requests
    /// that need it are parked. Default 3 s, at least 3 heartbeats. Lower unblocks others sooner after a crash;
    /// too low parks requests on a hiccup.
    pub peer_timeout: Duration,
    /// An entry stamped further ahead of our clock than this waits. Default 5 s, 100 ms to 1 h. Bounds what a
    /// wrong clock can do to the order of requests.
    pub max_clock_skew: Duration,
}

/// What a process may choose by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalConfig {
    /// When a lock leaves, by lock-name prefix; the longest matching prefix counts.
    pub hold: Vec<HoldRule>,
    /// Longest time to live that a lease may ask for; also bounds the grace period after a restart.
    /// Default 60 s, 1 s to 1 h. Raising it lengthens the wait after a crash for locks of clients that died too.
    pub max_lease_ttl: Duration,
    /// Most requests of one lease that wait. Default 10 000. Bounds what one client can make a server remember.
    pub max_waiting_per_lease: usize,
    /// Most bytes of lock names in the requests of one lease, held and waiting. Default 64 MiB. Bounds what one client can make
    /// a server remember, too: a request may have 1 MiB of names.
    pub max_names_per_lease: usize,
    /// Most requests of clients that wait in this server. Default 1 000 000, some 400 bytes each if it wants
    /// one lock with a short name; names, labels and further locks come on top.
    pub max_waiting: usize,
    /// Most requests held in this server. Default 4 000 000, some 600 bytes each for one lock with a short name. Locks
    /// beyond the first of a request count, too, held or waited for.
    pub max_held: usize,
    /// Most leases of this server. Default 1 000 000.
    pub max_leases: usize,
    /// Longest that a transaction is open, from when it has its locks and its snapshot. Default 20 s, 1 s to 1 h. Bounds how
    /// long a client that hangs keeps locks and old versions of values.
    pub max_transaction: Duration,
    /// Most transactions that are open or wait in this server. Default 100 000.
    pub max_transactions: usize,
    /// Most bytes that all transactions which are not committed yet want to change, and the keys that transactions and
    /// reads want to see which wait for their locks or their snapshot. Default 256 MiB.
    pub max_transaction_bytes: usize,
    /// When entries that some member lacks weigh more than that many bytes, members that are far behind are given up: they get
    /// a state transfer when they are back. Default 256 MiB, 1 MiB to 16 GiB. It is memory, and twice that on disk; at
    /// four times as much, when no quorum of members has them, nothing is committed here and no lock moves.
    pub max_log: usize,
    /// Most bytes that the names take which all watches of this server follow, about. Default 64 MiB: some 100 000 watches
    /// of one name each.
    pub max_watch_bytes: usize,
    /// How long a description waits for the holders in other datacenters, and how long before the end of a wait (or half of that)
    /// they are asked for its answer. Default 1 s, 10 ms to 5 s: clients give up after 7 s.
    pub describe_timeout: Duration,
    /// How often this datacenter compares what it has with some other. Default 5 s, 100 ms to 1 h. Lower finds a replica
    /// that differs sooner; it costs two small messages.
    pub anti_entropy: Duration,
    /// Most messages queued on a link before the rest waits here. Default 64.
    pub link_window: usize,
    /// Seed of the hash tables that clients' lock names go into: random per process, so that no client can
    /// choose names that collide. No decision depends on it.
    pub hash_seed: u64,
}

/// Shortest time to live of a lease.
pub const MIN_LEASE_TTL: Duration = Duration::from_secs(1);
/// Readings of the hybrid clock are durably bounded that far ahead at most; a restarted datacenter stamps
/// nothing for that long.
pub const CLOCK_BOUND: Duration = Duration::from_millis(500);

impl AgreedConfig {
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

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig {
            hold: vec![HoldRule::default()],
            max_lease_ttl: Duration::from_secs(60),
            max_waiting_per_lease: 10_000,
            max_names_per_lease: 64 << 20,
            max_waiting: 1_000_000,
            max_held: 4_000_000,
            max_leases: 1_000_000,
            max_transaction: Duration::from_secs(20),
            max_transactions: 100_000,
            max_transaction_bytes: 256 << 20,
            max_log: 256 << 20,
            max_watch_bytes: 64 << 20,
            describe_timeout: Duration::from_secs(1),
            anti_entropy: Duration::from_secs(5),
            link_window: 64,
            hash_seed: 0,
        }
    }
}
