//! The lag of a peer: the entries here that it has not acknowledged, and how long they have been here.

use super::entries::{KeptEntries, KeptEntry};
use crate::base::time::Instant;
use crate::base::work;

/// Maximum number of entries over which a match index advances in one step: a peer may acknowledge all kept
/// entries with one vector.
pub(super) const PASSED_PER_STEP: usize = 4096;

/// The position of a peer in the log.
#[derive(Clone, Copy, Default)]
pub(super) struct MatchIndex {
    /// The peer has acknowledged, or made itself, every entry before this number.
    end: u64,
    /// The acknowledged entries may continue after `end`.
    goes_on: bool,
}

/// How far a peer is behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lag {
    pub entries: u64,
    /// Time at which the oldest of those that are durable here became durable, or at which this process
    /// started.
    pub since: Option<Instant>,
}

impl MatchIndex {
    /// Returns true if the next step continues.
    pub fn goes_on(self) -> bool {
        self.goes_on
    }

    /// Returns the index at the first entry that the peer does not have; at most the number after the last
    /// durable one, and at most [`PASSED_PER_STEP`] entries ahead. Each entry is examined once, except those
    /// that arrived since the peer's last acknowledgement.
    pub fn advanced(self, entries: &KeptEntries, has_it: impl Fn(&KeptEntry) -> bool) -> MatchIndex {
        let start = self.end.max(entries.numbers().start);
        let stop = entries.durable_end().min(start + PASSED_PER_STEP as u64);
        let passed = entries.rows(start..stop).position(|kept| !has_it(kept));
        let passed = passed.map_or(stop - start, |passed| passed as u64);
        work::count(passed as usize);
        debug_assert!(start + passed <= stop, "the index stays below the first entry that is not durable");
        MatchIndex { end: start + passed, goes_on: passed == PASSED_PER_STEP as u64 }
    }

    /// Returns the time at which the entry at the index became durable, if it is known and durable.
    pub fn behind_since(self, entries: &KeptEntries) -> Option<Instant> {
        let is_known = self.end < entries.durable_end() && !self.goes_on;
        is_known.then(|| entries.row(self.end).durable_at)
    }
}
