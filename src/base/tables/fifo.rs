//! A first-in-first-out queue that is never copied whole.

use std::collections::VecDeque;
use std::ops::{Index, Range};

/// Number of elements of a block.
const BLOCK: usize = 1 << 10;

/// A queue in blocks: it grows without a copy of its elements, and releases the memory of each block that is
/// empty.
#[derive(Debug)]
pub struct Fifo<T> {
    /// All except the first and the last one are full. Only the last one may be empty.
    blocks: VecDeque<VecDeque<T>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Fifo<T> {
        Fifo { blocks: VecDeque::new() }
    }
}

impl<T> Fifo<T> {
    /// Adds a value behind all others.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push_back(value),
            _ => self.blocks.push_back(VecDeque::from([value])),
        }
    }

    /// Returns the first value.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    /// Returns the last value.
    #[inline]
    pub fn back(&self) -> Option<&T> {
        let last = self.blocks.len().checked_sub(1)?;
        self.blocks[last].back().or_else(|| self.blocks.get(last.checked_sub(1)?)?.back())
    }

    /// Removes the first value.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        self.pop_front_if(|_| true)
    }

    /// Removes the first value if the predicate is true for it.
    #[inline]
    pub fn pop_front_if(&mut self, predicate: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let block = self.blocks.front_mut()?;
        let value = block.pop_front_if(predicate)?;
        if block.is_empty() && self.blocks.len() > 1 {
            self.blocks.pop_front();
        }
        debug_assert!(self.blocks.len() == 1 || !self.is_empty(), "no block before the last one is empty");
        Some(value)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match (self.blocks.front(), self.blocks.back()) {
            (Some(first), Some(last)) if self.blocks.len() > 1 => {
                first.len() + BLOCK * (self.blocks.len() - 2) + last.len()
            }
            (first, _) => first.map_or(0, VecDeque::len),
        }
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// Returns the block of the element at `index`, and its place there.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let first = self.blocks.front().map_or(0, VecDeque::len);
        match index.checked_sub(first) {
            None => (0, index),
            Some(beyond) => (1 + beyond / BLOCK, beyond % BLOCK),
        }
    }

    /// Returns the value at an index, counted from the front.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let (block, place) = self.place(index);
        self.blocks.get(block)?.get(place)
    }

    /// Returns the value at an index, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let (block, place) = self.place(index);
        self.blocks.get_mut(block)?.get_mut(place)
    }

    /// Visits all values, from the front.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    /// Returns the elements in a range of indexes, all of which must be present.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        range.map(|index| &self[index])
    }
}

impl<T> Index<usize> for Fifo<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the queue has an element at each place below its length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let (mut fifo, mut next) = (Fifo::default(), 0);
        for value in 0..10 * BLOCK {
            fifo.push_back(value);
            if value % 3 == 2 {
                assert_eq!(fifo.pop_front_if(|front| *front == next), Some(next));
                next += 1;
            }
            assert_eq!((fifo.len(), fifo.back()), (value + 1 - next, Some(&value).filter(|_| next <= value)));
            assert_eq!((fifo.get(0), fifo.get(fifo.len() - 1)), (Some(&next), Some(&value)));
            assert_eq!((fifo[fifo.len() / 2], fifo.get(fifo.len())), (next + fifo.len() / 2, None));
        }
        assert!(fifo.iter().copied().eq(next..10 * BLOCK));
        assert!(fifo.range(1..fifo.len()).copied().eq(next + 1..10 * BLOCK));
        assert_eq!((fifo.pop_front_if(|_| false), fifo.front()), (None, Some(&next)));
        for value in next..10 * BLOCK {
            assert_eq!(fifo.pop_front_if(|_| true), Some(value));
        }
        assert_eq!((fifo.is_empty(), fifo.len(), fifo.blocks.len()), (true, 0, 1));
    }
}
