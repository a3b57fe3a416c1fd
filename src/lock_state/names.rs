//! Index of the lock table by lock name.
//!
//! An entry is the index of a row and some bits of the name's hash; the name itself is stored once, in the
//! row. So the index takes few bytes per lock, it grows without reading rows, and a look-up touches little
//! memory beside the row that it finds.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::lock::{Lock, LockIndex};
use crate::base::tables::{Index, Rows, short_hash};
use geolock_api::names::LockName;

/// Finds the row of a lock by its name.
pub(super) struct Names {
    hasher: FixedState,
    table: Index,
}

impl Names {
    /// Returns an empty index. `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Names {
        Names { hasher: FixedState::with_seed(hash_seed), table: Index::default() }
    }

    #[inline]
    pub fn hash(&self, name: &LockName) -> u32 {
        short_hash(self.hasher.hash_one(name.identity()))
    }

    /// Returns the row of the lock with this name, whose hash is `hash`.
    #[inline]
    pub fn find(&self, hash: u32, name: &LockName, locks: &Rows<Lock, LockIndex>) -> Option<LockIndex> {
        self.table.find(hash, |row| locks[LockIndex(row)].name == *name).map(LockIndex)
    }

    /// Inserts a lock that is not in the index.
    pub fn insert(&mut self, hash: u32, lock: LockIndex) {
        self.table.insert(hash, lock.0);
    }

    /// Removes the lock of this row.
    pub fn remove(&mut self, hash: u32, lock: LockIndex) {
        self.table.remove(hash, lock.0);
    }
}
