//! The state of a datacenter, as operators and metrics see it.

use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::crdt::VersionVector;
use crate::replica::NotServing;
use geolock_api::names::{DcId, DcSet};

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
    /// This datacenter.
    pub dc: DcId,
    /// The phase of its lifecycle.
    pub phase: Phase,
    /// The server shuts down: it opens no leases and accepts no new acquires and transactions.
    pub draining: bool,
    /// This datacenter's clock is too far ahead of most others: it makes no entries.
    pub clock_skew: bool,
    /// This datacenter's clock is behind most others by at least so many milliseconds: it holds their entries
    /// back. 0: it is not, or by less than the limit.
    pub clock_behind_ms: u64,
    /// If members are evicted by time: for how many milliseconds a majority of the voters backs this one
    /// without further acknowledgements; then it grants nothing. `None` if that is not needed.
    pub backed_for_ms: Option<u64>,
    /// While it is read-only: for so many milliseconds leases may live that its data directory, an old copy
    /// or an empty one in the place of a used one, does not know. 0 otherwise.
    pub unknown_leases_ms: u64,
    /// Room on the disk of its journal.
    pub disk_space: DiskSpace,
    /// Says if the server keeps up with the calls of its clients.
    pub load: Load,
    /// The vector of the entries that are applied in memory.
    pub applied: VersionVector,
    /// The vector of the entries that are also on disk. New snapshots show these.
    pub durable: VersionVector,
    /// The members of the cluster, as they are known here.
    pub members: MembersStatus,
    /// The other members.
    pub peers: Vec<PeerStatus>,
    /// The witnesses: servers that only vote.
    pub witnesses: Vec<WitnessStatus>,
    /// Gauges and counters.
    pub counts: Counts,
    /// How long acquires waited.
    pub acquires: Acquires,
    /// How long answers waited until a majority had their commits, from the call to the last
    /// acknowledgement. Without those whose wait ended before.
    pub majority_waits: Histogram,
}

/// The members of the cluster, as they are known here.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MembersStatus {
    /// The number of the last decision that is known here; 0 if there is none.
    pub decision: u64,
    /// The last epoch that this datacenter has entered.
    pub epoch: u64,
    /// The members that are being evicted.
    pub evicting: DcSet,
    /// The number of own entries that no other member has acknowledged: those that would be lost with this
    /// datacenter. `None` if there is no other member.
    pub only_here: Option<u64>,
    /// The consequences if this datacenter died now.
    pub own: AtStake,
    /// [`AtStake::waiting`] is a lower bound: there are too many requests to examine all.
    pub waiting_is_least: bool,
}

/// A server that only votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WitnessStatus {
    /// The id of its links.
    pub dc: DcId,
    /// How long ago it was heard for the last time, in ms. `None`: not since this process started.
    pub heard_ms: Option<u64>,
}

/// The consequences, as known here, if a datacenter died now, or was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AtStake {
    /// The number of locks of which it has parts that are named after other members: nobody else can take
    /// them exclusively until it is back, or evicted. Locks of which it has no more than its own part, such
    /// as those that were never used, are not counted: they cannot be taken exclusively, either.
    pub away_locks: u64,
    /// The number of requests, of clients here and published ones of others, that wait and need a part that
    /// it has.
    pub waiting: u64,
    /// How long ago it was heard for the last time, directly or through others, in ms: what it has
    /// acknowledged since then may be nowhere else. `None`: not since this process started.
    pub heard_ms: Option<u64>,
    /// The members and witnesses that have said, as voters, that they hear nothing of it.
    pub silent: DcSet,
}

/// The phase of a datacenter's lifecycle (`docs/algorithm/recovery.md#1-lifecycle`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Phase {
    /// Just restarted: waits until time has passed the clock readings that it may have used before.
    Starting,
    /// Log recovery: some member has still to announce how much of this datacenter's log it has (a new data
    /// directory waits for all members, a restart for `peer_timeout` at most), or has more of it than is
    /// here. The missing entries are fetched before anything is written.
    ReadOnly,
    /// Waits for clients to reclaim their locks after a restart. `leases`: leases that have neither reclaimed
    /// nor ended.
    Grace { leases: usize },
    /// Grants, transfers and commits.
    Serving,
    /// The log of `dc` has two histories that differ at entry `seq` or before: a directory was continued from
    /// an older disk. Serves reads only, until an operator decides which history is kept.
    Forked { dc: DcId, seq: u64 },
}

/// A peer as seen from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// The peer.
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
    /// The consequences if it died now.
    pub at_stake: AtStake,
    /// Options that should be equal in all datacenters, and differ between these two: by their names.
    pub differing: Vec<&'static str>,
}

