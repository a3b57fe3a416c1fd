//! The ownership map, and the sum that tells whether two datacenters have the same one.

use std::num::NonZeroU32;

use crdts::CmRDT;

use crate::causal_log::{EntryFault, LockParts};
use crate::crdt::{
    AsOf, AwayCounts, LockOwners, OwnedRows, Ownership, OwnershipSums, PartMove, ReaderId, Sponsors,
};
use geolock_api::names::{DcId, DcSet, LockName, MAX_NUMBER};

/// The datacenters that an entry may name, by its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub members: DcSet,
    /// Those that were members, and have left.
    pub left: DcSet,
    /// Slots that had members which have left, whether they have others now or not: they are no homes.
    pub no_homes: DcSet,
}

impl Known {
    /// Returns those that are or were members.
    pub fn ever(self) -> DcSet {
        self.members.union(self.left)
    }
}

/// The owners of all parts, as known here.
pub(crate) struct Owners {
    me: DcId,
    /// The members whose parts count.
    members: DcSet,
    /// Those that left: their parts count no more, and some are not at home yet.
    left: DcSet,
    map: Ownership,
    /// [`OwnershipSums::of_map`] of `map`, kept up to date, and further ones of members that have ended.
    sums: OwnershipSums,
    /// [`AwayCounts::of_map`] of `map`, kept up to date.
    away: AwayCounts,
}

impl Owners {
    pub(super) fn new(me: DcId, members: DcSet, hash_seed: u64) -> Owners {
        Owners {
            me,
            members,
            left: DcSet::EMPTY,
            map: Ownership::new(hash_seed),
            sums: OwnershipSums::default(),
            away: AwayCounts::default(),
        }
    }

    pub fn map(&self) -> &Ownership {
        &self.map
    }

    /// Returns the number of locks of which these own parts that are named after others.
    pub fn locks_owned_by(&self, owners: DcSet) -> u64 {
        let is_owned = |part: &DcId, owner: Option<DcId>| {
            owner.is_some_and(|owner| owners.contains(owner)) && !owners.contains(*part)
        };
        let owned = self.map.iter().filter(|(_, part, register)| is_owned(part, register.owner()));
        // The parts of a lock follow each other.
        let (mut count, mut last) = (0, None);
        for (lock, ..) in owned {
            count += u64::from(last != Some(lock));
            last = Some(lock);
        }
        count
    }

    /// Returns the sum over all registers that count: datacenters with equal maps have equal sums.
    pub fn sum(&self) -> u128 {
        self.sums.total()
    }

    /// Returns the owner of a part.
    #[inline]
    pub(super) fn owner(&self, lock: &LockName, part: DcId) -> DcId {
        self.map.of(lock).owner(part)
    }

    /// Returns the home of a lock, if that is a member.
    pub(super) fn home(&self, lock: &LockName) -> Option<DcId> {
        self.map.sponsors().home(lock)
    }

    /// Returns the owner of a part that has no register.
    #[inline]
    pub(super) fn default_owner(&self, lock: &LockName, part: DcId) -> DcId {
        self.map.sponsors().default_owner(lock, part)
    }

    /// Returns true if the end of this member is entered: it owns nothing, and its parts count no more.
    pub(super) fn has_ended(&self, dc: DcId) -> bool {
        self.map.sponsors().left().contains(dc)
    }

    /// These members end with this epoch: what they own is at home, and their parts count no more.
    pub(super) fn end(&mut self, ended: DcSet, epoch: u64) {
        self.map.sponsors_mut().end(ended);
        self.map.sponsors_mut().rules_mut().end(ended, epoch);
        self.sums.set_ended(self.map.sponsors().left());
    }

    /// Returns the parts of a lock that are here.
    pub(super) fn parts_here(&self, lock: &LockName) -> DcSet {
        self.map.of(lock).parts_of(self.me, self.members)
    }

