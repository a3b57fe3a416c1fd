//! The lag of a peer: the entries here that it has not acknowledged, and how long they have been here.

use super::Log;
use crate::base::entry_number::entries_between;
use crate::base::time::Instant;
use crate::base::work;
use crate::crdt::VersionVector;
use geolock_api::names::DcId;

/// Maximum number of entries over which a mark advances in one step: a peer may acknowledge all kept entries
/// with one vector.
pub(super) const PASSED_PER_STEP: usize = 4096;

/// The position of a peer in the log.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// The peer has acknowledged, or made itself, every entry before this number.
    end: u64,
    /// The acknowledged entries may continue after `end`.
    pub goes_on: bool,
}

/// See [`Log::lag`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lag {
    pub entries: u64,
    /// Time at which the oldest of those that are durable here became durable, or at which this process
    /// started.
    pub since: Option<Instant>,
}

impl Log {
    /// Returns the number of entries here, not made by the peer, that it has not acknowledged, and the age of
    /// the oldest.
    pub fn lag(&self, peer: DcId) -> Lag {
        let told = self.acknowledged(peer);
        let others = self.applied.iter().filter(|(dc, _)| *dc != peer);
        let entries = others.map(|(dc, seq)| entries_between(told.get(dc), seq)).sum();
        let Mark { end, goes_on } = self.first_unacknowledged(peer);
        let is_known = end < self.durable_end && !goes_on;
        Lag { entries, since: is_known.then(|| self.kept[(end - self.first) as usize].durable_at) }
    }

    /// Returns the number of entries that a peer has acknowledged and that are missing here.
    pub fn missing_entries(&self, peer: DcId) -> u64 {
        self.acknowledged(peer).iter().map(|(dc, seq)| entries_between(self.applied.get(dc), seq)).sum()
    }

    /// Returns the number of own entries that no peer has acknowledged: those that are lost with this disk.
    /// `None` if there are no peers.
    pub fn only_here(&self) -> Option<u64> {
        let own = self.applied.get(self.me);
        self.peers.iter().map(|peer| entries_between(self.acknowledged(peer).get(self.me), own)).min()
    }

    /// Updates the mark after a peer acknowledged another vector than `before`.
    pub(super) fn move_mark(&mut self, peer: DcId, before: &VersionVector) {
        if !self.acknowledged(peer).covers(before) {
            // The peer lost its disk.
            self.rows[peer.index()].mark = Mark::default();
        }
        self.move_mark_on(peer);
    }

    /// Advances the mark of a peer over acknowledged entries, by [`PASSED_PER_STEP`] at most.
    pub(super) fn move_mark_on(&mut self, peer: DcId) {
        self.rows[peer.index()].mark = self.first_unacknowledged(peer);
    }

    /// Returns the mark at the first entry that a peer has not acknowledged; at most the number after the
    /// last durable one. Each entry is examined once, except those that arrived since the peer's last
    /// acknowledgement.
    fn first_unacknowledged(&self, peer: DcId) -> Mark {
        let told = self.acknowledged(peer);
        let start = self.rows[peer.index()].mark.end.max(self.first);
        let stop = self.durable_end.min(start + PASSED_PER_STEP as u64);
        let has_it = |kept: &super::Kept| kept.dc == peer || told.get(kept.dc) >= kept.seq;
        let mut kept = self.kept.range((start - self.first) as usize..(stop - self.first) as usize);
        let passed = kept.position(|kept| !has_it(kept)).map_or(stop - start, |passed| passed as u64);
        work::count(passed as usize);
        debug_assert!(start + passed <= stop, "a mark stays below the first entry that is not durable");
        Mark { end: start + passed, goes_on: passed == PASSED_PER_STEP as u64 }
    }
}
