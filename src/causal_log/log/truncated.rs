//! The entries that are applied and not kept.

use std::sync::Arc;

use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, MAX_DCS};

/// After this number of truncated entries, the journal gets a record of them.
const ENTRIES_PER_RECORD: usize = 256;

/// The entries that are not kept any more, or never were because their effects came with a state transfer.
#[derive(Default)]
pub(crate) struct Truncated {
    vector: VersionVector,
    /// Those that this process has truncated.
    by_process: VersionVector,
    /// Number of those that no record of the journal covers.
    unrecorded: usize,
}

impl Truncated {
    /// Returns the entries in `applied` before those in `kept`. Of each log, the kept entries count that
    /// reach to its end without a gap; there may be further ones from before a state was installed.
    pub(super) fn before(kept: &[Arc<Entry>], applied: &VersionVector) -> Truncated {
        let mut missing = std::array::from_fn::<u64, MAX_DCS, _>(|_| 0);
        applied.iter().for_each(|(dc, seq)| missing[dc.index()] = seq);
        for entry in kept.iter().rev() {
            let missing = &mut missing[entry.dc.index()];
            if entry.seq == *missing {
                *missing = entry.predecessor();
            }
        }
        let vector: VersionVector = applied.iter().map(|(dc, _)| (dc, missing[dc.index()])).collect();
        debug_assert!(applied.covers(&vector), "truncated entries were applied");
        Truncated { vector, ..Truncated::default() }
    }

    pub fn vector(&self) -> &VersionVector {
        &self.vector
    }

    /// Returns the first truncated entry that `vector` does not cover.
    pub fn first_beyond(&self, vector: &VersionVector) -> Option<(DcId, u64)> {
        let beyond = self.vector.iter().find(|(dc, seq)| vector.get(*dc) < *seq);
        beyond.map(|(dc, _)| (dc, vector.get(dc) + 1))
    }

    /// Returns the entries that this process has truncated, if enough of them are not recorded in the journal
    /// yet. The caller records them.
    pub fn take_record(&mut self) -> Option<VersionVector> {
        if self.unrecorded < ENTRIES_PER_RECORD {
            return None;
        }
        self.unrecorded = 0;
        debug_assert!(self.vector.covers(&self.by_process), "a record has truncated entries only");
        Some(self.by_process.clone())
    }

    /// Adds an entry that is truncated now.
    pub(super) fn add(&mut self, dc: DcId, seq: u64) {
        self.add_recorded(dc, seq);
        self.by_process.raise(dc, seq);
        self.unrecorded += 1;
    }

    /// Adds the entries of a datacenter up to `seq`, of which the journal says that they are not kept.
    pub(super) fn add_recorded(&mut self, dc: DcId, seq: u64) {
        self.vector.raise(dc, seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_record_is_made_of_many_truncated_entries() {
        let (mut truncated, dc) = (Truncated::default(), DcId::new(1).expect("a small id"));
        truncated.add_recorded(dc, 10);
        (11..10 + ENTRIES_PER_RECORD as u64).for_each(|seq| truncated.add(dc, seq));
        assert_eq!(truncated.take_record(), None);
        truncated.add(dc, 1_000);
        let all = VersionVector::from_iter([(dc, 1_000)]);
        assert_eq!((truncated.take_record(), truncated.take_record()), (Some(all), None));
        let had = VersionVector::from_iter([(dc, 7)]);
        assert_eq!(truncated.first_beyond(&had), Some((dc, 8)));
    }
}
