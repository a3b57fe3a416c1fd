//! What clients ask of a datacenter and what they are told.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::histogram::Histogram;
pub use crate::leases::{OnDisconnect, Proof, SessionId};
pub use crate::lock_state::Heat;
pub use crate::names::ClientKey;
use crate::names::{DcId, DcSet, FencingToken, LeaseId, LockName, Mode, RequestId, Secret};
use crate::replica::NotServing;
use crate::replica::forced::{Force, ForceOutcome, Forced};
use crate::replica::store_call::{Begin, GoOn, Look, Stepped, TxnRefusal};
use crate::replica::watch_call::{Watch, WatchRefusal};
use crate::room::{Load, Room};
use crate::time::{Timestamp, brief};

/// Where a reply goes: the client's own number `tag` within a session. A call gets exactly one reply, except
/// an acquire that is retried under the same client key: only its last call is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId {
    pub session: SessionId,
    pub tag: u64,
}

/// How long an acquire waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Answered at once from this datacenter's own parts; never sends anything to another datacenter.
    Try,
    AtMost(Duration),
    Forever,
}

/// Names a request of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Id(RequestId),
    Key(ClientKey),
}

/// A client call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Answer: [`Reply::LeaseOpened`]. The lease is attached to the session.
    OpenLease { secret: Secret, ttl: Duration, on_disconnect: OnDisconnect },
    /// Goes on with a lease on this session. Also renews it. Answer: [`Reply::LeaseAttached`].
    AttachLease { lease: LeaseId, secret: Secret },
    /// Answer: [`Reply::Renewed`].
    KeepAlive { lease: LeaseId, proof: Proof },
    /// Releases and cancels all that the lease has. Answer: [`Reply::LeaseClosed`].
    CloseLease { lease: LeaseId, proof: Proof },
    /// Answer: [`Reply::Granted`] or a refusal, perhaps much later.
    Acquire(Acquire),
    /// Releases a held request. Answer: [`Reply::Released`].
    Release { lease: LeaseId, proof: Proof, target: Target },
    /// Cancels a waiting request (its acquire is answered [`Refusal::Cancelled`]), releases a held one.
    /// Answer: [`Reply::Released`].
    Cancel { lease: LeaseId, proof: Proof, target: Target },
    /// After a restart of the server: all that the client still holds under a lease, which also ends the
    /// lease's part of the grace period. Answer: [`Reply::Reclaimed`].
    Reclaim { lease: LeaseId, proof: Proof, held: Vec<Reclaim> },
    /// Answer: [`Reply::Described`], within a second.
    Describe { lock: LockName },
    /// Locks that are held, waited for, or have parts away from home; in no order. Answer: [`Reply::Listed`].
    List { prefix: Vec<u8>, cursor: ListCursor, limit: usize },
    /// The locks that are waited for most in this datacenter; of those that begin with `prefix` at most `limit`.
    /// Answer: [`Reply::Top`], within a second.
    Top { prefix: Vec<u8>, limit: usize },
    /// Answer: [`Reply::Status`].
    Status,
    /// Takes a lock from whoever holds it in this datacenter. Answer: [`Reply::Forced`], within a second.
    ForceRelease(Force),
    /// What was taken from whom, lately. Answer: [`Reply::Audited`].
    Audit,
    /// Answer: [`Reply::Stepped`], when it is open.
    Begin(Begin),
    /// Answer: [`Reply::Stepped`].
    GoOn(GoOn),
    /// Answer: [`Reply::Stepped`].
    Look(Look),
    /// Answer: [`Reply::Watching`], then [`super::Notice::Changed`] for every commit or [`super::Notice::Lock`] for what
    /// happens to locks, and [`super::Notice::Reached`] from time to time.
    Watch(Watch),
    /// Ends the watch that the call with this tag began. Answer: [`Reply::Unwatched`].
    Unwatch { watch: u64 },
    /// The client of this watch has read so much of what it was told of holders
    /// ([`LockEvent::weight`](super::watch_call::LockEvent::weight)). Answer: [`Reply::WatchTaken`].
    WatchTaken { watch: u64, weight: usize },
}

/// See [`Call::Acquire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    pub lease: LeaseId,
    pub proof: Proof,
    pub key: Option<ClientKey>,
    pub wants: Wants,
    pub wait: Wait,
    /// Free text for people: who. At most [`crate::names::MAX_LABEL`] bytes.
    pub label: Arc<str>,
}

