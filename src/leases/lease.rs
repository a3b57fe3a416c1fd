//! One lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finished::FinishedKeys;
use super::requests::{Keys, Requests};
use crate::names::{LeaseId, Secret};
use crate::time::Instant;

/// One conversation of a client with this datacenter, such as a stream. Numbered by the edge, never reused
/// within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What happens to a lease when the session it is attached to closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnDisconnect {
    /// It lives on until its time to live is over; the client may come back on another session.
    Keep,
    /// It ends at once.
    Release,
}

/// How a client shows that a lease is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It opened or attached the lease on the session that this call came by.
    Attached,
    /// It knows the secret.
    Secret(Secret),
}

/// The row of a lease. Reused after the lease ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct LeaseIndex(pub u32);

/// How long the grace period waits for the reclaim of a lease.
pub(super) struct Grace {
    pub ends: Instant,
    /// However often it is renewed.
    pub latest: Instant,
}

/// See the module.
pub(crate) struct Lease {
    pub id: LeaseId,
    pub secret: Secret,
    pub ttl: Duration,
    pub on_disconnect: OnDisconnect,
    pub session: Option<SessionId>,
    pub expires: Instant,
    /// When it is looked at for expiry; a renewal moves `expires` only, so that it costs nothing.
    pub(super) scheduled: Instant,
    /// While the grace period waits for its reclaim: until that comes or the lease is ended.
    pub(super) grace: Option<Grace>,
    /// It is older than this process, and its client has not said since what it holds: it may hold anything until its end is
    /// durable.
    pub unaccounted: bool,
    /// Waiting and held.
    pub requests: Requests,
    pub waiting: usize,
    /// What the names of the locks take that these want, in bytes.
    pub names: usize,
    /// The requests in `requests` that came with a key.
    pub keys: Keys,
    /// The keys under which nothing new begins.
    pub finished: FinishedKeys,
}
