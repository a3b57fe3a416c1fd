//! An eviction under way: promises, reports, and the cuts that follow from them.

use std::collections::{BTreeMap, BTreeSet};

use geolock_api::names::{DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::command::{Evictee, Eviction, Vouch};
use super::history::VoterSet;
use super::ids::{AttemptId, Epoch, Generation, Voter};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;

/// An eviction that has begun and neither ended nor been given up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The id of the attempt.
    pub id: AttemptId,
    /// The members that it evicts.
    pub eviction: Eviction,
    /// Reports of members that remain: the entries that each had applied when it promised.
    pub reports: BTreeMap<DcId, VersionVector>,
    /// Everyone that has promised: the members with a report, and witnesses.
    pub promised: BTreeSet<Voter>,
}

/// The last entry of a generation that counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// The slot.
    pub dc: DcId,
    /// The generation in the slot.
    pub generation: Generation,
    /// The number of its last entry that counts.
    pub seq: u64,
}

/// The generations that ended with the current epoch, while members may still lack entries up to their cuts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastEnd {
    /// The epoch that began with the end.
    pub epoch: Epoch,
    /// The generations that ended.
    pub generations: Vec<(DcId, Generation)>,
}

impl Attempt {
    pub(super) fn new(id: AttemptId, eviction: Eviction) -> Attempt {
        Attempt { id, eviction, reports: BTreeMap::new(), promised: BTreeSet::new() }
    }

    /// Returns the slots of the members that are to be evicted.
    pub fn evicting(&self) -> DcSet {
        self.eviction.slots()
    }

    /// Returns true if a majority of these voters has promised. Without witnesses it has once all members
    /// that remain have reported.
    pub fn is_promised(&self, voters: &VoterSet) -> bool {
        voters.is_majority(&self.promised)
    }

    /// Returns the last entry of this generation that any report contains.
    pub(super) fn cut(&self, dc: DcId, generation: Generation) -> Cut {
        highest(self.reports.values(), dc, generation)
    }
}

/// Returns the last entry of this generation that any of the vectors contains.
pub(super) fn highest<'a>(
    vectors: impl Iterator<Item = &'a VersionVector>,
    dc: DcId,
    generation: Generation,
) -> Cut {
    let highest = vectors.map(|vector| vector.get(dc)).max().unwrap_or(0);
    Cut { dc, generation, seq: highest.clamp(generation.base(), generation.last()) }
}

impl Eviction {
    /// Returns the slots of the members that are to be evicted.
    pub fn slots(&self) -> DcSet {
        self.members.iter().map(|member| member.dc).collect()
    }

    /// Returns true if a heartbeat with this clock shows that a member was started after an operator vouched
    /// that it does not run.
    pub fn was_started(&self, dc: DcId, heard: Option<Timestamp>) -> bool {
        let is_said = |member: &&Evictee| member.last_heard != Timestamp::default();
        let vouched = self.member(dc).filter(|_| self.vouch != Vouch::Silence).filter(is_said);
        vouched.zip(heard).is_some_and(|(member, heard)| heard > member.last_heard)
    }

    /// Returns the member with this slot.
    pub fn member(&self, dc: DcId) -> Option<&Evictee> {
        self.members.iter().find(|member| member.dc == dc)
    }
}
