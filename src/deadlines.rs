//! Deadlines of many things, earliest first.

use std::collections::BTreeSet;

use crate::time::Instant;

/// A set of (deadline, key). A key may have several.
#[derive(Clone, Debug)]
pub struct Deadlines<K>(BTreeSet<(Instant, K)>);

impl<K> Default for Deadlines<K> {
    fn default() -> Deadlines<K> {
        Deadlines(BTreeSet::new())
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    pub fn insert(&mut self, at: Instant, key: K) {
        self.0.insert((at, key));
    }

    pub fn remove(&mut self, at: Instant, key: K) {
        self.0.remove(&(at, key));
    }

    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the earliest one out if it has come by `now`.
    pub fn pop_expired(&mut self, now: Instant) -> Option<K> {
        match self.0.first() {
            Some((at, _)) if *at <= now => self.0.pop_first().map(|(_, key)| key),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
