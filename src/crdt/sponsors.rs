//! Sponsors: the owners of the parts of a member that has just joined.
//!
//! A member joins without a walk over all locks. Its part of every lock at first *goes along* with the part
//! of one old member, its sponsor, wherever that part is. Later the sponsor splits it off: from then on it
//! belongs to the new member wherever the sponsor's part is at home. When nothing goes along any more, the
//! part is *settled*, and this table forgets it.
//!
//! The part of a lock with a home goes along until it is settled, whether it is split off or not: the home
//! moves the sponsor's part away, and members would see that before or after the sponsor's split.

use geolock_api::names::{DcId, DcSet, LockName, MAX_DCS};

use super::default_owner::{default_owner, default_parts, named_home};
use super::home_rules::{AsOf, HomeRules};
use super::ownership::Register;

/// The parts that are not settled yet, by their members. Usually there is none.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Sponsors {
    /// In increasing order of parts.
    rows: Vec<Sponsored>,
    /// For each owner, the parts of a lock without registers that it owns; empty while all parts are settled.
    defaults: Vec<DcSet>,
    /// The members that have left or were evicted, and whose epoch of the end is entered: they own nothing.
    left: DcSet,
    /// The slots that had such a member, whether they have another one now or not: they are no homes.
    no_homes: DcSet,
    /// The homes of prefixes.
    rules: HomeRules,
}

/// A part that is not settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sponsored {
    /// The part.
    pub part: DcId,
    /// The member with whose part it goes along.
    pub sponsor: DcId,
    /// It belongs to its own member wherever the sponsor's part is at home.
    pub split: bool,
}

impl Sponsors {
    /// Returns true if every part is settled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the parts that are not settled.
    pub fn iter(&self) -> impl Iterator<Item = Sponsored> {
        self.rows.iter().copied()
    }

    /// Returns the row of a part that is not settled.
    pub fn get(&self, part: DcId) -> Option<Sponsored> {
        self.iter().find(|row| row.part == part)
    }

    /// Returns the parts that go along with the part of `sponsor`, or have gone along and are split off.
    pub fn of(&self, sponsor: DcId) -> impl Iterator<Item = Sponsored> {
        self.iter().filter(move |row| row.sponsor == sponsor)
    }

    /// A member joins: its part goes along with that of `sponsor`. If its slot had a member before, no
    /// register may name that one any more.
    ///
    /// # Panics
    /// If the part or the sponsor's part is not settled: only a settled member can be a sponsor.
    pub fn admit(&mut self, part: DcId, sponsor: DcId) {
        assert!(self.get(part).is_none(), "part {part} is admitted once");
        assert!(part != sponsor, "part {part} goes along with another one");
        assert!(self.get(sponsor).is_none(), "the sponsor {sponsor} of part {part} is settled");
        let place = self.rows.partition_point(|row| row.part < part);
        assert!(
            self.rows.iter().all(|row| row.sponsor != part),
            "part {part} is settled for those it sponsors"
        );
        self.rows.insert(place, Sponsored { part, sponsor, split: false });
        self.left.remove(part);
        debug_assert!(self.rows.is_sorted_by(|a, b| a.part < b.part), "parts are in order");
        self.compute_defaults();
    }

    /// The sponsor splits the part off.
    ///
    /// # Panics
    /// If the part is settled.
    pub fn split(&mut self, part: DcId) {
        let row = self.rows.iter_mut().find(|row| row.part == part);
        row.unwrap_or_else(|| panic!("part {part} is split off before it is settled")).split = true;
        self.compute_defaults();
    }

    /// Nothing goes along any more: the part is its own.
    ///
    /// # Panics
    /// If the part was not split off.
    pub fn settle(&mut self, part: DcId) {
        assert!(self.get(part).is_none_or(|row| row.split), "part {part} is split off before it is settled");
        self.rows.retain(|row| row.part != part);
        self.compute_defaults();
    }

    /// The sponsor ends, and has not split the part off, or has not said that nothing goes along any more:
    /// the part is its own.
    pub fn orphan(&mut self, part: DcId) {
        self.rows.retain(|row| row.part != part);
        self.compute_defaults();
    }

    /// Returns the members that have left or were evicted.
    #[inline]
    pub fn left(&self) -> DcSet {
        self.left
    }

    /// Returns the slots that are no homes any more.
    #[inline]
    pub fn no_homes(&self) -> DcSet {
        self.no_homes
    }

    /// Returns the home of a lock, if that is one.
    pub fn home(&self, lock: &LockName) -> Option<DcId> {
        named_home(lock, self.no_homes).or_else(|| self.rules.home(lock))
    }