/// A grant that a client says it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaim {
    pub request: RequestId,
    pub key: Option<ClientKey>,
    pub wants: Wants,
    pub token: FencingToken,
    pub label: Arc<str>,
}

/// Where a listing goes on; the default is its start. Opaque to clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ListCursor(pub u64);

/// The answer to a [`Call`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    LeaseOpened {
        lease: LeaseId,
        ttl: Duration,
    },
    /// `reclaim`: the server restarted since; it waits for a [`Call::Reclaim`].
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
    /// Those in `lost` are no longer held: somebody else may hold them.
    Reclaimed {
        kept: Vec<RequestId>,
        lost: Vec<RequestId>,
    },
    Described(Box<LockDescription>),
    /// `next`: where to go on, `None` at the end.
    Listed {
        locks: Vec<LockSummary>,
        next: Option<ListCursor>,
    },
    /// The hottest first.
    Top(Vec<HotLock>),
    Status(Box<Status>),
    Forced(Box<ForceOutcome>),
    /// The last ones, the latest last.
    Audited(Vec<Arc<Forced>>),
    Stepped(Box<Stepped>),
    Watching {
        from: VersionVector,
    },
    Unwatched,
    WatchTaken,
    /// Nothing was changed, or the request is over.
    Refused(Refusal),
}

/// A request that holds all its locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    pub request: RequestId,
    pub token: FencingToken,
    /// Everything that was committed under these locks so far is in it.
    pub snapshot: Arc<VersionVector>,
}

/// Why a call was refused. Each has one number in the client API.
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
    #[error("client key {0} was used for another request: use increasing keys")]
    KeyReused(ClientKey),
    #[error("the request with client key {0} is over: released, cancelled, timed out or refused")]
    KeyFinished(ClientKey),
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
    ForcedOut(Arc<Forced>),
    #[error(
        "this server has restarted and does not know yet who holds what: {0} leases have not come back; try again when its phase is serving"
    )]
    HoldersUnknown(usize),
    #[error(transparent)]
    Transaction(#[from] TxnRefusal),
    #[error(transparent)]
    Watch(#[from] WatchRefusal),
}

/// A limit of `docs/algorithm.md#121-bounds` that a client can run into by load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    WaitingPerLease,
    WaitingPerServer,
    HeldPerServer,
    Leases,
    Transactions,
    /// What open transactions want to change, and what those that wait want to read.
    TransactionBytes,
    /// Commits whose client does not say that it knows of them.
    Outcomes,
    /// What watches follow.
    Watches,
    /// The server is far behind with what it has read.
    Load,
    /// What the locks' names of one lease take.
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

/// Why a wait waits: one lock as this datacenter sees it, with what others said of their holders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockDescription {
    pub lock: LockName,
    /// The owner of every part, by the part's number.
    pub owners: Vec<(DcId, DcId)>,
    /// Holders here and elsewhere, by datacenter.
    pub holders: Vec<HolderInfo>,
    /// Datacenters that own parts and did not say in time who holds the lock there.
    pub unknown: DcSet,
    /// In the order in which they are served; at most [`MAX_DESCRIBED`] of them.
    pub waiters: Vec<WaiterInfo>,
    /// How many wait in all.
    pub waiting: usize,
    /// Owners of parts that cannot be reached from here.
    pub unreachable: DcSet,
    /// Owners of parts that are there and do not serve; also this datacenter, if it does not.
    pub not_serving: Vec<(DcId, NotServing)>,
}

/// Most holders and waiters that a description lists for a lock.
pub const MAX_DESCRIBED: usize = 100;

/// Who holds a lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HolderInfo {
    pub dc: DcId,
    pub request: RequestId,
    pub mode: Mode,
    pub token: FencingToken,
    pub label: Arc<str>,
    /// For how long, as measured where it is held.
    pub held_for: Duration,
}

/// Who waits for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterInfo {
    pub request: RequestId,
    pub at: Timestamp,
    pub mode: Mode,
    /// Known for requests of this datacenter only.
    pub label: Option<Arc<str>>,
    /// It waits for a datacenter that cannot be reached or does not serve, and stops nobody meanwhile.
    pub parked: bool,
}

