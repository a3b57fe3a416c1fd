//! The calls of clients to a datacenter, and the replies.

pub mod store;
pub mod watch;

mod locks;
mod refusal;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::Wants;
use crate::crdt::VersionVector;
pub use crate::leases::{ClientId, OnDisconnect, Proof, SessionId};
pub use crate::lock_state::{AnyOf, AnyOfError, Heat};
use crate::replica::Decision;
use crate::replica::call::store::{Begin, NextStep, Read, Stepped};
use crate::replica::call::watch::Watch;
use crate::replica::clients::force_release::{ForceRelease, ForceReleaseOutcome, ForceReleased};
use geolock_api::keys::Key;
pub use geolock_api::names::IdempotencyKey;
use geolock_api::names::{FencingToken, LeaseId, LockName, RequestId, Secret};
pub use locks::{
    HolderInfo, HotLock, LockDescription, LockSummary, MAX_DESCRIBED, MAX_HOT_HOLDERS, WaiterInfo,
};
pub use refusal::{Limit, Refusal};
pub use status::{Acquires, AtStake, Counts, MembersStatus, PeerStatus, Phase, Status, WitnessStatus};

/// The address of a reply. Each call of an open session gets exactly one reply, except an acquire or a begin
/// that is repeated under its idempotency key while it waits: then only the last call gets one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId {
    /// The session on which the call came.
    pub session: SessionId,
    /// The client's own number, not reused while the call is unanswered or the watch that it began lasts.
    pub tag: u64,
}

/// How long an acquire waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Is granted or refused at once with the parts that are here; sends nothing to another datacenter.
    Try,
    /// Is refused with [`Refusal::TimedOut`] if it is not granted within this time.
    AtMost(Duration),
    /// Waits until it is granted or cancelled, or its lease ends.
    Forever,
}

/// The name of a request of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The id, as the grant names it.
    Id(RequestId),
    /// The idempotency key of its acquire. Also names a request whose id the client never received.
    Key(IdempotencyKey),
}

