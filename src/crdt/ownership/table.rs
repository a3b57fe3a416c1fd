//! The table of the ownership map: a row for each lock that has a register, found by its name.
//!
//! The table knows nothing of what a register means. Rows are changed here only, so the index, the order of
//! use and the readers follow every change.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use foldhash::fast::FixedState;
use geolock_api::names::{DcId, LockName};

use super::Register;
use super::readers::{ReaderId, Readers};
use super::recency::Recency;
use super::row::{LockRow, OwnedRows, Registers};
use crate::base::tables::{Index, List, short_hash};

/// Bytes of a name for which a lock counts once.
const COUNTED_NAME: usize = 256;

/// Returns how many times a lock counts where the number of locks bounds memory: once for each 256 bytes of
/// its name, or part of them.
pub fn lock_weight(lock: &LockName) -> u8 {
    let weight = lock.as_bytes().len().div_ceil(COUNTED_NAME).max(1);
    u8::try_from(weight).expect("a name has at most 1024 bytes")
}

/// The rows of an ownership map, with what is local about them: their order of use, and their readers.
#[derive(Clone, Default)]
pub struct RegisterTable {
    hasher: FixedState,
    index: Index,
    rows: List<LockRow>,
    recency: Recency,
    readers: Readers,
}

impl RegisterTable {
    /// Records that a lock is in use here at that second of any clock that begins at 1, if it has a register.
    /// A listed lock becomes the most recently used one.
    pub fn note_used(&mut self, lock: &LockName, second: NonZeroU32) {
        if let Some(place) = self.find(lock) {
            self.recency.note_used(place, second);
        }
    }

    /// Adds a lock that has a register to the list of uses, as the most recently used one, or removes it and
    /// forgets its use. Nothing changes if it is listed already, or is not.
    pub fn set_listed(&mut self, lock: &LockName, listed: bool) {
        if let Some(place) = self.find(lock) {
            self.recency.set_listed(place, if listed { lock_weight(lock) } else { 0 });
        }
    }

    /// Returns true if a lock is in the list of uses.
    pub fn is_listed(&self, lock: &LockName) -> bool {
        self.find(lock).is_some_and(|place| self.recency.is_listed(place))
    }

    /// Opens a reader of the table as it is now; [`RegisterTable::read`] reads from it until
    /// [`RegisterTable::close_reader`].
    pub fn open_reader(&mut self) -> ReaderId {
        self.readers.open(self.rows.len())
    }

    /// Returns the registers of the next locks: of `most`, or of as many as there are.
    ///
    /// # Panics
    /// If the reader was closed.
    pub fn read(&mut self, reader: ReaderId, most: usize) -> OwnedRows {
        self.readers.read(reader, most, &self.rows)
    }

    /// Ends a reader; rows need no longer be kept for it.
    pub fn close_reader(&mut self, reader: ReaderId) {
        self.readers.close(reader);
    }

    /// Returns the number of open readers.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    pub(super) fn with_seed(hash_seed: u64) -> RegisterTable {
        RegisterTable { hasher: FixedState::with_seed(hash_seed), ..RegisterTable::default() }
    }

    pub(super) fn recency(&self) -> &Recency {
        &self.recency
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn hash(&self, lock: &LockName) -> u32 {
        short_hash(self.hasher.hash_one(lock.identity()))
    }

    pub(super) fn find(&self, lock: &LockName) -> Option<usize> {
        // Most locks are at home.
        if self.rows.is_empty() {
            return None;
        }
        let has_name = |place: u32| self.at(place as usize).lock() == lock;
        self.index.find(self.hash(lock), has_name).map(|place| place as usize)
    }

    pub(super) fn row(&self, lock: &LockName) -> Option<&LockRow> {
        self.find(lock).map(|place| self.at(place))
    }

    pub(super) fn get(&self, place: usize) -> Option<&LockRow> {
        self.rows.get(place)
    }

    fn at(&self, place: usize) -> &LockRow {
        self.rows.get(place).expect("the index names rows that are there")
    }

    fn change(&mut self, place: usize) -> &mut LockRow {
        self.readers.note_before(place, &self.rows);
        self.rows.get_mut(place).expect("the index names rows that are there")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LockRow> {
        self.rows.iter()
    }

    /// Adds the row of a lock that has none.
    pub(super) fn push(&mut self, row: LockRow) {
        let place = u32::try_from(self.rows.len()).expect("fewer than 2^32 locks are away");
        debug_assert!(self.find(row.lock()).is_none(), "lock {} has one row", row.lock());
        self.index.insert(self.hash(row.lock()), place);
        self.rows.push(row);
        self.recency.push();
    }

    /// Adds a row, in place of the one that its lock has.
    pub(super) fn replace(&mut self, row: LockRow) {
        match self.find(row.lock()) {
            Some(place) => *self.change(place) = row,
            None => self.push(row),
        }
    }

    /// Writes a register of the row at this place.
    pub(super) fn set_at(&mut self, place: usize, part: DcId, to: Register) {
        self.change(place).set(part, to);
    }

    /// Writes a register, in a new row if the lock has none.
    pub(super) fn set(&mut self, lock: &LockName, part: DcId, to: Register) {
        match self.find(lock) {
            Some(place) => self.set_at(place, part, to),
            None => {
                let mut row = LockRow::new(lock.clone(), Registers::new());
                row.set(part, to);
                self.push(row);
            }
        }
    }

    /// Removes a row; the last one takes its place.
    pub(super) fn remove(&mut self, place: usize) {
        let last = self.rows.len() - 1;
        self.readers.note_before(place, &self.rows);
        self.readers.note_before(last, &self.rows);
        self.recency.swap_remove(place);
        let removed = self.rows.swap_remove(place);
        self.index.remove(self.hash(removed.lock()), place as u32);
        if last != place {
            self.index.renumber(self.hash(self.at(place).lock()), last as u32, place as u32);
        }
        debug_assert!(self.find(removed.lock()).is_none(), "lock {} has no row any more", removed.lock());
    }

    /// Returns a copy of the rows, without what is local about them.
    pub(super) fn copy(&self) -> RegisterTable {
        self.copy_into(RegisterTable { hasher: self.hasher.clone(), ..RegisterTable::default() })
    }

    /// Returns a copy of the rows under another hash seed, without what is local about them.
    pub(super) fn reseeded(&self, hash_seed: u64) -> RegisterTable {
        self.copy_into(RegisterTable::with_seed(hash_seed))
    }

    fn copy_into(&self, mut empty: RegisterTable) -> RegisterTable {
        self.rows.iter().for_each(|row| empty.push(row.clone()));
        empty
    }

    /// Asserts the invariants. Walks the whole table.
    pub(super) fn check(&self) {
        for (place, row) in self.rows.iter().enumerate() {
            assert_eq!(self.find(row.lock()), Some(place), "lock {} is found by its name", row.lock());
        }
        self.recency.check(self.rows.len());
        self.readers.check(self.rows.len());
    }
}
