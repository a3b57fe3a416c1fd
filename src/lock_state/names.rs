//! Locks by their name.
//!
//! The table has the place of a lock's row and some bits of the name's hash; the name itself stands in the row, once. So
//! it takes few bytes a lock, it grows without looking at a row, and a look-up touches little memory beside the row
//! that it is for.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::lock::{Lock, LockIndex};
use crate::tables::{Index, Rows, short_hash};

/// See the module.
pub(super) struct Names {
    hasher: FixedState,
    table: Index,
}

impl Names {
    /// An empty one; `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Names {
        Names { hasher: FixedState::with_seed(hash_seed), table: Index::default() }
    }

    #[inline]
    pub fn hash(&self, name: &[u8]) -> u32 {
        short_hash(self.hasher.hash_one(name))
    }

    /// The row of the lock with this name, whose hash is `hash`.
    #[inline]
    pub fn find(&self, hash: u32, name: &[u8], locks: &Rows<Lock>) -> Option<LockIndex> {
        self.table.find(hash, |row| locks[row as usize].name.as_bytes() == name).map(LockIndex)
    }

    /// Enters a lock that is not there.
    pub fn insert(&mut self, hash: u32, lock: LockIndex) {
        self.table.insert(hash, lock.0);
    }

    /// Takes out the lock of this row.
    pub fn remove(&mut self, hash: u32, lock: LockIndex) {
        self.table.remove(hash, lock.0);
    }
}
