//! A first-in-first-out queue that is never copied whole.

use std::collections::VecDeque;

/// Elements of a block.
const BLOCK: usize = 1 << 10;

/// A queue in blocks: it grows without a copy of what is in it.
#[derive(Debug)]
pub struct Fifo<T> {
    /// Only the last one may be empty.
    blocks: VecDeque<VecDeque<T>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Fifo<T> {
        Fifo { blocks: VecDeque::new() }
    }
}

impl<T> Fifo<T> {
    #[inline]
    pub fn push_back(&mut self, value: T) {
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push_back(value),
            _ => self.blocks.push_back(VecDeque::from([value])),
        }
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    #[inline]
    pub fn pop_front_if(&mut self, predicate: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let block = self.blocks.front_mut()?;
        let value = block.pop_front_if(predicate)?;
        if block.is_empty() && self.blocks.len() > 1 {
            self.blocks.pop_front();
        }
        Some(value)
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
            if value % 3 == 0 {
                assert_eq!(fifo.pop_front_if(|front| *front == next), Some(next));
                next += 1;
            }
        }
        assert_eq!((fifo.pop_front_if(|_| false), fifo.front()), (None, Some(&next)));
        for value in next..10 * BLOCK {
            assert_eq!(fifo.pop_front_if(|_| true), Some(value));
        }
        assert!(fifo.front().is_none() && fifo.blocks.len() == 1);
    }
}