/// A line of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSummary {
    pub lock: LockName,
    /// The parts owned here.
    pub parts_here: DcSet,
    /// Holders in this datacenter.
    pub holders: usize,
    pub held: Option<Mode>,
    /// Requests of all datacenters that wait, as far as known here.
    pub waiting: usize,
}

/// A lock that is waited for, and how much; times by this datacenter's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotLock {
    /// With the first waiter only, and at most [`MAX_HOT_HOLDERS`] holders.
    pub lock: LockDescription,
    /// How many hold it in this datacenter.
    pub holders_here: usize,
    /// How long the first waiter has waited.
    pub first_waits: Duration,
    pub heat: Heat,
    /// How long ago [`Heat::since`] was.
    pub seen_for: Duration,
}

/// See [`HotLock`].
pub const MAX_HOT_HOLDERS: usize = 10;

/// How long requests of clients of this datacenter waited, from the acquire to the answer on its way out; from the moments
/// at which the machine took either up, so that who is granted within one step waited for 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Acquires {
    /// Granted with the parts that were here.
    pub local: Histogram,
    /// Another datacenter had to be asked.
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
    /// On the disk of its journal.
    pub room: Room,
    pub load: Load,
    pub applied: VersionVector,
    pub durable: VersionVector,
    pub peers: Vec<PeerStatus>,
    pub counts: Counts,
    pub acquires: Acquires,
}

/// What a datacenter does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Just restarted: waits out the clock readings it may have handed out before.
    Starting,
    /// Some member is still to say how much it has of this datacenter's log (a new data directory waits for all of them, a
    /// restart for `peer_timeout` at most), or has more of it than is here: that is fetched before anything is written.
    ReadOnly,
    /// Waits for the clients of before the restart to reclaim their locks; that many leases are missing.
    Grace {
        leases: usize,
    },
    Serving,
    /// The log of `dc` is not the same everywhere from its entry `seq` on, or before: a directory went on from an older disk. Reads
    /// only, until people have decided which history is kept.
    Forked {
        dc: DcId,
        seq: u64,
    },
}

/// A peer as seen from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    pub dc: DcId,
    /// There is a link.
    pub linked: bool,
    /// It is known to live, by whatever path.
    pub reachable: bool,
    /// What it said to have, durably.
    pub acknowledged: VersionVector,
    /// Entries here that it has not acknowledged, but for its own.
    pub lag: u64,
    /// How long ago the oldest of these that is durable became that, in ms, at most since the start of this process; 0 if
    /// it has all. A peer acknowledges with its heartbeats.
    pub lag_ms: u64,
    /// Entries that it has durably, as it said, and that are not applied here.
    pub lacking: u64,
    /// It lacks what is not kept here any more: it gets a state transfer.
    pub too_far_behind: bool,
    /// Its clock less ours when last heard, in ms.
    pub clock_ahead_ms: i64,
    /// An entry stamped too far ahead waits before the link.
    pub paused_by_skew: bool,
    /// It is there and hands nothing over: why.
    pub not_serving: Option<NotServing>,
}

/// Plain counters and gauges since the start of the process; published by the edge.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    // gauges
    pub leases: u64,
    pub held: u64,
    pub waiting: u64,
    pub published: u64,
    pub remote_requests: u64,
    pub parked: u64,
    pub locks_active: u64,
    pub locks_moved: u64,
    pub log_entries: u64,
    pub held_back: u64,
    pub transactions: u64,
    pub watches: u64,
    pub keys: u64,
    pub value_bytes: u64,
    pub effects: u64,
    pub snapshots: u64,
    pub unsettled: u64,
    pub keys_mortal: u64,
    // counters
    pub grants: u64,
    pub grants_local: u64,
    pub releases: u64,
    pub refusals: u64,
    pub timeouts: u64,
    pub cancels: u64,
    pub leases_expired: u64,
    pub transfers_sent: u64,
    pub transfers_received: u64,
    pub hand_offs_sent: u64,
    pub hand_offs_received: u64,
    /// Locks of which parts went back to where they belong because nobody used them here.
    pub gone_home: u64,
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
    pub rights_moved: u64,
    pub states_given: u64,
    pub states_taken: u64,
    pub keys_lapsed: u64,
    pub watch_news_lost: u64,
    pub forced_releases: u64,
    pub shed: u64,
}
