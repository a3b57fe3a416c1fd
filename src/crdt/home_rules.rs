//! Homes by prefix: a rule gives the locks below a prefix of names a home, as if it stood in their names.
//!
//! A rule changes the default owners of parts, and no lock is enumerated. So a change is not made at one
//! moment: each member *gives* the parts that it owns by default to the next owner, by an entry of its own
//! log, and keeps those of locks in use by their registers. Until a member has done so, its parts are its
//! own. Whether a part that comes to its default owner loses its register is judged by what the maker of
//! that entry knew ([`AsOf`]), so every replica writes the same registers
//! (`docs/algorithm/ownership.md#16-homes-by-prefix`).

use geolock_api::names::{DcId, DcSet, LockName};
use serde::{Deserialize, Serialize};

use super::version_vector::VersionVector;

/// The knowledge by which a default owner is judged: that of this replica, or of the maker of an entry.
#[derive(Clone, Copy, Debug)]
pub struct AsOf<'a> {
    /// The slots that are no homes any more in that epoch.
    pub no_homes: DcSet,
    /// The epoch of an entry, and the entries that its maker had applied; `None`: all that is applied here.
    pub entry: Option<(u64, &'a VersionVector)>,
}

impl AsOf<'_> {
    /// Returns the knowledge of a replica in which these slots are no homes any more.
    pub fn here(no_homes: DcSet) -> AsOf<'static> {
        AsOf { no_homes, entry: None }
    }

    fn has_entered(&self, epoch: u64) -> bool {
        self.entry.is_none_or(|(entered, _)| entered >= epoch)
    }

    fn has_applied(&self, dc: DcId, seq: u64) -> bool {
        self.entry.is_none_or(|(_, deps)| deps.get(dc) >= seq)
    }
}

/// The homes of prefixes. Wire and disk type.
///
/// A change stays in the list as long as entries may come whose makers did not know all that was given by it;
/// then it is folded into the homes that all agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeRules {
    /// The prefixes that had a home before the first of these changes, with these homes. In order, and none
    /// overlaps another.
    settled: Vec<(LockName, DcId)>,
    /// In the order of their epochs.
    changes: Vec<HomeChange>,
    /// The epoch of the last rule that was entered.
    last: u64,
}

/// A change of the home of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HomeChange {
    prefix: LockName,
    epoch: u64,
    home: Option<DcId>,
    /// Of each member that has given what it owned by default: the number of that entry.
    given: VersionVector,
    /// Members that own nothing by default from an epoch on: they have ended, or joined after the change.
    given_by_epoch: Vec<(DcId, u64)>,
}

/// Returns true if rules about this prefix are about this lock.
pub fn is_below(lock: &LockName, prefix: &LockName) -> bool {
    lock.home().is_none() && lock.as_bytes().starts_with(prefix.as_bytes())
}

impl HomeChange {
    fn has_given(&self, owner: DcId, as_of: AsOf<'_>) -> bool {
        let seq = self.given.get(owner);
        let by_epoch = |(dc, epoch): &(DcId, u64)| *dc == owner && as_of.has_entered(*epoch);
        (seq > 0 && as_of.has_applied(owner, seq)) || self.given_by_epoch.iter().any(by_epoch)
    }

    /// Returns the members that have given, or have nothing to give as of this epoch.
    fn givers(&self, epoch: u64) -> DcSet {
        let by_epoch = self.given_by_epoch.iter().filter(|(_, from)| *from <= epoch).map(|(dc, _)| *dc);
        self.given.iter().map(|(dc, _)| dc).chain(by_epoch).collect()
    }

    fn give_by_epoch(&mut self, dc: DcId, epoch: u64) {
        if !self.given_by_epoch.iter().any(|(other, _)| *other == dc) {
            self.given_by_epoch.push((dc, epoch));
        }
    }
}

