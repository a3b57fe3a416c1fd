//! The owner of a part that has no register. Every question about such a part goes through here: the
//! ownership map, idle return, state transfer and the checks of the simulator.
//!
//! A part of a homed lock is owned by the home of the lock, if that is a member; a part of another lock by
//! the datacenter that it is named after (`docs/algorithm.md#32-the-map`). A part that comes to its default
//! owner loses its register. So a lock that is all there takes no memory, and a homed lock that nobody used
//! is used at its home without another datacenter.
//!
//! A slot whose member has ended is no home any more, also for its next member: the parts of locks with that
//! home belong to their namesakes since, and may be in use there.

use geolock_api::names::{DcId, DcSet, LockName};

/// Returns the owner of this part of a lock, if the part has no register. `no_homes`: the slots that are no
/// homes any more.
#[inline]
pub fn default_owner(lock: &LockName, part: DcId, no_homes: DcSet) -> DcId {
    home(lock, no_homes).unwrap_or(part)
}

/// Returns the home of a lock, if that is one.
#[inline]
pub fn home(lock: &LockName, no_homes: DcSet) -> Option<DcId> {
    lock.home().filter(|home| !no_homes.contains(*home))
}

/// Returns the parts among `members` whose default owner is `owner`.
#[inline]
pub fn default_parts(lock: &LockName, owner: DcId, members: DcSet, no_homes: DcSet) -> DcSet {
    match home(lock, no_homes) {
        None => DcSet::only(owner).intersection(members),
        Some(home) if home == owner => members,
        Some(_) => DcSet::EMPTY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_owner_are_those_that_it_owns_by_default() {
        let dc = |id| DcId::new(id).expect("a small id");
        let members = DcSet::from_iter([dc(0), dc(2), dc(5)]);
        for home in [None, Some(dc(0)), Some(dc(5)), Some(dc(9))] {
            let lock = LockName::with_home(home, b"x").expect("valid");
            for (owner, left) in
                (0..12).map(dc).flat_map(|owner| [(owner, DcSet::EMPTY), (owner, DcSet::only(dc(5)))])
            {
                let is_owned = |part: &DcId| default_owner(&lock, *part, left) == owner;
                let parts = members.iter().filter(is_owned).collect();
                assert_eq!(default_parts(&lock, owner, members, left), parts, "{lock}, {owner}");
            }
        }
    }
}
