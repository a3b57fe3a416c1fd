//! The calls of clients to a datacenter, and the replies.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::base::time::{Timestamp, brief};
use crate::causal_log::Wants;
use crate::crdt::VersionVector;
pub use crate::leases::{OnDisconnect, Proof, SessionId};
pub use crate::lock_state::Heat;
use crate::replica::NotServing;
use crate::replica::force_release::{ForceRelease, ForceReleaseOutcome, ForceReleased};
use crate::replica::store_call::{Begin, NextStep, Read, Stepped, TxnRefusal};
use crate::replica::watch_call::{Watch, WatchRefusal};
pub use geolock_api::names::IdempotencyKey;
use geolock_api::names::{DcId, DcSet, FencingToken, LeaseId, LockName, Mode, RequestId, Secret};

/// The address of a reply: the client's own number `tag` within a session. Each call gets exactly one reply,
/// except an acquire that is retried under the same idempotency key: then only the last call gets one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId {
    pub session: SessionId,
    pub tag: u64,
}

/// How long an acquire waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Is granted or refused at once with the parts that are here; sends nothing to another datacenter.
    Try,
    AtMost(Duration),
    Forever,
}

/// The name of a request of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Id(RequestId),
    Key(IdempotencyKey),
}

/// A call of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Opens a lease and attaches it to the session. Reply: [`Reply::LeaseOpened`].
    OpenLease { secret: Secret, ttl: Duration, on_disconnect: OnDisconnect },
    /// Attaches an existing lease to this session and renews it. Reply: [`Reply::LeaseAttached`].
    AttachLease { lease: LeaseId, secret: Secret },
    /// Renews a lease. Reply: [`Reply::Renewed`].
    KeepAlive { lease: LeaseId, proof: Proof },
    /// Ends a lease; releases and cancels all its requests. Reply: [`Reply::LeaseClosed`].
    CloseLease { lease: LeaseId, proof: Proof },
    /// Requests locks. Reply: [`Reply::Granted`] or a refusal, perhaps much later.
    Acquire(Acquire),
    /// Releases a held request. Reply: [`Reply::Released`].
    Release { lease: LeaseId, proof: Proof, target: Target },
    /// Cancels a waiting request (its acquire is refused with [`Refusal::Cancelled`]) or releases a held one.
    /// Reply: [`Reply::Released`].
    Cancel { lease: LeaseId, proof: Proof, target: Target },
    /// After a restart of the server: lists all that the client still holds under a lease. It also ends the
    /// lease's grace period. Reply: [`Reply::Reclaimed`].
    Reclaim { lease: LeaseId, proof: Proof, held: Vec<Reclaim> },
    /// Describes the holders and waiters of a lock. Reply: [`Reply::Described`], within a second.
    Describe { lock: LockName },
    /// Lists the locks that are held, waited for, or have parts away from home, in no order. Reply:
    /// [`Reply::Listed`].
    List { prefix: Vec<u8>, cursor: ListCursor, limit: usize },
    /// Lists the locks with the most waiting in this datacenter, at most `limit` of those whose name begins
    /// with `prefix`. Reply: [`Reply::Top`], within a second.
    Top { prefix: Vec<u8>, limit: usize },
    /// Returns the state of this datacenter. Reply: [`Reply::Status`].
    Status,
    /// Takes a lock from its holder in this datacenter. Reply: [`Reply::ForceReleased`], within a second.
    ForceRelease(ForceRelease),
    /// Lists the latest force releases. Reply: [`Reply::Audited`].
    Audit,
    /// Begins a transaction. Reply: [`Reply::Stepped`], when it is open.
    Begin(Begin),
    /// Makes a step of an open transaction. Reply: [`Reply::Stepped`].
    Step(NextStep),
    /// Reads keys outside of a transaction. Reply: [`Reply::Stepped`].
    Read(Read),
    /// Begins a watch. Reply: [`Reply::Watching`], then [`super::Notice::Changed`] for every commit or
    /// [`super::Notice::Lock`] for every change of locks, and [`super::Notice::Progress`] from time to time.
    Watch(Watch),
    /// Ends the watch that the call with this tag began. Reply: [`Reply::Unwatched`].
    Unwatch { watch: u64 },
    /// The client has read `weight` of the holder events of this watch
    /// ([`LockEvent::weight`](super::watch_call::LockEvent::weight)). Reply: [`Reply::WatchTaken`].
    WatchTaken { watch: u64, weight: usize },
}

