//! The calls of clients to a datacenter, and the replies.

mod locks;
mod refusal;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::Wants;
use crate::crdt::VersionVector;
pub use crate::leases::{OnDisconnect, Proof, SessionId};
pub use crate::lock_state::Heat;
use crate::replica::force_release::{ForceRelease, ForceReleaseOutcome, ForceReleased};
use crate::replica::store_call::{Begin, NextStep, Read, Stepped};
use crate::replica::watch_call::Watch;
pub use geolock_api::names::IdempotencyKey;
use geolock_api::names::{FencingToken, LeaseId, LockName, RequestId, Secret};
pub use locks::{
    HolderInfo, HotLock, LockDescription, LockSummary, MAX_DESCRIBED, MAX_HOT_HOLDERS, WaiterInfo,
};
pub use refusal::{Limit, Refusal};
pub use status::{Acquires, Counts, PeerStatus, Phase, Status};

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
