//! A set of deadlines, earliest first.

use std::collections::BTreeSet;

use crate::base::time::Instant;

/// A set of (deadline, key). A key may have several.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    all: BTreeSet<(Instant, K)>,
    /// The earliest, or [`Instant::FAR_FUTURE`]: every step reads it, and nearly always nothing else.
    next: Instant,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Deadlines<K> {
        Deadlines { all: BTreeSet::new(), next: Instant::FAR_FUTURE }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// Adds a deadline of a key.
    pub fn insert(&mut self, at: Instant, key: K) {
        self.all.insert((at, key));
        self.next = self.next.min(at);
        debug_assert_eq!(self.next, self.earliest(), "the copy of the earliest deadline is current");
    }

    /// Removes a deadline of a key, if it is there.
    pub fn remove(&mut self, at: Instant, key: K) {
        self.all.remove(&(at, key));
        if self.next == at {
            self.look_up();
        }
        debug_assert_eq!(self.next, self.earliest(), "the copy of the earliest deadline is current");
    }

    /// Returns the earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.next)
    }

    /// Returns the latest deadline.
    pub fn last(&self) -> Option<Instant> {
        self.all.last().map(|(at, _)| *at)
    }

    /// Returns the earliest deadline; [`Instant::FAR_FUTURE`] if there is none.
    #[inline]
    pub fn next_or_never(&self) -> Instant {
        self.next
    }

    /// Removes and returns the earliest key if its deadline is at most `now`.
    #[inline]
    pub fn pop_expired(&mut self, now: Instant) -> Option<K> {
        if self.next <= now { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<K> {
        let first = self.all.pop_first();
        self.look_up();
        debug_assert!(first.is_none_or(|(at, _)| at <= self.next), "deadlines come in order");
        first.map(|(_, key)| key)
    }

    fn look_up(&mut self) {
        self.next = self.earliest();
    }

    fn earliest(&self) -> Instant {
        self.all.first().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    /// Returns the number of deadlines.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is no deadline.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