/// The arguments of [`Call::Acquire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    pub lease: LeaseId,
    pub proof: Proof,
    pub key: Option<IdempotencyKey>,
    pub wants: Wants,
    pub wait: Wait,
    /// Free text that names the client for people. At most [`geolock_api::names::MAX_LABEL`] bytes.
    pub label: Arc<str>,
}

/// A grant that a client claims to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaim {
    pub request: RequestId,
    pub key: Option<IdempotencyKey>,
    pub wants: Wants,
    pub token: FencingToken,
    pub label: Arc<str>,
}

/// The place at which a listing resumes; the default is its start. Opaque to clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ListCursor(pub u64);

/// The reply to a [`Call`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    LeaseOpened {
        lease: LeaseId,
        ttl: Duration,
    },
    /// `reclaim`: the server has restarted since and waits for a [`Call::Reclaim`].
    LeaseAttached {
        ttl: Duration,
        reclaim: bool,
    },
    Renewed {
        ttl: Duration,
    },
    LeaseClosed,
    Granted(Grant),
    Released,
    /// The requests in `lost` are no longer held: another client may hold their locks.
    Reclaimed {
        kept: Vec<RequestId>,
        lost: Vec<RequestId>,
    },
    Described(Box<LockDescription>),
    /// `next`: where the listing resumes, `None` at the end.
    Listed {
        locks: Vec<LockSummary>,
        next: Option<ListCursor>,
    },
    /// The hottest lock first.
    Top(Vec<HotLock>),
    Status(Box<Status>),
    ForceReleased(Box<ForceReleaseOutcome>),
    /// The latest force releases, oldest first.
    Audited(Vec<Arc<ForceReleased>>),
    Stepped(Box<Stepped>),
    Watching {
        from: VersionVector,
    },
    Unwatched,
    WatchTaken,
    /// Nothing was changed, or the request has ended.
    Refused(Refusal),
}

/// A request that holds all its locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    pub request: RequestId,
    pub token: FencingToken,
    /// Contains everything that was committed under these locks before.
    pub snapshot: Arc<VersionVector>,
}

/// The reason why a call was refused. Each has one number in the client API.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("lease {0} is not known here: it ended, or never was")]
    UnknownLease(LeaseId),
    #[error("lease {lease} was given by {dc}, not by this datacenter")]
    ForeignLease { lease: LeaseId, dc: DcId },
    #[error("the secret is not that of lease {0}")]
    WrongSecret(LeaseId),
    #[error("lease {0} is not attached to this stream: attach it with its secret first")]
    NotAttached(LeaseId),
    #[error("a lease lives {} to {}, {} was asked for", brief(*.min), brief(*.max), brief(*.asked))]
    TtlOutOfRange { asked: Duration, min: Duration, max: Duration },
    #[error("a label has at most {max} bytes, this one has {len}")]
    LabelTooLong { len: usize, max: usize },
    #[error("this lease never held that request")]
    NotHeld,
    #[error("idempotency key {0} was used for another request: use increasing keys")]
    IdempotencyKeyReused(IdempotencyKey),
    #[error("the request with idempotency key {0} is over: released, cancelled, timed out or refused")]
    IdempotencyKeyFinished(IdempotencyKey),
    #[error("not free in this datacenter at this moment (try)")]
    NotFree,
    #[error("not granted in time")]
    TimedOut(Vec<LockDescription>),
    #[error("cancelled by its client")]
    Cancelled,
    #[error("its lease ended while it waited")]
    LeaseEnded,
    #[error("this server shuts down: acquire in another one")]
    Draining,
    #[error("{limit} reached, retry in {}", brief(*.retry_after))]
    ResourceExhausted { limit: Limit, retry_after: Duration },
    #[error(
        "the disk of this server is full, or nearly: until there is room it opens no leases, commits nothing, and grants only \
         what is free here; reading goes on"
    )]
    DiskFull,
    #[error("lease {0} waits for no reclaim: the server did not restart since it was attached")]
    NoReclaimExpected(LeaseId),
    #[error("the request holds nothing any more: {0}")]
    ForceReleased(Arc<ForceReleased>),
    #[error(
        "this server has restarted and does not know yet who holds what: {0} leases have not come back; try again when its phase is serving"
    )]
    HoldersUnknown(usize),
    #[error(
        "not yet: this needs version {needs} of the protocol between datacenters, and {behind:?} were not heard to speak \
         it: wait until all datacenters run a release that does, and were up since"
    )]
    NotYet { needs: u16, behind: DcSet },
    #[error("the home of a lock is a member of the cluster: {home} is none, {members:?} are")]
    UnknownHome { home: DcId, members: DcSet },
    #[error(transparent)]
    Transaction(#[from] TxnRefusal),
    #[error(transparent)]
    Watch(#[from] WatchRefusal),
}

/// A limit of `docs/algorithm.md#121-bounds` that a client can reach by load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    WaitingPerLease,
    WaitingPerServer,
    HeldPerServer,
    Leases,
    Transactions,
    /// Bytes that open transactions keep for their changes, and waiting ones for their reads.
    TransactionBytes,
    /// Commits whose outcome the client has not acknowledged.
    Outcomes,
    /// Memory of the names that watches follow.
    Watches,
    /// The server is far behind with the calls that it has received.
    Load,
    /// Bytes of the lock names of one lease.
    NamesPerLease,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::WaitingPerLease => "the limit of waiting requests of a lease is",
            Limit::WaitingPerServer => "the limit of waiting requests of a server is",
            Limit::HeldPerServer => {
                "the limit of held requests of a server, with the further locks of all, is"
            }
            Limit::Leases => "the limit of leases of a server is",
            Limit::Transactions => "the limit of open transactions of a server is",
            Limit::TransactionBytes => "the limit of what open transactions of a server keep is",
            Limit::Outcomes => "the limit of commits that a client has not settled is",
            Limit::Watches => "the limit of what watches of a server follow is",
            Limit::Load => "the limit of what a server can do at a time is",
            Limit::NamesPerLease => "the limit of what the lock names of a lease take is",
        })
    }
}

