//! Rows that keep their numbers, as in the crate `slab`, in blocks that are never copied.

use std::ops::{Index, IndexMut};

/// Number of rows of a block.
const BLOCK: usize = 1 << 8;
/// Memory for this number of rows is never released.
const KEPT: usize = 1 << 14;
/// Maximum number of blocks that are released at a time.
const BLOCKS_AT_A_TIME: usize = 16;

/// Values by number, in blocks that are never moved.
#[derive(Debug)]
pub struct Blocks<T>(Vec<Box<[T; BLOCK]>>);

impl<T> Default for Blocks<T> {
    fn default() -> Blocks<T> {
        Blocks(Vec::new())
    }
}

impl<T> Blocks<T> {
    /// Returns an upper bound: every number is below it.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.len() * BLOCK
    }

    #[inline]
    pub fn get(&self, row: usize) -> Option<&T> {
        Some(&self.0.get(row / BLOCK)?[row % BLOCK])
    }

    #[inline]
    pub fn get_mut(&mut self, row: usize) -> Option<&mut T> {
        Some(&mut self.0.get_mut(row / BLOCK)?[row % BLOCK])
    }

    /// Adds one block.
    #[cold]
    pub fn grow(&mut self, empty: impl FnMut() -> T) {
        let block: Box<[T]> = std::iter::repeat_with(empty).take(BLOCK).collect();
        self.0.push(block.try_into().ok().expect("a block is as long as a block"));
    }

    /// Releases some of the unused blocks from this number on, if there are many. Returns true if there are
    /// more to release.
    pub fn give_back(&mut self, from: usize) -> bool {
        let kept = (from + KEPT).div_ceil(BLOCK);
        self.0.truncate(kept.max(self.0.len().saturating_sub(BLOCKS_AT_A_TIME)));
        self.0.len() > kept
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().flat_map(|block| block.iter()).enumerate()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.0.iter_mut().flat_map(|block| block.iter_mut()).enumerate()
    }
}

impl<T> Index<usize> for Blocks<T> {
    type Output = T;

    #[inline]
    fn index(&self, row: usize) -> &T {
        &self.0[row / BLOCK][row % BLOCK]
    }
}

impl<T> IndexMut<usize> for Blocks<T> {
    #[inline]
    fn index_mut(&mut self, row: usize) -> &mut T {
        &mut self.0[row / BLOCK][row % BLOCK]
    }
}

/// Stands for no row.
const NONE: usize = usize::MAX;

/// Rows by number. The number of a removed row is used again, the last one first, because its memory is in a
/// cache.
#[derive(Debug)]
pub struct Rows<T> {
    blocks: Blocks<Place<T>>,
    /// The row that was removed last; it names the one removed before it.
    removed: usize,
    /// No row from this one on was used.
    unused: usize,
    len: usize,
}

#[derive(Debug)]
enum Place<T> {
    /// With the row that was removed before this one.
    Free(usize),
    Taken(T),
}

impl<T> Default for Rows<T> {
    fn default() -> Rows<T> {
        Rows { blocks: Blocks::default(), removed: NONE, unused: 0, len: 0 }
    }
}