/// A call of a client. In all variants `lease` is the lease under which the client calls, and `proof` or
/// `secret` shows that the lease is its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Call {
    /// Opens a lease with a time to live of `ttl`, from [`super::MIN_LEASE_TTL`] to
    /// [`super::LocalConfig::max_lease_ttl`], and attaches it to the session. `None`: 10 s, or
    /// as long as this datacenter permits if that is shorter. The edge makes `secret`.
    /// `on_disconnect`: the effect on the lease when the session closes. Reply: [`Reply::LeaseOpened`].
    OpenLease { secret: Secret, ttl: Option<Duration>, on_disconnect: OnDisconnect },
    /// Attaches an existing lease to this session and renews it. Reply: [`Reply::LeaseAttached`].
    AttachLease { lease: LeaseId, secret: Secret },
    /// Renews a lease. Reply: [`Reply::Renewed`].
    KeepAlive { lease: LeaseId, proof: Proof },
    /// Ends a lease; releases and cancels all its requests. Reply: [`Reply::LeaseClosed`].
    CloseLease { lease: LeaseId, proof: Proof },
    /// Requests locks. Reply: [`Reply::Granted`] or a refusal, perhaps much later.
    Acquire(Acquire),
    /// Requests enough of many locks. Reply: [`Reply::Chosen`] or a refusal, perhaps much later.
    AcquireEnough(Box<AcquireEnough>),
    /// Releases a held request, `target`; succeeds again if it is released already. Reply:
    /// [`Reply::Released`].
    Release { lease: LeaseId, proof: Proof, target: Target },
    /// Ends the request `target`: cancels a waiting one (its acquire is refused with [`Refusal::Cancelled`])
    /// or releases a held one. By key it may come before its acquire, which is refused then. Reply:
    /// [`Reply::Released`].
    Cancel { lease: LeaseId, proof: Proof, target: Target },
    /// Changes the candidates of a request for enough locks that waits, in its place. One whose number is not
    /// above that of an earlier one changes nothing. Reply: [`Reply::Amended`].
    Amend(Box<Amend>),
    /// Makes an exclusive hold a shared one. Reply: [`Reply::Downgraded`].
    Downgrade(Downgrade),
    /// After a restart of the server: lists in `held` all that the client still holds under a lease. It also
    /// ends the lease's grace period. Reply: [`Reply::Reclaimed`].
    Reclaim { lease: LeaseId, proof: Proof, held: Vec<Reclaim> },
    /// Describes the holders and waiters of a lock. Reply: [`Reply::Described`], within a second.
    Describe { lock: LockName },
    /// Lists the locks that are held, waited for, or have parts away from home, in no order: at most `limit`
    /// (1 to 1000) of those whose name begins with `prefix`, from `cursor` on. Reply: [`Reply::Listed`].
    List { prefix: Vec<u8>, cursor: ListCursor, limit: usize },
    /// Lists the keys that have a value here at present, in no order: at most `limit` (1 to 1000) of those
    /// that begin with `prefix`, which is a bucket and the beginning of a name
    /// ([`Key::prefix_bytes`](geolock_api::keys::Key::prefix_bytes)), from `cursor` on. Reply:
    /// [`Reply::KeysListed`].
    ListKeys { prefix: Arc<[u8]>, cursor: ListCursor, limit: usize },
    /// Lists the locks with the most waiting in this datacenter, at most `limit` (1 to 100) of those whose
    /// name begins with `prefix`. Reply: [`Reply::Top`], within a second.
    Top { prefix: Vec<u8>, limit: usize },
    /// Returns the state of this datacenter. Reply: [`Reply::Status`].
    Status,
    /// Takes a lock from its holder in this datacenter. Reply: [`Reply::ForceReleased`], within a second.
    ForceRelease(ForceRelease),
    /// Lists the latest force releases. Reply: [`Reply::Audited`].
    Audit,
    /// Lists the latest decisions about the members. Reply: [`Reply::Decisions`].
    Decisions,
    /// Begins a transaction. Reply: [`Reply::Stepped`], when it is open.
    Begin(Begin),
    /// Makes a step of an open transaction. Reply: [`Reply::Stepped`].
    Step(NextStep),
    /// Reads keys outside of a transaction. Reply: [`Reply::Stepped`].
    Read(Read),
    /// Begins a watch. Reply: [`Reply::Watching`], then [`super::Notice::Changed`] for every commit or
    /// [`super::Notice::Lock`] for every change of locks, and [`super::Notice::Progress`] from time to time.
    Watch(Watch),
    /// Ends the watch that the call with the tag `watch` began on this session. Reply: [`Reply::Unwatched`].
    Unwatch { watch: u64 },
    /// The client has read `weight` bytes more of the holder events of a watch, named as in
    /// [`Call::Unwatch`] ([`LockEvent::weight`](crate::replica::call::watch::LockEvent::weight)). Reply:
    /// [`Reply::WatchTaken`].
    WatchTaken { watch: u64, weight: usize },
}

/// The arguments of [`Call::Acquire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// The lease that is to hold the locks.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// Names the request, so that a repeated acquire is the same request. `None`: only its id names it.
    pub key: Option<IdempotencyKey>,
    /// The locks that it is to hold.
    pub request: LockRequest,
}

/// The arguments of [`Call::AcquireEnough`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireEnough {
    /// The lease that is to hold the locks.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// As in [`Acquire::key`].
    pub key: Option<IdempotencyKey>,
    /// The candidates, and the amount that they have to reach.
    pub of: Arc<AnyOf>,
    /// The number of the last amendment that this list contains; 0: it is the first list.
    pub revision: u64,
    /// How long the request waits.
    pub wait: Wait,
    /// As in [`LockRequest::label`].
    pub label: Arc<str>,
}

/// The arguments of [`Call::Amend`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Amend {
    /// The lease under which the request waits.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// Names the request.
    pub key: IdempotencyKey,
    /// The number of this amendment: one above that of the one before, the first one is 1.
    pub revision: u64,
    /// Further candidates with their weights, behind the others.
    pub add: Vec<(LockName, u64)>,
    /// The candidates that it is not to get any more.
    pub drop: Vec<LockName>,
}

/// Returns about how many bytes these candidates take while a call waits.
fn candidates_weight<'a>(names: impl Iterator<Item = &'a LockName>) -> usize {
    names.map(|name| 40 + name.as_bytes().len()).sum()
}

impl AcquireEnough {
    /// Returns about how many bytes its candidates take while it waits.
    pub fn weight(&self) -> usize {
        candidates_weight(self.of.names())
    }
}

impl Amend {
    /// Returns about how many bytes its candidates take while it waits.
    pub fn weight(&self) -> usize {
        candidates_weight(self.add.iter().map(|(name, _)| name).chain(&self.drop))
    }
}

