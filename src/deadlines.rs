//! Deadlines of many things, earliest first.

use std::collections::BTreeSet;

use crate::time::Instant;

/// A set of (deadline, key). A key may have several.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    all: BTreeSet<(Instant, K)>,
    /// The earliest: every step looks at that, and nearly always at nothing else.
    next: Option<Instant>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Deadlines<K> {
        Deadlines { all: BTreeSet::new(), next: None }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    pub fn insert(&mut self, at: Instant, key: K) {
        self.all.insert((at, key));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    pub fn remove(&mut self, at: Instant, key: K) {
        self.all.remove(&(at, key));
        if self.next == Some(at) {
            self.look_up();
        }
    }

    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Takes the earliest one out if it has come by `now`.
    #[inline]
    pub fn pop_expired(&mut self, now: Instant) -> Option<K> {
        match self.next {
            Some(at) if at <= now => self.pop(),
            _ => None,
        }
    }

    fn pop(&mut self) -> Option<K> {
        let first = self.all.pop_first();
        self.look_up();
        first.map(|(_, key)| key)
    }

    fn look_up(&mut self) {
        self.next = self.all.first().map(|(at, _)| *at);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
