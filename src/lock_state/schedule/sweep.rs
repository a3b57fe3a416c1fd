//! Work on every lock, every request, or every reader of a lock is spread over several steps.
//!
//! When the phase changes, all locks are examined again. When a datacenter goes away or comes back, all
//! waiting requests are. When a writer leaves a lock, all readers that waited behind it are. A step examines
//! a bounded number of each; later steps do the rest. A row that was not reached yet has its state from
//! before the change: it waits a moment longer, or keeps a place that it will lose. Nothing wrong is granted
//! or transferred by that, because permission is checked when the action is done
//! (`docs/algorithm/model.md#2-the-machine`).

use std::collections::BTreeMap;

use super::Schedule;
use crate::base::work;
use crate::lock_state::lock::LockIndex;
use crate::lock_state::queue::Order;
use crate::lock_state::tables::Tables;

/// Maximum number of locks that one step examines again.
const LOCKS_PER_STEP: usize = 512;
/// Maximum number of requests and of locks in their wants that one step examines again.
const WANTS_PER_STEP: usize = 2048;
/// Maximum number of readers behind writers, and of locks in their wants, that one step examines; for all
/// locks together.
const READERS_PER_STEP: usize = 512;
/// Maximum number of requests that wait for parts whose owner changed, and of locks in their wants, that one
/// step examines. If there are more, they are examined in the sweep of all requests.
const MOVED_PER_STEP: usize = 512;

/// Progress of the sweeps.
#[derive(Default)]
pub(super) struct Sweeps {
    /// Index of the next row of the lock table.
    locks: Option<usize>,
    requests: Option<Round>,
    /// Places at which the readers of locks continue: in the next step, and in this step.
    later: BTreeMap<LockIndex, Order>,
    now: BTreeMap<LockIndex, Order>,
    /// How much of [`READERS_PER_STEP`] and of [`MOVED_PER_STEP`] this step has used.
    readers: usize,
    moved: usize,
}

/// One pass over all rows, beginning at any row.
#[derive(Clone, Copy)]
struct Round {
    next: usize,
    /// The end of the table is not reached yet; after it, the pass continues from the first row to `stop`.
    wraps: bool,
    stop: usize,
}

impl Sweeps {
    /// Returns the place at which this step continues with the readers of a lock.
    pub fn readers_from(&mut self, lock: LockIndex) -> Option<Order> {
        self.now.remove(&lock)
    }

    /// Lets the next step continue with the readers of a lock at this place.
    pub fn read_later(&mut self, lock: LockIndex, from: Order) {
        let before = self.later.insert(lock, from);
        debug_assert!(before.is_none(), "the readers of a lock continue at one place");
    }

    /// Returns true if this step had used its budget of readers when it reached those of this lock.
    pub fn had_enough(&self, lock: LockIndex) -> bool {
        self.later.contains_key(&lock)
    }

    /// Returns the number of readers that this step may still examine, if each wants one lock.
    pub fn readers_left(&self) -> usize {
        READERS_PER_STEP.saturating_sub(self.readers)
    }

    /// Returns true if this step may examine one more reader, which wants this number of locks.
    pub fn takes_reader(&mut self, wants: usize) -> bool {
        let may = self.readers < READERS_PER_STEP;
        if may {
            self.readers += wants;
        }
        may
    }

    /// Returns true if this step may examine this many more requests, or locks in their wants, whose parts
    /// have a new owner.
    pub fn may_repark(&mut self, wants: usize) -> bool {
        self.moved += wants;
        self.moved <= MOVED_PER_STEP
    }

    /// Returns true while some requests may still be parked, or not parked, according to an earlier set of
    /// away datacenters.
    pub fn is_reparking(&self) -> bool {
        self.requests.is_some()
    }

    fn is_over(&self) -> bool {
        self.locks.is_none() && self.requests.is_none() && self.later.is_empty()
    }

    /// Checks the parking of every waiting request, beginning with the next step. A pass under way is
    /// extended to a full round from its present place, so every row is reached however often this is called.
    pub fn repark_all(&mut self) {
        let next = self.requests.map_or(0, |round| round.next);
        self.requests = Some(Round { next, wraps: true, stop: next });
    }

    fn mark_locks(&mut self, tables: &mut Tables) {
        let Some(from) = self.locks else { return };
        let end = tables.locks.end().min(from + LOCKS_PER_STEP);
        work::count(end.saturating_sub(from));
        tables.locks.mark_rows(from..end);
        self.locks = (end < tables.locks.end()).then_some(end);
    }

    fn repark_requests(&mut self, tables: &mut Tables) {
        let Some(mut round) = self.requests.take() else { return };
        let mut budget = WANTS_PER_STEP;
        while budget > 0 {
            if round.wraps && round.next >= tables.requests.end() {
                (round.next, round.wraps) = (0, false);
            }
            if !round.wraps && round.next >= round.stop {
                return work::count(WANTS_PER_STEP - budget);
            }
            let row = tables.requests.at(round.next).filter(|(_, row)| !row.is_held());
            let waiting = row.map(|(index, row)| (index, row.wants.len()));
            if let Some((index, _)) = waiting {
                tables.repark(index);
            }
            budget = budget.saturating_sub(1 + waiting.map_or(0, |(_, wants)| wants));
            round.next += 1;
        }
        work::count(WANTS_PER_STEP);
        self.requests = Some(round);
    }
}

impl Schedule {
    /// Returns true if the next step has more to examine.
    #[inline]
    pub fn is_sweeping(&self) -> bool {
        !self.sweeps.is_over()
    }

    /// Continues the sweeps that earlier steps began.
    #[inline]
    pub fn sweep(&mut self, tables: &mut Tables) {
        (self.sweeps.readers, self.sweeps.moved, self.restored) = (0, 0, 0);
        tables.enough.begin_step();
        if self.is_sweeping() {
            self.sweep_some(tables);
        }
    }

    fn sweep_some(&mut self, tables: &mut Tables) {
        self.sweeps.now = std::mem::take(&mut self.sweeps.later);
        for lock in self.sweeps.now.keys() {
            if tables.locks.get(*lock).is_some() {
                tables.locks.mark(*lock);
            }
        }
        self.sweeps.repark_requests(tables);
        self.sweeps.mark_locks(tables);
    }

    /// Marks every lock, some in each step: after rare changes that concern all.
    pub fn mark_all(&mut self, tables: &mut Tables) {
        self.sweeps.locks = Some(0);
        self.sweeps.mark_locks(tables);
    }
}