/// The arguments of [`Call::Downgrade`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Downgrade {
    /// The lease that holds the lock.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// The request that holds it, and perhaps others.
    pub target: Target,
    /// The lock, which is held shared from now on.
    pub lock: LockName,
}

/// The locks that an acquire or a transaction requests: it gets all of them or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// The locks, with their modes.
    pub wants: Wants,
    /// How long the request waits for them.
    pub wait: Wait,
    /// Free text that names the client for people. At most [`geolock_api::names::MAX_LABEL`] bytes.
    pub label: Arc<str>,
}

/// A grant that a client claims to hold. It is kept if this datacenter can have made it and still has the
/// parts, and if no conflicting holder has a higher token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaim {
    /// The id of the request, as its grant named it.
    pub request: RequestId,
    /// The idempotency key of its acquire, if it had one.
    pub key: Option<IdempotencyKey>,
    /// All locks of the request.
    pub wants: Wants,
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// As in [`LockRequest::label`].
    pub label: Arc<str>,
}

/// The place at which a listing resumes; the default is its start. Opaque to clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ListCursor(pub u64);

/// The reply to a [`Call`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Reply {
    /// The lease is open, durably. `ttl` is its time to live.
    LeaseOpened { lease: LeaseId, ttl: Duration },
    /// The lease is attached to the session. `ttl`: as in [`Reply::Renewed`]. `reclaim`: the server has
    /// restarted and waits for a [`Call::Reclaim`].
    LeaseAttached { ttl: Duration, reclaim: bool },
    /// The lease is valid for `ttl` from the call on: its time to live, or less while a reclaim is expected.
    Renewed { ttl: Duration },
    /// The lease has ended, durably.
    LeaseClosed,
    /// The locks are held.
    Granted(Grant),
    /// Enough locks are held.
    Chosen(Box<Chosen>),
    /// The request holds nothing and waits for nothing.
    Released,
    /// The request waits for the amended candidates, or for those of a later amendment.
    Amended,
    /// The lock is held shared, now or since before, with the token of its grant.
    Downgraded,
    /// The requests in `kept` are held, as before the restart. Those in `lost` are no longer held: another
    /// client may hold their locks.
    Reclaimed { kept: Vec<RequestId>, lost: Vec<RequestId> },
    /// The holders and waiters of the lock.
    Described(Box<LockDescription>),
    /// A page of a listing; it may be empty before the end. `next`: where the listing resumes, `None` at the
    /// end.
    Listed { locks: Vec<LockSummary>, next: Option<ListCursor> },
    /// A page of keys, as [`Reply::Listed`] is one of locks.
    KeysListed { keys: Vec<Key>, next: Option<ListCursor> },
    /// The hottest lock first.
    Top(Vec<HotLock>),
    /// The state of this datacenter.
    Status(Box<Status>),
    /// The requests that lost their locks, durably, and the holders elsewhere.
    ForceReleased(Box<ForceReleaseOutcome>),
    /// The latest force releases, oldest first, at most
    /// [`MAX_AUDITED`](crate::replica::force_release::MAX_AUDITED).
    Audited(Vec<Arc<ForceReleased>>),
    /// The latest decisions about the members, oldest first, at most [`super::MAX_LISTED`].
    Decisions(Vec<Decision>),
    /// A step of a transaction was made, or keys were read.
    Stepped(Box<Stepped>),
    /// The watch has begun: it reports the changes that are not in the vector `from`.
    Watching { from: VersionVector },
    /// The watch has ended, now or before.
    Unwatched,
    /// The weight is subtracted from the unread bytes of the watch.
    WatchTaken,
    /// Nothing was changed, or the request has ended.
    Refused(Refusal),
}

/// A request that holds enough of many locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The grant of these locks.
    pub grant: Grant,
    /// The candidates that it holds, by their places in the list, in order.
    pub chosen: Vec<u32>,
    /// The sum of their weights.
    pub sum: u128,
    /// The number of the last amendment of the list.
    pub revision: u64,
}

/// A request that holds all its locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The id of the request.
    pub request: RequestId,
    /// One token for all locks of the request, above that of every earlier conflicting grant.
    pub token: FencingToken,
    /// The durable vector when the reply was emitted. Contains everything that was committed under these
    /// locks before.
    pub snapshot: Arc<VersionVector>,
}
