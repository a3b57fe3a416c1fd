//! The owner of a part that has no register. Every question about such a part goes through here: the
//! ownership map, idle return, state transfer and the checks of the simulator.
//!
//! A part of a homed lock is owned by the home of the lock, if that is a member; a part of another lock by
//! the home of its prefix, if a rule names one and the part was given to it (`home_rules.rs`), and else by
//! the datacenter that it is named after (`docs/algorithm/ownership.md#12-the-map`). A part that comes to its
//! default owner loses its register. So a lock that is all there takes no memory, and a homed lock that
//! nobody used is used at its home without another datacenter.
//!
//! A slot whose member has ended is no home any more, also for its next member: the parts of locks with that
//! home belong to their namesakes since, and may be in use there.

use geolock_api::names::{DcId, DcSet, LockName};

use super::home_rules::{AsOf, HomeRules};

/// Returns the home in the name of a lock, if that is one.
#[inline]
pub(super) fn named_home(lock: &LockName, no_homes: DcSet) -> Option<DcId> {
    lock.home().filter(|home| !no_homes.contains(*home))
}

/// Returns the owner of this part of a lock, if the part has no register.
#[inline]
pub(super) fn default_owner(lock: &LockName, part: DcId, rules: &HomeRules, as_of: AsOf<'_>) -> DcId {
    named_home(lock, as_of.no_homes).unwrap_or_else(|| rules.owner(lock, part, as_of))
}

/// Returns the parts among `members` whose default owner is `owner`.
#[inline]
pub(super) fn default_parts(
    lock: &LockName,
    owner: DcId,
    members: DcSet,
    rules: &HomeRules,
    no_homes: DcSet,
) -> DcSet {
    match named_home(lock, no_homes) {
        Some(home) if home == owner => members,
        Some(_) => DcSet::EMPTY,
        None if rules.is_empty() => DcSet::only(owner).intersection(members),
        None => rules.parts_of(lock, owner, members, AsOf::here(no_homes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_owner_are_those_that_it_owns_by_default() {
        let dc = |id| DcId::new(id).expect("a small id");
        let members = DcSet::from_iter([dc(0), dc(2), dc(5)]);
        let mut rules = HomeRules::default();
        rules.begin(&LockName::new(b"x").expect("valid"), Some(dc(2)), 7, members);
        rules.give(dc(5), 7, 3);
        for home in [None, Some(dc(0)), Some(dc(5)), Some(dc(9))] {
            for name in [&b"x"[..], b"y"] {
                let lock = LockName::with_home(home, name).expect("valid");
                for (owner, left) in
                    (0..12).map(dc).flat_map(|owner| [(owner, DcSet::EMPTY), (owner, DcSet::only(dc(5)))])
                {
                    let is_owned =
                        |part: &DcId| default_owner(&lock, *part, &rules, AsOf::here(left)) == owner;
                    let parts = members.iter().filter(is_owned).collect();
                    assert_eq!(default_parts(&lock, owner, members, &rules, left), parts, "{lock}, {owner}");
                }
            }
        }
    }
}
