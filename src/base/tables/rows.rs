//! Rows that keep their indexes, as in the crate `slab`, in blocks that are never copied.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Number of rows of a block.
const BLOCK: usize = 1 << 8;
/// Memory for this number of rows is never released.
const KEPT: usize = 1 << 14;
const _: () = assert!(BLOCK.is_power_of_two() && KEPT.is_multiple_of(BLOCK), "a row is found by shifts");
/// Maximum number of blocks that are released at a time.
const BLOCKS_AT_A_TIME: usize = 16;

/// The index of a row: a number with a type of its own, so that a row of one table is not looked up in
/// another.
pub trait RowIndex: Copy {
    /// Returns the index of a row.
    fn from_row(row: usize) -> Self;
    /// Returns the number of the row.
    fn row(self) -> usize;
}

/// Makes a struct of one `u32` the index of rows.
macro_rules! row_index {
    ($index:ident) => {
        impl $crate::base::tables::RowIndex for $index {
            #[inline]
            fn from_row(row: usize) -> $index {
                debug_assert!(u32::try_from(row).is_ok(), "a table has fewer than 2^32 rows");
                $index(row as u32)
            }

            #[inline]
            fn row(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use row_index;

/// Values by index, in blocks that are never moved.
#[derive(Debug)]
pub struct Blocks<T, I> {
    blocks: Vec<Box<[T; BLOCK]>>,
    index: PhantomData<I>,
}

impl<T, I> Default for Blocks<T, I> {
    fn default() -> Blocks<T, I> {
        Blocks { blocks: Vec::new(), index: PhantomData }
    }
}

impl<T, I: RowIndex> Blocks<T, I> {
    /// Returns an upper bound: every row is below it.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// Returns a row.
    #[inline]
    pub fn get(&self, index: I) -> Option<&T> {
        Some(&self.blocks.get(index.row() / BLOCK)?[index.row() % BLOCK])
    }

    /// Returns a row, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        Some(&mut self.blocks.get_mut(index.row() / BLOCK)?[index.row() % BLOCK])
    }

    /// Adds one block.
    #[cold]
    pub fn grow(&mut self, empty: impl FnMut() -> T) {
        let block: Box<[T]> = std::iter::repeat_with(empty).take(BLOCK).collect();
        self.blocks.push(block.try_into().ok().expect("a block is as long as a block"));
    }

    /// Releases some of the unused blocks from this row on, if there are many. Returns true if there are more
    /// to release.
    pub fn give_back(&mut self, from: usize) -> bool {
        debug_assert!(from <= self.capacity(), "rows in use are in blocks");
        let kept = (from + KEPT).div_ceil(BLOCK);
        self.blocks.truncate(kept.max(self.blocks.len().saturating_sub(BLOCKS_AT_A_TIME)));
        self.blocks.len() > kept
    }

    fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let values = self.blocks.iter().flat_map(|block| block.iter());
        values.enumerate().map(|(row, value)| (I::from_row(row), value))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().flat_map(|block| block.iter_mut())
    }
}

impl<T, I: RowIndex> Index<I> for Blocks<T, I> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        &self.blocks[index.row() / BLOCK][index.row() % BLOCK]
    }
}

impl<T, I: RowIndex> IndexMut<I> for Blocks<T, I> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.blocks[index.row() / BLOCK][index.row() % BLOCK]
    }
}

/// Rows by index. The index of a removed row is used again, the last one first, because its memory is in a
/// cache.
#[derive(Debug)]
pub struct Rows<T, I> {
    blocks: Blocks<Place<T, I>, I>,
    /// The row that was removed last; it names the one removed before it.
    removed: Option<I>,
    /// No row from this one on was used.
    unused: usize,
    len: usize,
}

#[derive(Debug)]
enum Place<T, I> {
    /// With the row that was removed before this one.
    Free(Option<I>),
    Taken(T),
}

impl<T, I> Default for Rows<T, I> {
    fn default() -> Rows<T, I> {
        Rows { blocks: Blocks::default(), removed: None, unused: 0, len: 0 }
    }
}

impl<T, I: RowIndex> Rows<T, I> {
    /// Returns an empty table.
    pub fn new() -> Rows<T, I> {
        Rows::default()
    }

    /// Returns the number of rows in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no row is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an upper bound: every row is below it.
    #[inline]
    pub fn end(&self) -> usize {
        self.unused
    }

    /// Returns a row.
    #[inline]
    pub fn get(&self, index: I) -> Option<&T> {
        match self.blocks.get(index)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// Returns a row, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        match self.blocks.get_mut(index)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// Returns true if the row is in use.
    #[inline]
    pub fn contains(&self, index: I) -> bool {
        self.get(index).is_some()
    }

    /// By index.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.blocks.iter().filter_map(|(index, place)| match place {
            Place::Taken(value) => Some((index, value)),
            Place::Free(_) => None,
        })
    }

    /// By index, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().filter_map(|place| match place {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        })
    }

    /// Inserts a row. Returns its index.
    #[inline]
    pub fn insert(&mut self, value: T) -> I {
        self.len += 1;
        let Some(index) = self.removed else {
            let index = I::from_row(self.unused);
            if self.unused == self.blocks.capacity() {
                self.blocks.grow(|| Place::Free(None));
            }
            self.unused += 1;
            debug_assert_eq!(self.len, self.unused, "without removed rows, every row is in use");
            self.blocks[index] = Place::Taken(value);
            return index;
        };
        let place = &mut self.blocks[index];
        match place {
            Place::Free(before) => self.removed = *before,
            Place::Taken(_) => unreachable!("row {} was removed", index.row()),
        }
        *place = Place::Taken(value);
        index
    }

    /// Removes a row, which must be present.
    #[inline]
    pub fn remove(&mut self, index: I) -> T {
        let place = &mut self.blocks[index];
        match std::mem::replace(place, Place::Free(self.removed)) {
            Place::Taken(value) => {
                self.removed = Some(index);
                self.len -= 1;
                debug_assert!(self.len < self.unused, "the removed row can be used again");
                value
            }
            Place::Free(_) => missing(index.row()),
        }
    }

    /// Releases some memory if there are no rows and there were many. Returns true if there is more to
    /// release.
    pub fn give_back(&mut self) -> bool {
        if self.is_empty() {
            (self.removed, self.unused) = (None, 0);
        }
        self.blocks.give_back(self.unused)
    }
}

#[cold]
#[inline(never)]
fn missing(row: usize) -> ! {
    panic!("row {row} is not there")
}

impl<T, I: RowIndex> Index<I> for Rows<T, I> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        match &self.blocks[index] {
            Place::Taken(value) => value,
            Place::Free(_) => missing(index.row()),
        }
    }
}

impl<T, I: RowIndex> IndexMut<I> for Rows<T, I> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        match &mut self.blocks[index] {
            Place::Taken(value) => value,
            Place::Free(_) => missing(index.row()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl RowIndex for usize {
        fn from_row(row: usize) -> usize {
            row
        }

        fn row(self) -> usize {
            self
        }
    }

    #[test]
    fn rows_keep_their_numbers_and_leave_their_memory() {
        let many = KEPT + 50 * BLOCK;
        let (mut rows, mut model) = (Rows::<usize, usize>::new(), BTreeMap::new());
        let insert = |rows: &mut Rows<usize, usize>, model: &mut BTreeMap<usize, usize>, value| {
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
        let mut rows = Rows::<_, usize>::new();
        assert_eq!((rows.insert(7), rows.insert(8), rows.remove(1)), (0, 1, 8));
        rows.remove(1);
    }
}
