//! What concerns every lock, every request, or every reader of a lock is done bit by bit.
//!
//! When the phase changes all locks are looked at again, when a datacenter comes or goes all waiting requests are, and when
//! a writer goes all readers that waited behind it are. A step looks at so many of each and the rest follow with the next
//! steps. What was not looked at yet is as it was before the change: it waits a moment longer, or keeps a place that it
//! will lose. Nothing is granted or handed over by that, as what may be done is judged when it is done.

use std::collections::BTreeMap;

use super::lock::LockIndex;
use super::locks::Locks;
use super::queue::Order;
use super::request::RequestIndex;
use crate::work;

/// Locks that one step looks at again, at most.
const LOCKS_PER_STEP: usize = 512;
/// Requests that one step looks at again, and locks that they want, at most.
const WANTS_PER_STEP: usize = 2048;
/// Readers behind writers that one step looks at, and locks that they want, at most; of all locks together.
const READERS_PER_STEP: usize = 512;
/// Requests that wait for parts whose owner changed, and locks that they want, at most: where it would be more in one step they
/// are looked at with all others.
const MOVED_PER_STEP: usize = 512;

/// What is under way.
#[derive(Default)]
pub(super) struct Sweeps {
    /// The next row of a lock.
    locks: Option<usize>,
    requests: Option<Round>,
    /// Where the readers of locks go on with the next step, and with this one.
    later: BTreeMap<LockIndex, Order>,
    now: BTreeMap<LockIndex, Order>,
    /// How much of [`READERS_PER_STEP`] and of [`MOVED_PER_STEP`] this step has used.
    readers: usize,
    moved: usize,
}

/// Once through all rows, from somewhere in the middle.
#[derive(Clone, Copy)]
struct Round {
    next: usize,
    /// The end is not reached yet: then it goes on from the first row to `stop`.
    wraps: bool,
    stop: usize,
}

impl Sweeps {
    /// Where this step goes on with the readers of a lock.
    pub fn readers_from(&mut self, lock: LockIndex) -> Option<Order> {
        self.now.remove(&lock)
    }

    /// The readers of a lock go on here with the next step.
    pub fn read_later(&mut self, lock: LockIndex, from: Order) {
        self.later.insert(lock, from);
    }

    /// Whether this step has looked at as many readers as it may when it came to those of a lock.
    pub fn had_enough(&self, lock: LockIndex) -> bool {
        self.later.contains_key(&lock)
    }

    /// How many readers this step may still look at, if each wants one lock.
    pub fn readers_left(&self) -> usize {
        READERS_PER_STEP.saturating_sub(self.readers)
    }

    /// Whether this step may look at one more reader, which wants so many locks.
    pub fn takes_reader(&mut self, wants: usize) -> bool {
        let may = self.readers < READERS_PER_STEP;
        if may {
            self.readers += wants;
        }
        may
    }

    /// Whether this step may look at so many more that wait for parts whose owner changed, or that are wanted by those.
    pub fn may_repark(&mut self, wants: usize) -> bool {
        self.moved += wants;
        self.moved <= MOVED_PER_STEP
    }

    /// Whether some requests may be parked, or not be parked, as another set of datacenters asks for.
    pub fn is_reparking(&self) -> bool {
        self.requests.is_some()
    }
}

impl Locks {
    /// Whether there is more to look at with the next step.
    #[inline]
    pub fn is_sweeping(&self) -> bool {
        self.sweeps.locks.is_some() || self.sweeps.requests.is_some() || !self.sweeps.later.is_empty()
    }

    /// Goes on with what the steps before this one began.
    #[inline]
    pub fn sweep(&mut self) {
        (self.sweeps.readers, self.sweeps.moved) = (0, 0);
        if self.is_sweeping() {
            self.sweep_some();
        }
    }

    fn sweep_some(&mut self) {
        self.sweeps.now = std::mem::take(&mut self.sweeps.later);
        let locks: Vec<LockIndex> = self.sweeps.now.keys().copied().collect();
        for lock in locks.into_iter().filter(|lock| self.locks.contains(lock.0 as usize)).collect::<Vec<_>>()
        {
            self.mark(lock);
        }
        self.sweep_requests();
        self.sweep_locks();
    }

    /// Looks at every lock again: after rare changes of the whole.
    pub(super) fn mark_all(&mut self) {
        self.sweeps.locks = Some(0);
        self.sweep_locks();
    }

    fn sweep_locks(&mut self) {
        let Some(from) = self.sweeps.locks else { return };
        let end = self.locks.end().min(from + LOCKS_PER_STEP);
        work::count(end.saturating_sub(from));
        for index in from..end {
            if let Some(lock) = self.locks.get_mut(index) {
                lock.recheck_shared = true;
                self.mark(LockIndex(index as u32));
            }
        }
        self.sweeps.locks = (end < self.locks.end()).then_some(end);
    }

    /// Looks whether every waiting request is parked as it should be, from the next step on. What is under way goes on all
    /// round, so that whoever stands behind is reached however often this is asked for.
    pub(super) fn repark_all(&mut self) {
        let next = self.sweeps.requests.map_or(0, |round| round.next);
        self.sweeps.requests = Some(Round { next, wraps: true, stop: next });
    }

    fn sweep_requests(&mut self) {
        let Some(mut round) = self.sweeps.requests.take() else { return };
        let mut budget = WANTS_PER_STEP;
        while budget > 0 {
            if round.wraps && round.next >= self.requests.end() {
                (round.next, round.wraps) = (0, false);
            }
            if !round.wraps && round.next >= round.stop {
                return work::count(WANTS_PER_STEP - budget);
            }
            let row = self.requests.get(round.next).filter(|row| !row.is_held());
            let waiting = row.map(|row| row.wants.len());
            if waiting.is_some() {
                self.repark(RequestIndex(round.next as u32));
            }
            budget = budget.saturating_sub(1 + waiting.unwrap_or(0));
            round.next += 1;
        }
        work::count(WANTS_PER_STEP);
        self.sweeps.requests = Some(round);
    }
}
