//! One request, of this datacenter or of another one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::lock::LockIndex;
use super::queue::{Class, Order};
use crate::causal_log::Wants;
use crate::names::Position;
use crate::names::{DcId, FencingToken, LeaseId, Mode, RequestId};
use crate::time::{Instant, Timestamp};

/// The row of a request. Reused after the request is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RequestIndex(pub u32);

/// One lock of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub lock: LockIndex,
    pub mode: Mode,
    /// Where it stands among the lock's holders, once held.
    pub(super) holder: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Request {
    pub id: RequestId,
    /// What it is ordered by.
    pub at: Timestamp,
    /// By lock name.
    pub wants: SmallVec<[Want; 1]>,
    pub origin: Origin,
    /// A datacenter that it needs cannot be reached: it is absent in every rule.
    pub parked: bool,
}

/// A request as it stands in the log. Disk and wire type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    pub id: RequestId,
    pub at: Timestamp,
    pub wants: Wants,
    /// The entry of `id.dc` that published it.
    pub seq: u64,
}

/// Where a request comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    Local(Local),
    /// Of another datacenter; the entry `seq` of `id.dc` published it.
    Remote {
        seq: u64,
    },
}

/// What only the datacenter of a request knows of it.
#[derive(Debug)]
pub(crate) struct Local {
    pub lease: LeaseId,
    pub label: Arc<str>,
    pub state: State,
    /// When it was made.
    pub since: Instant,
    /// In the log: the entry that published it; [`IN_THIS_STEP`] until that entry is made.
    pub published: Option<u64>,
    /// It was in the log at some time: other datacenters were asked.
    pub was_published: bool,
    /// The place among its wants of the one that was not free when it was looked at last.
    pub stopped_at: u32,
}

/// See [`Local::published`].
pub(crate) const IN_THIS_STEP: u64 = u64::MAX;

/// How far a local request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Waiting,
    /// `ready`: the grant may be told once the journal is durable up to here.
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

    /// The class in which it waits for a lock that it wants in `mode`.
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

    /// How many locks a local request wants beyond the first.
    pub(super) fn further(&self) -> u64 {
        if self.local().is_some() { self.wants.len() as u64 - 1 } else { 0 }
    }

    pub fn is_held(&self) -> bool {
        self.local().is_some_and(|local| matches!(local.state, State::Held { .. }))
    }

    /// The datacenter whose own part a shared grant of it needs.
    pub fn dc(&self) -> DcId {
        self.id.dc
    }
}
