//! The order in which listed rows of the ownership map were used: a list through the rows, the least recently
//! used first.
//!
//! The owner of the map decides which rows are listed (`lock_state/owners.rs`: those of locks with parts
//! here that have their homes elsewhere). The list is local; it is not replicated and not saved. Every
//! operation takes the same time however long the list is, so the lock that was unused for longest is known
//! without a scan. It costs 8 bytes a row.

use std::num::NonZeroU32;

use super::Ownership;
use geolock_api::names::LockName;

/// Stands for no row.
const NONE: u32 = u32::MAX;

/// The place of a row in the list, and its last use.
#[derive(Clone, Copy)]
pub(super) struct Use {
    /// See [`Ownership::note_used`].
    used: Option<NonZeroU32>,
    older: u32,
    newer: u32,
    listed: bool,
}

impl Use {
    /// Of a row that is not listed, and of whose use nothing is known.
    pub const UNKNOWN: Use = Use { used: None, older: NONE, newer: NONE, listed: false };
}

/// The ends of the list.
#[derive(Clone)]
pub(super) struct Recency {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Ownership {
    /// Records that a lock is in use here at that second of any clock that begins at 1, if it has parts away
    /// from home. A listed lock becomes the most recently used one.
    pub fn note_used(&mut self, lock: &LockName, second: NonZeroU32) {
        let Some(row) = self.find(lock) else { return };
        self.at_mut(row).usage.used = Some(second);
        if self.at(row).usage.listed && self.recency.newest != row as u32 {
            self.unlist(row);
            self.list(row);
        }
    }

    /// Returns the second recorded for the `index`-th lock, if there is one.
    pub fn used_at(&self, index: usize) -> Option<NonZeroU32> {
        self.rows.get(index).and_then(|row| row.usage.used)
    }

    /// Adds a lock that has parts away from home to the list, as the most recently used one, or removes it
    /// and forgets its use. Nothing changes if it is listed already, or is not.
    pub fn set_listed(&mut self, lock: &LockName, listed: bool) {
        let Some(row) = self.find(lock) else { return };
        if self.at(row).usage.listed == listed {
            return;
        }
        if listed {
            self.list(row);
        } else {
            self.unlist(row);
            self.at_mut(row).usage.used = None;
        }
    }

    /// Returns true if a lock is listed.
    pub fn is_listed(&self, lock: &LockName) -> bool {
        self.find(lock).is_some_and(|row| self.at(row).usage.listed)
    }

    /// Returns the number of listed locks.
    pub fn listed(&self) -> usize {
        self.recency.len
    }

    /// Returns the index of the listed lock that was unused for longest.
    pub fn oldest(&self) -> Option<usize> {
        (self.recency.oldest != NONE).then_some(self.recency.oldest as usize)
    }

    /// Returns the index of the listed lock that was used last.
    pub fn newest(&self) -> Option<usize> {
        (self.recency.newest != NONE).then_some(self.recency.newest as usize)
    }

    /// Returns the index of the listed lock that was used next after the `index`-th.
    pub fn next_newer(&self, index: usize) -> Option<usize> {
        let newer = self.rows.get(index)?.usage.newer;
        (newer != NONE).then_some(newer as usize)
    }

    fn list(&mut self, row: usize) {
        debug_assert!(!self.at(row).usage.listed, "a row is listed once");
        let newest = std::mem::replace(&mut self.recency.newest, row as u32);
        let usage = &mut self.at_mut(row).usage;
        (usage.older, usage.newer, usage.listed) = (newest, NONE, true);
        match newest {
            NONE => self.recency.oldest = row as u32,
            _ => self.at_mut(newest as usize).usage.newer = row as u32,
        }
        self.recency.len += 1;
        debug_assert!(self.recency.len <= self.rows.len(), "listed rows are rows");
    }

    fn unlist(&mut self, row: usize) {
        debug_assert!(self.at(row).usage.listed, "a row that leaves the list is in it");
        let Use { older, newer, used, .. } = self.at(row).usage;
        self.connect(older, newer);
        self.at_mut(row).usage = Use { used, ..Use::UNKNOWN };
        self.recency.len -= 1;
        debug_assert_eq!(
            self.recency.len == 0,
            self.recency.oldest == NONE && self.recency.newest == NONE,
            "a list has ends if it has rows"
        );
    }

    /// Takes a row that is about to be removed out of the list.
    pub(super) fn unlist_removed(&mut self, row: usize) {
        if self.at(row).usage.listed {
            self.unlist(row);
        }
    }

    /// Corrects the neighbours of a row that has another index now.
    pub(super) fn relink(&mut self, row: usize) {
        let Use { older, newer, listed, .. } = self.at(row).usage;
        if listed {
            self.connect(older, row as u32);
            self.connect(row as u32, newer);
        }
    }

    /// Makes two rows neighbours; [`NONE`] stands for an end of the list.
    fn connect(&mut self, older: u32, newer: u32) {
        match older {
            NONE => self.recency.oldest = newer,
            _ => self.at_mut(older as usize).usage.newer = newer,
        }
        match newer {
            NONE => self.recency.newest = older,
            _ => self.at_mut(newer as usize).usage.older = older,
        }
    }
}