    /// Returns true if a part that is not settled goes along until it is: that of a lock with a home.
    pub(super) fn goes_along_homed(&self, lock: &LockName, part: DcId) -> bool {
        named_home(lock, self.no_homes).is_some() || self.rules.had_home_before(lock, part)
    }

    /// Returns the homes of prefixes.
    pub fn rules(&self) -> &HomeRules {
        &self.rules
    }

    /// Returns the homes of prefixes, to be changed.
    pub fn rules_mut(&mut self) -> &mut HomeRules {
        &mut self.rules
    }

    /// The same with these homes of prefixes.
    pub fn with_rules(self, rules: HomeRules) -> Sponsors {
        Sponsors { rules, ..self }
    }

    /// Returns the owner of a part that has no register and goes along with no other.
    #[inline]
    pub fn default_owner(&self, lock: &LockName, part: DcId) -> DcId {
        self.default_owner_as_of(lock, part, AsOf::here(self.no_homes))
    }

    /// Returns the owner of such a part as the maker of an entry knew it.
    #[inline]
    pub fn default_owner_as_of(&self, lock: &LockName, part: DcId, as_of: AsOf<'_>) -> DcId {
        default_owner(lock, part, &self.rules, as_of)
    }

    /// These members have left or were evicted: they own nothing, are no homes, and their parts count no
    /// more.
    ///
    /// # Panics
    /// If the part of another member goes along with one of theirs: that one ends with its sponsor, or is
    /// settled before.
    pub fn end(&mut self, ended: DcSet) {
        self.left = self.left.union(ended);
        self.no_homes = self.no_homes.union(ended);
        self.rows.retain(|row| !ended.contains(row.part));
        assert!(
            self.rows.iter().all(|row| !ended.contains(row.sponsor)),
            "no part goes along with a part of a member that ends"
        );
        self.compute_defaults();
    }

    /// The same with these members that have left or were evicted, and these slots that are no homes any
    /// more.
    pub fn with_left(self, left: DcSet, no_homes: DcSet) -> Sponsors {
        debug_assert!(no_homes.is_superset(left), "who has left is no home");
        Sponsors { left, no_homes, ..self }
    }

    /// Returns the register of a part as it counts: what belongs to a member that has ended has fallen home,
    /// and so has a part that is named after one. The register itself stays until the part moves again.
    #[inline]
    pub fn as_it_counts(&self, part: DcId, register: Register) -> Register {
        let has_ended = |dc| self.left.contains(dc);
        if has_ended(part) || register.owner().is_some_and(has_ended) { Register::HOME } else { register }
    }

    /// Returns the owner of a part of a lock. `register`: the registers of the lock.
    pub fn owner(&self, lock: &LockName, part: DcId, register: impl Fn(DcId) -> Register) -> DcId {
        let register = |part| self.as_it_counts(part, register(part));
        let of_register = register(part);
        if of_register.is_home() {
            return self.default_owner(lock, part);
        }
        if let Some(owner) = of_register.owner() {
            return owner;
        }
        let Some(row) = self.get(part) else { return self.default_owner(lock, part) };
        // A sponsor is settled, so this ends.
        let with = register(row.sponsor).owner().unwrap_or_else(|| self.default_owner(lock, row.sponsor));
        let is_at_home = || with == self.default_owner(lock, row.sponsor);
        let is_split_off = row.split && !self.goes_along_homed(lock, part) && is_at_home();
        if is_split_off { self.default_owner(lock, part) } else { with }
    }

    /// Returns the parts among `members` that `owner` owns of this lock, if it has no registers.
    #[inline]
    pub fn parts_without_registers(&self, lock: &LockName, owner: DcId, members: DcSet) -> DcSet {
        if self.is_empty() || named_home(lock, self.no_homes).is_some() {
            default_parts(lock, owner, members, &self.rules, self.no_homes)
        } else if self.rules.covers(lock) {
            members.iter().filter(|part| self.owner(lock, *part, |_| Register::default()) == owner).collect()
        } else {
            self.default_parts(owner, members)
        }
    }

    #[inline]
    fn default_parts(&self, owner: DcId, members: DcSet) -> DcSet {
        let parts = self.defaults.get(owner.index()).copied().unwrap_or(DcSet::only(owner));
        parts.intersection(members)
    }

