//! Locks by their name.
//!
//! The table has the place of a lock's row and some bits of the name's hash; the name itself stands in the row, once. So
//! it takes few bytes a lock, it grows without looking at a row, and a look-up touches little memory beside the row
//! that it is for.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slab::Slab;

use super::lock::{Lock, LockIndex};

/// See the module.
pub(super) struct Names {
    hasher: FixedState,
    table: HashTable<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    lock: LockIndex,
}

impl Slot {
    /// All bits that the table looks at: the lowest and the highest.
    fn spread(self) -> u64 {
        spread(self.hash)
    }
}

fn spread(hash: u32) -> u64 {
    u64::from(hash) | u64::from(hash) << 32
}

impl Names {
    /// An empty one; `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Names {
        Names { hasher: FixedState::with_seed(hash_seed), table: HashTable::new() }
    }

    #[inline]
    pub fn hash(&self, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(name);
        (hash ^ hash >> 32) as u32
    }

    /// The row of the lock with this name, whose hash is `hash`.
    #[inline]
    pub fn find(&self, hash: u32, name: &[u8], locks: &Slab<Lock>) -> Option<LockIndex> {
        let is_it = |slot: &Slot| slot.hash == hash && locks[slot.lock.0 as usize].name.as_bytes() == name;
        self.table.find(spread(hash), is_it).map(|slot| slot.lock)
    }

    /// Enters a lock that is not there.
    pub fn insert(&mut self, hash: u32, lock: LockIndex) {
        let slot = Slot { hash, lock };
        self.table.insert_unique(slot.spread(), slot, |slot| slot.spread());
    }

    /// There are no locks any more: gives the memory back.
    pub fn clear(&mut self) {
        assert!(self.table.is_empty(), "names go with their locks");
        self.table = HashTable::new();
    }

    /// Takes out the lock of this row.
    pub fn remove(&mut self, hash: u32, lock: LockIndex) {
        if let Ok(entry) = self.table.find_entry(spread(hash), |slot| slot.lock == lock) {
            entry.remove();
        }
    }
}
