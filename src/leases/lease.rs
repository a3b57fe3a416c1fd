//! One lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finished::FinishedKeys;
use super::names_of_clients::ClientIndex;
use super::requests::{Keys, Requests};
use crate::base::tables::row_index;
use crate::base::time::Instant;
use geolock_api::names::{LeaseId, Secret};

/// A session: one connection of a client to this datacenter, such as a stream. Numbered by the edge, never
/// reused within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// A client, whatever its sessions: one certificate, one token, or one address with neither. The edge numbers
/// it, with the same number throughout a run and other numbers in another run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The client of leases of an earlier run that nobody has attached or reclaimed yet, and of calls that
    /// are no client's.
    pub const UNKNOWN: ClientId = ClientId(0);
}

/// The effect on a lease when the session closes that it is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnDisconnect {
    /// The lease lives on until its time to live is over; the client may attach it to another session.
    Keep,
    /// The lease ends at once.
    Release,
}

/// The proof that a lease belongs to the client of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// The client opened or attached the lease on the session of this call.
    Attached,
    /// The client knows the secret.
    Secret(Secret),
}

/// Index of a lease's row. It is reused after the lease ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct LeaseIndex(pub u32);

row_index!(LeaseIndex);

/// How long the grace period waits for the reclaim of a lease.
pub(super) struct Grace {
    pub ends: Instant,
    /// The latest end, however often the lease is renewed.
    pub latest: Instant,
}

/// A lease on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Its id.
    pub lease: LeaseId,
    /// Shows that a client owns it.
    pub secret: Secret,
    /// Its time to live. Its expiry is not on disk: after a restart its time begins again.
    pub ttl: Duration,
    /// The effect on it when its session closes.
    pub on_disconnect: OnDisconnect,
}

/// A lease: it ties a client to its datacenter, and its locks end with it.
pub(crate) struct Lease {
    pub id: LeaseId,
    pub secret: Secret,
    pub ttl: Duration,
    pub on_disconnect: OnDisconnect,
    pub session: Option<SessionId>,
    /// The row of the client that opened it, or came back to it first after a restart.
    pub(super) client: ClientIndex,
    pub expires: Instant,
    /// Time at which expiry is checked. A renewal changes `expires` only, so that it costs nothing.
    pub(super) scheduled: Instant,
    /// Set while the grace period waits for its reclaim: until that arrives or the lease ends.
    pub(super) grace: Option<Grace>,
    /// The lease is older than this process, and its client has not reclaimed since the start. It may hold
    /// any lock until its end is durable.
    pub unaccounted: bool,
    /// Its client got the validity of the lease in this run. After a restart the client relies on the
    /// validity from an earlier run.
    pub is_told: bool,
    /// Waiting and held requests.
    pub requests: Requests,
    pub waiting: usize,
    /// Sum of the lengths of the names of the locks that these want, in bytes.
    pub(super) names: usize,
    /// The requests in `requests` that have an idempotency key.
    pub keys: Keys,
    /// The keys under which nothing new may begin.
    pub finished: FinishedKeys,
}

impl Lease {
    pub fn record(&self) -> LeaseRecord {
        let Lease { id: lease, secret, ttl, on_disconnect, .. } = *self;
        LeaseRecord { lease, secret, ttl, on_disconnect }
    }
}