    /// Returns the parts of a lock that are here and have their homes elsewhere. Parts that go along with
    /// others do not count.
    pub(super) fn foreign_parts(&self, lock: &LockName) -> DcSet {
        let owners = self.map.of(lock);
        let parts = owners.parts_of(self.me, self.members.union(self.left));
        let named = parts.difference(owners.going_along(parts));
        // A kept part is here by its register, and so is one whose home became this datacenter.
        let is_foreign =
            |part: &DcId| owners.register(*part).version() > 0 || self.default_owner(lock, *part) != self.me;
        named.iter().filter(is_foreign).collect()
    }

    /// Returns the number of locks with foreign parts here. These are the listed ones of the map
    /// ([`Recency::listed`](crate::crdt::Recency::listed)), and some whose parts have fallen home since.
    pub fn away_here(&self) -> usize {
        self.map.recency().listed()
    }

    /// Returns the number of locks of which a datacenter has parts that are named after others.
    pub fn away_in(&self, owner: DcId) -> u64 {
        self.away.of(owner)
    }

    /// Returns true if no lock has foreign parts here. Walks all rows: for tests and the simulator.
    pub fn are_home_here(&self) -> bool {
        let mut locks = (0..self.map.len()).filter_map(|row| self.map.lock_at(row));
        locks.all(|lock| self.foreign_parts(lock).is_empty())
    }

    /// Asserts the invariants. Walks all rows: for tests and the simulator.
    pub(super) fn check(&self) {
        self.map.check();
        assert!(self.sponsors().rules().are_of(u64::MAX), "rules about homes are in order");
        assert_eq!(self.sum(), OwnershipSums::of_map(&self.map).total(), "the sum over who owns what");
        assert_eq!(self.away, AwayCounts::of_map(&self.map), "the numbers of locks with parts away");
        for lock in (0..self.map.len()).filter_map(|row| self.map.lock_at(row)) {
            // Those whose parts have fallen home stay listed until they are looked at.
            let is_missed = !self.map.table().is_listed(lock) && !self.foreign_parts(lock).is_empty();
            assert!(!is_missed, "lock {lock} has foreign parts here and is listed");
        }
    }

    /// Returns these parts of a lock, and those that go along with them, with the versions that their next
    /// transfer has. A member that knows of a new member names its part, too: going along unnamed is for the
    /// others.
    pub(super) fn next_versions(&self, lock: &LockName, parts: DcSet) -> LockParts {
        debug_assert!(!parts.is_empty(), "a move has parts");
        let owners = self.map.of(lock);
        let parts = parts.union(owners.going_along(parts));
        let mut moved = Vec::with_capacity(parts.len());
        for part in parts.iter() {
            moved.push((part, owners.register(part).version() + 1));
        }
        LockParts { lock: lock.clone(), parts: moved }
    }

    /// Checks a transfer by an entry of `dc` (`docs/algorithm/ownership.md#13-validity-of-a-transfer`).
    /// `known`: the datacenters of the epoch of the entry.
    pub(super) fn validate_transfer(
        &self,
        dc: DcId,
        known: Known,
        to: DcId,
        moved: &LockParts,
    ) -> Result<(), EntryFault> {
        let owners = self.map.of(&moved.lock);
        for (part, version) in &moved.parts {
            let (lock, part) = (moved.lock.clone(), *part);
            // Its maker may not know that the member is over: the part counts no more.
            if self.has_ended(part) {
                continue;
            }
            if !known.ever().contains(part) {
                return Err(EntryFault::UnknownPart { lock, part });
            }
            // A part of a datacenter that has left goes home only.
            let goes_home = known.left.contains(to) && part == to;
            if !known.members.contains(to) && !goes_home {
                return Err(EntryFault::TransferToStranger { lock, part, to });
            }
            let owner = owners.owner(part);
            if owner != dc {
                return Err(EntryFault::NotTheOwner { lock, part, owner });
            }
            let current = owners.register(part).version();
            // By exactly one, except for parts that come from a version of the code in which the versions of
            // a part at home did not begin anew.
            if *version <= current || *version > MAX_NUMBER {
                return Err(EntryFault::WrongVersion { lock, part, version: *version, current });
            }
        }
        Ok(())
    }

