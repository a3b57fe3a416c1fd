//! A walk over the lock table, a few rows per step, which finds the locks that are in use here: their parts
//! are named or kept before this datacenter gives away what it does not name (`joining.rs`, `rehoming.rs`).
//!
//! Locks may be granted behind the walk. So it is repeated until few locks are found, and the last walk is
//! one step.

use super::lock::{Lock, LockIndex};
use super::tables::Tables;
use crate::base::tables::RowIndex;
use crate::base::work;

/// Most rows that one step examines, before the last walk.
pub(super) const ROWS_PER_STEP: usize = 1_024;
/// Most locks that one step finds, before the last walk.
pub(super) const FOUND_PER_STEP: usize = 64;
/// Most locks that are not held and are found all the same: each costs a row everywhere.
pub(super) const MOST_UNHELD: usize = 100_000;

/// The progress of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseWalk {
    /// The rows below this one are still to be examined.
    left: usize,
    /// Locks that this walk has found.
    found: usize,
    /// In the first walk, so many locks that are not held may still be found.
    unheld: usize,
}

impl UseWalk {
    pub fn begin(tables: &Tables) -> UseWalk {
        UseWalk { left: tables.locks.end(), found: 0, unheld: MOST_UNHELD }
    }

    /// Does a step. Returns true if that was the last walk. `is_held`: the lock is to be found in every walk.
    /// `find`: does what is needed for a lock in use, or returns false if nothing is.
    pub fn step(
        &mut self,
        tables: &mut Tables,
        is_held: impl Fn(&Lock) -> bool,
        mut find: impl FnMut(&mut Tables, LockIndex) -> bool,
    ) -> bool {
        let is_last = self.left == 0 && self.found <= FOUND_PER_STEP;
        if self.left == 0 {
            // Under load, locks come as fast as they are walked over.
            *self = UseWalk { unheld: 0, ..UseWalk::begin(tables) };
        }
        let (mut examined, before) = (0, self.found);
        while self.left > 0 && (is_last || (examined < ROWS_PER_STEP && self.found - before < FOUND_PER_STEP))
        {
            self.left -= 1;
            examined += 1;
            let index = LockIndex::from_row(self.left);
            let Some(lock) = tables.locks.get(index) else { continue };
            let is_held = is_held(lock);
            let is_used = is_held || (self.unheld > 0 && lock.is_used_exclusively());
            if is_used && find(tables, index) {
                self.found += 1;
                self.unheld = self.unheld.saturating_sub(usize::from(!is_held));
            }
        }
        work::count(if is_last { self.found } else { examined });
        is_last
    }
}
