//! Locks as clients and operators see them: descriptions, listings, the most contended ones.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::lock_state::Heat;
use crate::replica::NotServing;
use geolock_api::names::{DcId, DcSet, FencingToken, LockName, Mode, RequestId};

/// The reason why a request waits: one lock as this datacenter sees it, with the holders that other
/// datacenters reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockDescription {
    /// The lock.
    pub lock: LockName,
    /// The home by a rule about the prefix of its name.
    pub prefix_home: Option<DcId>,
    /// All parts with their owners: (part, owner).
    pub owners: Vec<(DcId, DcId)>,
    /// Holders here and elsewhere, by datacenter; at most [`MAX_DESCRIBED`] of each datacenter.
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

/// Most waiters, and most holders of each datacenter, that a description lists for a lock.
pub const MAX_DESCRIBED: usize = 100;

/// A holder of a lock. Wire type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HolderInfo {
    /// The datacenter where it holds the lock.
    pub dc: DcId,
    /// Its request.
    pub request: RequestId,
    /// The mode in which it holds the lock.
    pub mode: Mode,
    /// The fencing token of its grant.
    pub token: FencingToken,
    /// The label that its client gave it.
    pub label: Arc<str>,
    /// How long it has held the lock, as measured where it is held.
    pub held_for: Duration,
}

/// A waiter for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterInfo {
    /// Its request.
    pub request: RequestId,
    /// The time of the request, by the hybrid clock of its datacenter. Orders it among all requests.
    pub at: Timestamp,
    /// The mode that it wants.
    pub mode: Mode,
    /// The label that its client gave it. Known for requests of this datacenter only.
    pub label: Option<Arc<str>>,
    /// It waits for a datacenter that is unreachable or does not serve, and stops no other request meanwhile.
    pub parked: bool,
}

/// A line of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSummary {
    /// The lock.
    pub lock: LockName,
    /// The parts owned here.
    pub owned_parts: DcSet,
    /// Number of holders in this datacenter.
    pub holders: usize,
    /// The mode in which it is held in this datacenter, if it is.
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
    /// How long the first waiter has waited; 0 if there is none.
    pub head_wait: Duration,
    /// Its waits and moves since it entered the table of hot locks.
    pub heat: Heat,
    /// How long ago [`Heat::since`] was.
    pub tracked: Duration,
}

/// Most holders that a [`HotLock`] describes.
pub const MAX_HOT_HOLDERS: usize = 10;
