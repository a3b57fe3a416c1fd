//! The own entries that a majority of the members has on disk.
//!
//! An entry counts for a member that announced a durable vector with it, directly or through others, and for
//! this datacenter once it is durable here. More than half of the members is a majority: half of them is
//! none, unlike in `truncation`, because a commit must be left when the other half loses its disks.
//!
//! The result follows from what the members announced last, so it may go back: a member that lost its disk
//! announces less.

use super::Log;
use crate::base::bugs::Bug;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

impl Log {
    /// Returns the number of the last own entry that a majority of the members has durably. Takes time for
    /// each member, and none for each entry.
    pub fn durable_at_majority(&self) -> u64 {
        let mut last = [0; MAX_DCS];
        let mut count = 0;
        for (place, member) in last.iter_mut().zip(self.members.iter()) {
            *place = self.durable_of(member);
            count += 1;
        }
        let last = &mut last[..count];
        last.sort_unstable_by(|a, b| b.cmp(a));
        let majority = if self.bugs.has(Bug::MemberCountsTwice) { count / 4 } else { count / 2 };
        // More than half of the members have at least as many entries as the one at this place.
        let at_majority = last.get(majority).copied().unwrap_or(0);
        debug_assert!(
            2 * last.iter().filter(|have| **have >= at_majority).count() > count || self.bugs.has_any(),
            "more than half of the members have entry {at_majority}"
        );
        at_majority
    }

    /// Returns the members that are not known to have own entry `seq` durably.
    pub fn not_known_to_have(&self, seq: u64) -> DcSet {
        self.members.iter().filter(|member| self.durable_of(*member) < seq).collect()
    }

    /// Returns the number of the last own entry that a member is known to have durably.
    fn durable_of(&self, member: DcId) -> u64 {
        let row = &self.rows[member.index()];
        match (&row.link, member == self.me) {
            (_, true) => self.durable.get(self.me),
            (Some(link), false) if self.bugs.has(Bug::SentCountsAsDurable) => link.known.get(self.me),
            _ => row.told.last.get(self.me),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Instant;
    use crate::crdt::VersionVector;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Returns the log of dc0, which has 10 durable entries, after the other members announced these numbers.
    fn log_with(told: &[u64]) -> Log {
        let members: DcSet = (0..=told.len() as u8).map(dc).collect();
        let vector = |seq| VersionVector::from_iter([(dc(0), seq)]);
        let mut log = Log::new(dc(0), members);
        log.restore(vector(10), &[], &[], &[], Instant::ZERO);
        for (peer, seq) in (1..).map(dc).zip(told) {
            log.note_told(peer, &vector(*seq), members);
        }
        log
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
        for (told, reached) in cases {
            assert_eq!(log_with(told).durable_at_majority(), reached, "{told:?}");
        }
    }

    #[test]
    fn a_member_that_lost_its_disk_does_not_count_any_more() {
        let mut log = log_with(&[9, 7]);
        let members = (0..3).map(dc).collect();
        assert_eq!(log.not_known_to_have(8), DcSet::only(dc(2)));
        log.note_told(dc(1), &VersionVector::default(), members);
        assert_eq!(log.durable_at_majority(), 7);
        assert_eq!(log.not_known_to_have(8), [dc(1), dc(2)].into_iter().collect());
    }
}