impl<T> Rows<T> {
    pub fn new() -> Rows<T> {
        Rows::default()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an upper bound: every number is below it.
    #[inline]
    pub fn end(&self) -> usize {
        self.unused
    }

    #[inline]
    pub fn get(&self, row: usize) -> Option<&T> {
        match self.blocks.get(row)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, row: usize) -> Option<&mut T> {
        match self.blocks.get_mut(row)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    #[inline]
    pub fn contains(&self, row: usize) -> bool {
        self.get(row).is_some()
    }

    /// By number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.blocks.iter().filter_map(|(row, place)| match place {
            Place::Taken(value) => Some((row, value)),
            Place::Free(_) => None,
        })
    }

    /// By number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.blocks.iter_mut().filter_map(|(row, place)| match place {
            Place::Taken(value) => Some((row, value)),
            Place::Free(_) => None,
        })
    }

    /// Inserts a row. Returns its number.
    #[inline]
    pub fn insert(&mut self, value: T) -> usize {
        self.len += 1;
        let mut row = self.removed;
        if row == NONE {
            row = self.unused;
            self.unused += 1;
            if row == self.blocks.capacity() {
                self.blocks.grow(|| Place::Free(NONE));
            }
            self.blocks[row] = Place::Taken(value);
            return row;
        }
        let place = &mut self.blocks[row];
        match place {
            Place::Free(before) => self.removed = *before,
            Place::Taken(_) => unreachable!("row {row} was removed"),
        }
        *place = Place::Taken(value);
        row
    }

    /// Removes a row, which must be present.
    #[inline]
    pub fn remove(&mut self, row: usize) -> T {
        let place = &mut self.blocks[row];
        match std::mem::replace(place, Place::Free(self.removed)) {
            Place::Taken(value) => {
                self.removed = row;
                self.len -= 1;
                value
            }
            Place::Free(_) => missing(row),
        }
    }

    /// Releases some memory if there are no rows and there were many. Returns true if there is more to
    /// release.
    pub fn give_back(&mut self) -> bool {
        if self.is_empty() {
            (self.removed, self.unused) = (NONE, 0);
        }
        self.blocks.give_back(self.unused)
    }
}

#[cold]
#[inline(never)]
fn missing(row: usize) -> ! {
    panic!("row {row} is not there")
}

impl<T> Index<usize> for Rows<T> {
    type Output = T;

    #[inline]
    fn index(&self, row: usize) -> &T {
        match &self.blocks[row] {
            Place::Taken(value) => value,
            Place::Free(_) => missing(row),
        }
    }
}

impl<T> IndexMut<usize> for Rows<T> {
    #[inline]
    fn index_mut(&mut self, row: usize) -> &mut T {
        match &mut self.blocks[row] {
            Place::Taken(value) => value,
            Place::Free(_) => missing(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn rows_keep_their_numbers_and_leave_their_memory() {
        let many = KEPT + 50 * BLOCK;
        let (mut rows, mut model) = (Rows::new(), BTreeMap::new());
        let insert = |rows: &mut Rows<usize>, model: &mut BTreeMap<usize, usize>, value| {
            assert_eq!(model.insert(rows.insert(value), value), None, "a number is given once");
        };
        (0..many).for_each(|value| insert(&mut rows, &mut model, value));
        for row in (0..many).filter(|row| row % 3 > 0) {
            assert_eq!(Some(rows.remove(row)), model.remove(&row));
        }
        (0..many / 3).for_each(|value| insert(&mut rows, &mut model, value));
        assert!(rows.iter().map(|(row, value)| (row, *value)).eq(model.iter().map(|(r, v)| (*r, *v))));
        assert!(model.iter().all(|(row, value)| rows[*row] == *value && rows.contains(*row)));
        assert_eq!((rows.len(), rows.get(many), rows.get(many * 2)), (model.len(), None, None));
        assert!(!rows.give_back() && rows.end() == many, "there are rows");
        for row in model.into_keys() {
            rows.remove(row);
        }
        let times = (1..).take_while(|_| rows.give_back()).count();
        assert_eq!((times, rows.blocks.capacity()), (50 / BLOCKS_AT_A_TIME, KEPT));
        assert_eq!((rows.insert(7), rows.insert(8), rows.len(), rows.end()), (0, 1, 2, 2));
        assert_eq!((rows.remove(0), rows.insert(9), rows[1]), (7, 0, 8));
    }

    #[test]
    #[should_panic(expected = "row 1 is not there")]
    fn a_row_that_was_removed_is_not_there() {
        let mut rows = Rows::new();
        assert_eq!((rows.insert(7), rows.insert(8), rows.remove(1)), (0, 1, 8));
        rows.remove(1);
    }
}