    /// Writes the registers of parts that move now.
    pub(super) fn move_parts(&mut self, to: DcId, moved: &LockParts) {
        self.move_parts_as_of(to, moved, AsOf::here(self.map.sponsors().no_homes()));
    }

    /// Writes the registers of parts that an entry moved whose maker knew this of homes.
    pub(super) fn move_parts_as_of(&mut self, to: DcId, moved: &LockParts, as_of: AsOf<'_>) {
        self.write_parts(to, moved, |map, part_move| map.apply_as_of(part_move, as_of));
        let sponsors = self.map.sponsors();
        let is_owned = |part: DcId| {
            let owner = self.owner(&moved.lock, part);
            let was_home = to == sponsors.default_owner_as_of(&moved.lock, part, as_of);
            self.has_ended(part)
                || owner == to
                || (was_home && owner == self.default_owner(&moved.lock, part))
        };
        debug_assert!(
            self.has_ended(to) || moved.parts.iter().all(|(part, _)| is_owned(*part)),
            "moved parts have their new owner, or fall home from there"
        );
    }

    /// Writes the registers of parts that `owner` keeps, also those at their home.
    pub(super) fn keep_parts(&mut self, owner: DcId, kept: &LockParts) {
        self.write_parts(owner, kept, Ownership::keep);
    }

    fn write_parts(&mut self, to: DcId, moved: &LockParts, mut write: impl FnMut(&mut Ownership, PartMove)) {
        let was_away_here = !self.foreign_parts(&moved.lock).is_empty();
        let were_away = self.map.of(&moved.lock).away_owners();
        let has_ended = self.map.sponsors().left();
        for (part, version) in moved.parts.iter().filter(|(part, _)| !has_ended.contains(*part)) {
            let part_move = PartMove { lock: moved.lock.clone(), part: *part, owner: to, version: *version };
            if let Err(double_owner) = self.map.validate_op(&part_move) {
                panic!(
                    "{double_owner}: mutual exclusion is at stake, restore one of the two from its journal"
                );
            }
            let before = self.map.of(&moved.lock).written(*part);
            write(&mut self.map, part_move);
            let after = self.map.of(&moved.lock).written(*part);
            self.sums.subtract(&moved.lock, *part, before);
            self.sums.add(&moved.lock, *part, after);
        }
        self.away.change(were_away, self.map.of(&moved.lock).away_owners());
        let is_away_here = !self.foreign_parts(&moved.lock).is_empty();
        // A row that lost all registers in between is another one now.
        let is_new = is_away_here && !self.map.table().is_listed(&moved.lock);
        if was_away_here != is_away_here || is_new {
            self.map.table_mut().set_listed(&moved.lock, is_away_here);
        }
    }

    /// Returns the parts that go along with these parts of a lock when they move.
    pub(super) fn going_along(&self, lock: &LockName, parts: DcSet) -> DcSet {
        self.map.of(lock).going_along(parts)
    }

    /// Sets the members whose parts count, and those that have left.
    pub(super) fn set_members(&mut self, members: DcSet, left: DcSet) {
        debug_assert!(members.contains(self.me), "{} is a member", self.me);
        debug_assert!(members.intersection(left).is_empty(), "who has left is no member");
        (self.members, self.left) = (members, left);
    }

    /// Returns the members that have left, whose parts count no more.
    pub(super) fn left(&self) -> DcSet {
        self.left
    }

    /// Returns all datacenters that a lock known here may have as its home: members, and those that have
    /// left.
    pub fn homes(&self) -> DcSet {
        self.members.union(self.left)
    }

    /// Returns the parts that are not settled.
    pub fn sponsors(&self) -> &Sponsors {
        self.map.sponsors()
    }

    /// Sets the parts that are not settled, and those that have ended.
    pub(super) fn set_sponsors(&mut self, sponsors: Sponsors) {
        self.sums.set_ended(sponsors.left());
        *self.map.sponsors_mut() = sponsors;
    }