impl HomeRules {
    /// Returns true if no lock has a home by its prefix, or had one a moment ago.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.changes.is_empty()
    }

    /// Returns the home of a lock before the changes in the list.
    fn settled_home(&self, lock: &LockName) -> Option<DcId> {
        if lock.home().is_some() {
            return None;
        }
        let behind = self.settled.partition_point(|(prefix, _)| prefix.as_bytes() <= lock.as_bytes());
        let (prefix, home) = &self.settled[behind.checked_sub(1)?];
        is_below(lock, prefix).then_some(*home)
    }

    /// Returns the changes that are about a lock.
    fn changes_of(&self, lock: &LockName) -> impl DoubleEndedIterator<Item = &HomeChange> {
        self.changes.iter().filter(move |change| is_below(lock, &change.prefix))
    }

    /// Returns true if a rule is about this lock, or was a moment ago.
    #[inline]
    pub fn covers(&self, lock: &LockName) -> bool {
        !self.is_empty() && (self.settled_home(lock).is_some() || self.changes_of(lock).next().is_some())
    }

    /// Returns the default owner of this part of a lock.
    #[inline]
    pub fn owner(&self, lock: &LockName, part: DcId, as_of: AsOf<'_>) -> DcId {
        if self.is_empty() { part } else { self.owner_by_rules(lock, part, as_of) }
    }

    /// Not inlined: most clusters have no rules.
    #[inline(never)]
    fn owner_by_rules(&self, lock: &LockName, part: DcId, as_of: AsOf<'_>) -> DcId {
        let mut owner = self.settled_home(lock).unwrap_or(part);
        for change in self.changes_of(lock).filter(|change| as_of.has_entered(change.epoch)) {
            if change.has_given(owner, as_of) {
                owner = change.home.unwrap_or(part);
            }
        }
        owner
    }

    /// Returns the home of a lock by the last rule that was entered, whoever has given his parts.
    #[inline]
    pub fn home(&self, lock: &LockName) -> Option<DcId> {
        if self.is_empty() {
            return None;
        }
        self.changes_of(lock).next_back().map_or_else(|| self.settled_home(lock), |change| change.home)
    }

    /// Returns true if a lock had a home by its prefix when `part`, which is not settled, was admitted.
    pub fn had_home_before(&self, lock: &LockName, part: DcId) -> bool {
        let is_before = |change: &HomeChange| change.given_by_epoch.iter().any(|(dc, _)| *dc == part);
        match self.changes_of(lock).next_back() {
            Some(change) => change.home.is_some() && is_before(change),
            None => self.settled_home(lock).is_some(),
        }
    }

    fn change(&self, epoch: u64) -> Option<&HomeChange> {
        self.changes.iter().find(|change| change.epoch == epoch)
    }

    /// Returns the prefix that the last rule is about, and its epoch, if this member has not given by it.
    pub fn to_give(&self, dc: DcId) -> Option<(&LockName, u64)> {
        let change = self.change(self.last)?;
        (!change.givers(u64::MAX).contains(dc)).then_some((&change.prefix, change.epoch))
    }

    /// Returns the prefix that the rule of an epoch is about.
    pub fn prefix(&self, epoch: u64) -> Option<&LockName> {
        self.change(epoch).map(|change| &change.prefix)
    }

    /// Returns true if all of these have given by the last rule.
    pub fn have_given(&self, members: DcSet) -> bool {
        self.change(self.last).is_none_or(|change| change.givers(u64::MAX).is_superset(members))
    }

    /// Returns the entries by which members gave by the last rule: the member and the number of each. Those
    /// of members that have ended since are left out.
    pub fn given(&self) -> impl Iterator<Item = (DcId, u64)> {
        let last = self.change(self.last);
        let is_over = |change: &HomeChange, of| change.given_by_epoch.iter().any(|(dc, _)| *dc == of);
        last.into_iter()
            .flat_map(move |change| change.given.iter().filter(move |(dc, _)| !is_over(change, *dc)))
    }

    /// Returns true if an entry may say that `dc` gives by the rule of this epoch: it has not yet.
    pub fn may_give(&self, dc: DcId, epoch: u64) -> bool {
        self.change(epoch).is_some_and(|change| !change.givers(u64::MAX).contains(dc))
    }

    /// The epoch of a rule is entered: locks below the prefix have this home when their parts are given.
    pub fn begin(&mut self, prefix: &LockName, home: Option<DcId>, epoch: u64, members: DcSet) {
        assert!(epoch > self.last, "rule {epoch} is entered after {}", self.last);
        debug_assert!(prefix.home().is_none(), "prefix {prefix} is that of plain names");
        self.fold_before(self.last, members);
        self.push(prefix.clone(), home, epoch);
        self.last = epoch;
    }

    fn push(&mut self, prefix: LockName, home: Option<DcId>, epoch: u64) {
        let (given, given_by_epoch) = (VersionVector::default(), Vec::new());
        self.changes.push(HomeChange { prefix, epoch, home, given, given_by_epoch });
    }

    /// Every entry to come is of this epoch at least, and its maker knows what was given by earlier rules.
    fn fold_before(&mut self, epoch: u64, members: DcSet) {
        while let Some(first) = self.changes.first().filter(|it| it.epoch < epoch) {
            let place = self.settled.binary_search_by(|(prefix, _)| prefix.cmp(&first.prefix));
            // Before it, all parts had that home, or each was its member's own.
            let owners = place.map_or(members, |at| DcSet::only(self.settled[at].1));
            if !first.givers(epoch).is_superset(owners) {
                return;
            }
            let first = self.changes.remove(0);
            match (place, first.home) {
                (Ok(at), Some(home)) => self.settled[at].1 = home,
                (Ok(at), None) => drop(self.settled.remove(at)),
                (Err(at), Some(home)) => self.settled.insert(at, (first.prefix, home)),
                (Err(_), None) => {}
            }
        }
    }

    /// The entry of `dc` with this number gives by the rule of an epoch.
    pub fn give(&mut self, dc: DcId, epoch: u64, seq: u64) {
        if let Some(change) = self.changes.iter_mut().find(|change| change.epoch == epoch) {
            change.given.raise(dc, seq);
        }
    }

    /// A member joins with this epoch: its parts go along, or belong to the home.
    pub fn admit(&mut self, dc: DcId, epoch: u64) {
        self.changes.iter_mut().for_each(|change| change.give_by_epoch(dc, epoch));
    }

    /// These members end with this epoch: they own nothing, and locks with that home have none.
    pub fn end(&mut self, ended: DcSet, epoch: u64) {
        let without: Vec<LockName> = self
            .homes()
            .filter(|(_, home)| ended.contains(*home))
            .map(|(prefix, _)| prefix.clone())
            .collect();
        for prefix in without {
            self.push(prefix, None, epoch);
        }
        for change in &mut self.changes {
            ended.iter().for_each(|dc| change.give_by_epoch(dc, epoch));
        }
    }

    /// Returns the prefixes that have a home, or had one a moment ago. Some are returned twice.
    pub fn prefixes(&self) -> impl Iterator<Item = &LockName> {
        self.settled.iter().map(|(prefix, _)| prefix).chain(self.changes.iter().map(|change| &change.prefix))
    }

    /// Returns the prefixes that have a home by the last rule about them, with these homes. Some are returned
    /// twice.
    fn homes(&self) -> impl Iterator<Item = (&LockName, DcId)> {
        let home = |prefix: &LockName| {
            let last = self.changes.iter().rfind(|change| change.prefix == *prefix);
            last.map_or_else(|| self.settled_home(prefix), |change| change.home)
        };
        self.prefixes().filter_map(move |prefix| Some((prefix, home(prefix)?)))
    }

    /// Returns the parts among `members` that `owner` owns by default.
    pub fn parts_of(&self, lock: &LockName, owner: DcId, members: DcSet, as_of: AsOf<'_>) -> DcSet {
        members.iter().filter(|part| self.owner(lock, *part, as_of) == owner).collect()
    }

    /// Returns true if a member that has entered this epoch can have these: prefixes are plain names in order
    /// and do not overlap, and epochs are in order.
    pub fn are_of(&self, epoch: u64) -> bool {
        let overlap = |pair: &[(LockName, DcId)]| is_below(&pair[1].0, &pair[0].0);
        self.settled.is_sorted_by(|a, b| a.0 < b.0)
            && !self.settled.windows(2).any(overlap)
            && self.prefixes().all(|prefix| prefix.home().is_none())
            && self.changes.is_sorted_by(|a, b| a.epoch <= b.epoch)
            && self.changes.iter().all(|change| change.epoch <= epoch)
            && self.last <= epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn name(text: &str) -> LockName {
        LockName::try_from(text).expect("valid")
    }

    fn all() -> DcSet {
        (0..3).map(dc).collect()
    }

    fn owners(rules: &HomeRules, lock: &str, as_of: AsOf<'_>) -> [u8; 3] {
        [0, 1, 2].map(|part| rules.owner(&name(lock), dc(part), as_of).get())
    }

    fn here() -> AsOf<'static> {
        AsOf::here(DcSet::EMPTY)
    }

    #[test]
    fn each_member_gives_what_it_owns() {
        let mut rules = HomeRules::default();
        rules.begin(&name("jobs/"), Some(dc(2)), 5, all());
        assert_eq!(owners(&rules, "jobs/7", here()), [0, 1, 2], "nobody has given");
        rules.give(dc(0), 5, 10);
        assert_eq!(owners(&rules, "jobs/7", here()), [2, 1, 2]);
        assert_eq!(
            (rules.have_given(all()), rules.may_give(dc(0), 5), rules.may_give(dc(1), 5)),
            (false, false, true)
        );
        let (before, after) = (VersionVector::default(), [(dc(0), 10)].into_iter().collect());
        let as_of = |epoch, deps| AsOf { no_homes: DcSet::EMPTY, entry: Some((epoch, deps)) };
        assert_eq!(owners(&rules, "jobs/7", as_of(5, &before)), [0, 1, 2], "its maker did not know it");
        assert_eq!(owners(&rules, "jobs/7", as_of(5, &after)), [2, 1, 2]);
        assert_eq!(owners(&rules, "jobs", here()), [0, 1, 2], "another lock");
        assert_eq!(rules.owner(&LockName::homed(dc(1), b"jobs/7").expect("valid"), dc(0), here()), dc(0));
        (1..3).for_each(|id| rules.give(dc(id), 5, 10));
        assert!(rules.have_given(all()) && rules.to_give(dc(0)).is_none());
        assert!(rules.given().eq((0..3).map(|id| (dc(id), 10))));
        rules.end(DcSet::only(dc(1)), 6);
        assert!(rules.given().eq([(dc(0), 10), (dc(2), 10)]), "entries of one that has ended may be cut off");
    }

    #[test]
    fn rules_follow_each_other_and_are_folded() {
        let mut rules = HomeRules::default();
        let give_all = |rules: &mut HomeRules, epoch| (0..3).for_each(|id| rules.give(dc(id), epoch, epoch));
        rules.begin(&name("a1"), Some(dc(2)), 1, all());
        give_all(&mut rules, 1);
        rules.begin(&name("a1"), None, 2, all());
        give_all(&mut rules, 2);
        // A prefix that overlaps one that has no home any more.
        rules.begin(&name("a"), Some(dc(1)), 3, all());
        rules.give(dc(0), 3, 3);
        assert_eq!(owners(&rules, "a12", here()), [1, 1, 2]);
        assert_eq!(owners(&rules, "a2", here()), [1, 1, 2]);
        give_all(&mut rules, 3);
        rules.begin(&name("b"), Some(dc(0)), 4, all());
        give_all(&mut rules, 4);
        rules.begin(&name("c"), Some(dc(0)), 5, all());
        assert_eq!((rules.settled.len(), rules.changes.len()), (1, 2), "{rules:?}");
        assert_eq!(owners(&rules, "a12", here()), [1, 1, 1]);
        assert!(rules.are_of(5) && !rules.are_of(4));
    }

    #[test]
    fn a_home_that_ends_is_none_and_a_new_member_has_nothing_to_give() {
        let mut rules = HomeRules::default();
        rules.begin(&name("a"), Some(dc(2)), 1, all());
        rules.give(dc(0), 1, 7);
        // It did not learn of the rule: from its end on nothing is its own.
        rules.end(DcSet::only(dc(2)), 2);
        assert_eq!(owners(&rules, "a", here()), [0, 1, 2], "each part is its member's own");
        rules.give(dc(1), 1, 7);
        assert_eq!(owners(&rules, "a", here()), [0, 1, 2]);
        assert_eq!(rules.home(&name("a")), None);
        rules.begin(&name("a"), Some(dc(1)), 3, all());
        rules.admit(dc(2), 4);
        assert_eq!(owners(&rules, "a", here()), [0, 1, 1], "the part of a new member is at the home");
        assert!(rules.had_home_before(&name("a"), dc(2)));
        rules.give(dc(0), 3, 9);
        assert!(rules.have_given(DcSet::from_iter([dc(0), dc(2)])));
    }
}
