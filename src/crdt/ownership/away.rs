//! Numbers of locks by the owners that have parts of others, kept up to date.

use super::{Ownership, Register, Row};
use geolock_api::names::{DcId, DcSet, LockName, MAX_DCS};

/// For each datacenter the number of locks of which it owns a part that is named after another one. That
/// counts registers as they were written: also those of members that have ended, until they are forgotten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AwayCounts([u64; MAX_DCS]);

impl Default for AwayCounts {
    fn default() -> AwayCounts {
        AwayCounts([0; MAX_DCS])
    }
}

impl AwayCounts {
    /// Returns the number of locks of which this datacenter has such parts.
    pub fn of(&self, owner: DcId) -> u64 {
        self.0[owner.index()]
    }

    /// The owners of such parts of one lock are others than before.
    pub fn change(&mut self, before: DcSet, after: DcSet) {
        before.difference(after).iter().for_each(|owner| self.0[owner.index()] -= 1);
        after.difference(before).iter().for_each(|owner| self.0[owner.index()] += 1);
    }
}

impl Row {
    fn away_owners(&self) -> DcSet {
        let registers = (0_u8..).filter_map(DcId::new).zip(&self.registers);
        let away = |(part, register): (DcId, &Register)| register.owner().filter(|owner| *owner != part);
        registers.filter_map(away).collect()
    }
}

impl Ownership {
    /// Returns the datacenters that own a part of this lock which is named after another one.
    pub fn away_owners(&self, lock: &LockName) -> DcSet {
        self.row(lock).map_or(DcSet::EMPTY, Row::away_owners)
    }

    /// Returns the same for the `index`-th row.
    pub fn away_owners_at(&self, index: usize) -> DcSet {
        self.rows.get(index).map_or(DcSet::EMPTY, Row::away_owners)
    }

    /// Counts them. Walks the whole map.
    pub fn away_counts(&self) -> AwayCounts {
        let mut counts = AwayCounts::default();
        self.rows.iter().for_each(|row| counts.change(DcSet::EMPTY, row.away_owners()));
        counts
    }
}
