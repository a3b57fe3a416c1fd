//! The place of an operation among all others.

use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use geolock_api::names::DcId;

/// The id of a commit: the entry that carries it. The operations of one commit share it; they are applied in
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Dot {
    /// The maker of the entry.
    pub dc: DcId,
    /// The entry's number in the maker's log.
    pub seq: u64,
}

impl From<&Dot> for Dot {
    fn from(dot: &Dot) -> Dot {
        *dot
    }
}

impl Dot {
    /// Returns true if a replica at that vector has applied this commit.
    pub fn is_in(self, vector: &VersionVector) -> bool {
        self.seq <= vector.get(self.dc)
    }
}

/// The commit of an operation, and the vector that its transaction had seen.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The commit.
    pub dot: Dot,
    /// The operation's index in its commit, from 0.
    pub index: u32,
    /// The stamp of the commit's entry: strictly increasing along a datacenter's log, and above the stamps of
    /// everything seen.
    pub stamp: Timestamp,
    /// The snapshot of the transaction: causally closed, and without this commit.
    pub seen: &'a VersionVector,
}

impl At<'_> {
    /// Returns true if the transaction had seen that commit. It has seen its own earlier operations.
    pub fn has_seen(&self, dot: Dot) -> bool {
        dot == self.dot || dot.is_in(self.seen)
    }
}