    fn compute_defaults(&mut self) {
        if self.rows.is_empty() {
            return self.defaults.clear();
        }
        let mut defaults: Vec<DcSet> = (0..MAX_DCS as u8).filter_map(DcId::new).map(DcSet::only).collect();
        for row in self.rows.iter().filter(|row| !row.split) {
            defaults[row.part.index()].remove(row.part);
            defaults[row.sponsor.index()].insert(row.part);
        }
        debug_assert_eq!(
            defaults.iter().map(|parts| parts.len()).sum::<usize>(),
            MAX_DCS,
            "every part has one default owner"
        );
        self.defaults = defaults;
    }
}

impl FromIterator<Sponsored> for Sponsors {
    fn from_iter<I: IntoIterator<Item = Sponsored>>(rows: I) -> Sponsors {
        let mut sponsors = Sponsors::default();
        for row in rows {
            sponsors.admit(row.part, row.sponsor);
            if row.split {
                sponsors.split(row.part);
            }
        }
        sponsors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn set(ids: &[u8]) -> DcSet {
        ids.iter().map(|id| dc(*id)).collect()
    }

    /// Part 2 goes along with part 0.
    fn joining() -> Sponsors {
        let mut sponsors = Sponsors::default();
        sponsors.admit(dc(2), dc(0));
        sponsors
    }

    fn owner(sponsors: &Sponsors, registers: &[(u8, Register)], part: u8) -> DcId {
        owner_of(sponsors, None, registers, part)
    }

    fn owner_of(sponsors: &Sponsors, home: Option<u8>, registers: &[(u8, Register)], part: u8) -> DcId {
        let lock = LockName::with_home(home.map(dc), b"x").expect("valid");
        let register =
            |of| registers.iter().find(|(part, _)| dc(*part) == of).map(|row| row.1).unwrap_or_default();
        sponsors.owner(&lock, dc(part), register)
    }

    #[test]
    fn a_new_part_goes_along_with_its_sponsors_part() {
        let sponsors = joining();
        assert_eq!(owner(&sponsors, &[], 2), dc(0));
        assert_eq!(owner(&sponsors, &[(0, Register::new(3, dc(1)))], 2), dc(1));
        assert_eq!(owner(&sponsors, &[(2, Register::new(1, dc(1)))], 2), dc(1), "it was moved by itself");
        assert_eq!(owner(&sponsors, &[(2, Register::HOME)], 2), dc(2));
        assert_eq!(sponsors.default_parts(dc(0), set(&[0, 1, 2])), set(&[0, 2]));
        assert_eq!(sponsors.default_parts(dc(0), set(&[0, 1])), set(&[0]), "for an entry of before");
        assert_eq!(sponsors.default_parts(dc(2), set(&[0, 1, 2])), set(&[]));
    }

    #[test]
    fn a_part_that_is_split_off_is_its_own_where_the_sponsors_part_is_at_home() {
        let mut sponsors = joining();
        sponsors.split(dc(2));
        assert_eq!(owner(&sponsors, &[], 2), dc(2));
        assert_eq!(owner(&sponsors, &[(0, Register::new(3, dc(1)))], 2), dc(1));
        assert_eq!(sponsors.default_parts(dc(2), set(&[0, 1, 2])), set(&[2]));
        sponsors.settle(dc(2));
        assert!(sponsors.is_empty());
        assert_eq!(owner(&sponsors, &[(0, Register::new(3, dc(1)))], 2), dc(2));
    }

    #[test]
    fn a_new_part_of_a_homed_lock_goes_along_until_it_is_settled() {
        let mut sponsors = joining();
        let away = [(0, Register::new(3, dc(0)))];
        for split in [false, true] {
            assert_eq!(owner_of(&sponsors, Some(1), &[], 2), dc(1), "at the home of the lock");
            assert_eq!(owner_of(&sponsors, Some(1), &away, 2), dc(0), "split: {split}");
            assert_eq!(owner_of(&sponsors, Some(1), &[away[0], (2, Register::HOME)], 2), dc(1));
            if !split {
                sponsors.split(dc(2));
            }
        }
        sponsors.settle(dc(2));
        assert_eq!(owner_of(&sponsors, Some(1), &away, 2), dc(1));
    }

    #[test]
    fn several_members_may_join_at_once() {
        let mut sponsors = joining();
        sponsors.admit(dc(1), dc(0));
        sponsors.split(dc(1));
        let all = set(&[0, 1, 2]);
        assert_eq!(sponsors.default_parts(dc(0), all), set(&[0, 2]));
        assert_eq!(sponsors.default_parts(dc(1), all), set(&[1]));
        assert_eq!(sponsors.iter().collect::<Sponsors>(), sponsors);
    }
}