/// Gauges, and from `grants` on counters since the start of the process. The edge publishes them as metrics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Leases of this datacenter that have not ended.
    pub leases: u64,
    /// Requests of clients of this datacenter that hold their locks.
    pub held: u64,
    /// Requests of clients of this datacenter that wait.
    pub waiting: u64,
    /// Requests of this datacenter that are in its log and not withdrawn.
    pub published: u64,
    /// Requests of other datacenters that are in their logs and not withdrawn.
    pub remote_requests: u64,
    /// Requests of any datacenter that wait for a member that is away, and block no others meanwhile.
    pub parked: u64,
    /// Locks in the lock table: held, waited for, or used here a short time ago.
    pub locks_active: u64,
    /// Locks with parts that are not at their homes, in any datacenter.
    pub locks_moved: u64,
    /// Locks with parts here that have their homes in other datacenters; `max_away_locks` limits them.
    pub locks_away_here: u64,
    /// Entries of all logs that are not truncated here.
    pub log_entries: u64,
    /// Received entries that wait: for entries that they depend on, for their epoch, or because they are
    /// stamped too far ahead.
    pub held_back: u64,
    /// Transactions that are open, or wait for their locks or snapshot.
    pub transactions: u64,
    /// Watches of clients of this datacenter.
    pub watches: u64,
    /// Keys in the store.
    pub keys: u64,
    /// Approximate size of all values in bytes, as readers see them.
    pub value_bytes: u64,
    /// Changes that are kept apart from the values, because an open snapshot does not show them.
    pub uncompacted_changes: u64,
    /// Open snapshots: of transactions, of a checkpoint, of states that are being sent.
    pub snapshots: u64,
    /// Changes that left tombstones and are not compacted yet.
    pub tombstones_pending: u64,
    /// Keys that expire or are done.
    pub keys_expiring: u64,
    /// Commits whose answers wait for a majority.
    pub waiting_for_majority: u64,
    /// Requests that were granted here.
    pub grants: u64,
    /// Grants, included in `grants`, for which no other datacenter was asked.
    pub grants_local: u64,
    /// Held requests that ended, for any reason.
    pub releases: u64,
    /// Calls that were refused, or whose request ended without a grant.
    pub refusals: u64,
    /// Requests that were not granted in the time that their clients gave them.
    pub timeouts: u64,
    /// Waiting requests that their clients cancelled.
    pub cancels: u64,
    /// Leases that ended because they were not renewed, or not reclaimed, in time.
    pub leases_expired: u64,
    /// Parts that left for another datacenter, with idle returns.
    pub part_transfers_sent: u64,
    /// Parts that came from another datacenter, with idle returns and those read from the journal at a start.
    pub part_transfers_received: u64,
    /// Moves of locks, one or more parts each, to a datacenter that requested them.
    pub hand_offs_sent: u64,
    /// Moves of locks, one or more parts each, to this datacenter while a request for them waited.
    pub hand_offs_received: u64,
    /// Locks whose parts went back to their homes because nothing used them here for `idle_return_after`.
    pub idle_returns_age: u64,
    /// Locks whose parts went back to their homes because more than `max_away_locks` were here.
    pub idle_returns_number: u64,
    /// Locks whose other parts went back to their homes when a datacenter got its part for a shared request.
    pub idle_returns_shared: u64,
    /// Entries that this datacenter appended to its log.
    pub entries_made: u64,
    /// Entries that came from peers and were applied, also own ones that the disk had lost.
    pub entries_applied: u64,
    /// Entries of other datacenters that were sent on, one for each receiver.
    pub entries_relayed: u64,
    /// Entries that came from peers and were applied already.
    pub duplicates: u64,
    /// Violations of the protocol by peers. Each closed a link.
    pub violations: u64,
    /// Pauses of a link before an entry that is stamped too far ahead.
    pub skew_pauses: u64,
    /// Transactions with changes that were committed here.
    pub commits: u64,
    /// Removals of keys, by commits of any datacenter.
    pub removals: u64,
    /// Open transactions that their clients aborted, or whose first step was refused.
    pub aborts: u64,
    /// Transactions that the server aborted: open for too long, their locks lost, or their snapshot gone.
    pub transactions_killed: u64,
    /// Comparisons with another datacenter that began here.
    pub anti_entropy_rounds: u64,
    /// Comparisons of sums with a datacenter that had applied the same entries.
    pub digests_compared: u64,
    /// Differences that these comparisons found. Each needs an operator.
    pub digest_mismatches: u64,
    /// Transfers of rights of a bounded counter to a datacenter that asked for them.
    pub rights_transferred: u64,
    /// States that were sent to members that lack truncated entries.
    pub state_transfers_sent: u64,
    /// States of other datacenters that were installed here.
    pub state_transfers_received: u64,
    /// Keys that this datacenter ended because they had expired or were done.
    pub keys_expired: u64,
    /// Grants and releases that were not sent to a watch because its client reads too slowly.
    pub watch_events_dropped: u64,
    /// Requests that lost their locks to an operator.
    pub force_releases: u64,
    /// Calls that were refused because of overload; included in `refusals`.
    pub calls_shed: u64,
    /// Answers that waited for a majority in vain.
    pub commits_not_at_majority: u64,
}