/// The reason why a request waits: one lock as this datacenter sees it, with the holders that other
/// datacenters reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockDescription {
    pub lock: LockName,
    /// The parts with their owners, by home.
    pub owners: Vec<(DcId, DcId)>,
    /// Holders here and elsewhere, by datacenter.
    pub holders: Vec<HolderInfo>,
    /// Datacenters that own parts and did not report their holders in time.
    pub unknown: DcSet,
    /// In the order in which they are served, at most [`MAX_DESCRIBED`].
    pub waiters: Vec<WaiterInfo>,
    /// Number of all waiters.
    pub waiting: usize,
    /// Owners of parts that are unreachable from here.
    pub unreachable: DcSet,
    /// Owners of parts that are reachable and do not serve. Contains this datacenter if it does not serve.
    pub not_serving: Vec<(DcId, NotServing)>,
}

/// Most holders and most waiters that a description lists for a lock.
pub const MAX_DESCRIBED: usize = 100;

/// A holder of a lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HolderInfo {
    pub dc: DcId,
    pub request: RequestId,
    pub mode: Mode,
    pub token: FencingToken,
    pub label: Arc<str>,
    /// How long it has held the lock, as measured where it is held.
    pub held_for: Duration,
}

/// A waiter for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterInfo {
    pub request: RequestId,
    pub at: Timestamp,
    pub mode: Mode,
    /// Known for requests of this datacenter only.
    pub label: Option<Arc<str>>,
    /// It waits for a datacenter that is unreachable or does not serve, and stops no other request meanwhile.
    pub parked: bool,
}

/// A line of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSummary {
    pub lock: LockName,
    /// The parts owned here.
    pub owned_parts: DcSet,
    /// Number of holders in this datacenter.
    pub holders: usize,
    pub held: Option<Mode>,
    /// Number of waiting requests of all datacenters, as known here.
    pub waiting: usize,
}

/// A lock with waiters, and how contended it is. Times are by this datacenter's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotLock {
    /// Describes the first waiter only, and at most [`MAX_HOT_HOLDERS`] holders.
    pub lock: LockDescription,
    /// Number of holders in this datacenter.
    pub local_holders: usize,
    /// How long the first waiter has waited.
    pub head_wait: Duration,
    pub heat: Heat,
    /// How long ago [`Heat::since`] was.
    pub tracked: Duration,
}

/// Most holders that a [`HotLock`] describes.
pub const MAX_HOT_HOLDERS: usize = 10;

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
