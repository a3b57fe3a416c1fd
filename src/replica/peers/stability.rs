//! Stability: the commits that every further transaction, in every datacenter, has in its snapshot
//! (`docs/algorithm/log.md#31-stability`).
//!
//! Each datacenter announces from time to time "my entries after `seq` have seen at least `floor`". Once its
//! entries up to `seq` are applied here, all its later entries have seen that floor. The minimum over all
//! datacenters is stable: no operation will ever be concurrent with it again (Baquero, Almeida, Shoker 2014).

use std::cmp::Ordering;

use crate::base::bugs::Bug;
use crate::base::entry_number::base_of;
use serde::{Deserialize, Serialize};

use super::anti_entropy::Comparison;
use crate::causal_log::Log;
use crate::crdt::VersionVector;
use crate::store_state::Store;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The stability floor of a datacenter: a lower bound of the vectors that its further commits have seen.
/// Wire type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The datacenter.
    pub dc: DcId,
    /// Its entries after this one ...
    pub after: u64,
    /// ... have seen at least this.
    pub floor: VersionVector,
}

/// The floors of all datacenters, and the stable vector.
pub(in crate::replica) struct Stability {
    rows: Box<[Row]>,
    stable: VersionVector,
}

/// The floors of one datacenter.
#[derive(Clone, Default)]
struct Row {
    /// The latest announcement, to be relayed.
    told: Option<Floor>,
    /// The announcement that waits for its entries to be applied here. A newer one does not replace it: under
    /// load the entries would never catch up with the latest announcement.
    awaited: Option<Floor>,
    /// The floor of all its entries that are applied from now on.
    reached: Option<VersionVector>,
}

impl Default for Stability {
    fn default() -> Stability {
        Stability { rows: (0..MAX_DCS).map(|_| Row::default()).collect(), stable: VersionVector::default() }
    }
}

impl Stability {
    pub fn stable(&self) -> &VersionVector {
        &self.stable
    }

    /// Notes an announcement that `by` sent. It counts if it is no lower than the one before. Only the
    /// datacenter itself may announce less of its own log: its disk may have lost entries that it had counted
    /// and that no other member has.
    pub fn note(&mut self, floor: Floor, by: DcId) {
        let row = &mut self.rows[floor.dc.index()];
        if let Some(told) = &row.told {
            match base_of(floor.after).cmp(&base_of(told.after)) {
                // Of an earlier server with this slot.
                Ordering::Less => return,
                Ordering::Greater => *row = Row::default(),
                Ordering::Equal => {}
            }
        }
        let is_its_own = |dc| dc == floor.dc && by == floor.dc;
        let is_less = |before: &Floor| {
            before.floor.iter().any(|(dc, seq)| floor.floor.get(dc) < seq && !is_its_own(dc))
        };
        if row.told.as_ref().is_some_and(is_less) {
            return;
        }
        // A crash may have taken back entries that were counted.
        if row.awaited.as_ref().is_none_or(|awaited| floor.after <= awaited.after) {
            row.awaited = Some(floor.clone());
        }
        row.told = Some(floor);
    }

    /// Updates the stable vector, given the applied one.
    fn update(&mut self, members: DcSet, applied: &VersionVector) {
        for dc in members.iter() {
            let row = &mut self.rows[dc.index()];
            if let Some(reached) = row.awaited.take_if(|awaited| awaited.after <= applied.get(dc)) {
                row.reached = Some(reached.floor);
            }
        }
        let mut reached = members.iter().map(|dc| self.rows[dc.index()].reached.as_ref());
        let first = reached.next().flatten().cloned();
        let stable = reached.fold(first, |stable, other| Some(stable?.meet(other?)));
        if let Some(stable) = stable.filter(|stable| stable.covers(&self.stable)) {
            self.stable = stable;
        }
    }

    /// Returns all floors for a heartbeat: the own one, and those of the others for peers that do not hear
    /// them.
    pub fn told(&self) -> Vec<Floor> {
        self.rows.iter().filter_map(|row| row.told.clone()).collect()
    }
}

impl Comparison<'_> {
    /// Updates the stable vector.
    pub(in crate::replica) fn update_stability(&mut self) {
        // Own entries that this disk has lost may come back, and have not seen all that is here.
        let knows_own_entries = self.lifecycle.own_log.is_whole(self.log.applied());
        let knows_own_entries = knows_own_entries || self.config.bugs.has(Bug::FloorWithoutOwnLog);
        if knows_own_entries {
            let base = self.members.decided.own_base();
            let floor = own_floor(self.config.dc, base, self.log, &self.data.store);
            self.peers.stability.note(floor, self.config.dc);
        }
        self.peers.stability.update(self.members.entered.all(), self.log.applied());
        let (stable, applied) = (self.peers.stability.stable(), self.log.applied());
        debug_assert!(applied.covers(stable), "{stable} is stable, {applied} is applied");
        self.data.store.note_stable(self.peers.stability.stable());
    }
}

