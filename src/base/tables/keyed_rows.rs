//! Rows with a key each.

use std::hash::{BuildHasher, Hash};
use std::ops;

use foldhash::fast::FixedState;

use super::{Index, RowIndex, Rows, short_hash};

/// A row that has its key in it.
pub trait Keyed {
    /// The type of the key.
    type Key: Eq + Hash;

    /// Returns the key. It does not change while the row is in a table.
    fn key(&self) -> &Self::Key;
}

/// [`Rows`] that are found by their keys, too. Iteration is in the order of the rows, never of hashes.
#[derive(Debug)]
pub struct KeyedRows<T, I> {
    hasher: FixedState,
    index: Index,
    rows: Rows<T, I>,
}

impl<T: Keyed, I: RowIndex> KeyedRows<T, I> {
    /// Returns an empty table. `hash_seed` keeps clients from choosing keys that collide.
    pub fn with_seed(hash_seed: u64) -> KeyedRows<T, I> {
        KeyedRows { hasher: FixedState::with_seed(hash_seed), index: Index::default(), rows: Rows::new() }
    }

    /// Returns the number of rows in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if no row is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns an upper bound: every row is below it.
    pub fn end(&self) -> usize {
        self.rows.end()
    }

    fn hash(&self, key: &T::Key) -> u32 {
        short_hash(self.hasher.hash_one(key))
    }

    /// Returns the row of a key.
    #[inline]
    pub fn find(&self, key: &T::Key) -> Option<I> {
        if self.rows.is_empty() {
            return None;
        }
        self.find_hashed(self.hash(key), key)
    }

    fn find_hashed(&self, hash: u32, key: &T::Key) -> Option<I> {
        let has_key = |row| self.rows[I::from_row(row as usize)].key() == key;
        self.index.find(hash, has_key).map(|row| I::from_row(row as usize))
    }

    /// Returns a row.
    pub fn get(&self, index: I) -> Option<&T> {
        self.rows.get(index)
    }

    /// Returns a row, to be changed.
    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.rows.get_mut(index)
    }

    /// By row.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().map(|(_, value)| value)
    }

    /// By row, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut()
    }

    /// Inserts a row.
    ///
    /// # Panics
    /// If its key has one.
    pub fn insert(&mut self, value: T) -> I {
        let hash = self.hash(value.key());
        assert!(self.find_hashed(hash, value.key()).is_none(), "a key has one row");
        let index = self.rows.insert(value);
        self.index.insert(hash, u32::try_from(index.row()).expect("a table has fewer than 2^32 rows"));
        index
    }

    /// Removes a row, which must be present.
    pub fn remove(&mut self, index: I) -> T {
        let value = self.rows.remove(index);
        let was_found = self.index.remove(self.hash(value.key()), index.row() as u32);
        assert!(was_found, "a row is found by its key until it is removed");
        value
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        (self.index, self.rows) = (Index::default(), Rows::new());
    }

    /// Asserts that each row is found by its key. Walks all rows: for tests and the simulator.
    ///
    /// # Panics
    /// If one is not.
    pub fn check(&self) {
        for (index, value) in self.rows.iter() {
            let found = self.find(value.key()).map(RowIndex::row);
            assert_eq!(found, Some(index.row()), "a key has the row that it is in");
        }
    }
}

impl<T: Keyed, I: RowIndex> ops::Index<I> for KeyedRows<T, I> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        &self.rows[index]
    }
}

impl<T: Keyed, I: RowIndex> ops::IndexMut<I> for KeyedRows<T, I> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.rows[index]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Keyed for (u64, u64) {
        type Key = u64;

        fn key(&self) -> &u64 {
            &self.0
        }
    }

    #[test]
    fn a_row_is_found_by_its_key_while_it_is_there() {
        let mut rows = KeyedRows::<(u64, u64), usize>::with_seed(7);
        let mut model = BTreeMap::new();
        for n in 0..20_000_u64 {
            let key = n * 7_919 % 3_001;
            match rows.find(&key) {
                Some(row) if n % 3 == 0 => assert_eq!(Some(rows.remove(row).1), model.remove(&key)),
                Some(row) => {
                    rows[row].1 = n;
                    model.insert(key, n);
                }
                None => {
                    rows.insert((key, n));
                    assert_eq!(model.insert(key, n), None);
                }
            }
        }
        assert!(rows.len() > 1_000 && rows.len() == model.len() && rows.end() >= rows.len());
        for (key, value) in &model {
            let row = rows.find(key).expect("it was inserted");
            assert_eq!((rows[row], rows.get(row)), ((*key, *value), Some(&(*key, *value))));
        }
        assert_eq!((0..4_000).filter(|key| rows.find(key).is_some()).count(), model.len());
        rows.check();
        rows.iter_mut().for_each(|(_, value)| *value = 1);
        assert_eq!(
            rows.iter().copied().collect::<BTreeMap<_, _>>(),
            model.keys().map(|key| (*key, 1)).collect()
        );
        rows.clear();
        assert!(rows.is_empty() && rows.find(&1).is_none() && rows.iter().next().is_none());
    }
}
