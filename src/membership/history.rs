//! Former members and voters: an entry is judged by the members of its own epoch.

use std::collections::BTreeSet;

use geolock_api::names::{DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::ids::{Epoch, Generation, Voter};
use super::policy::EvictPolicy;
use super::slot::Past;
use super::slots::Slots;

/// Most sets of voters that are remembered. A member is never more than two changes behind.
pub const MAX_VOTER_SETS: usize = 16;

static NOBODY: VoterSet = VoterSet { from: Epoch(0), voters: BTreeSet::new() };

/// The voters from an epoch on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VoterSet {
    /// The first epoch in which they vote.
    pub from: Epoch,
    /// The voters.
    pub voters: BTreeSet<Voter>,
}

impl VoterSet {
    /// Returns the size of a majority.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Returns true if more than half of the voters are among these; others do not count.
    pub fn is_majority<'a>(&self, of: impl IntoIterator<Item = &'a Voter>) -> bool {
        self.count(of) >= self.majority()
    }

    /// Returns the number of different voters among these.
    pub fn count<'a>(&self, of: impl IntoIterator<Item = &'a Voter>) -> usize {
        of.into_iter().filter(|voter| self.voters.contains(voter)).collect::<BTreeSet<_>>().len()
    }

    /// Returns the slots of the members that vote.
    pub fn members(&self) -> DcSet {
        self.voters.iter().filter_map(|voter| voter.dc()).collect()
    }

    /// Returns true if the member with this slot votes.
    pub fn contains_member(&self, dc: DcId) -> bool {
        self.voters.iter().any(|voter| voter.dc() == Some(dc))
    }

    /// Returns true if the others can decide without this member, and so against it. Only then can it be
    /// evicted without an operator, and only then does it have to stop granting by itself.
    pub fn can_do_without(&self, dc: DcId) -> bool {
        self.without(DcSet::only(dc)).voters.len() >= self.majority()
    }

    /// Returns the set without the members with these slots.
    pub fn without(&self, members: DcSet) -> VoterSet {
        let stays = |voter: &&Voter| voter.dc().is_none_or(|dc| !members.contains(dc));
        VoterSet { from: self.from, voters: self.voters.iter().filter(stays).copied().collect() }
    }
}

impl Slots {
    /// Returns the members of an epoch with their generations, in increasing order of slots. Generations
    /// that are not remembered are missing: see [`MAX_PAST`](super::MAX_PAST). For an epoch after the
    /// current one it returns the current members.
    pub fn members_at(&self, epoch: Epoch) -> impl Iterator<Item = (DcId, Generation)> {
        self.iter().filter_map(move |(dc, slot)| {
            let now = slot.member.iter().find(|member| member.admitted <= epoch);
            let then = slot.past.iter().find(|past| past.admitted <= epoch && epoch < past.ended);
            now.map(|member| member.generation).or(then.map(|past| past.generation)).map(|it| (dc, it))
        })
    }

    /// Returns the slots whose members had ended by that epoch, and have no other one in it.
    pub fn ended_at(&self, epoch: Epoch) -> DcSet {
        let members = self.members_at(epoch).map(|(dc, _)| dc).collect();
        self.no_homes_at(epoch).difference(members)
    }

    /// Returns the slots of which a member had ended by that epoch, whether they have another one in it or
    /// not.
    pub fn no_homes_at(&self, epoch: Epoch) -> DcSet {
        let ended = self.iter().filter(|(_, slot)| slot.past.iter().any(|past| past.ended <= epoch));
        ended.map(|(dc, _)| dc).collect()
    }

    /// Returns the last generation of the slot that was over in that epoch.
    pub fn past_at(&self, dc: DcId, epoch: Epoch) -> Option<&Past> {
        self.get(dc)?.past.iter().rfind(|past| past.ended <= epoch)
    }

    /// Returns the generation with which the slot is a member in that epoch.
    pub fn generation_at(&self, dc: DcId, epoch: Epoch) -> Option<Generation> {
        self.members_at(epoch).find(|(member, _)| *member == dc).map(|(_, generation)| generation)
    }
}

impl Config {
    /// Returns the current voters; none before the cluster is founded.
    pub fn voters(&self) -> &VoterSet {
        self.voters.sets.last().unwrap_or(&NOBODY)
    }

    /// Returns the epoch from which on this member can be evicted by silence: a member that has entered it
    /// knows that it has to stop granting. `None` if it never can be.
    pub fn fenced_since(&self, dc: DcId) -> Option<Epoch> {
        // No member enters the policy of the founding, so a member that does not know it cannot be
        // recognised.
        let is_decided = self.policy.evict == EvictPolicy::Auto && self.numbers.policy_epoch > Epoch(0);
        let unfenced = self.voters.sets.iter().rposition(|set| !set.can_do_without(dc));
        let set = self.voters.sets.get(unfenced.map_or(0, |place| place + 1)).filter(|_| is_decided)?;
        Some(set.from.max(self.numbers.policy_epoch))
    }

    /// Returns the sets of voters from that epoch to the current one, or `None` if the set of that epoch is
    /// not remembered.
    pub fn voter_sets_since(&self, epoch: Epoch) -> Option<&[VoterSet]> {
        let first = self.voters.sets.iter().rposition(|set| set.from <= epoch)?;
        Some(&self.voters.sets[first..])
    }
}
