//! A hash index: from the hash of a key to the number of the row that has the key.

use hashbrown::HashTable;

/// Number of parts of an index. At ten million rows each part has some forty thousand, which are moved in
/// some hundred microseconds.
const PARTS: usize = 256;
// hashbrown's tag has the highest 7 of the 32 bits, its bucket the lowest 16; a part has those between.
const _: () = assert!(PARTS.is_power_of_two() && PARTS <= 1 << 9, "the bits of a part are its own");
/// A part keeps memory for this number of rows.
const KEPT: usize = 64;

/// The numbers of rows, by the hashes of their keys. The keys are stored in the rows only: an entry of the
/// index takes eight bytes, and the index grows without reading rows. It is divided into many hash tables,
/// and one insertion or removal moves the entries of one of them at most.
#[derive(Clone, Debug)]
pub struct Index(Box<[HashTable<Slot>; PARTS]>);

impl Default for Index {
    fn default() -> Index {
        Index(Box::new(std::array::from_fn(|_| HashTable::new())))
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    row: u32,
}

/// Returns the hash for a `HashTable`, which uses the lowest bits (for the bucket) and the highest (for the
/// tag).
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) | u64::from(hash) << 32
}

/// Returns the part of an entry, by bits that its `HashTable` does not use.
#[inline]
fn part(hash: u32) -> usize {
    (hash >> 16) as usize % PARTS
}

/// Folds a hash into the 32 bits that [`Index`] keeps.
#[inline]
pub fn short_hash(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

impl Index {
    /// Returns the row with this hash for which `has_key` is true.
    #[inline]
    pub fn find(&self, hash: u32, mut has_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let matches = |slot: &Slot| slot.hash == hash && has_key(slot.row);
        self.0[part(hash)].find(spread(hash), matches).map(|slot| slot.row)
    }

    /// Adds a row that is not in the index.
    pub fn insert(&mut self, hash: u32, row: u32) {
        debug_assert!(self.find(hash, |other| other == row).is_none(), "row {row} is in the index once");
        self.0[part(hash)].insert_unique(spread(hash), Slot { hash, row }, |slot| spread(slot.hash));
    }

    /// Removes a row. Returns true if it was in the index.
    pub fn remove(&mut self, hash: u32, row: u32) -> bool {
        let table = &mut self.0[part(hash)];
        let found = table.find_entry(spread(hash), |slot| slot.row == row).map(|entry| entry.remove());
        let was_there = found.is_ok();
        if table.capacity() > KEPT && table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |slot| spread(slot.hash));
        }
        was_there
    }

    /// Changes the number of a row.
    ///
    /// # Panics
    /// If the row is not in the index.
    pub fn renumber(&mut self, hash: u32, from: u32, to: u32) {
        debug_assert!(self.find(hash, |row| row == to).is_none(), "row {to} is free");
        let slot = self.0[part(hash)].find_mut(spread(hash), |slot| slot.row == from);
        slot.expect("every row is in the index").row = to;
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;

    use super::*;

    #[test]
    fn rows_are_found_by_what_stands_in_them() {
        let hash = |name: u32| short_hash(FixedState::with_seed(7).hash_one(name / 2));
        let (mut index, mut names) = (Index::default(), Vec::new());
        for name in 0..10_000 {
            index.insert(hash(name), names.len() as u32);
            names.push(name);
        }
        for name in (0..10_000).step_by(2) {
            let row = index.find(hash(name), |row| names[row as usize] == name).expect("it is there");
            assert!(index.remove(hash(name), row) && !index.remove(hash(name), row));
            let last = names.len() as u32 - 1;
            if row < last {
                index.renumber(hash(names[last as usize]), last, row);
            }
            names.swap_remove(row as usize);
        }
        assert!(index.0.iter().all(|table| table.len() < 100), "all parts are used alike");
        let found = |name: u32| index.find(hash(name), |row| names[row as usize] == name);
        assert!((0..10_000).all(|name| found(name).is_some() == (name % 2 == 1)));
        (0..10_000)
            .filter_map(|name| Some((name, found(name)?)))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|(name, row)| assert!(index.remove(hash(name), row)));
        assert!(
            index.0.iter().all(|table| table.is_empty() && table.capacity() <= KEPT),
            "room for many stays"
        );
    }
}