/// Returns the floor of this datacenter: its further commits have seen its oldest open snapshot. Its entries
/// follow number `base`.
fn own_floor(me: DcId, base: u64, log: &Log, store: &Store) -> Floor {
    let dc = me;
    let floor = store.oldest_vector().unwrap_or(log.durable());
    Floor { dc, after: log.applied().get(dc).max(base), floor: (**floor).clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entry_number::COUNT_BITS;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn vector(a: u64, b: u64) -> VersionVector {
        [(dc(0), a), (dc(1), b)].into_iter().collect()
    }

    fn floor(id: u8, after: u64, floor: VersionVector) -> Floor {
        Floor { dc: dc(id), after, floor }
    }

    #[test]
    fn stable_is_what_all_have_seen_once_their_entries_are_here() {
        let (mut stability, members) = (Stability::default(), [dc(0), dc(1)].into_iter().collect());
        stability.note(floor(0, 9, vector(9, 4)), dc(0));
        stability.update(members, &vector(9, 5));
        assert_eq!(*stability.stable(), vector(0, 0), "the other has said nothing");
        stability.note(floor(1, 6, vector(7, 5)), dc(1));
        stability.update(members, &vector(9, 5));
        assert_eq!(*stability.stable(), vector(0, 0), "its sixth entry may have seen less");
        stability.update(members, &vector(9, 6));
        assert_eq!(*stability.stable(), vector(7, 4));
    }

    #[test]
    fn it_moves_on_although_the_last_word_is_always_ahead_of_the_entries() {
        let (mut stability, members) = (Stability::default(), [dc(0), dc(1)].into_iter().collect());
        for n in 1..100 {
            stability.note(floor(0, n, vector(n, n)), dc(0));
            // It always announces two entries more than have arrived.
            stability.note(floor(1, n + 2, vector(n, n)), dc(1));
            stability.update(members, &vector(n, n));
        }
        assert!(stability.stable().covers(&vector(90, 90)), "{}", stability.stable());
    }

    #[test]
    fn entries_that_a_crash_took_back_are_not_waited_for() {
        let (mut stability, members) = (Stability::default(), DcSet::only(dc(1)));
        stability.note(floor(1, 50, vector(1, 40)), dc(1));
        stability.note(floor(1, 41, vector(1, 41)), dc(1));
        stability.update(members, &vector(1, 41));
        assert_eq!(*stability.stable(), vector(1, 41));
    }

    #[test]
    fn the_next_server_with_a_slot_may_have_seen_less_and_says_so_anew() {
        let (mut stability, members) = (Stability::default(), DcSet::only(dc(1)));
        stability.note(floor(1, 50, vector(9, 40)), dc(1));
        stability.update(members, &vector(9, 50));
        let base = 1 << COUNT_BITS;
        stability.note(floor(1, base, vector(8, 50)), dc(1));
        stability.note(floor(1, 50, vector(9, 45)), dc(0));
        assert_eq!(stability.rows[1].told, Some(floor(1, base, vector(8, 50))), "of the earlier one");
        stability.update(members, &vector(9, base));
        assert_eq!(stability.rows[1].reached, Some(vector(8, 50)));
    }

    #[test]
    fn a_disk_that_lost_own_entries_does_not_stop_the_others() {
        let members = [dc(0), dc(1)].into_iter().collect();
        let mut stability = Stability::default();
        stability.note(floor(0, 9, vector(9, 4)), dc(0));
        stability.note(floor(1, 4, vector(6, 4)), dc(1));
        // Entries 7 to 9 reached no other member.
        let now = || floor(0, 6, vector(6, 5));
        stability.note(now(), dc(1));
        assert_eq!(
            stability.rows[0].told,
            Some(floor(0, 9, vector(9, 4))),
            "others may tell what is long past"
        );
        stability.note(now(), dc(0));
        stability.update(members, &vector(6, 5));
        stability.note(floor(1, 5, vector(6, 5)), dc(1));
        stability.update(members, &vector(6, 5));
        assert_eq!(*stability.stable(), vector(6, 5));
    }
}
