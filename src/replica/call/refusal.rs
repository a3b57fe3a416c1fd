//! The reasons why calls of clients are refused.

use std::sync::Arc;
use std::time::Duration;

use super::{AnyOfError, LockDescription};
use crate::base::time::brief;
use crate::replica::NotServing;
use crate::replica::call::store::TxnRefusal;
use crate::replica::call::watch::WatchRefusal;
use crate::replica::clients::force_release::ForceReleased;
use geolock_api::names::{DcId, DcSet, IdempotencyKey, LeaseId, LockName, RequestId};

/// The reason why a call was refused. Each has one number in the client API.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum Refusal {
    #[error("lease {0} is not known here: it ended, or never was")]
    UnknownLease(LeaseId),
    #[error("lease {lease} was given by {dc}, not by this datacenter")]
    ForeignLease { lease: LeaseId, dc: DcId },
    /// Says nothing of the right secret.
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
    #[error("{lock} is none of the locks of request {request}")]
    NotOfRequest { lock: LockName, request: RequestId },
    /// It is granted or over, or one for all of its locks.
    #[error("the request with idempotency key {0} does not wait for enough of many locks: nothing to amend")]
    NotWaiting(IdempotencyKey),
    #[error("this is amendment {asked} of a request of which {known} are known: send those between first")]
    AmendmentMissing { known: u64, asked: u64 },
    /// The candidates as amended. The request waits for those of before.
    #[error("the amended request: {0}")]
    Candidates(#[from] AnyOfError),
    /// The call names other locks, or has other content, than the one that used the key before.
    #[error("idempotency key {0} was used for another request: use increasing keys")]
    IdempotencyKeyReused(IdempotencyKey),
    /// Nothing new may begin under this key: its request is over, was cancelled before it came, or a higher
    /// key of the lease was used.
    #[error("the request with idempotency key {0} is over: released, cancelled, timed out or refused")]
    IdempotencyKeyFinished(IdempotencyKey),
    /// An acquire with [`Wait::Try`](super::Wait::Try) would have to wait.
    #[error("not free in this datacenter at this moment (try)")]
    NotFree,
    /// The same while this datacenter does not serve yet, and says why.
    #[error("this datacenter {0}: acquire in another one, or wait")]
    NotServing(NotServing),
    /// The same of a request for enough locks.
    #[error("not enough is free in this datacenter at this moment (try): only {free}")]
    NotEnoughFree { free: u128 },
    /// The time of a request for enough locks is over.
    #[error("not granted in time: only {free} free")]
    NotEnoughInTime { locks: Vec<LockDescription>, free: u128 },
    /// The time of [`Wait::AtMost`](super::Wait::AtMost) is over. Describes some of the locks in the way.
    #[error("not granted in time")]
    TimedOut(Vec<LockDescription>),
    /// The reply to an acquire whose request was cancelled, or released before the grant was answered.
    #[error("cancelled by its client")]
    Cancelled,
    /// The reply to an acquire or a begin that was not answered yet.
    #[error("its lease ended while it waited")]
    LeaseEnded,
    #[error("this server shuts down: acquire in another one")]
    Draining,
    /// `retry_after`: when the client may try again.
    #[error("{limit} reached, retry in {}", brief(*.retry_after))]
    ResourceExhausted { limit: Limit, retry_after: Duration },
    #[error(
        "the disk of this server is full, or nearly: until there is room it opens no leases, commits nothing, and grants only \
         what is free here; reading goes on"
    )]
    DiskFull,
    #[error("lease {0} waits for no reclaim: the server did not restart since it was attached")]
    NoReclaimExpected(LeaseId),
    /// The request lost its locks to an operator.
    #[error("the request holds nothing any more: {0}")]
    ForceReleased(Arc<ForceReleased>),
    /// Members are evicted by time, and this one may be: a majority of the voters does not acknowledge it.
    #[error(
        "a majority of the voters does not acknowledge this datacenter: until one does it grants nothing and opens and renews \
         no lease, because it may be evicted; retry in {}", brief(*.retry_after)
    )]
    NotBacked { retry_after: Duration },
    /// A force release while so many leases may still reclaim locks.
    #[error(
        "this server has restarted and does not know yet who holds what: {0} leases have not come back; try again when its phase is serving"
    )]
    HoldersUnknown(usize),
    /// The call names a lock with a home, which not all members are known to understand.
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

/// A limit of `docs/algorithm/model.md#5-bounds` that a client can reach by load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Waiting requests of one lease.
    WaitingPerLease,
    /// Waiting requests of clients of this server.
    WaitingPerServer,
    /// Held requests of this server. The second and further locks of a request, held or waiting, count like
    /// requests.
    HeldPerServer,
    /// Leases of this server.
    Leases,
    /// Transactions that are open or waiting, and reads that wait.
    Transactions,
    /// Bytes kept for transactions and reads, see [`crate::replica::LocalConfig::max_transaction_bytes`].
    TransactionBytes,
    /// Commits whose outcome the client has not acknowledged.
    Outcomes,
    /// Memory of the names that watches follow.
    Watches,
    /// The server is far behind with the calls that it has received.
    Load,
    /// Bytes of the lock names of one lease.
    NamesPerLease,
    /// Bytes of the lock names of one client, over all its leases.
    NamesPerClient,
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
            Limit::NamesPerClient => {
                "the limit of what the lock names of a client take, over all its leases \
                 (limits.max_name_bytes_per_client), is"
            }
        })
    }
}