    pub(super) fn sponsors_mut(&mut self) -> &mut Sponsors {
        self.map.sponsors_mut()
    }

    /// A member joins with this epoch: its part goes along with that of `sponsor`.
    pub(super) fn admit(&mut self, part: DcId, sponsor: DcId, epoch: u64) {
        self.map.sponsors_mut().admit(part, sponsor);
        self.map.sponsors_mut().rules_mut().admit(part, epoch);
        self.sums.set_ended(self.map.sponsors().left());
    }

    /// Writes the row at this place of the map without what names members that have ended.
    pub(super) fn forget_ended(&mut self, row: usize) {
        let Some(lock) = self.map.lock_at(row).cloned() else { return };
        let were_away = self.map.at(row).map_or(DcSet::EMPTY, LockOwners::away_owners);
        self.map.forget_ended(row);
        self.away.change(were_away, self.map.of(&lock).away_owners());
    }

    /// A slot whose member had ended has another one, and no register names the earlier one.
    pub(super) fn reuse_slot(&mut self, slot: DcId) {
        self.sums.forget(DcSet::only(slot));
        self.left.remove(slot);
    }

    /// Drops the row at this place of the map if it says nothing any more; returns true if it did.
    pub(super) fn drop_settled(&mut self, row: usize) -> bool {
        let were_away = self.map.at(row).map_or(DcSet::EMPTY, LockOwners::away_owners);
        let is_dropped = self.map.drop_settled(row);
        if is_dropped {
            self.away.change(were_away, DcSet::EMPTY);
        }
        is_dropped
    }

    /// Replaces the map. Returns the one before. Locks keep their places in the order of use; those of which
    /// no use is known come first.
    pub(super) fn replace(&mut self, map: Ownership) -> Ownership {
        debug_assert_eq!(map.table().readers(), 0, "a map that replaces another is read by nobody");
        (self.sums, self.away) = (OwnershipSums::of_map(&map), AwayCounts::of_map(&map));
        let before = std::mem::replace(&mut self.map, map);
        let rows = 0..self.map.len();
        let names = rows.filter_map(|row| self.map.lock_at(row));
        let away_here = names.filter(|lock| !self.foreign_parts(lock).is_empty());
        let unknown: Vec<LockName> =
            away_here.filter(|lock| !before.table().is_listed(lock)).cloned().collect();
        unknown.iter().for_each(|lock| self.map.table_mut().set_listed(lock, true));
        for row in before.recency().oldest_first() {
            let lock = before.lock_at(row).expect("a listed row is there");
            self.list_if_away_here(lock);
            if let Some(used) = before.recency().used_at(row) {
                self.map.table_mut().note_used(lock, used);
            }
        }
        before
    }

    fn list_if_away_here(&mut self, lock: &LockName) {
        if !self.foreign_parts(lock).is_empty() {
            self.map.table_mut().set_listed(lock, true);
        }
    }

    /// A lock has no foreign parts here any more, although none has moved.
    pub(super) fn unlist(&mut self, lock: &LockName) {
        debug_assert!(self.foreign_parts(lock).is_empty(), "lock {lock} has foreign parts here");
        self.map.table_mut().set_listed(lock, false);
    }

    /// Records that a lock is in use here at that second, see
    /// [`RegisterTable::note_used`](crate::crdt::RegisterTable::note_used).
    pub(super) fn note_used(&mut self, lock: &LockName, second: NonZeroU32) {
        self.map.table_mut().note_used(lock, second);
    }

    pub(super) fn open_reader(&mut self) -> ReaderId {
        self.map.table_mut().open_reader()
    }

    pub(super) fn close_reader(&mut self, reader: ReaderId) {
        self.map.table_mut().close_reader(reader);
    }

    pub(super) fn read(&mut self, reader: ReaderId, most: usize) -> OwnedRows {
        self.map.table_mut().read(reader, most)
    }
}
