//! The state of a datacenter, as operators and metrics see it.

use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::crdt::VersionVector;
use crate::replica::NotServing;
use geolock_api::names::DcId;

/// How long requests of clients of this datacenter waited, from the step that received the acquire to the
/// step that emitted the reply. A request that is granted in one step waited for 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Acquires {
    /// Granted with the parts that were here.
    pub local: Histogram,
    /// Granted after another datacenter was asked.
    pub remote: Histogram,
}

/// The state of a datacenter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub dc: DcId,
    pub phase: Phase,
    pub draining: bool,
    /// This datacenter's clock is too far ahead of most others: it makes no entries.
    pub clock_skew: bool,
    /// This datacenter's clock is behind most others by at least so many milliseconds: it holds their entries
    /// back. 0: it is not, or by less than the limit.
    pub clock_behind_ms: u64,
    /// Room on the disk of its journal.
    pub disk_space: DiskSpace,
    pub load: Load,
    pub applied: VersionVector,
    pub durable: VersionVector,
    pub peers: Vec<PeerStatus>,
    pub counts: Counts,
    pub acquires: Acquires,
    /// How long answers waited until a majority had their commits, from the call to the last
    /// acknowledgement. Without those whose wait ended before.
    pub majority_waits: Histogram,
}

/// The phase of a datacenter's lifecycle (`docs/algorithm.md#91-lifecycle`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Just restarted: waits until time has passed the clock readings that it may have used before.
    Starting,
    /// Log recovery: some member has still to announce how much of this datacenter's log it has (a new data
    /// directory waits for all members, a restart for `peer_timeout` at most), or has more of it than is
    /// here. The missing entries are fetched before anything is written.
    ReadOnly,
    /// Waits for clients to reclaim their locks after a restart. `leases`: leases that have neither reclaimed
    /// nor ended.
    Grace {
        leases: usize,
    },
    Serving,
    /// The log of `dc` has two histories that differ at entry `seq` or before: a directory was continued from
    /// an older disk. Serves reads only, until an operator decides which history is kept.
    Forked {
        dc: DcId,
        seq: u64,
    },
}

/// A peer as seen from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    pub dc: DcId,
    /// A link to it is up.
    pub connected: bool,
    /// It is known to live, directly or through others.
    pub reachable: bool,
    /// The durable vector that it announced.
    pub acknowledged: VersionVector,
    /// Entries here that it has not acknowledged, without its own.
    pub unacked_entries: u64,
    /// How long ago the oldest of these entries became durable here, in ms, at most since the start of this
    /// process; 0 if it lacks none. A peer acknowledges with its heartbeats.
    pub lag_ms: u64,
    /// Entries that it announced as durable and that are not applied here.
    pub missing_entries: u64,
    /// It lacks entries that are truncated here: it gets a state transfer.
    pub too_far_behind: bool,
    /// Its clock minus ours when last heard, in ms.
    pub clock_ahead_ms: i64,
    /// The link is paused before an entry that is stamped too far ahead.
    pub paused_by_skew: bool,
    /// The reason why it does not serve although it is reachable.
    pub not_serving: Option<NotServing>,
}

/// Counters and gauges since the start of the process; the edge publishes them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub leases: u64,
    pub held: u64,
    pub waiting: u64,
    pub published: u64,
    pub remote_requests: u64,
    pub parked: u64,
    pub locks_active: u64,
    pub locks_moved: u64,
    /// Locks with parts here that have their homes in other datacenters; `max_away_locks` limits them.
    pub locks_away_here: u64,
    pub log_entries: u64,
    pub held_back: u64,
    pub transactions: u64,
    pub watches: u64,
    pub keys: u64,
    pub value_bytes: u64,
    pub uncompacted_changes: u64,
    pub snapshots: u64,
    pub tombstones_pending: u64,
    pub keys_expiring: u64,
    /// Commits whose answers wait for a majority.
    pub waiting_for_majority: u64,
    pub grants: u64,
    pub grants_local: u64,
    pub releases: u64,
    pub refusals: u64,
    pub timeouts: u64,
    pub cancels: u64,
    pub leases_expired: u64,
    pub part_transfers_sent: u64,
    pub part_transfers_received: u64,
    pub hand_offs_sent: u64,
    pub hand_offs_received: u64,
    /// Locks whose unused parts went back to their homes (idle return), by cause: they were not used for
    /// `idle_return_after`; more than `max_away_locks` were here; another datacenter shared the lock.
    pub idle_returns_age: u64,
    pub idle_returns_number: u64,
    pub idle_returns_shared: u64,
    pub entries_made: u64,
    pub entries_applied: u64,
    pub entries_relayed: u64,
    pub duplicates: u64,
    pub violations: u64,
    pub skew_pauses: u64,
    pub commits: u64,
    pub removals: u64,
    pub aborts: u64,
    pub transactions_killed: u64,
    pub anti_entropy_rounds: u64,
    pub digests_compared: u64,
    pub digest_mismatches: u64,
    pub rights_transferred: u64,
    pub state_transfers_sent: u64,
    pub state_transfers_received: u64,
    pub keys_expired: u64,
    pub watch_events_dropped: u64,
    pub force_releases: u64,
    pub calls_shed: u64,
    /// Answers that waited for a majority in vain.
    pub commits_not_at_majority: u64,
}
