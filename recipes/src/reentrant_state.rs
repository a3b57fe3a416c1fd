//! Pure. The locks that owners in this process hold, and how often: the decisions of reentrant locks.

use std::collections::BTreeMap;

use geolock_client::{LockName, Mode};

/// Locks of one request, each with the stronger mode in which it names it.
pub(crate) type Wanted = BTreeMap<LockName, Mode>;

/// The answer to a request of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Acquire it, and report the outcome for this grant.
    Acquire(u64),
    /// The owner holds all of it by this grant, which counts one more.
    Again(u64),
    /// Another request of the owner for some of it is under way: ask again when the table has changed.
    Wait,
    /// The owner holds this lock shared, and wants it exclusively.
    UpgradeNeeded(LockName),
    /// The owner holds this lock, and wants it together with locks that it does not hold by the same grant.
    HeldApart(LockName),
}

#[derive(Debug)]
struct Grant {
    owner: String,
    locks: Wanted,
    is_held: bool,
    count: usize,
}

/// The grants of this process. Owners and locks are few, so that it looks at all of an owner's.
#[derive(Debug, Default)]
pub(crate) struct Table {
    grants: BTreeMap<u64, Grant>,
    last: u64,
}

impl Table {
    pub fn ask(&mut self, owner: &str, wanted: &Wanted) -> Decision {
        let of_owner = || self.grants.iter().filter(|(_, grant)| grant.owner == owner);
        let shared = of_owner().flat_map(|(_, grant)| &grant.locks).find_map(|(lock, mode)| {
            let is_weak = *mode == Mode::Shared && wanted.get(lock) == Some(&Mode::Exclusive);
            is_weak.then(|| lock.clone())
        });
        if let Some(lock) = shared {
            return Decision::UpgradeNeeded(lock);
        }
        let overlap = of_owner().find_map(|(id, grant)| {
            let lock = wanted.keys().find(|lock| grant.locks.contains_key(lock))?;
            Some((*id, lock.clone()))
        });
        match overlap {
            None => {
                self.last += 1;
                let grant =
                    Grant { owner: owner.to_owned(), locks: wanted.clone(), is_held: false, count: 1 };
                self.grants.insert(self.last, grant);
                Decision::Acquire(self.last)
            }
            Some((id, lock)) => match self.grants.get_mut(&id) {
                Some(grant) if !wanted.keys().all(|lock| grant.locks.contains_key(lock)) => {
                    Decision::HeldApart(lock)
                }
                Some(grant) if grant.is_held => {
                    grant.count += 1;
                    Decision::Again(id)
                }
                _ => Decision::Wait,
            },
        }
    }

    /// The request was granted.
    pub fn granted(&mut self, id: u64) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.is_held = true;
        }
    }

    /// The request was not granted, or its locks are lost: the owner holds nothing by it.
    pub fn forget(&mut self, id: u64) {
        self.grants.remove(&id);
    }

    /// Returns true if that was the last release: the locks are to be released.
    pub fn release(&mut self, id: u64) -> bool {
        // A grant that was lost is forgotten, and each of its holders releases its remaining guards.
        let Some(grant) = self.grants.get_mut(&id) else { return false };
        grant.count -= 1;
        let is_last = grant.count == 0;
        if is_last {
            self.forget(id);
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> LockName {
        LockName::try_from(name).expect("a test name is valid")
    }

    fn wanted(locks: &[(&str, Mode)]) -> Wanted {
        locks.iter().map(|(name, mode)| (lock(name), *mode)).collect()
    }

    #[test]
    fn the_last_release_lets_go() {
        let mut table = Table::default();
        let both = wanted(&[("a", Mode::Exclusive), ("b", Mode::Shared)]);
        assert_eq!(table.ask("ann", &both), Decision::Acquire(1));
        assert_eq!(table.ask("ann", &both), Decision::Wait);
        assert_eq!(table.ask("bob", &both), Decision::Acquire(2), "owners are apart");
        table.granted(1);
        assert_eq!(table.ask("ann", &both), Decision::Again(1));
        assert_eq!(table.ask("ann", &wanted(&[("a", Mode::Shared)])), Decision::Again(1), "as strongly");
        assert_eq!([1, 1, 1].map(|id| table.release(id)), [false, false, true]);
        assert_eq!(table.ask("ann", &both), Decision::Acquire(3));
    }

    #[test]
    fn what_would_wait_for_itself_is_refused() {
        let mut table = Table::default();
        assert_eq!(table.ask("ann", &wanted(&[("a", Mode::Shared)])), Decision::Acquire(1));
        let stronger = wanted(&[("a", Mode::Exclusive)]);
        assert_eq!(table.ask("ann", &stronger), Decision::UpgradeNeeded(lock("a")), "also while it waits");
        table.granted(1);
        assert_eq!(table.ask("ann", &stronger), Decision::UpgradeNeeded(lock("a")));
        let more = wanted(&[("a", Mode::Shared), ("b", Mode::Exclusive)]);
        assert_eq!(table.ask("ann", &more), Decision::HeldApart(lock("a")));
        assert_eq!(table.ask("ann", &wanted(&[("b", Mode::Exclusive)])), Decision::Acquire(2));
        table.granted(2);
        assert_eq!(table.ask("ann", &more), Decision::HeldApart(lock("a")), "by two grants");
    }

    #[test]
    fn a_grant_that_is_lost_counts_no_more() {
        let mut table = Table::default();
        let one = wanted(&[("a", Mode::Exclusive)]);
        assert_eq!(table.ask("ann", &one), Decision::Acquire(1));
        table.granted(1);
        assert_eq!(table.ask("ann", &one), Decision::Again(1));
        table.forget(1);
        assert_eq!(table.ask("ann", &one), Decision::Acquire(2));
        table.granted(2);
        assert_eq!([1, 1, 2].map(|id| table.release(id)), [false, false, true]);
    }
}
