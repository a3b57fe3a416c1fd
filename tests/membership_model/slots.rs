//! Slots, tables by slot, and the numbers of entries.

use std::ops::{Index, IndexMut};

use geolock_api::names::DcId;

/// Number of slots.
pub const SLOTS: usize = 5;
/// Number of locks.
pub const LOCKS: usize = 3;

/// Returns the `index`-th slot.
pub fn slot(index: usize) -> DcId {
    assert!(index < SLOTS, "there are {SLOTS} slots");
    DcId::new(index as u8).expect("a small number")
}

/// Returns all slots.
pub fn slots() -> impl Iterator<Item = DcId> {
    (0..SLOTS).map(slot)
}

/// A value for each slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct BySlot<T>(pub [T; SLOTS]);

impl<T> Index<DcId> for BySlot<T> {
    type Output = T;
    fn index(&self, slot: DcId) -> &T {
        &self.0[slot.index()]
    }
}

impl<T> IndexMut<DcId> for BySlot<T> {
    fn index_mut(&mut self, slot: DcId) -> &mut T {
        &mut self.0[slot.index()]
    }
}

/// How often a slot was given out.
pub type Generation = u32;

/// The number of an entry: generation and count. The entries of a generation follow those of the one before,
/// so no number of a slot is ever used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Seq(u32);

impl Seq {
    /// Returns the number before the first entry of a generation.
    pub const fn before(generation: Generation) -> Seq {
        Seq(generation << 16)
    }

    pub const fn generation(self) -> Generation {
        self.0 >> 16
    }

    /// Returns the number that follows in this generation.
    pub fn next(self, generation: Generation) -> Seq {
        assert!(self.generation() <= generation, "the log is of a later generation");
        if self.generation() == generation { Seq(self.0 + 1) } else { Seq(Seq::before(generation).0 + 1) }
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.generation(), self.0 & 0xffff)
    }
}

/// The last entry of each slot that was applied.
pub type Vector = BySlot<Seq>;

/// Returns true if the first vector has all that the second has.
pub fn covers(vector: &Vector, other: &Vector) -> bool {
    slots().all(|slot| vector[slot] >= other[slot])
}
