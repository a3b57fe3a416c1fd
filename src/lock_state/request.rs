//! One request, of this datacenter or of another one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::enough::Enough;
use super::lock::LockIndex;
use super::lock_table::LockTable;
use super::queue::{Class, Order};
use crate::base::tables::row_index;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::Wants;
use geolock_api::names::Position;
use geolock_api::names::{DcId, FencingToken, LeaseId, Mode, RequestId};

/// Index of a request's row. It is reused after the request is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RequestIndex(pub u32);

row_index!(RequestIndex);

/// One lock of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub lock: LockIndex,
    pub mode: Mode,
    /// It was granted exclusively, and its client holds it shared since.
    pub is_downgraded: bool,
    /// Index among the lock's holders, once held.
    pub(super) holder: u32,
}

impl Want {
    pub(super) fn new(lock: LockIndex, mode: Mode) -> Want {
        Want { lock, mode, is_downgraded: false, holder: 0 }
    }

    /// Returns true if an acquire that asks for this lock in `mode` may be the one of this request.
    pub(super) fn is_asked_as(&self, mode: Mode) -> bool {
        self.mode == mode || self.is_downgraded
    }
}

/// A request known here: one of a local client, or a published one of another datacenter.
#[derive(Debug)]
pub(crate) struct Request {
    pub id: RequestId,
    /// The time in the order of requests.
    pub at: Timestamp,
    /// Sorted by lock name.
    pub wants: SmallVec<[Want; 1]>,
    pub origin: Origin,
    /// True while a datacenter that the request needs is away: the request is absent in every rule.
    pub parked: bool,
}

/// A published request as it stands in the log. Disk and wire type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The id of the request.
    pub id: RequestId,
    /// Its time, which orders it among others.
    pub at: Timestamp,
    /// The locks.
    pub wants: Wants,
    /// Sequence number of the entry of `id.dc` that published it.
    pub seq: u64,
}

/// The origin of a request.
#[derive(Debug)]
pub(crate) enum Origin {
    Local(Local),
    /// Of another datacenter; the entry `seq` of `id.dc` published it.
    Remote {
        seq: u64,
    },
}

/// The part of a request that only its own datacenter knows.
#[derive(Debug)]
pub(crate) struct Local {
    pub lease: LeaseId,
    pub label: Arc<str>,
    pub state: State,
    /// Time at which it was made.
    pub since: Instant,
    pub publication: Publication,
    /// Index among its wants of the lock that was not free at the last check.
    pub stopped_at: u32,
}

/// The state of a local request in the log. A request that ends is withdrawn once, and is never published
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publication {
    /// Only this datacenter knows the request.
    Unpublished,
    /// The entry of this step publishes it.
    InThisStep,
    /// The entry `seq` of this datacenter published it.
    Published { seq: u64 },
    /// It was published and does not wait any more: the entry of this step withdraws it, or it is abandoned.
    Withdrawn,
}

impl Local {
    /// Returns the part of a request that begins to wait.
    #[inline]
    pub(super) fn new(lease: LeaseId, label: Arc<str>, now: Instant) -> Local {
        let (state, publication) = (State::Waiting, Publication::Unpublished);
        Local { lease, label, state, since: now, publication, stopped_at: 0 }
    }
}

impl Publication {
    /// Returns true if the other datacenters know the request, or will know it by the entry of this step.
    pub fn is_published(self) -> bool {
        matches!(self, Publication::InThisStep | Publication::Published { .. })
    }

    /// Returns true if an entry published the request at some time: it needed other datacenters.
    pub fn was_published(self) -> bool {
        matches!(self, Publication::Published { .. } | Publication::Withdrawn)
    }
}

/// The state of a local request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Waiting,
    /// Held since this step; it gets its token before the step ends. `ready`: the grant may be answered once
    /// the journal is durable up to this position.
    Granted {
        since: Instant,
        ready: Position,
    },
    Held {
        token: FencingToken,
        since: Instant,
        ready: Position,
    },
}

impl Request {
    pub fn order(&self) -> Order {
        Order { at: self.at, id: self.id }
    }

    /// Returns the class in which the request waits for a lock that it wants in `mode`.
    pub(super) fn class(&self, mode: Mode) -> Class {
        match self.origin {
            _ if self.parked => Class::Parked,
            Origin::Local(_) => Class::local(mode),
            Origin::Remote { .. } => Class::remote(mode, self.id.dc),
        }
    }

    pub fn local(&self) -> Option<&Local> {
        match &self.origin {
            Origin::Local(local) => Some(local),
            Origin::Remote { .. } => None,
        }
    }

    pub(super) fn local_mut(&mut self) -> Option<&mut Local> {
        match &mut self.origin {
            Origin::Local(local) => Some(local),
            Origin::Remote { .. } => None,
        }
    }

    /// Returns the number of locks that a local request wants beyond the first; 0 for a remote one.
    pub(super) fn further(&self) -> u64 {
        if self.local().is_some() { self.wants.len() as u64 - 1 } else { 0 }
    }

    pub fn is_held(&self) -> bool {
        self.local().is_some_and(|local| local.state != State::Waiting)
    }

    /// Returns what the log says of the request if it is published: its time and its wants.
    pub(super) fn as_published(&self, locks: &LockTable, enough: Option<&Enough>) -> (Timestamp, Wants) {
        if let Some(wants) = enough.and_then(|enough| enough.published.as_ref()) {
            return (self.at, wants.clone());
        }
        let want = |want: &Want| (locks[want.lock].name.clone(), want.mode);
        (self.at, Wants::All(self.wants.iter().map(want).collect()))
    }

    /// Returns the state of a local request, or `None` for a remote one.
    pub fn state(&self) -> Option<State> {
        self.local().map(|local| local.state)
    }

    /// Returns the token of a holder, or `None` if it was granted in this step and has none yet.
    pub fn token(&self) -> Option<FencingToken> {
        match self.local()?.state {
            State::Held { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Returns the datacenter of the request. A shared grant needs the part of this datacenter.
    pub fn dc(&self) -> DcId {
        self.id.dc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server has a row for each request that waits or is held, up to millions of them.
    #[test]
    fn a_row_does_not_grow() {
        assert_eq!((size_of::<State>(), size_of::<Publication>()), (32, 16));
        assert_eq!((size_of::<Want>(), size_of::<Local>(), size_of::<Request>()), (12, 88, 144));
    }
}
