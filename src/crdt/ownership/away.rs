//! Numbers of locks by the owners that have parts of others, kept up to date.

use super::Ownership;
use super::row::LockRow;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

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
    /// Counts the locks of a map. Walks all of it.
    pub fn of_map(map: &Ownership) -> AwayCounts {
        let mut counts = AwayCounts::default();
        map.table.iter().map(LockRow::away_owners).for_each(|owners| counts.change(DcSet::EMPTY, owners));
        counts
    }

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
