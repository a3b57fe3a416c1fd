//! For tests: the chance and the agenda of a simulation.

use std::collections::BTreeMap;

/// Numbers from a seed, by xorshift (Marsaglia 2003).
pub(crate) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `most`; 0 if that is 0.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most.max(1)
    }

    /// As [`Dice::below`], for places in a list.
    pub fn place(&mut self, most: usize) -> usize {
        self.below(most as u64) as usize
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Actions in the order of their times; those of one time in the order in which they were entered.
pub(crate) struct Agenda<T, A> {
    actions: BTreeMap<(T, u64), A>,
    entered: u64,
}

impl<T, A> Default for Agenda<T, A> {
    fn default() -> Agenda<T, A> {
        Agenda { actions: BTreeMap::new(), entered: 0 }
    }
}

impl<T: Ord, A> Agenda<T, A> {
    pub fn enter(&mut self, at: T, action: A) {
        self.entered += 1;
        self.actions.insert((at, self.entered), action);
    }

    pub fn next(&mut self) -> Option<(T, A)> {
        self.actions.pop_first().map(|((at, _), action)| (at, action))
    }
}
