//! The kept entries of the log, in the order in which they were applied.
//!
//! An entry joins them when it is applied and leaves them when it is truncated. They become durable in the
//! same order, so the durable ones are the first. The number of an entry counts applications since the start
//! of the process.

use std::ops::Range;
use std::sync::Arc;

use crate::base::tables::Fifo;
use crate::base::time::Instant;
use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, MAX_DCS, Position};

/// The kept entries.
pub(crate) struct KeptEntries {
    me: DcId,
    queue: Fifo<KeptEntry>,
    /// Approximate number of bytes of `queue`.
    weight: usize,
    /// The number of the first entry of `queue`.
    first: u64,
    /// The number after the last durable entry.
    durable_end: u64,
    /// The number after the last durable own entry.
    own_end: u64,
}

/// A kept entry.
pub(super) struct KeptEntry {
    position: Position,
    pub applied_at: Instant,
    /// Valid once the entry is durable.
    pub durable_at: Instant,
    pub weight: u32,
    /// Those of the entry: peers' vectors are compared with them, and the entry itself is seldom in a cache.
    pub dc: DcId,
    pub seq: u64,
    pub entry: Arc<Entry>,
}

impl KeptEntries {
    pub(super) fn new(me: DcId) -> KeptEntries {
        KeptEntries { me, queue: Fifo::default(), weight: 0, first: 0, durable_end: 0, own_end: 0 }
    }

    /// Returns the datacenter whose log this is.
    pub(super) fn me(&self) -> DcId {
        self.me
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the approximate number of bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.queue.iter().map(|kept| &kept.entry)
    }

    /// Returns the numbers of the entries.
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.first + self.queue.len() as u64
    }

    /// Returns the entries with these numbers, all of which must be kept.
    pub fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = &Arc<Entry>> {
        self.rows(numbers).map(|kept| &kept.entry)
    }

    /// Returns the number after the last durable entry.
    pub fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Returns the durable entries from number `start` on; all of them must still be kept.
    pub fn durable_since(&self, start: u64) -> Vec<Arc<Entry>> {
        self.range(start..self.durable_end).cloned().collect()
    }

    /// Returns the number after the last durable own entry.
    pub(super) fn own_end(&self) -> u64 {
        self.own_end
    }

    /// Returns the entry with this number, which must be kept.
    pub(super) fn row(&self, number: u64) -> &KeptEntry {
        &self.queue[(number - self.first) as usize]
    }

    /// Returns the entries with these numbers, all of which must be kept.
    pub(super) fn rows(&self, numbers: Range<u64>) -> impl Iterator<Item = &KeptEntry> {
        assert!(numbers.start >= self.first, "the entries from {} on are kept", numbers.start);
        self.queue.range((numbers.start - self.first) as usize..(numbers.end - self.first) as usize)
    }

    pub(super) fn oldest(&self) -> Option<&KeptEntry> {
        self.queue.front()
    }

    /// Returns the oldest entry if it is durable and its number is less than `before`.
    pub(super) fn oldest_durable(&self, before: u64) -> Option<&KeptEntry> {
        self.queue.front().filter(|_| self.first < self.durable_end.min(before))
    }

    /// Appends an entry that was just applied, recorded at `position`.
    pub(super) fn push(&mut self, entry: Arc<Entry>, position: Position, applied_at: Instant) {
        let (weight, dc, seq) = (entry.weight(), entry.dc, entry.seq);
        debug_assert!(weight <= u32::MAX as usize, "an entry fits a frame");
        self.weight += weight;
        let durable_at = applied_at;
        self.queue.push_back(KeptEntry {
            position,
            applied_at,
            durable_at,
            weight: weight as u32,
            dc,
            seq,
            entry,
        });
    }

    /// Records that the journal is durable up to `position`, and raises the durable vector by the entries up
    /// to there. Returns true if there are any.
    pub(super) fn note_durable(
        &mut self,
        position: Position,
        now: Instant,
        durable: &mut Arc<VersionVector>,
    ) -> bool {
        let before = self.durable_end;
        while let Some(kept) = self.queue.get_mut((self.durable_end - self.first) as usize) {
            if kept.position > position {
                break;
            }
            kept.durable_at = now;
            self.durable_end += 1;
            Arc::make_mut(durable).raise(kept.dc, kept.seq);
            if kept.dc == self.me {
                self.own_end = self.durable_end;
            }
        }
        debug_assert!(self.own_end <= self.durable_end, "own durable entries are durable entries");
        debug_assert!(self.durable_end <= self.numbers().end, "durable entries are kept");
        self.durable_end > before
    }

    /// Removes the oldest entry, which is durable.
    pub(super) fn pop_oldest(&mut self) {
        let Some(kept) = self.queue.pop_front() else { return };
        self.weight -= kept.weight as usize;
        self.first += 1;
        debug_assert!(self.weight > 0 || self.queue.is_empty(), "kept entries have a weight");
        // Of an entry that is read from the journal nothing was noted yet.
        self.durable_end = self.durable_end.max(self.first);
        if kept.dc == self.me {
            self.own_end = self.own_end.max(self.first);
        }
    }

    /// Asserts the invariants, and returns the number of the last entry of each datacenter. Walks all
    /// entries.
    pub(super) fn check(&self) -> [u64; MAX_DCS] {
        let (numbers, durable_end) = (self.numbers(), self.durable_end);
        assert!(
            (numbers.start..=numbers.end).contains(&durable_end),
            "the first entries are the durable ones"
        );
        assert!(self.own_end <= durable_end, "own durable entries are durable entries");
        let weight: usize = self.queue.iter().map(|kept| kept.weight as usize).sum();
        assert_eq!(weight, self.weight, "the weight of the kept entries");
        let mut last = [0; MAX_DCS];
        let mut before = Position::default();
        for kept in self.queue.iter() {
            let (dc, seq) = (kept.dc, kept.seq);
            assert_eq!((kept.entry.dc, kept.entry.seq), (dc, seq), "a kept entry is the one that it says");
            assert!(seq > last[dc.index()], "entries of {dc} are kept in their order");
            assert!(kept.position >= before, "entries are kept in the order of the journal");
            last[dc.index()] = seq;
            before = kept.position;
        }
        last
    }
}
