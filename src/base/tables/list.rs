//! A vector that is never copied whole.

/// Number of values of a block.
const BLOCK: usize = 1 << 8;

/// A vector in blocks: it grows without a copy of its values.
#[derive(Clone, Debug)]
pub struct List<T> {
    /// All full except the last one, which is not empty.
    blocks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { blocks: Vec::new(), len: 0 }
    }
}

impl<T> List<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value at a place.
    pub fn get(&self, place: usize) -> Option<&T> {
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    /// Returns the value at a place, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.blocks.get_mut(place / BLOCK)?.get_mut(place % BLOCK)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    /// Adds a value at the end.
    pub fn push(&mut self, value: T) {
        match self.blocks.last_mut() {
            Some(block) if block.len() < BLOCK => block.push(value),
            _ => self.blocks.push(vec![value]),
        }
        self.len += 1;
        debug_assert_eq!(self.blocks.len(), self.len.div_ceil(BLOCK), "all blocks but the last are full");
    }

    /// Removes a value; the last one takes its place.
    ///
    /// # Panics
    /// If there is no value at `place`.
    pub fn swap_remove(&mut self, place: usize) -> T {
        let block = self.blocks.last_mut().expect("what is taken out is there");
        let last = block.pop().expect("no block is empty");
        if block.is_empty() {
            self.blocks.pop();
        }
        self.len -= 1;
        debug_assert_eq!(self.blocks.len(), self.len.div_ceil(BLOCK), "all blocks but the last are full");
        assert!(place <= self.len, "place {place} of {} has a value", self.len + 1);
        if place == self.len {
            last
        } else {
            std::mem::replace(&mut self.blocks[place / BLOCK][place % BLOCK], last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vector() {
        let (mut list, mut vector) = (List::default(), Vec::new());
        for value in 0..3 * BLOCK {
            list.push(value);
            vector.push(value);
        }
        *list.get_mut(7).expect("it is there") = 5;
        vector[7] = 5;
        for place in (0..3 * BLOCK).rev().map(|n| n / 2) {
            assert_eq!(list.swap_remove(place), vector.swap_remove(place));
            assert!(
                list.len() == vector.len() && list.iter().eq(&vector) && list.get(place) == vector.get(place)
            );
        }
        assert!(list.is_empty() && list.blocks.is_empty());
    }
}
