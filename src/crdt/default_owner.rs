//! The owner of a part that has no register. Every question about such a part goes through here: the
//! ownership map, idle return, state transfer and the checks of the simulator.
//!
//! A part of a homed lock is owned by the home of the lock, a part of a plain lock by the datacenter that it
//! is named after (`docs/algorithm.md#32-the-map`). A part that comes to its default owner loses its
//! register. So a lock that is all there takes no memory, and a homed lock that nobody used is used at its
//! home without another datacenter.

use geolock_api::names::{DcId, DcSet, LockName};

/// Returns the owner of this part of a lock, if the part has no register.
#[inline]
pub fn default_owner(lock: &LockName, part: DcId) -> DcId {
    lock.home().unwrap_or(part)
}

/// Returns the parts among `members` whose default owner is `owner`.
#[inline]
pub fn default_parts(lock: &LockName, owner: DcId, members: DcSet) -> DcSet {
    match lock.home() {
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
            for owner in (0..12).map(dc) {
                let parts = members.iter().filter(|part| default_owner(&lock, *part) == owner).collect();
                assert_eq!(default_parts(&lock, owner, members), parts, "{lock}, {owner}");
            }
        }
    }
}
