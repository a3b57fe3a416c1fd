//! The vectors that a peer acknowledged as durable.

use super::entries::{KeptEntries, KeptEntry};
use super::lag::{Lag, MatchIndex};
use crate::base::entry_number::entries_between;
use crate::crdt::VersionVector;
use geolock_api::names::DcId;

/// The vectors that a peer acknowledged as durable, and how far in the log here they reach.
pub(crate) struct Acknowledged {
    by: DcId,
    last: VersionVector,
    /// A vector that the peer acknowledged and that is durable here.
    shared: VersionVector,
    /// An acknowledged vector that will be durable here later. Newer ones do not replace it; otherwise, under
    /// load, none would ever become durable here.
    awaited: Option<VersionVector>,
    match_index: MatchIndex,
}

impl Acknowledged {
    pub(super) fn new(by: DcId) -> Acknowledged {
        Acknowledged {
            by,
            last: VersionVector::default(),
            shared: VersionVector::default(),
            awaited: None,
            match_index: MatchIndex::default(),
        }
    }

    /// Returns the vector that the peer last announced.
    pub fn vector(&self) -> &VersionVector {
        &self.last
    }

    /// Returns true if the peer acknowledged this entry.
    pub fn has(&self, dc: DcId, seq: u64) -> bool {
        self.last.get(dc) >= seq
    }

    /// Returns true if the peer acknowledged this entry with a vector that is durable here.
    pub(super) fn has_shared(&self, dc: DcId, seq: u64) -> bool {
        self.shared.get(dc) >= seq
    }

    /// Records an acknowledged vector. `durable` is the durable vector here.
    pub(super) fn note(&mut self, told: &VersionVector, durable: &VersionVector, entries: &KeptEntries) {
        if !told.covers(&self.last) {
            // The peer lost its disk.
            *self = Acknowledged::new(self.by);
        }
        self.last = told.clone();
        if self.awaited.is_none() {
            self.awaited = Some(told.clone());
        }
        self.update_shared(durable);
        self.match_index = self.first_missing(entries);
    }

    /// Records that this is the durable vector here.
    pub(super) fn update_shared(&mut self, durable: &VersionVector) {
        if let Some(shared) = self.awaited.take_if(|awaited| durable.covers(awaited)) {
            self.shared = shared;
        }
    }

    /// Continues to advance the match index over acknowledged entries, by a limited number. Returns true if
    /// there may be more.
    pub(super) fn continue_match(&mut self, entries: &KeptEntries) -> bool {
        if self.match_index.goes_on() {
            self.match_index = self.first_missing(entries);
        }
        self.match_index.goes_on()
    }

    fn first_missing(&self, entries: &KeptEntries) -> MatchIndex {
        let has_it = |kept: &KeptEntry| kept.dc == self.by || self.has(kept.dc, kept.seq);
        self.match_index.advanced(entries, has_it)
    }

    /// Returns the number of entries here, not made by the peer, that it has not acknowledged, and the age of
    /// the oldest.
    pub fn lag(&self, applied: &VersionVector, entries: &KeptEntries) -> Lag {
        let others = applied.iter().filter(|(dc, _)| *dc != self.by);
        Lag {
            entries: others.map(|(dc, seq)| entries_between(self.last.get(dc), seq)).sum(),
            since: self.first_missing(entries).behind_since(entries),
        }
    }

    /// Returns the number of acknowledged entries that are not applied here.
    pub fn missing_entries(&self, applied: &VersionVector) -> u64 {
        self.last.iter().map(|(dc, seq)| entries_between(applied.get(dc), seq)).sum()
    }

    pub(super) fn check(&self) {
        assert!(self.last.covers(&self.shared), "{} acknowledged what both have", self.by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_told_before_it_lost_its_disk_counts_for_no_quorum() {
        let dc = |id| DcId::new(id).expect("a small id");
        let vector = |a, b| VersionVector::from_iter([(dc(0), a), (dc(1), b)]);
        let (durable, entries) = (vector(10, 6), KeptEntries::new(dc(0)));
        let mut acknowledged = Acknowledged::new(dc(1));
        acknowledged.note(&vector(10, 6), &durable, &entries);
        assert!(acknowledged.has_shared(dc(0), 10));
        // Not all of the next vector is here, so it is awaited.
        acknowledged.note(&vector(10, 7), &durable, &entries);
        acknowledged.note(&VersionVector::default(), &durable, &entries);
        assert!(!acknowledged.has_shared(dc(0), 10));
        acknowledged.update_shared(&vector(10, 7));
        assert!(!acknowledged.has_shared(dc(0), 10), "the awaited vector does not count any more");
    }
}
