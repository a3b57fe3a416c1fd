//! The own entries that a majority has on disk: a majority of the members, and one of the voters.
//!
//! An entry counts for a member that announced a durable vector with it, directly or through others, and for
//! this datacenter once it is durable here. More than half is a majority: half is none, unlike in
//! `truncation`, because a commit must be left when the other half loses its disks.
//!
//! The result follows from what the members announced last, so it may go back: a member that lost its disk
//! announces less.

use super::peers::PeerTable;
use crate::base::bugs::Bug;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// How many of some datacenters have to have an entry.
#[derive(Clone, Copy, Debug)]
pub struct Majority {
    /// The datacenters that count.
    pub of: DcSet,
    /// How many of them, at least 1. It may be more than half of `of`: a witness votes and has no log.
    pub needed: usize,
}

impl PeerTable {
    /// Returns the number of the last own entry that a majority of the members has durably, and a majority of
    /// each of these sets of voters; `durable` is the durable vector here. Takes time for each member and
    /// voter, and none for each entry.
    pub fn durable_at_majority(
        &self,
        durable: &VersionVector,
        voters: impl Iterator<Item = Majority>,
    ) -> u64 {
        let count = self.members().len();
        let needed = if self.bugs().has(Bug::MemberCountsTwice) { count / 4 } else { count / 2 } + 1;
        let members = Majority { of: self.members(), needed };
        let voters = voters.filter(|_| !self.bugs().has(Bug::VotersDoNotCount));
        voters.chain([members]).map(|majority| self.durable_at(durable, majority)).min().unwrap_or(0)
    }

    /// Returns the number of the last own entry that enough of these have durably.
    fn durable_at(&self, durable: &VersionVector, Majority { of, needed }: Majority) -> u64 {
        debug_assert!(needed > 0, "no majority is empty");
        let mut last = [0; MAX_DCS];
        for (place, member) in last.iter_mut().zip(of.iter()) {
            *place = self.durable_of(durable, member);
        }
        let last = &mut last[..of.len()];
        last.sort_unstable_by(|a, b| b.cmp(a));
        // At least `needed` members have as many entries as the one at this place.
        let reached = last.get(needed - 1).copied().unwrap_or(0);
        debug_assert!(
            reached == 0 || last.iter().filter(|have| **have >= reached).count() >= needed,
            "{needed} of {of:?} have entry {reached}"
        );
        reached
    }

    /// Returns the members, and those of the voters, that are not known to have own entry `seq` durably;
    /// `durable` is the durable vector here.
    pub fn not_known_to_have(
        &self,
        seq: u64,
        durable: &VersionVector,
        voters: impl Iterator<Item = Majority>,
    ) -> DcSet {
        let asked = voters.fold(self.members(), |all, majority| all.union(majority.of));
        asked.iter().filter(|member| self.durable_of(durable, *member) < seq).collect()
    }

    /// Returns the number of the last own entry that a member is known to have durably.
    fn durable_of(&self, durable: &VersionVector, member: DcId) -> u64 {
        if member == self.me() { durable.get(member) } else { self.row(member).durable_of(self.me()) }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::Log;
    use super::*;
    use crate::base::bugs::Bugs;
    use crate::base::time::Instant;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Returns the log of dc0, which has 10 durable entries, after the other members announced these numbers.
    fn log_with(told: &[u64]) -> Log {
        let members: DcSet = (0..=told.len() as u8).map(dc).collect();
        let vector = |seq| VersionVector::from_iter([(dc(0), seq)]);
        let mut log = Log::new(dc(0), members, Bugs::default());
        log.restore(vector(10), &[], &[], &[], Instant::ZERO);
        for (peer, seq) in (1..).map(dc).zip(told) {
            log.note_announced(peer, &vector(*seq), members);
        }
        log
    }

    fn reached(log: &Log, voters: &[Majority]) -> u64 {
        log.peers().durable_at_majority(log.durable(), voters.iter().copied())
    }

    #[test]
    fn more_than_half_of_the_members_are_a_majority() {
        let cases: [(&[u64], u64); 8] = [
            (&[], 10),
            (&[0], 0),
            (&[7], 7),
            (&[0, 7], 7),
            (&[9, 7], 9),
            (&[9, 7, 0], 7),
            (&[9, 0, 0, 7], 7),
            (&[9, 8, 7, 0, 0], 7),
        ];
        for (told, expected) in cases {
            assert_eq!(reached(&log_with(told), &[]), expected, "{told:?}");
        }
    }

    #[test]
    fn a_majority_of_each_set_of_voters_counts() {
        let log = log_with(&[9, 7, 3]);
        let of = |ids: &[u8], needed| Majority { of: ids.iter().copied().map(dc).collect(), needed };
        let cases: [(&[Majority], u64); 6] = [
            (&[of(&[0], 1)], 7),
            (&[of(&[3], 1)], 3),
            (&[of(&[0, 1, 2], 2)], 7),
            (&[of(&[0, 3], 2)], 3),
            (&[of(&[0, 1], 2), of(&[0, 1, 3], 3)], 3),
            (&[of(&[0, 1], 3)], 0),
        ];
        for (voters, expected) in cases {
            assert_eq!(reached(&log, voters), expected, "{voters:?}");
        }
    }

    #[test]
    fn a_member_that_lost_its_disk_does_not_count_any_more() {
        let mut log = log_with(&[9, 7]);
        let members = (0..3).map(dc).collect();
        let not_known_to_have = |log: &Log| log.peers().not_known_to_have(8, log.durable(), iter::empty());
        assert_eq!(not_known_to_have(&log), DcSet::only(dc(2)));
        log.note_announced(dc(1), &VersionVector::default(), members);
        assert_eq!(reached(&log, &[]), 7);
        assert_eq!(not_known_to_have(&log), [dc(1), dc(2)].into_iter().collect());
    }
}
