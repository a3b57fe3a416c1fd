//! The order in which listed rows of the ownership map were used: a list through the rows, the least recently
//! used first.
//!
//! The owner of the map decides which rows are listed (`lock_state/owners.rs`: those of locks with parts
//! here that have their homes elsewhere). The list is local; it is not replicated and not saved. Every
//! operation takes the same time however long the list is, so the lock that was unused for longest is known
//! without a scan. It costs 8 bytes a row. It stands apart from the registers, so a scan for locks that are
//! unused for long reads those of few.

use std::num::NonZeroU32;

use crate::base::tables::List;

/// Stands for no row.
const NONE: u32 = u32::MAX;

/// The place of a row in the list, and its last use.
#[derive(Clone, Copy)]
struct Use {
    /// See [`RegisterTable::note_used`](super::RegisterTable::note_used).
    used: Option<NonZeroU32>,
    older: u32,
    newer: u32,
    /// The weight of a row that is listed; 0 of any other.
    listed: u8,
}

impl Use {
    /// Of a row that is not listed, and of whose use nothing is known.
    const UNKNOWN: Use = Use { used: None, older: NONE, newer: NONE, listed: 0 };
}

/// The uses of the rows of a table, and the order of those that are listed.
#[derive(Clone)]
pub struct Recency {
    /// One for each row, at the same index.
    uses: List<Use>,
    oldest: u32,
    newest: u32,
    listed: usize,
    /// The sum of their weights.
    weight: usize,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency { uses: List::default(), oldest: NONE, newest: NONE, listed: 0, weight: 0 }
    }
}

impl Recency {
    /// Returns the second that was recorded last for the `index`-th lock, if there is one.
    pub fn used_at(&self, index: usize) -> Option<NonZeroU32> {
        self.uses.get(index).and_then(|row| row.used)
    }

    /// Returns the number of listed locks.
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// Returns the sum of the weights of the listed locks.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the index of the listed lock that was unused for longest.
    pub fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest as usize)
    }

    /// Returns the index of the listed lock that was used last.
    pub fn newest(&self) -> Option<usize> {
        (self.newest != NONE).then_some(self.newest as usize)
    }

    /// Returns the indices of the listed locks, the one that was unused for longest first.
    pub fn oldest_first(&self) -> impl Iterator<Item = usize> {
        let next_newer = |index: &usize| {
            let newer = self.at(*index).newer;
            (newer != NONE).then_some(newer as usize)
        };
        std::iter::successors(self.oldest(), next_newer)
    }

    /// Returns true if the `index`-th lock is listed.
    pub(super) fn is_listed(&self, index: usize) -> bool {
        self.at(index).listed > 0
    }

    /// Adds a row at the end of the table. It is not listed.
    pub(super) fn push(&mut self) {
        self.uses.push(Use::UNKNOWN);
    }

    /// Removes a row; the last one takes its index.
    pub(super) fn swap_remove(&mut self, index: usize) {
        if self.is_listed(index) {
            self.unlist(index);
        }
        self.uses.swap_remove(index);
        if index < self.uses.len() {
            let Use { older, newer, listed, .. } = *self.at(index);
            if listed > 0 {
                self.connect(older, index as u32);
                self.connect(index as u32, newer);
            }
        }
    }

    /// Records a use. A listed row becomes the most recently used one.
    pub(super) fn note_used(&mut self, index: usize, second: NonZeroU32) {
        self.at_mut(index).used = Some(second);
        if self.is_listed(index) && self.newest != index as u32 {
            let weight = self.at(index).listed;
            self.unlist(index);
            self.list(index, weight);
        }
    }

    /// Adds a row of this weight to the list, as the most recently used one; of weight 0: removes it and
    /// forgets its use. Nothing changes if it is listed already, or is not.
    pub(super) fn set_listed(&mut self, index: usize, weight: u8) {
        if self.is_listed(index) == (weight > 0) {
            return;
        }
        if weight > 0 {
            self.list(index, weight);
        } else {
            self.unlist(index);
            self.at_mut(index).used = None;
        }
    }

    fn at(&self, index: usize) -> &Use {
        self.uses.get(index).expect("every row has a use")
    }

    fn at_mut(&mut self, index: usize) -> &mut Use {
        self.uses.get_mut(index).expect("every row has a use")
    }

    fn list(&mut self, index: usize, weight: u8) {
        debug_assert!(!self.is_listed(index), "a row is listed once");
        let newest = std::mem::replace(&mut self.newest, index as u32);
        let row = self.at_mut(index);
        (row.older, row.newer, row.listed) = (newest, NONE, weight);
        match newest {
            NONE => self.oldest = index as u32,
            _ => self.at_mut(newest as usize).newer = index as u32,
        }
        self.listed += 1;
        self.weight += usize::from(weight);
        debug_assert!(self.listed <= self.uses.len(), "listed rows are rows");
    }

    fn unlist(&mut self, index: usize) {
        debug_assert!(self.is_listed(index), "a row that leaves the list is in it");
        let Use { older, newer, used, listed } = *self.at(index);
        self.connect(older, newer);
        *self.at_mut(index) = Use { used, ..Use::UNKNOWN };
        self.listed -= 1;
        self.weight -= usize::from(listed);
        debug_assert_eq!(
            self.listed == 0,
            self.oldest == NONE && self.newest == NONE,
            "a list has ends if it has rows"
        );
    }

    /// Makes two rows neighbours; [`NONE`] stands for an end of the list.
    fn connect(&mut self, older: u32, newer: u32) {
        match older {
            NONE => self.oldest = newer,
            _ => self.at_mut(older as usize).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.at_mut(newer as usize).older = older,
        }
    }

    /// Asserts the invariants, for a table that has this number of rows.
    pub(super) fn check(&self, rows: usize) {
        assert_eq!(self.uses.len(), rows, "every row has a use");
        let listed = self.oldest_first().inspect(|index| {
            assert!(self.is_listed(*index), "row {index} is in the list of uses and says so");
        });
        assert_eq!(listed.take(rows + 1).count(), self.listed, "the list of uses has all listed rows");
    }
}
